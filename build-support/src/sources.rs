//! The files to compile, and the files that they depend on.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use crate::Error;

/// Every `.cu` file in a folder and the folders below it, relative to it, in order of the name.
///
/// # Errors
/// A folder that cannot be read, or one without any such file.
pub fn cuda_sources(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut sources = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(relative) = folders.pop() {
        let path = folder.join(&relative);
        for entry in fs::read_dir(&path).map_err(at(&path))? {
            let entry = entry.map_err(at(&path))?;
            let name = relative.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(name);
            } else if name.extension().is_some_and(|extension| extension == "cu") {
                sources.push(name);
            }
        }
    }
    if sources.is_empty() {
        return Err(Error::NoSources {
            folder: folder.to_owned(),
        });
    }
    sources.sort();
    Ok(sources)
}

/// The ingredients of an object file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ingredients {
    /// A number that changes if the command or the text of any file changes.
    pub fingerprint: u64,
    /// The total length of all files. The longest ones take the compiler longest.
    pub bytes: usize,
}

impl Ingredients {
    /// The ingredients of a command that compiles a source file: the command, the file, and every file that it includes
    /// with quotes, directly or not. An included file lies beside the file that includes it, or in the folder
    /// `include`. A file that lies in neither belongs to the compiler.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn of(command: &[OsString], source: &Path, include: &Path) -> Result<Self, Error> {
        let mut hasher = DefaultHasher::new();
        command.hash(&mut hasher);
        let mut bytes = 0;
        let mut files = vec![source.to_owned()];
        let mut known = BTreeSet::new();
        while let Some(path) = files.pop() {
            let real = fs::canonicalize(&path).map_err(at(&path))?;
            if !known.insert(real) {
                continue;
            }
            let text = fs::read(&path).map_err(at(&path))?;
            text.hash(&mut hasher);
            bytes += text.len();
            let beside = path.parent().unwrap_or(include);
            for name in String::from_utf8_lossy(&text).lines().filter_map(included) {
                let candidates = [beside.join(name), include.join(name)];
                files.extend(candidates.into_iter().find(|path| path.is_file()));
            }
        }
        Ok(Self {
            fingerprint: hasher.finish(),
            bytes,
        })
    }
}

/// The file that a line includes with quotes.
fn included(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start();
    let rest = rest.strip_prefix("include")?.trim_start();
    let (name, _) = rest.strip_prefix('"')?.split_once('"')?;
    Some(name)
}

fn at(path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Result;

    use tempfile::TempDir;

    use super::*;

    fn files(files: &[(&str, &str)]) -> Result<TempDir> {
        let folder = tempfile::tempdir()?;
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap_or(folder.path()))?;
            fs::write(path, text)?;
        }
        Ok(folder)
    }

    #[test]
    fn sources_are_found_at_every_depth_in_order() -> Result<()> {
        let names = [
            "z.cu",
            "a.cu",
            "a.cuh",
            "b.h",
            "generated/cl300/sgp.cu",
            "cu",
        ];
        let folder = files(&names.map(|name| (name, "")))?;
        let sources = cuda_sources(folder.path()).map_err(io::Error::other)?;
        let expected = ["a.cu", "generated/cl300/sgp.cu", "z.cu"].map(PathBuf::from);
        assert_eq!(sources, expected);
        Ok(())
    }

    #[test]
    fn nothing_to_compile_is_an_error() -> Result<()> {
        let folder = files(&[("a.cuh", "")])?;
        let result = cuda_sources(folder.path());
        assert!(matches!(result, Err(Error::NoSources { .. })));
        let result = cuda_sources(&folder.path().join("missing"));
        assert!(matches!(result, Err(Error::Io { .. })));
        Ok(())
    }

    #[test]
    fn the_ingredients_are_the_command_and_every_included_file() -> Result<()> {
        let tree = [
            (
                "cl300/sgp.cu",
                "#include \"sgp.cuh\"\n  #  include  \"skeleton/rows.cuh\" // rows\n",
            ),
            (
                "cl300/sgp.cuh",
                "#include \"../cl300/sgp.cuh\"\n#include <cuda_runtime.h>\n",
            ),
            (
                "skeleton/rows.cuh",
                "#include \"memory.cuh\"\n#include \"cuda_fp16.h\"\n",
            ),
            ("skeleton/memory.cuh", "// #include \"other.cuh\"\n"),
            ("other.cuh", "other"),
        ];
        let folder = files(&tree)?;
        let of = |flag: &str| {
            let source = folder.path().join("cl300/sgp.cu");
            Ingredients::of(&[flag.into()], &source, folder.path()).map_err(io::Error::other)
        };
        let before = of("-O3")?;
        let reached = &tree[..4];
        assert_eq!(
            before.bytes,
            reached.iter().map(|(_, text)| text.len()).sum()
        );
        assert_eq!(of("-O3")?, before);
        assert_ne!(of("-O2")?.fingerprint, before.fingerprint);
        for (name, text) in tree {
            fs::write(folder.path().join(name), format!("{text} "))?;
            let same = of("-O3")?.fingerprint == before.fingerprint;
            assert_eq!(same, name == "other.cuh", "{name}");
            fs::write(folder.path().join(name), text)?;
            assert_eq!(of("-O3")?, before);
        }
        Ok(())
    }

    #[test]
    fn a_missing_source_is_an_error() {
        let result = Ingredients::of(&[], Path::new("/no/such.cu"), Path::new("/no"));
        assert!(matches!(result, Err(Error::Io { .. })));
    }
}
