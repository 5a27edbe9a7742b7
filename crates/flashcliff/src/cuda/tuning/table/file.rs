//! A table in a file: read once, replaced at once.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::entries::Table;
use super::key::Gpu;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// Why.
        reason: String,
    },
    /// It cannot be written.
    #[error("{} cannot be written: {reason}", path.display())]
    Unwritable {
        /// The file or its folder.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It is something else.
    #[error("expected a tuning table, got {reason}")]
    NotATable {
        /// What came instead.
        reason: String,
    },
    /// It is of another version of this library.
    #[error("expected a tuning table of format {expected}, got format {got}")]
    Format {
        /// The format that is read.
        expected: u32,
        /// The one it has.
        got: String,
    },
    /// It is for another GPU.
    #[error("expected the tuning table of {expected}, got that of {got}")]
    OtherGpu {
        /// The GPU wanted.
        expected: Gpu,
        /// That of the file.
        got: Gpu,
    },
    /// There is no place for it.
    #[error("expected a folder for the tuning table: none of {expected} is set")]
    NoFolder {
        /// The environment variables that may name one.
        expected: &'static str,
    },
}

/// The table of a GPU from a file and what is wrong with entries of it; nothing where there is no file.
///
/// # Errors
/// [`FileError`].
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

/// Adds the entries of a table to those of a file. The file is replaced at once: readers see the one
/// before or the one after, and of several writers each waits for the others. A file that is no table is
/// kept beside, under a name that ends in `.broken`; its path is given then.
///
/// # Errors
/// [`FileError::Unreadable`], [`FileError::Unwritable`]; [`FileError::Format`] and [`FileError::OtherGpu`] for a file that is
/// not ours to replace. What was there before is untouched then.
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

/// What [`save`] would say of a place for the table of a GPU, without a table.
pub(in crate::cuda) fn check(path: &Path, gpu: &Gpu) -> Result<(), FileError> {
    let _lock = lock(path)?;
    match read(path, gpu) {
        Ok(_) | Err(FileError::NotATable { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes a file; whether there was one.
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

/// Keeps other writers away until it is dropped. Makes the folder.
fn lock(path: &Path) -> Result<File, FileError> {
    let folder = folder_of(path);
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
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

/// Writes a file beside and gives it the name.
fn replace(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let beside = with_ending(path, &format!(".{}-{count}.tmp", process::id()));
    let written = File::create(&beside)
        .and_then(|mut file| file.write_all(contents).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // What could not be written need not be there; the first error is the one to tell.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
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
        // Nothing is left of writing but the lock.
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
        for broken in [&b"{\"format\": 1,"[..], b"", b"nonsense", &[0xff, 0xfe]] {
            fs::write(&path, broken).unwrap();
            check(&path, &gpu()).unwrap();
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
            .replace("\"format\": 1", "\"format\": 9");
        for text in [Table::new(other.clone()).to_json(), newer] {
            fs::write(&path, &text).unwrap();
            let error = save(&path, &table(1, 1)).unwrap_err();
            assert_eq!(check(&path, &gpu()), Err(error.clone()));
            assert_eq!(read(&path, &gpu()), Err(error));
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn what_cannot_be_read_or_written_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        // A folder is no file, and a file no folder.
        assert!(matches!(
            read(folder.path(), &gpu()),
            Err(FileError::Unreadable { .. })
        ));
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [folder.path().to_owned(), file.join("table.json")] {
            let error = save(&path, &table(1, 1)).map(drop);
            assert!(error.is_err(), "{}", path.display());
            assert_eq!(check(&path, &gpu()), error);
        }
    }
}
