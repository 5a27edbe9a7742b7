//! A table in a file, which is read once and replaced at once.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::entries::Table;
use super::key::Gpu;
use crate::files::{make_folder, replace, with_ending};

/// An error of a table's file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// The message of the system.
        reason: String,
    },
    /// The file cannot be written.
    #[error("{} cannot be written: {reason}", path.display())]
    Unwritable {
        /// The file or its folder.
        path: PathBuf,
        /// The message of the system.
        reason: String,
    },
    /// The file is not a table.
    #[error("expected a tuning table, got {reason}")]
    NotATable {
        /// The first thing that is wrong.
        reason: String,
    },
    /// The file belongs to another version of this library.
    #[error(
        "expected a tuning table of format {expected}, got format {got}, of another version: use that version, or forget the table \
         with `flashcliff tune --clear` and tune again"
    )]
    Format {
        /// The format that this version reads.
        expected: u32,
        /// The format of the file.
        got: String,
    },
    /// The file is for another GPU.
    #[error("expected the tuning table of {expected}, got that of {got}")]
    OtherGpu {
        /// The GPU of the device.
        expected: Gpu,
        /// The GPU of the file.
        got: Gpu,
    },
    /// There is no folder for the file.
    #[error("expected a folder for the tuning table: none of {expected} is set")]
    NoFolder {
        /// The environment variables that may name a folder.
        expected: &'static str,
    },
}

/// Reads the table of a GPU from a file, with the reasons why some of its entries are not valid. Returns `None` if
/// there is no file.
///
/// # Errors
/// Returns a [`FileError`] if the file cannot be read or is not a table of this GPU.
pub fn read(path: &Path, gpu: &Gpu) -> Result<Option<(Table, Vec<String>)>, FileError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(FileError::Unreadable {
                reason: error.to_string(),
            });
        }
    };
    let text = String::from_utf8(bytes).map_err(|error| FileError::NotATable {
        reason: error.to_string(),
    })?;
    let (table, wrong) = Table::from_json(&text)?;
    if table.gpu() != gpu {
        return Err(FileError::OtherGpu {
            expected: gpu.clone(),
            got: table.gpu().clone(),
        });
    }
    Ok(Some((table, wrong)))
}

/// Adds the entries of a table to the entries of a file. The file is replaced at once: readers see the old or the new
/// file, and writers wait for each other. If the file is not a table, it is kept beside the new one, under a name that
/// ends in `.broken`, and its path is returned.
///
/// # Errors
/// [`FileError::Unreadable`], [`FileError::Unwritable`]; [`FileError::Format`] and [`FileError::OtherGpu`] for a file
/// that is not ours to replace. The old file is then untouched.
pub fn save(path: &Path, table: &Table) -> Result<Option<PathBuf>, FileError> {
    let _lock = lock(path)?;
    let mut broken = None;
    let mut all = match read(path, table.gpu()) {
        Ok(Some((all, _))) => all,
        Ok(None) => Table::new(table.gpu().clone()),
        Err(FileError::NotATable { .. }) => {
            let beside = with_ending(path, ".broken");
            fs::rename(path, &beside).map_err(|error| failed(&beside, &error))?;
            broken = Some(beside);
            Table::new(table.gpu().clone())
        }
        Err(error) => return Err(error),
    };
    all.merge(table.clone());
    replace(path, all.to_json().as_bytes()).map_err(|error| failed(path, &error))?;
    Ok(broken)
}

