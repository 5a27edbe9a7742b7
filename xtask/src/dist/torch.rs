//! The compiled call path of the Python package, for releases of PyTorch: `crates/flashcliff-py/python/flashcliff/_native`.
//!
//! * `headers` - the headers of a release, and what its libraries export.
//! * `library` - what a compiled call path asks of a system, of Python and of PyTorch.
//!
//! A library depends on nothing but its sources, the release and the compiler, and is kept in the build folder.

mod headers;
mod library;

use std::fs;
use std::hash::Hasher;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::empty;
use super::report::{Report, name};
use crate::{Error, command, pins};

use headers::Headers;

/// The folder of the sources, and of the libraries in a wheel: in the repository, and in a source distribution.
const SOURCES: [&str; 2] = [
    "crates/flashcliff-py/python/flashcliff/_native",
    "python/flashcliff/_native",
];

/// For which releases of PyTorch the wheel has a compiled call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Which {
    /// The release of `--python`, or else the newest.
    One,
    /// The same, and the oldest that is supported.
    Few,
    /// All that are supported, whose headers are downloaded once: some gigabytes.
    All,
    /// None: calls go through Python.
    None,
}

/// A folder with the library of each release.
pub(super) fn compile(
    which: Which,
    root: &Path,
    target: &Path,
    python: Option<&Path>,
    report: &mut Report,
) -> Result<Vec<PathBuf>, Error> {
    let start = Instant::now();
    let sources = &root.join(SOURCES[0]);
    let releases = releases(which, target, python)?;
    let abis = releases
        .iter()
        .flat_map(|headers| headers.abis.iter().map(move |&cxx11| (headers, cxx11)));
    let wanted: Vec<(&Headers, bool)> = abis.collect();
    let mut libraries = Vec::new();
    // A compiler has one thread.
    let workers = thread::available_parallelism().map_or(1, usize::from);
    for wanted in wanted.chunks(workers) {
        let paths: Vec<Result<PathBuf, Error>> = thread::scope(|scope| {
            let mut running = Vec::with_capacity(wanted.len());
            for &(headers, cxx11) in wanted {
                running.push(scope.spawn(move || compiled(sources, headers, cxx11, target)));
            }
            let ends = running.into_iter().map(|own| own.join());
            ends.map(|end| end.unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        for (path, &(headers, cxx11)) in paths.into_iter().zip(wanted) {
            let path = path?;
            library::check(&path, cxx11.then_some(headers.exports.as_slice()), report)?;
            libraries.push(path);
        }
    }
    let names: Vec<String> = libraries.iter().map(|path| name(path)).collect();
    match names.is_empty() {
        true => report.say("compiled call path: NONE in this wheel, calls go through Python"),
        false => report.say(format!(
            "compiled call path: {} ({} s)",
            names.join(", "),
            start.elapsed().as_secs()
        )),
    }
    Ok(libraries)
}

fn releases(which: Which, target: &Path, python: Option<&Path>) -> Result<Vec<Headers>, Error> {
    let versions: &[&str] = match which {
        Which::None => return Ok(Vec::new()),
        Which::One => &[],
        Which::Few => &pins::TORCH[..1],
        Which::All => &pins::TORCH,
    };
    let downloaded = versions.iter();
    let mut found: Vec<Headers> = downloaded
        .map(|version| Headers::download(version, target))
        .collect::<Result<_, _>>()?;
    if matches!(which, Which::One | Which::Few) {
        found.push(match python {
            Some(python) => Headers::installed(python)?,
            None => Headers::download(pins::TORCH[pins::TORCH.len() - 1], target)?,
        });
    }
    Ok(found)
}

/// The library for a release, unless it is there already.
fn compiled(
    sources: &Path,
    headers: &Headers,
    cxx11: bool,
    target: &Path,
) -> Result<PathBuf, Error> {
    let key = key(sources, headers, cxx11)?;
    let folder = target.join("torch-call-path").join(&key);
    if let Ok(path) = library_in(&folder) {
        return Ok(path);
    }
    eprintln!("compiling the call path for PyTorch {}", headers.version);
    // A folder with the final name is always complete.
    let partial = folder.with_extension(format!("partial-{}", std::process::id()));
    empty(&partial)?;
    let mut compiler = Command::new("python3");
    compiler
        .arg(sources.join("compiler.py"))
        .arg(&headers.include)
        .arg(&partial);
    compiler.args((!cxx11).then_some("--before-cxx11"));
    command::output(&mut compiler)?;
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(Error::at(&folder))?;
    }
    fs::rename(&partial, &folder).map_err(Error::at(&folder))?;
    library_in(&folder)
}

/// What a library is made of: its sources, the release, and the compiler.
fn key(sources: &Path, headers: &Headers, cxx11: bool) -> Result<String, Error> {
    let mut hasher = SipHasher13::new();
    let entries = fs::read_dir(sources).map_err(Error::at(sources))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .collect();
    files.retain(|path| {
        [".cpp", ".hpp", ".py"]
            .iter()
            .any(|ending| name(path).ends_with(ending))
    });
    files.sort();
    for path in files {
        hasher.write(&fs::read(&path).map_err(Error::at(&path))?);
    }
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let words: Vec<&str> = compiler.split_whitespace().collect();
    let mut version = Command::new(words.first().copied().unwrap_or("c++"));
    version.args(words.iter().skip(1)).arg("--version");
    hasher.write(command::output(&mut version)?.as_bytes());
    hasher.write(headers.version.as_bytes());
    hasher.write_u8(u8::from(cxx11));
    Ok(format!("{:032x}", hasher.finish128().as_u128()))
}

fn library_in(folder: &Path) -> Result<PathBuf, Error> {
    super::wheel::only(folder, ".so")
}

/// Libraries among the sources of a package, for the time of a build.
pub(super) struct Placed(Vec<PathBuf>);

impl Placed {
    pub(super) fn new(libraries: &[PathBuf], source: &Path) -> Result<Self, Error> {
        let folders = SOURCES.map(|folder| source.join(folder));
        let [in_repository, in_distribution] = folders;
        let folder = match in_repository.is_dir() {
            true => in_repository,
            false => in_distribution,
        };
        // Removes the libraries of an earlier build that was interrupted.
        for entry in fs::read_dir(&folder)
            .map_err(Error::at(&folder))?
            .filter_map(Result::ok)
        {
            if name(&entry.path()).ends_with(".so") {
                fs::remove_file(entry.path()).map_err(Error::at(&folder))?;
            }
        }
        let mut placed = Self(Vec::new());
        for library in libraries {
            let path = folder.join(name(library));
            fs::copy(library, &path).map_err(Error::at(&path))?;
            placed.0.push(path);
        }
        Ok(placed)
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        for path in &self.0 {
            // The next build removes what stays.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_among_the_sources_while_a_build_runs() -> Result<(), Error> {
        for sources in SOURCES {
            let folder = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
            let native = folder.path().join(sources);
            fs::create_dir_all(&native).map_err(Error::at(&native))?;
            let library = folder.path().join("torch_2_6.so");
            let files = [
                &library,
                &native.join("torch_2_5.so"),
                &native.join("call.cpp"),
            ];
            for file in files {
                fs::write(file, "").map_err(Error::at(file))?;
            }
            let listed = || -> Result<Vec<String>, Error> {
                let entries = fs::read_dir(&native).map_err(Error::at(&native))?;
                let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
                let mut names: Vec<String> = paths.map(|path| name(&path)).collect();
                names.sort();
                Ok(names)
            };
            let placed = Placed::new(&[library], folder.path())?;
            assert_eq!(listed()?, ["call.cpp", "torch_2_6.so"]);
            drop(placed);
            assert_eq!(listed()?, ["call.cpp"]);
        }
        Ok(())
    }
}
