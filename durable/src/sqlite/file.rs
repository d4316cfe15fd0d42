//! Whether the file is still the one that was opened.
//!
//! A connection goes on with a file that was deleted, or replaced by another one of its name, and
//! each commit succeeds although its data is lost. So the thread looks the names up after each
//! commit, before it sends the responses, which takes microseconds. At most the writes between the
//! last lookup and the deletion are lost, and these were in the deleted file.

use std::io;
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// A file that is open, its write-ahead log, and the memory that connections share.
#[derive(Debug, Clone)]
pub(super) struct File {
    path: PathBuf,
    /// Each name, and which file had it when it was opened.
    files: [(PathBuf, Id); 3],
}

/// The device and the inode of a file; `None` if there is none.
type Id = Option<(u64, u64)>;

#[cfg(unix)]
fn id(path: &Path) -> io::Result<Id> {
    use std::os::unix::fs::MetadataExt;
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file that is open can be neither deleted nor replaced here.
#[cfg(not(unix))]
fn id(_: &Path) -> io::Result<Id> {
    Ok(None)
}

impl File {
    /// The file at `path`, which was just opened. SQLite calls it `name`.
    pub(super) fn opened(path: &Path, name: &str) -> Self {
        let files = ["", "-wal", "-shm"].map(|end| PathBuf::from(format!("{name}{end}")));
        File {
            path: path.to_owned(),
            files: files.map(|name| {
                let id = id(&name).unwrap_or_default();
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

    /// Fails if one of them is gone, or another one, or if that cannot be told.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let path = self.path.display();
        for (name, was) in &self.files {
            let (is, name) = (id(name), name.display());
            match is {
                Ok(is) if is == *was => {}
                Ok(_) => {
                    return Err(StoreError::refused(format_args!(
                        "SQLite file {path}: {name} was deleted or replaced after it was opened; calls would be lost, so open it again"
                    )));
                }
                Err(error) => {
                    return Err(StoreError::unavailable(format_args!(
                        "SQLite file {path}: it cannot be told whether {name} is still the file that was opened"
                    ))
                    .because_of(error));
                }
            }
        }
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Regression: a folder that this process may not search any more read as if the file was
    /// deleted. A test that runs as root may search each, but none can follow a link to itself.
    #[test]
    fn file_that_cannot_be_looked_up_is_not_said_to_be_deleted() {
        let name = format!("tickwheel-sqlite-{}-loop", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::os::unix::fs::symlink(&folder, &folder).expect("it is made");
        let path = folder.join("timers.db");
        let name = path.to_str().expect("it is text");
        let checked = File::opened(&path, name).check();
        std::fs::remove_file(&folder).expect("it is there");
        let error = checked.expect_err("it is not looked up");
        assert!(error.may_pass(), "{error}");
        let text = format!("{error:#}");
        assert!(
            text.contains("cannot be told") && !text.contains("deleted"),
            "{text}"
        );
    }
}
