//! Sets, moves and removes.

use ::redis::Cmd;

use super::arguments::near_arguments;
use super::reply::{Reply, progress};
use super::{Redis, scripts};
use crate::store::{Action, Due, Namespace, StoreError, Terms, Write, WriteOutcome, micros};

/// Applies writes, in batches that the script bounds.
pub(super) async fn write(
    redis: &Redis,
    namespace: Namespace,
    writes: Vec<Write>,
    near: Terms,
) -> Result<Vec<WriteOutcome>, StoreError> {
    let mut written = Vec::with_capacity(writes.len());
    while written.len() < writes.len() {
        let writing = redis.call_under(&scripts::WRITE, &namespace, near, |command| {
            near_arguments(command, near);
            write_arguments(command, &writes[written.len()..]);
        });
        let mut values = writing.await?;
        let mut numbers = values.numbers()?;
        written.extend(progress(
            numbers.all(|numbers| read_written(numbers, &mut values))?,
        )?);
    }
    Ok(written)
}

/// A number as the scripts pack it. All they pack are below 2^53.
#[expect(clippy::cast_precision_loss, reason = "doubles hold it exactly")]
fn packed(number: i64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

/// The action of a write, packed as `write.lua` takes it, without key and value.
fn write_head(action: &Action) -> Vec<u8> {
    let (op, due, period) = match *action {
        Action::Set {
            due,
            period,
            ref schedule,
            if_absent,
            ..
        } => {
            let period = match schedule {
                Some(_) => -1,
                None => period.map_or(0, micros),
            };
            (if if_absent { b'a' } else { b's' }, Some(due), period)
        }
        Action::Move { due } => (b'm', Some(due), 0),
        Action::Remove => (b'r', None, 0),
    };
    let (base, due) = match due {
        Some(Due::In(delay)) => (b'+', micros(delay)),
        Some(Due::At(time)) => (b'@', time.as_micros()),
        None => (b'@', 0),
    };
    let mut head = vec![op, base];
    head.extend(packed(due));
    head.extend(packed(period));
    head
}

fn write_arguments(command: &mut Cmd, writes: &[Write]) {
    let heads = writes.iter().flat_map(|write| write_head(&write.action));
    command.arg(heads.collect::<Vec<u8>>());
    for write in writes {
        command.arg(&write.key);
    }
    for write in writes {
        if let Action::Set {
            value, schedule, ..
        } = &write.action
        {
            command.arg(value);
            if let Some(schedule) = schedule {
                command.arg(schedule);
            }
        }
    }
}

/// Reads the outcome of a write from the numbers, and a removed value from the rest of the
/// response.
fn read_written(numbers: &mut Reply, values: &mut Reply) -> Result<WriteOutcome, StoreError> {
    Ok(match numbers.int()? {
        1 => WriteOutcome::Armed {
            row: numbers.armed()?,
            replaced: Some(numbers.version()?).filter(|version| version.0 != 0),
        },
        2 => WriteOutcome::Removed {
            version: numbers.version()?,
            value: values.bytes()?,
        },
        3 => WriteOutcome::Absent,
        4 => WriteOutcome::Present,
        _ => WriteOutcome::InFlight(numbers.version()?),
    })
}
