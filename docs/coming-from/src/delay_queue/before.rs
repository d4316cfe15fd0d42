use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::mpsc::{Receiver, UnboundedSender};
use tokio_util::time::DelayQueue;

pub enum Command {
    Set(String, u32, Duration),
    Move(String, Duration),
    Remove(String),
}

/// Owns the queue: one task sets, moves, removes and consumes. Others send it commands.
pub async fn run(mut commands: Receiver<Command>, expired: UnboundedSender<(String, u32)>) {
    let mut queue = DelayQueue::new();
    let mut keys = HashMap::new();
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Set(order, items, delay)) => {
                    let key = queue.insert((order.clone(), items), delay);
                    if let Some(replaced) = keys.insert(order, key) {
                        queue.remove(&replaced);
                    }
                }
                Some(Command::Move(order, delay)) => {
                    if let Some(key) = keys.get(&order) {
                        queue.reset(key, delay);
                    }
                }
                Some(Command::Remove(order)) => {
                    if let Some(key) = keys.remove(&order) {
                        queue.remove(&key);
                    }
                }
                None => return,
            },
            Some(item) = queue.next(), if !queue.is_empty() => {
                let (order, items) = item.into_inner();
                // A key that is used after its item has expired names another item.
                keys.remove(&order);
                let _ = expired.send((order, items));
            }
        }
    }
}
