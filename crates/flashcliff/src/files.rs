//! The cache folder, and files that are written whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
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

/// Writes a new file beside the old one and gives it the name. Readers see the old file or the new one.
///
/// # Errors
/// The errors of the system. The former contents are untouched then.
pub fn replace(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let (mut file, beside) = create_beside(path)?;
    let written = file
        .write_all(contents)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The unfinished file is removed if possible; the first error is the one to report.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// A new file beside another. Processes of several machines or containers may have one number and one folder, so that a name may be
/// taken; then the next one serves.
fn create_beside(path: &Path) -> std::io::Result<(File, PathBuf)> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let beside = with_ending(path, &format!(".{}-{count}.tmp", process::id()));
        match File::create_new(&beside) {
            Ok(file) => return Ok((file, beside)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
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
        // Those of a process with this one's number, in another container.
        let theirs: Vec<PathBuf> = (0..20)
            .map(|count| with_ending(&path, &format!(".{}-{count}.tmp", process::id())))
            .collect();
        for file in &theirs {
            fs::write(file, "theirs")?;
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
