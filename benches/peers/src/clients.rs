//! Clients that keep servers busy over the loopback interface, the servers in turn.
//!
//! They run on the thread that measures, so what all other threads use is the server's CPU time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::idle::other_threads;
use crate::measure::{Scale, Spent, alternate, emit, emit_cost};

const CONNECTIONS: u64 = 64;

pub const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: example\r\n\r\n";

/// A response ends with it.
pub const BODY: &str = "hello";

/// Emits the costs of a request to each server, and how long responses took. Returns how many
/// requests each had. `client` is a runtime of this thread.
pub fn alternate_under_load<const N: usize>(
    scale: Scale,
    client: &Runtime,
    series: &[&str; N],
    servers: &[SocketAddr; N],
) -> [u64; N] {
    let mut clients = servers.map(|server| client.block_on(connect(server)));
    let mut latencies = Vec::new();
    let mut requests = [0; N];
    let costs = alternate(scale, N, |side, rounds| {
        let each = rounds.div_ceil(CONNECTIONS);
        requests[side] += each * CONNECTIONS;
        let (spent, seen) = client.block_on(load(&mut clients[side], each));
        latencies.push((side, seen));
        spent
    });
    for costs in &costs {
        for (series, cost) in series.iter().zip(costs) {
            emit_cost(series, *cost);
        }
    }
    // The last turns are those that were measured; the ones before them found out how many rounds a
    // turn has.
    let measured = latencies.split_off(latencies.len() - costs.len() * N);
    for (side, mut seen) in measured {
        seen.sort_unstable();
        let micros = |share: usize| seen[(seen.len() - 1) * share / 100].as_secs_f64() * 1e6;
        emit(series[side], "p50", micros(50));
        emit(series[side], "p99", micros(99));
    }
    requests
}

async fn connect(server: SocketAddr) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = TcpStream::connect(server).await.expect("it listens");
        client.set_nodelay(true).expect("a stream of TCP");
        clients.push(client);
    }
    clients
}

/// Lets each client ask so many times; what that took of the server, and how long each answer.
async fn load(clients: &mut Vec<TcpStream>, each: u64) -> (Spent, Vec<Duration>) {
    let (began, used) = (Instant::now(), other_threads());
    let tasks: Vec<_> = clients
        .drain(..)
        .map(|client| tokio::spawn(ask(client, each)))
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        let (client, seen) = task.await.expect("it is answered");
        clients.push(client);
        latencies.extend(seen);
    }
    let spent = Spent {
        wall: began.elapsed(),
        cpu: other_threads().saturating_sub(used),
    };
    (spent, latencies)
}

async fn ask(mut client: TcpStream, times: u64) -> (TcpStream, Vec<Duration>) {
    let mut latencies = Vec::new();
    let mut response = Vec::new();
    for _ in 0..times {
        let asked = Instant::now();
        client.write_all(REQUEST).await.expect("it is open");
        response.clear();
        while !response.ends_with(BODY.as_bytes()) {
            let read = client.read_buf(&mut response).await.expect("it is open");
            assert!(read > 0, "it is kept alive");
        }
        latencies.push(asked.elapsed());
    }
    (client, latencies)
}
