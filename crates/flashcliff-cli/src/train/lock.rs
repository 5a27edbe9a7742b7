//! Ensures that only one run at a time writes to a folder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flashcliff::files::is_at;
use tracing::warn;

use crate::error::Error;

const NAME: &str = ".flashcliff.lock";

/// The right to write to a folder, until dropped.
///
/// The lock is a lock of the system on an open file. So it ends with the process, however the process ends, and a file that remains locks
/// nothing. The contents of the file name the holder.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// The locked file; `None` if the file system has no locks.
    file: Option<File>,
}

impl Lock {
    /// Locks a folder.
    ///
    /// # Errors
    /// [`Error::Locked`] if another run writes to it; [`Error::Write`].
    pub(super) fn take(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(NAME);
        let failed = |source| Error::Write {
            path: path.clone(),
            source,
        };
        loop {
            let mut file = open(&path).map_err(failed)?;
            if !file.metadata().map_err(failed)?.is_file() {
                let expected = "expected nothing of this name, or what another run has left";
                return Err(failed(io::Error::other(expected)));
            }
            match file.try_lock() {
                Ok(()) if !is_at(&file, &path) => continue,
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::Locked {
                        folder: folder.to_owned(),
                        holder: holder(&mut file),
                    });
                }
                Err(TryLockError::Error(error)) => {
                    warn!(
                        "{}: the file system cannot lock ({error}): expected no other run to write there",
                        folder.display()
                    );
                    let _ = fs::remove_file(&path);
                    return Ok(Self { path, file: None });
                }
            }
            // The text is only for the messages of other runs, so a full disk does not stop this one.
            let _ = file
                .set_len(0)
                .and_then(|()| file.rewind())
                .and_then(|()| file.write_all(ourselves().as_bytes()));
            return Ok(Self {
                path,
                file: Some(file),
            });
        }
    }
}

/// Opens the file, or makes a new one if there is none. A link of this name is not followed, since its target is not a lock.
fn open(path: &Path) -> io::Result<File> {
    let options = |write| {
        let mut options = OpenOptions::new();
        options.read(true).write(write).create(write);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, nix::libc::O_NOFOLLOW);
        options
    };
    match options(true).open(path) {
        // The file belongs to another user. Reading is enough to lock it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            options(false).open(path).map_err(|_| error)
        }
        opened => opened,
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file is removed before it is unlocked: whoever locks it next sees that it is no longer there.
        if self
            .file
            .as_ref()
            .is_some_and(|file| is_at(file, &self.path))
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn ourselves() -> String {
    let host = host().map_or(String::new(), |host| format!(" on {host}"));
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    format!("process {}{host} since {now}", std::process::id())
}

#[cfg(unix)]
fn host() -> Option<String> {
    let system = rustix::system::uname();
    Some(system.nodename().to_string_lossy().into_owned())
}

#[cfg(not(unix))]
fn host() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}

/// The holder that the file names, on one line, whatever the length and contents of the file.
fn holder(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.take(200).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let text: String = text.chars().filter(|char| !char.is_control()).collect();
    match text.is_empty() {
        true => "another process".to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::take(folder.path()).unwrap();
        let error = Lock::take(folder.path()).unwrap_err();
        let Error::Locked { holder, .. } = &error else {
            panic!("{error}");
        };
        let process = format!("process {}", std::process::id());
        assert!(
            holder.starts_with(&process) && holder.contains(" since 2"),
            "{holder}"
        );
        drop(lock);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        drop(Lock::take(folder.path()).unwrap());
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_of_a_run_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join(NAME), folder.path().join("other"));
        fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink("other", &path).unwrap();
        let error = Lock::take(folder.path()).unwrap_err();
        assert!(
            matches!(&error, Error::Write { path: p, .. } if *p == path),
            "{error}"
        );
        assert_eq!(fs::read(&other).unwrap(), b"kept");
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        Lock::take(folder.path()).unwrap_err();
        assert!(path.is_dir());
    }

    #[test]
    fn a_file_that_nobody_holds_locks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        fs::write(
            &path,
            "process 1 on a host since the flood, much longer ago than now",
        )
        .unwrap();
        let lock = Lock::take(folder.path()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, ourselves());
        drop(lock);
        assert!(!path.exists());
    }
}
