//! The errors of a store.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::ids::Namespace;
use super::time::StoreTime;

/// A call of a store failed. Its text names the value and the bound it is about, and never contains
/// a password.
///
/// The error of the engine or its client is the [source](Error::source), and is not printed but
/// with `{:#}`, which prints all causes, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached, is locked or overloaded: the same call may succeed later.
    /// Whether this one took effect is not known, unless the text says so.
    #[non_exhaustive]
    Unavailable {
        /// A description of the failure.
        message: String,
        /// Why.
        cause: Option<Cause>,
    },
    /// The store refuses: a file that is read-only or full, a missing permission, a damaged table.
    /// A part of a batch may have been changed, if the batch was divided. An operator has to look
    /// at it.
    #[non_exhaustive]
    Refused {
        /// A description of the failure.
        message: String,
        /// Why.
        cause: Option<Cause>,
    },
    /// The instance does not agree with the [charter](super::Charter) of the namespace. Nothing was
    /// changed. It goes on by itself when the charter is amended to what it has, but for codec and
    /// parts, which never change.
    #[non_exhaustive]
    Charter {
        /// The namespace.
        namespace: String,
        /// The first field that differs: a setting of [`Builder`](crate::Builder).
        field: &'static str,
        /// What the charter has.
        stored: String,
        /// What the instance has.
        asked: String,
    },
    /// The charter was amended since the instance has read it. What the call had not changed by
    /// then, it never changes. The next call reads the charter.
    #[non_exhaustive]
    Amended {
        /// The namespace.
        namespace: String,
    },
    /// The namespace is not in the store: no instance has opened it, or the store has lost its
    /// data. Nothing was changed. An instance opens it again with its next call.
    #[non_exhaustive]
    NotOpened {
        /// The namespace.
        namespace: String,
    },
    /// The call reached the store after its caller had given up. What it had not changed by then,
    /// it never changes.
    #[non_exhaustive]
    Late {
        /// The store's time.
        now: StoreTime,
    },
    /// The schema of the store is not for this version of the crate: it is older, or a later
    /// version has changed it so that this one cannot use it. Nothing was changed. Only loads,
    /// fires and writes are refused, and only until the schema is for this version.
    #[non_exhaustive]
    Schema {
        /// The version of the schema that was found.
        found: u32,
        /// The oldest version that can use the store.
        readable_by: u32,
        /// The version of the schema that this version of the crate knows.
        supported: u32,
    },
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub fn may_pass(&self) -> bool {
        use StoreError::{Amended, Late, NotOpened, Unavailable};
        matches!(
            self,
            Unavailable { .. } | Amended { .. } | NotOpened { .. } | Late { .. }
        )
    }
}

/// For a [store](crate::store) of your own. Like that module, it may change in any version.
impl StoreError {
    /// An error that may pass.
    pub fn unavailable(message: impl fmt::Display) -> Self {
        StoreError::Unavailable {
            message: message.to_string(),
            cause: None,
        }
    }

    /// An error that does not pass by itself.
    pub fn refused(message: impl fmt::Display) -> Self {
        StoreError::Refused {
            message: message.to_string(),
            cause: None,
        }
    }

    /// [`StoreError::Amended`].
    pub fn amended(namespace: &Namespace) -> Self {
        StoreError::Amended {
            namespace: namespace.to_string(),
        }
    }

    /// [`StoreError::NotOpened`].
    pub fn not_opened(namespace: &Namespace) -> Self {
        StoreError::NotOpened {
            namespace: namespace.to_string(),
        }
    }

    /// [`StoreError::Late`].
    pub fn late(now: StoreTime) -> Self {
        StoreError::Late { now }
    }

    /// [`StoreError::Unavailable`]: a transaction has the lock of `what`, such as a key.
    pub(crate) fn locked(what: &str) -> Self {
        StoreError::unavailable(format_args!(
            "a transaction has changed {what} and has not ended"
        ))
    }

    /// [`StoreError::Schema`].
    pub fn schema(found: u32, readable_by: u32, supported: u32) -> Self {
        StoreError::Schema {
            found,
            readable_by,
            supported,
        }
    }

