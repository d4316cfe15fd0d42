//! The answer of a handler that has failed: whether and when its timer is retried.

use std::fmt::Display;
use std::time::Duration;

use crate::store::{BoxError, MAX_ERROR_BYTES, causes};

/// Returned by a handler that has failed: when its timer is delivered again, and why it failed.
///
/// Any error becomes one with `?`, and so do boxed errors, `anyhow`'s and texts: the timer is
/// delivered again after the [backoff](crate::Builder::backoff), and the text of the error and of
/// its causes is kept with it. After the last of [`max_attempts`](crate::Builder::max_attempts) the
/// timer is [dead](crate::operating#timers-that-fail) instead, whatever the handler asked for.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tickwheel_durable::{Claim, Retry};
///
/// # async fn send(_: &str) -> std::io::Result<u16> { Ok(200) }
/// async fn remind(claim: Claim<String, String>) -> Result<(), Retry> {
///     match send(&claim.value).await? {
///         200 => Ok(()),
///         404 => Err(Retry::never("there is no such customer")),
///         429 => Err(Retry::after(Duration::from_secs(60)).because("too many requests")),
///         status => Err(format!("status {status}").into()),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    pub(crate) when: RetryWhen,
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryWhen {
    Backoff,
    After(Duration),
    Never,
}

impl Retry {
    /// Delivers the timer again this long from now.
    pub fn after(after: Duration) -> Self {
        Retry {
            when: RetryWhen::After(after),
            error: None,
        }
    }

    /// Delivers the timer again after the [backoff](crate::Builder::backoff). The error is kept
    /// with it.
    pub fn backoff(error: impl Display) -> Self {
        Retry {
            when: RetryWhen::Backoff,
            error: Some(error_text(&error)),
        }
    }

    /// Does not deliver the timer again: it is dead at once, however many attempts are left.
    pub fn never(error: impl Display) -> Self {
        Retry {
            when: RetryWhen::Never,
            error: Some(error_text(&error)),
        }
    }

    /// Keeps this error with the timer: its first [`MAX_ERROR_BYTES`] bytes.
    #[must_use]
    pub fn because(mut self, error: impl Display) -> Self {
        self.error = Some(error_text(&error));
        self
    }
}

impl<E: Into<BoxError>> From<E> for Retry {
    fn from(error: E) -> Self {
        let error = error.into();
        let text = error.to_string();
        // Some errors print their causes themselves.
        let causes = causes(&*error, &text);
        Retry::backoff(text + &causes)
    }
}

/// A text that stores keep: cut, and without the character that PostgreSQL cannot keep.
pub(crate) fn error_text(error: &impl Display) -> String {
    let mut text = error.to_string();
    if text.len() > MAX_ERROR_BYTES {
        let end = (0..=MAX_ERROR_BYTES)
            .rev()
            .find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
    }
    if text.contains('\0') {
        text = text.replace('\0', " ");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn error_brings_its_causes() {
        let error: Retry = crate::Error::from(
            crate::store::StoreError::refused("file orders.db")
                .because_of(io::Error::other("full")),
        )
        .into();
        assert_eq!(error.when, RetryWhen::Backoff);
        let text = "rejected by the store: file orders.db: full";
        assert_eq!(error.error.as_deref(), Some(text));
    }

    #[test]
    fn cause_that_an_error_prints_itself_comes_once() {
        #[derive(Debug)]
        struct Printed(io::Error);

        impl std::fmt::Display for Printed {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "nothing was written: {}", self.0)
            }
        }

        impl std::error::Error for Printed {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }

        let error = Retry::from(Printed(io::Error::other("full")));
        assert_eq!(error, Retry::backoff("nothing was written: full"));
    }

    #[test]
    fn boxed_errors_and_texts_become_one() {
        fn boxed() -> Result<(), Retry> {
            let failed: Result<(), BoxError> = Err(io::Error::other("full").into());
            Ok(failed?)
        }
        assert_eq!(boxed(), Err(Retry::backoff("full")));
        assert_eq!(Retry::from("too slow"), Retry::backoff("too slow"));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = error_text(&"ä".repeat(MAX_ERROR_BYTES));
        assert_eq!(text, "ä".repeat(MAX_ERROR_BYTES / 2));
        let text = error_text(&format!("a{}", "ä".repeat(MAX_ERROR_BYTES)));
        assert_eq!(text.len(), MAX_ERROR_BYTES - 1);
        assert_eq!(error_text(&"a\0b"), "a b");
    }
}