/// Checks that [`save`] could write the table of a GPU to a path. Makes the folder, but no file.
///
/// # Errors
/// The errors of [`save`].
pub fn check_save(path: &Path, gpu: &Gpu) -> Result<(), FileError> {
    let _lock = lock(path)?;
    match read(path, gpu) {
        Ok(_) | Err(FileError::NotATable { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes a file. Returns whether there was one.
///
/// # Errors
/// [`FileError::Unwritable`].
pub fn forget(path: &Path) -> Result<bool, FileError> {
    if !folder_of(path).is_dir() {
        return Ok(false);
    }
    let _lock = lock(path)?;
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(path, &error)),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> FileError {
    FileError::Unwritable {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

/// Keeps other writers away until the lock is dropped. Makes the folder.
fn lock(path: &Path) -> Result<File, FileError> {
    let folder = folder_of(path);
    make_folder(folder).map_err(|error| failed(folder, &error))?;
    let beside = with_ending(path, ".lock");
    let mut options = OpenOptions::new();
    let file = options
        .create(true)
        .truncate(false)
        .write(true)
        .open(&beside);
    let locked = file.and_then(|file| file.lock().map(|()| file));
    locked.map_err(|error| failed(&beside, &error))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::super::entries::tests::{entry, gpu, knob, problem};
    use super::*;

    fn table(m: usize, first: u64) -> Table {
        let mut table = Table::new(gpu());
        table.set_matmul(entry(m, first));
        table
    }

    #[test]
    fn files_are_merged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/folder/table.json");
        assert_eq!(read(&path, &gpu()), Ok(None));
        assert_eq!(save(&path, &table(1, 1)), Ok(None));
        let mut second = table(2, 2);
        second.set_knob(knob(3), "rows", 4);
        assert_eq!(save(&path, &second), Ok(None));
        assert_eq!(save(&path, &table(1, 11)), Ok(None));
        let (all, wrong) = read(&path, &gpu()).unwrap().unwrap();
        let data = |m| all.matmul(&problem(m), 130_100).map(|a| a.data[0]);
        assert_eq!([1, 2, 3].map(data), [Some(11), Some(2), None]);
        assert_eq!((all.len(), wrong), (3, vec![]));
        // Writing leaves nothing but the table and the lock.
        let names = fs::read_dir(path.parent().unwrap()).unwrap();
        let mut names: Vec<_> = names.map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["table.json", "table.json.lock"]);
        assert_eq!(forget(&path), Ok(true));
        assert_eq!(forget(&path), Ok(false));
        assert_eq!(read(&path, &gpu()), Ok(None));
    }

    #[test]
    fn writers_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.json");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for i in 0..5 {
                        save(path, &table(10 * thread + i, 1)).unwrap();
                        // Readers never see half a file.
                        assert!(read(path, &gpu()).unwrap().unwrap().1.is_empty());
                    }
                });
            }
        });
        assert_eq!(read(&path, &gpu()).unwrap().unwrap().0.len(), 20);
    }

    #[test]
    fn a_broken_file_is_kept_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.json");
        for broken in [&b"{\"format\": 2,"[..], b"", b"nonsense", &[0xff, 0xfe]] {
            fs::write(&path, broken).unwrap();
            check_save(&path, &gpu()).unwrap();
            assert!(matches!(
                read(&path, &gpu()),
                Err(FileError::NotATable { .. })
            ));
            let beside = save(&path, &table(1, 1)).unwrap().unwrap();
            assert_eq!(fs::read(&beside).unwrap(), broken);
            assert_eq!(read(&path, &gpu()).unwrap().unwrap().0, table(1, 1));
        }
    }

    #[test]
    fn what_is_not_ours_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.json");
        let other = Gpu {
            compute_capability: (8, 0),
            ..gpu()
        };
        let newer = table(1, 1)
            .to_json()
            .replace("\"format\": 2", "\"format\": 9");
        for text in [Table::new(other.clone()).to_json(), newer] {
            fs::write(&path, &text).unwrap();
            let error = save(&path, &table(1, 1)).unwrap_err();
            assert_eq!(check_save(&path, &gpu()), Err(error.clone()));
            assert_eq!(read(&path, &gpu()), Err(error));
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn what_cannot_be_read_or_written_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        // A folder in place of the file, and a file in place of the folder.
        assert!(matches!(
            read(folder.path(), &gpu()),
            Err(FileError::Unreadable { .. })
        ));
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [folder.path().to_owned(), file.join("table.json")] {
            let error = save(&path, &table(1, 1)).map(drop);
            assert!(error.is_err(), "{}", path.display());
            assert_eq!(check_save(&path, &gpu()), error);
        }
    }
}
