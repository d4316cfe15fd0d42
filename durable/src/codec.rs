//! How keys and values become bytes.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::store::BoxError;

/// The greatest length of an encoded key, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// The greatest length of an encoded value, in bytes: 1 MiB.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Encodes keys and values, and decodes them.
///
/// The same key must always give the same bytes: the store compares them. Maps without order and
/// floating-point numbers are bad keys for that reason.
///
/// # Examples
///
/// A codec for any other format of serde takes a few lines:
///
/// ```
/// use tickwheel_durable::{BoxError, Codec};
///
/// /// JSON on many lines, to be read in the store's own shell.
/// #[derive(Debug)]
/// struct Pretty;
///
/// impl Codec for Pretty {
///     fn name(&self) -> &str {
///         "json-pretty"
///     }
///     fn encode<T: serde::Serialize + ?Sized>(&self, data: &T) -> Result<Vec<u8>, BoxError> {
///         Ok(serde_json::to_vec_pretty(data)?)
///     }
///     fn decode<T: serde::de::DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, BoxError> {
///         Ok(serde_json::from_slice(bytes)?)
///     }
/// }
/// ```
pub trait Codec: fmt::Debug + Send + Sync + 'static {
    /// The name of the format. The store keeps it with the namespace, and refuses
    /// an instance with another codec.
    fn name(&self) -> &str;

    /// Encodes a key or a value.
    ///
    /// # Errors
    ///
    /// Whatever the format cannot express.
    fn encode<T: Serialize + ?Sized>(&self, data: &T) -> Result<Vec<u8>, BoxError>;

    /// Decodes a key or a value.
    ///
    /// # Errors
    ///
    /// The bytes are not those of such a key or value.
    fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, BoxError>;
}

/// JSON, the default: it can be read in the store's own shell.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

impl Codec for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn encode<T: Serialize + ?Sized>(&self, data: &T) -> Result<Vec<u8>, BoxError> {
        Ok(serde_json::to_vec(data)?)
    }

    fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, BoxError> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// A codec together with the types, which handles need not name then. It encodes a key from
/// whatever the program has of it.
pub(crate) trait Coder<K, V>: fmt::Debug + Send + Sync {
    fn encode_key(&self, key: &dyn erased_serde::Serialize) -> Result<Vec<u8>, Error>;
    fn encode_value(&self, value: &V) -> Result<Vec<u8>, Error>;
    fn decode_key(&self, bytes: &[u8]) -> Result<K, Error>;
    fn decode_value(&self, bytes: &[u8]) -> Result<V, Error>;
}

impl<C, K, V> Coder<K, V> for C
where
    C: Codec,
    K: DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    fn encode_key(&self, key: &dyn erased_serde::Serialize) -> Result<Vec<u8>, Error> {
        encode(self, "key", key, MAX_KEY_BYTES)
    }

    fn encode_value(&self, value: &V) -> Result<Vec<u8>, Error> {
        encode(self, "value", value, MAX_VALUE_BYTES)
    }

    fn decode_key(&self, bytes: &[u8]) -> Result<K, Error> {
        decode(self, "key", bytes)
    }

    fn decode_value(&self, bytes: &[u8]) -> Result<V, Error> {
        decode(self, "value", bytes)
    }
}

fn encode<T: Serialize + ?Sized>(
    codec: &impl Codec,
    what: &'static str,
    data: &T,
    max: usize,
) -> Result<Vec<u8>, Error> {
    let bytes = codec.encode(data).map_err(|error| Error::Encode {
        what,
        cause: error.into(),
    })?;
    let len = bytes.len();
    if len > max {
        return Err(Error::TooLong { what, len, max });
    }
    Ok(bytes)
}

fn decode<T: DeserializeOwned>(
    codec: &impl Codec,
    what: &'static str,
    bytes: &[u8],
) -> Result<T, Error> {
    codec.decode(bytes).map_err(|error| Error::Decode {
        what,
        cause: error.into(),
    })
}