    /// The same error with a cause, which its message need not repeat. One about a charter or a
    /// schema has none.
    #[must_use]
    pub fn because_of(mut self, error: impl Into<BoxError>) -> Self {
        if let StoreError::Unavailable { cause, .. } | StoreError::Refused { cause, .. } = &mut self
        {
            *cause = Some(Cause::from(error.into()));
        }
        self
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Unavailable { message, .. } => {
                write!(f, "the store is unavailable: {message}")
            }
            StoreError::Refused { message, .. } => write!(f, "rejected by the store: {message}"),
            StoreError::Charter {
                namespace,
                field,
                stored,
                asked,
            } => {
                let or = match *field {
                    "codec" | "parts" => "use another namespace, since it never changes",
                    _ => "amend the charter",
                };
                write!(
                    f,
                    "namespace {namespace:?} has {field} = {stored} in its charter, and this instance has {field} = {asked}: \
                     give all instances the same setting, or {or}"
                )
            }
            StoreError::Amended { namespace } => write!(
                f,
                "the charter of namespace {namespace:?} was amended, so this call changes nothing any more; the next one reads it"
            ),
            StoreError::NotOpened { namespace } => write!(
                f,
                "namespace {namespace} was not opened, or the store has lost its data"
            ),
            StoreError::Late { .. } => f.write_str(
                "the call reached the store after its time limit, and changes nothing any more",
            ),
            StoreError::Schema {
                found, supported, ..
            } if found < supported => write!(
                f,
                "the store has schema version {found}, and this version of tickwheel-durable needs {supported}: start it \
                 again, or run `tickwheel-admin migrate up`"
            ),
            StoreError::Schema {
                found,
                readable_by,
                supported,
            } => write!(
                f,
                "the store has schema version {found}, for versions of tickwheel-durable that know {readable_by} or later; \
                 this one knows {supported}: deploy a later version, or take the schema back"
            ),
        }?;
        write_causes(self, f)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            StoreError::Unavailable { cause, .. } | StoreError::Refused { cause, .. } => {
                cause.as_ref().map(Cause::get)
            }
            _ => None,
        }
    }
}

/// Writes all causes of an error for `{:#}`, each text once.
pub(crate) fn write_causes(error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if f.alternate() {
        f.write_str(&causes(error, ""))?;
    }
    Ok(())
}

/// All causes of an error, each text once, after colons. Leaves out what is known already.
pub(crate) fn causes(error: &dyn Error, known: &str) -> String {
    let (mut source, mut written) = (error.source(), String::new());
    while let Some(cause) = source {
        let text = cause.to_string();
        if !known.contains(&text) && !written.contains(&text) {
            written = format!("{written}: {text}");
        }
        source = cause.source();
    }
    written
}

/// Any error.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The error of another library: a client, an engine, a codec. Shared by clones; two are equal if
/// they print the same.
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    /// The error itself, for `downcast_ref`. Which type it has, and of which version of its crate,
    /// is the store's or the codec's affair: that of SQLite has `rusqlite::Error`, that of
    /// PostgreSQL `tokio_postgres::Error`, that of Redis `redis::RedisError`.
    pub fn get(&self) -> &(dyn Error + 'static) {
        &*self.0
    }
}

impl From<BoxError> for Cause {
    fn from(error: BoxError) -> Self {
        Cause(error.into())
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Cause {}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Charter;

    #[test]
    fn errors_of_the_moment_may_pass() {
        let namespace = Namespace::new("orders").expect("it is a name");
        let (now, json) = (StoreTime::default(), Charter::new("json"));
        let differs = json.check(&namespace, &Charter::new("other"));
        for (error, may_pass) in [
            (StoreError::unavailable("it is away"), true),
            (StoreError::amended(&namespace), true),
            (StoreError::not_opened(&namespace), true),
            (StoreError::late(now), true),
            (StoreError::refused("it is full"), false),
            (StoreError::schema(4, 4, 3), false),
            (differs.expect_err("they differ"), false),
        ] {
            assert_eq!(error.may_pass(), may_pass, "{error}");
        }
    }

    #[test]
    fn prints_each_cause_once() {
        let disk = std::io::Error::other("no space");
        let error = StoreError::refused("file orders.db").because_of(disk);
        assert_eq!(error.to_string(), "rejected by the store: file orders.db");
        let all = "rejected by the store: file orders.db: no space";
        assert_eq!(format!("{error:#}"), all);
        let error = crate::Error::from(error);
        assert_eq!(error.to_string(), "rejected by the store: file orders.db");
        assert_eq!(format!("{error:#}"), all);
        let cause = error.source().expect("there is one");
        assert!(cause.is::<std::io::Error>(), "{cause:?}");
        assert_eq!(error, error.clone());
        let error = crate::BuildError::Open(error);
        assert_eq!(error.to_string(), "the store could not be opened");
        assert_eq!(
            format!("{error:#}"),
            format!("the store could not be opened: {all}")
        );
    }
}
