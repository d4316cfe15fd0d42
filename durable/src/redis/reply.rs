//! Reads what a script has answered.

use std::vec;

use ::redis::Value;

use crate::store::{Armed, StoreError, StoreTime, Version};

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

    pub(super) fn array(&mut self) -> Result<Reply, StoreError> {
        self.0
            .next()
            .map_or_else(|| Err(unexpected("an array", None)), Reply::new)
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

    /// Reads items until nothing is left.
    pub(super) fn all<T>(
        &mut self,
        read: impl Fn(&mut Reply) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut all = Vec::new();
        while !self.is_empty() {
            all.push(read(self)?);
        }
        Ok(all)
    }
}
