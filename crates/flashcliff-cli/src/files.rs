//! Files that appear whole or not at all.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::Error;

/// A file under a temporary name beside its destination. Nothing is seen there until [`commit`](Self::commit); dropped, it vanishes.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    temporary: NamedTempFile,
    path: PathBuf,
}

impl AtomicFile {
    /// Begins a file. Fails now, before any work, if the destination cannot be written.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Write {
            path: path.to_owned(),
            source,
        };
        if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".flashcliff-");
        // The permissions of any new file: the umask is applied to these.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        Ok(Self {
            temporary: builder.tempfile_in(folder_of(path)).map_err(failed)?,
            path: path.to_owned(),
        })
    }

    /// Writes the contents, flushes them to the disk and gives the file its name.
    ///
    /// # Errors
    /// [`Error::Write`]; a file that was there before is untouched then.
    pub(crate) fn commit(mut self, contents: &[u8]) -> Result<(), Error> {
        let failed = |source| Error::Write {
            path: self.path.clone(),
            source,
        };
        self.temporary.write_all(contents).map_err(failed)?;
        self.temporary.as_file().sync_all().map_err(failed)?;
        self.temporary
            .persist(&self.path)
            .map_err(|error| failed(error.error))?;
        // The rename itself reaches the disk with the folder.
        #[cfg(unix)]
        std::fs::File::open(folder_of(&self.path))
            .and_then(|folder| folder.sync_all())
            .map_err(failed)?;
        Ok(())
    }
}

/// Writes a file at once.
///
/// # Errors
/// [`Error::Write`].
pub(crate) fn write(path: &Path, contents: &[u8]) -> Result<(), Error> {
    AtomicFile::create(path)?.commit(contents)
}

/// The folder a path lies in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_seen_before_the_commit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        std::fs::write(&path, "old").unwrap();
        let file = AtomicFile::create(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        file.commit(b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        drop(AtomicFile::create(&path).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_unwritable_destination_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        for path in [
            folder.path().to_owned(),
            file.join("below"),
            folder.path().join("no/such"),
        ] {
            let error = AtomicFile::create(&path).unwrap_err();
            assert!(matches!(error, Error::Write { path: p, .. } if p == path));
        }
    }
}
