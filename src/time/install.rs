//! Installing a wheel for a runtime.

use std::fmt;

use tokio::runtime::Handle;

use super::registry::{self, Ambient};
use crate::error::BuildError;
use crate::timer_wheel::{Builder, TimerWheel};

/// Starts a wheel with settings of your own as the current runtime's, for the functions of
/// [`time`](super) to use.
///
/// Call it before any timer of this module is made in the runtime: the first timer starts a wheel
/// with default settings. The wheel belongs to the current runtime and ends with it, so
/// [`Builder::runtime`] must not name another one. Once the wheel is [shut
/// down](TimerWheel::shutdown), another one can be installed.
///
/// # Errors
///
/// [`InstallError`] says why no wheel was installed.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{TimerWheel, time};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tickwheel::time::InstallError> {
/// let coarse = TimerWheel::builder().name("ambient").tick(Duration::from_millis(10));
/// let start = time::Instant::now();
/// time::install(coarse)?;
///
/// time::sleep(Duration::from_millis(11)).await;
/// assert!(start.elapsed() >= Duration::from_millis(20));
///
/// let again = time::install(TimerWheel::builder());
/// assert!(matches!(again, Err(time::InstallError::AlreadyInstalled)));
/// # Ok(())
/// # }
/// ```
pub fn install(builder: Builder) -> Result<TimerWheel, InstallError> {
    let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
    // This check comes before the start: a rejected builder should start nothing.
    if let Some(present) = registry::get(runtime.id()) {
        return Err(refuse(&present));
    }
    if (builder.chosen_runtime()).is_some_and(|chosen| chosen.id() != runtime.id()) {
        return Err(InstallError::OtherRuntime);
    }
    let ambient = Ambient {
        wheel: builder.start()?,
        is_installed: true,
    };
    match registry::enter(&runtime, &ambient) {
        Ok(()) => Ok(ambient.wheel),
        Err(present) => Err(refuse(&present)),
    }
}

fn refuse(present: &Ambient) -> InstallError {
    if present.is_installed {
        InstallError::AlreadyInstalled
    } else {
        InstallError::AlreadyInUse
    }
}

/// Why [`install`] failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum InstallError {
    /// A wheel was installed for this runtime before, and has not ended.
    AlreadyInstalled,
    /// Too late: a timer was made in this runtime before, which started a wheel with default
    /// settings.
    AlreadyInUse,
    /// [`Builder::runtime`] is another runtime than the current one, whose wheel this would be.
    OtherRuntime,
    /// The wheel did not start. [`source`](std::error::Error::source) has the [`BuildError`] too.
    Build(BuildError),
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InstallError::AlreadyInstalled => "a wheel was installed for this runtime before",
            InstallError::AlreadyInUse => {
                "a timer was made in this runtime before a wheel was installed: install it first"
            }
            InstallError::OtherRuntime => {
                "`Builder::runtime` names another runtime than the current one, for which \
                `time::install` installs the wheel: call it within that runtime"
            }
            // The source prints the reason.
            InstallError::Build(_) => "the wheel could not be started",
        })
    }
}

impl std::error::Error for InstallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            InstallError::Build(error) => Some(error),
            _ => None,
        }
    }
}

impl From<BuildError> for InstallError {
    fn from(error: BuildError) -> Self {
        InstallError::Build(error)
    }
}
