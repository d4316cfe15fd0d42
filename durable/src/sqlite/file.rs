//! Whether the file is still the one that was opened.
//!
//! A connection goes on with a file that was deleted, or replaced by another one of its name, and
//! each commit succeeds although its data is lost. So the thread looks the names up after each
//! commit, before it sends the responses, which takes microseconds. At most the writes between the
//! last lookup and the deletion are lost, and these were in the deleted file.

use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// A file that is open, its write-ahead log, and the memory that connections share.
#[derive(Debug, Clone)]
pub(super) struct File {
    path: PathBuf,
    /// Each name, and which file had it when it was opened.
    files: [(PathBuf, Option<(u64, u64)>); 3],
}

/// The device and the inode of a file; `None` if there is none.
#[cfg(unix)]
fn id(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// A file that is open can be neither deleted nor replaced here.
#[cfg(not(unix))]
fn id(_: &Path) -> Option<(u64, u64)> {
    None
}

impl File {
    /// The file at `path`, which was just opened. SQLite calls it `name`.
    pub(super) fn opened(path: &Path, name: &str) -> Self {
        let files = ["", "-wal", "-shm"].map(|end| PathBuf::from(format!("{name}{end}")));
        File {
            path: path.to_owned(),
            files: files.map(|name| {
                let id = id(&name);
                (name, id)
            }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where its write-ahead log is.
    pub(super) fn log(&self) -> &Path {
        &self.files[1].0
    }

    /// Fails if one of them is gone, or another one.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let moved = self.files.iter().find(|(name, was)| id(name) != *was);
        moved.map_or(Ok(()), |(name, _)| {
            Err(StoreError::refused(format_args!(
                "SQLite file {}: {} was deleted or replaced after it was opened; calls would be lost, so open it again",
                self.path.display(),
                name.display()
            )))
        })
    }
}
