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
    files: [(PathBuf, Option<FileId>); 3],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// `None` if there is no such file.
    #[cfg(unix)]
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path).ok()?;
        Some(FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    /// A file that is open can be neither deleted nor replaced here.
    #[cfg(not(unix))]
    fn of(_: &Path) -> Option<Self> {
        None
    }
}

impl File {
    /// The file at `path`, which was just opened. SQLite calls it `name`.
    pub(super) fn opened(path: &Path, name: &str) -> Self {
        let files = ["", "-wal", "-shm"].map(|end| PathBuf::from(format!("{name}{end}")));
        File {
            path: path.to_owned(),
            files: files.map(|name| {
                let id = FileId::of(&name);
                (name, id)
            }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if one of them is gone, or another one.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let moved = self.files.iter().find(|(name, id)| FileId::of(name) != *id);
        moved.map_or(Ok(()), |(name, _)| {
            Err(StoreError::refused(format_args!(
                "SQLite file {}: {} was deleted or replaced after it was opened; calls would be lost, so open it again",
                self.path.display(),
                name.display()
            )))
        })
    }
}
