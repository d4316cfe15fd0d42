//! Questions to the operating system: how many files may be open, and the CPU time used.

use std::time::Duration;

/// Lets the process open `wanted` files if the system permits it. Returns how many it may open;
/// `None` when there is no such limit.
#[cfg(unix)]
pub(crate) fn allow_open_files(wanted: u64) -> Option<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};

    let mut limit = getrlimit(Resource::Nofile);
    let current = limit.current?;
    if current >= wanted {
        return Some(current);
    }
    let most = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    limit.current = Some(most);
    Some(match setrlimit(Resource::Nofile, limit) {
        Ok(()) => most.max(current),
        Err(_) => current,
    })
}

/// There is no such limit here.
#[cfg(not(unix))]
pub(crate) fn allow_open_files(_wanted: u64) -> Option<u64> {
    None
}

/// The CPU time that this process has used, in its own code and in the kernel; `None` on systems
/// that do not report it.
#[cfg(any(target_os = "linux", target_os = "macos", target_os = "freebsd"))]
pub(crate) fn cpu_time() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};

    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()
}

/// Always `None` on this system.
#[cfg(not(any(target_os = "linux", target_os = "macos", target_os = "freebsd")))]
pub(crate) fn cpu_time() -> Option<Duration> {
    None
}
