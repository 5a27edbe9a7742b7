//! Writes over the contents of a file that must stay the same file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Replaces the contents. The part that makes the file longer is written first. If there is no room for it, the file is
/// cut back and nothing has changed. If writing fails after that, the old contents are put back.
pub(super) fn write(mut file: &File, contents: &[u8]) -> io::Result<()> {
    let old_len = file.metadata()?.len();
    let shared = usize::try_from(old_len).unwrap_or(usize::MAX);
    let (over, beyond) = contents.split_at(shared.min(contents.len()));
    let old = read(file, over.len());
    if !beyond.is_empty() {
        let extended = file
            .seek(SeekFrom::Start(old_len))
            .and_then(|_| file.write_all(beyond))
            // Some file systems only report here that there is no room.
            .and_then(|()| file.sync_all());
        if let Err(error) = extended {
            file.set_len(old_len)?;
            return Err(error);
        }
    }
    let written = file
        .seek(SeekFrom::Start(0))
        .and_then(|_| file.write_all(over))
        .and_then(|()| file.sync_all());
    if let Err(error) = written {
        if let Some(old) = old {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&old)?;
            file.set_len(old_len)?;
        }
        return Err(error);
    }
    file.set_len(contents.len() as u64)?;
    file.sync_all()
}

/// The first bytes of a file; `None` if it cannot be read or there is no memory for them.
fn read(mut file: &File, len: usize) -> Option<Vec<u8>> {
    let mut old = Vec::new();
    old.try_reserve_exact(len).ok()?;
    old.resize(len, 0);
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_exact(&mut old).ok()?;
    Some(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_become_longer_and_shorter() {
        let mut file = tempfile::tempfile().unwrap();
        for contents in ["", "a", "abc", "xy", "", "longer than before"] {
            write(&file, contents.as_bytes()).unwrap();
            let mut got = String::new();
            file.seek(SeekFrom::Start(0)).unwrap();
            file.read_to_string(&mut got).unwrap();
            assert_eq!(got, contents);
        }
    }

    #[test]
    fn what_cannot_be_written_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "old").unwrap();
        // The file is open for reading only, so every write fails.
        let file = File::open(&path).unwrap();
        for contents in ["new and longer", "new", "n"] {
            write(&file, contents.as_bytes()).unwrap_err();
            assert_eq!(std::fs::read(&path).unwrap(), b"old");
        }
    }
}
