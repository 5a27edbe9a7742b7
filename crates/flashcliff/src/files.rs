//! The cache folder, and files that are written whole or not at all.
//!
//! A file is written beside its place, and then gets its name. A process that is killed leaves what it has written so
//! far. The next one that writes into the folder removes it: files that are being written are locked, and a lock ends
//! with its process.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The variable that names the folder for files that the library keeps between runs.
pub const CACHE_DIR_VARIABLE: &str = "FLASHCLIFF_CACHE_DIR";

/// A folder of the cache, as the environment has it.
pub fn cache_folder(name: &str) -> Option<PathBuf> {
    cache_folder_of(&|variable| std::env::var_os(variable), name)
}

/// A folder of `$FLASHCLIFF_CACHE_DIR`, or of `flashcliff` in the cache folder of the system.
pub(crate) fn cache_folder_of(
    variable: &dyn Fn(&str) -> Option<OsString>,
    name: &str,
) -> Option<PathBuf> {
    let path = |name| {
        let value = variable(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    // The specification of these variables says that relative paths are to be ignored.
    let absolute = |name| path(name).filter(|path| path.is_absolute());
    let folder = path(CACHE_DIR_VARIABLE)
        .or_else(|| absolute("XDG_CACHE_HOME").map(|path| path.join("flashcliff")))
        .or_else(|| absolute("LOCALAPPDATA").map(|path| path.join("flashcliff")))
        .or_else(|| absolute("HOME").map(|path| path.join(".cache").join("flashcliff")));
    folder.map(|folder| folder.join(name))
}

/// Writes a new file beside the old one and gives it the name. Readers see the old file or the new one. What killed
/// processes have left beside it is removed.
///
/// # Errors
/// The errors of the system. The former contents are untouched then.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    if let (Some(folder), Some(name)) = (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) {
        remove_unheld(folder, |other, _| is_beside(other, name));
    }
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let beside = with_ending(path, &format!(".{}-{count}.tmp", process::id()));
        // Containers may share a folder and numbers of processes, so a name may be taken; then the next one serves.
        let mut file = match File::create_new(&beside) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        };
        if !hold(&file, &beside) {
            continue;
        }
        let written = file.write_all(contents).and_then(|()| file.sync_all());
        let written = written.and_then(|()| fs::rename(&beside, path));
        if written.is_err() {
            // The unfinished file is removed if possible; the first error is the one to report.
            let _ = fs::remove_file(&beside);
        }
        return written;
    }
}

/// Whether a name is that of an unfinished file of [`replace`], for a file of another name.
fn is_beside(name: &str, of: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let rest = name
        .strip_prefix(of)
        .and_then(|rest| rest.strip_prefix('.'));
    let numbers = rest.and_then(|rest| rest.strip_suffix(".tmp")?.split_once('-'));
    numbers.is_some_and(|(process, count)| is_number(process) && is_number(count))
}

/// Marks a new file as one that this process writes, until it is closed. Returns whether it may be written: if not,
/// another process has taken it for one that nobody writes, and another file is to be made.
pub fn hold(file: &File, path: &Path) -> bool {
    match file.try_lock() {
        Ok(()) => is_at(file, path),
        Err(TryLockError::WouldBlock) => false,
        // A file system without locks: nobody removes files there.
        Err(TryLockError::Error(_)) => true,
    }
}

/// Removes unfinished files that killed processes have left in a folder: regular files that nobody [holds](hold), with
/// the name and the properties of unfinished files. What cannot be removed stays.
pub fn remove_unheld(folder: &Path, is_unfinished: impl Fn(&str, &Metadata) -> bool) {
    // The parent of a bare name is empty.
    let here = Path::new(".");
    let folder = if folder.as_os_str().is_empty() {
        here
    } else {
        folder
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        // This does not follow a link.
        let found = entry.metadata();
        if !found.is_ok_and(|found| found.is_file() && is_unfinished(name, &found)) {
            continue;
        }
        let path = entry.path();
        if let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
            && is_at(&file, &path)
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Whether a path still names an open file.
#[cfg(unix)]
pub fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let same = || -> io::Result<bool> {
        let (open, named) = (file.metadata()?, fs::symlink_metadata(path)?);
        Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
    };
    same().unwrap_or(false)
}

/// Whether a path still names an open file. An open file keeps its name on this system.
#[cfg(not(unix))]
pub fn is_at(_: &File, _: &Path) -> bool {
    true
}

/// Makes a folder and those above it, where they are not there.
///
/// # Errors
/// The errors of the system, in words that say what is in the way: a link that leads nowhere, a loop of links, a file.
pub fn make_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path).map_err(|error| in_the_way(path).unwrap_or(error))
}

/// What keeps a path from being a folder.
fn in_the_way(path: &Path) -> Option<io::Error> {
    let above = path.ancestors().filter(|part| !part.as_os_str().is_empty());
    let part = above
        .into_iter()
        .find(|part| part.symlink_metadata().is_ok())?;
    let shown = part.display();
    match (
        part.symlink_metadata().ok()?.is_symlink(),
        fs::metadata(part),
    ) {
        (_, Ok(found)) if found.is_dir() => None,
        (_, Ok(_)) => Some(io::Error::new(
            io::ErrorKind::NotADirectory,
            format!("expected a folder or nothing, got a file: {shown}"),
        )),
        (true, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            let target = fs::read_link(part).unwrap_or_default();
            Some(io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "expected a folder or nothing, got a symbolic link to nothing: {shown} -> {}",
                    target.display()
                ),
            ))
        }
        (_, Err(error)) => Some(error),
    }
}

/// A path with more at the end of its name.
pub(crate) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_others_are_writing_are_left_alone() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        // Files of a process with the number of this one, in another container.
        let theirs: Vec<PathBuf> = (0..20)
            .map(|count| with_ending(&path, &format!(".{}-{count}.tmp", process::id())))
            .collect();
        let mut held = Vec::new();
        for beside in &theirs {
            let mut file = File::create_new(beside)?;
            assert!(hold(&file, beside));
            file.write_all(b"theirs")?;
            held.push(file);
        }
        for contents in ["first", "second"] {
            replace(&path, contents.as_bytes())?;
            assert_eq!(fs::read_to_string(&path)?, contents);
        }
        for file in &theirs {
            assert_eq!(fs::read_to_string(file)?, "theirs");
        }
        assert_eq!(fs::read_dir(folder.path())?.count(), theirs.len() + 1);
        Ok(())
    }
}
