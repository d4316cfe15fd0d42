//! Reads the response of a script.

use std::time::Duration;
use std::{str, vec};

use ::redis::Value;

use crate::store::{Armed, InstanceId, Scheduled, State, StoreError, StoreTime, Stored, Version};

/// What can be read of a row that no script would have written: all of it is the value.
fn damaged(bytes: Vec<u8>) -> Stored {
    let (version, due) = (Version(0), StoreTime::default());
    let mut row = Stored::new(version, State::Waiting, Vec::new(), bytes, due);
    row.error = Some("the row holds what no store writes".to_owned());
    row
}

/// A row as the scripts pack it: `PACK_ROW` in `prelude.lua`. It has no version, and of a schedule
/// only that there is one.
fn unpack(bytes: &[u8]) -> Option<Stored> {
    let (head, rest) = bytes.split_first_chunk::<27>()?;
    let deadline = StoreTime::from_micros(number(head, 1)?);
    let attempt = number(head, 9)?;
    let period = number(head, 17)?;
    let key_length = usize::from(u16::from_le_bytes([head[25], head[26]]));
    let key = rest.get(..key_length)?.to_vec();
    let state = match head[0].to_ascii_lowercase() {
        b'w' => State::Waiting,
        b'f' => State::InFlight,
        b'd' => State::Dead,
        _ => return None,
    };
    let mut value_at = head.len() + key_length;
    let mut error = None;
    if head[0].is_ascii_uppercase() {
        let (length, rest) = rest.get(key_length..)?.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes(*length));
        read_fields(rest.get(..length)?, &mut error)?;
        value_at += 2 + length;
    }
    let value = bytes.get(value_at..)?.to_vec();
    let mut row = Stored::new(Version(0), state, key, value, deadline);
    row.attempt = u32::try_from(attempt).unwrap_or(u32::MAX);
    row.error = error;
    match (state, period) {
        // The instance that fired it.
        (State::InFlight, id) => row.claimed_by = Some(id).filter(|id| *id > 0).map(InstanceId),
        (_, ..0) => row.schedule = Some(String::new()),
        (_, 0) => {}
        (_, micros) => row.period = Some(Duration::from_micros(micros.unsigned_abs())),
    }
    Some(row)
}

/// Reads the further fields of a row. Those of later versions are passed by.
fn read_fields(mut fields: &[u8], error: &mut Option<String>) -> Option<()> {
    while let Some((&[name, low, high], rest)) = fields.split_first_chunk() {
        let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([low, high])))?;
        if name == b'e' {
            *error = Some(String::from_utf8_lossy(text).into_owned());
        }
        fields = rest;
    }
    fields.is_empty().then_some(())
}

/// A packed number. The scripts pack none that is not whole or not below 2^53.
#[expect(clippy::cast_possible_truncation, reason = "it is whole")]
fn number(bytes: &[u8], at: usize) -> Option<i64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(f64::from_le_bytes(*bytes) as i64)
}

/// The values of an array that are not read yet.
pub(super) struct Reply(vec::IntoIter<Value>);

fn unexpected(wanted: &str, found: Option<&Value>) -> StoreError {
    StoreError::refused(format_args!(
        "the server answered {found:?} instead of {wanted}"
    ))
}

impl Reply {
    pub(super) fn new(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(values) => Ok(Reply(values.into_iter())),
            other => Err(unexpected("an array", Some(&other))),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    /// Numbers that come as one text, with spaces between them.
    pub(super) fn numbers(&mut self) -> Result<Reply, StoreError> {
        let text = self.bytes()?;
        let text = str::from_utf8(&text).unwrap_or("(not a text)");
        let numbers = text.split_ascii_whitespace().map(str::parse);
        let numbers: Result<Vec<_>, _> = numbers.map(|number| number.map(Value::Int)).collect();
        match numbers {
            Ok(numbers) => Ok(Reply(numbers.into_iter())),
            Err(_) => Err(unexpected(
                "numbers",
                Some(&Value::SimpleString(text.to_owned())),
            )),
        }
    }

    pub(super) fn int(&mut self) -> Result<i64, StoreError> {
        match self.0.next() {
            Some(Value::Int(int)) => Ok(int),
            other => Err(unexpected("a number", other.as_ref())),
        }
    }

    /// A number that is not negative.
    pub(super) fn count(&mut self) -> Result<u64, StoreError> {
        let int = self.int()?;
        u64::try_from(int).map_err(|_| unexpected("a count", Some(&Value::Int(int))))
    }

    pub(super) fn flag(&mut self) -> Result<bool, StoreError> {
        Ok(self.int()? != 0)
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        match self.0.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            other => Err(unexpected("a string", other.as_ref())),
        }
    }

    pub(super) fn array(&mut self) -> Result<Reply, StoreError> {
        match self.0.next() {
            Some(array) => Reply::new(array),
            None => Err(unexpected("an array", None)),
        }
    }

    /// A row without its version. It has an empty schedule if it has one at all.
    pub(super) fn row(&mut self) -> Result<Stored, StoreError> {
        let bytes = self.bytes()?;
        Ok(unpack(&bytes).unwrap_or_else(|| damaged(bytes)))
    }

    pub(super) fn version(&mut self) -> Result<Version, StoreError> {
        self.int().map(Version)
    }

    pub(super) fn time(&mut self) -> Result<StoreTime, StoreError> {
        self.int().map(StoreTime::from_micros)
    }

    /// A version, when it is due, and whether it is loaded.
    pub(super) fn armed(&mut self) -> Result<Armed, StoreError> {
        Ok(Armed {
            version: self.version()?,
            due: self.time()?,
            loaded: self.flag()?,
        })
    }

    /// The rows with a schedule of an array of versions, deadlines and schedules.
    pub(super) fn scheduled(&mut self) -> Result<Vec<Scheduled>, StoreError> {
        let values = self.0.next().unwrap_or(Value::Nil);
        Reply::new(values)?.all(|reply| {
            let version = Reply::numbers(reply)?.version()?;
            match reply.schedule()? {
                Some((deadline, schedule)) => Ok(Scheduled {
                    version,
                    deadline,
                    schedule,
                }),
                None => Err(unexpected("a schedule", None)),
            }
        })
    }

    /// Deadline and schedule, which come as one text, or an empty one.
    pub(super) fn schedule(&mut self) -> Result<Option<(StoreTime, String)>, StoreError> {
        let text = String::from_utf8_lossy(&self.bytes()?).into_owned();
        let parts = text.split_once(' ');
        Ok(parts.and_then(|(deadline, schedule)| {
            let deadline = StoreTime::from_micros(deadline.parse().ok()?);
            Some((deadline, schedule.to_owned()))
        }))
    }

    /// Reads items until nothing is left.
    pub(super) fn all<T>(
        &mut self,
        mut read: impl FnMut(&mut Reply) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut all = Vec::new();
        while !self.is_empty() {
            all.push(read(self)?);
        }
        Ok(all)
    }
}

/// The results of one step of a batch. There is at least one, or the batch would never end.
pub(super) fn progress<T>(answers: Vec<T>) -> Result<Vec<T>, StoreError> {
    if answers.is_empty() {
        let error = "the server has answered nothing of a batch";
        return Err(StoreError::refused(error));
    }
    Ok(answers)
}
