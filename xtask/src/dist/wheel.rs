//! The Python package, by maturin: a wheel and a source distribution.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use build_support::INSTALLED_TOOLKIT;

use super::empty;
use super::report::{Report, name};
use super::torch;
use crate::git::git;
use crate::{Error, command, pins};

/// The manifest of the package in the repository and in a source distribution.
const MANIFEST: &str = "crates/flashcliff-py/Cargo.toml";
/// The largest wheel without and with CUDA kernels, and the largest source distribution.
const MOST_BYTES: [u64; 2] = [8 << 20, 40 << 20];
const MOST_SDIST_BYTES: u64 = 2 << 20;
/// The version of CUDA's declarations, as in `.cargo/config.toml`, which a source distribution lacks.
const CUDA_VERSION: &str = "13000";

/// Whether compiled code names the folders in which it was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paths {
    /// Flags as in any other build, so that what is built already is used.
    AsTheyAre,
    /// Folders have the same names on every machine.
    Mapped,
}

/// How packages are built.
#[derive(Debug)]
pub(super) struct Build {
    maturin: PathBuf,
    cuda: bool,
    /// The time of the commit, in seconds since 1970, which all files in packages have.
    time: String,
    /// The compiler of CUDA kernels, if the repository has installed one.
    nvcc: Option<PathBuf>,
    /// The compiled call path, a library for each release of PyTorch.
    libraries: Vec<PathBuf>,
}

impl Build {
    pub(super) fn new(root: &Path, target: &Path, cuda: bool) -> Result<Self, Error> {
        let maturin = pins::MATURIN.ensure(target)?.join(pins::MATURIN.files[0]);
        let time = git(root, &["log", "-1", "--format=%ct"])?;
        let nvcc = target.join(INSTALLED_TOOLKIT).join("bin/nvcc");
        Ok(Self {
            maturin,
            cuda,
            time: time.trim().to_owned(),
            nvcc: nvcc.is_file().then_some(nvcc),
            libraries: Vec::new(),
        })
    }

    /// The same with a compiled call path.
    pub(super) fn with(self, libraries: Vec<PathBuf>) -> Self {
        Self { libraries, ..self }
    }

    /// The features of the extension. They replace the features of `pyproject.toml`.
    pub(super) fn features(&self) -> &'static [&'static str] {
        match self.cuda {
            true => &["package", "cuda"],
            false => &["package"],
        }
    }

    /// The wheel of a folder of sources.
    pub(super) fn wheel(
        &self,
        source: &Path,
        bill: &Path,
        paths: Paths,
        out: &Path,
    ) -> Result<PathBuf, Error> {
        // The last commit's lock file is complete.
        self.build(source, bill, paths, out, &["--locked"])
    }

    /// The wheel of a source distribution. Its lock file has more packages than it needs.
    pub(super) fn again(&self, sdist: &Path, bill: &Path, folder: &Path) -> Result<PathBuf, Error> {
        empty(folder)?;
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(folder).arg("-xzf").arg(sdist);
        command::output(&mut tar)?;
        let stem = name(sdist).trim_end_matches(".tar.gz").to_owned();
        self.build(
            &folder.join(stem),
            bill,
            Paths::Mapped,
            &folder.join("wheel"),
            &[],
        )
    }

    /// The source distribution.
    pub(super) fn sdist(&self, source: &Path, out: &Path) -> Result<PathBuf, Error> {
        let mut maturin = self.command(source);
        maturin.arg("sdist").arg("--manifest-path").arg(MANIFEST);
        maturin.arg("--out").arg(out);
        command::output(&mut maturin)?;
        only(out, ".tar.gz")
    }

    fn build(
        &self,
        source: &Path,
        bill: &Path,
        paths: Paths,
        out: &Path,
        options: &[&str],
    ) -> Result<PathBuf, Error> {
        let mut maturin = self.command(source);
        maturin.args(["build", "--release", "--manifest-path", MANIFEST]);
        // A wheel that PyPI would not take is an error.
        maturin.args(["--compatibility", "pypi"]).args(options);
        maturin.arg("--sbom-include").arg(bill);
        maturin.arg("--out").arg(out);
        for feature in self.features() {
            maturin.args(["--features", feature]);
        }
        if paths == Paths::Mapped {
            maturin.env("CARGO_ENCODED_RUSTFLAGS", mapped(source)?);
            // The folder of the build is its own, whatever the caller has set.
            maturin
                .env_remove("CARGO_TARGET_DIR")
                .env_remove("RUSTFLAGS");
        }
        let _placed = torch::Placed::new(&self.libraries, source)?;
        command::output(&mut maturin)?;
        only(out, ".whl")
    }

    fn command(&self, source: &Path) -> Command {
        let mut maturin = Command::new(&self.maturin);
        maturin.current_dir(source);
        maturin.env("SOURCE_DATE_EPOCH", &self.time);
        maturin.env("CUDARC_CUDA_VERSION", CUDA_VERSION);
        if let (true, Some(nvcc)) = (self.cuda, &self.nvcc) {
            maturin.env("FLASHCLIFF_NVCC", nvcc);
        }
        maturin
    }

    /// Checks names and sizes.
    pub(super) fn check(
        &self,
        wheel: &Path,
        sdist: &Path,
        report: &mut Report,
    ) -> Result<(), Error> {
        let bytes = report.size(wheel, MOST_BYTES[usize::from(self.cuda)])?;
        let wheel = name(wheel);
        for part in ["-abi3-", "-manylinux_"] {
            if !wheel.contains(part) {
                report.fault(format!(
                    "expected {part} in the name of the wheel, got {wheel}"
                ));
            }
        }
        report.say(format!("{wheel}, {} KiB", bytes >> 10));
        let bytes = report.size(sdist, MOST_SDIST_BYTES)?;
        report.say(format!("{}, {} KiB", name(sdist), bytes >> 10));
        Ok(())
    }
}

/// The flags by which compiled code names folders alike on every machine. Parts are between bytes of value 31.
fn mapped(source: &Path) -> Result<OsString, Error> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let source = source.canonicalize().map_err(Error::at(source))?;
    let mut flags = OsString::new();
    let registry = home.map(|home| home.join("registry/src"));
    let folders = [(Some(source), "/flashcliff"), (registry, "/crates")];
    for (folder, short) in folders {
        let Some(folder) = folder else { continue };
        if !flags.is_empty() {
            flags.push("\u{1f}");
        }
        flags.push("--remap-path-prefix=");
        flags.push(folder);
        flags.push("=");
        flags.push(short);
    }
    Ok(flags)
}

/// The one file in a folder with an ending.
pub(super) fn only(folder: &Path, ending: &str) -> Result<PathBuf, Error> {
    let entries = fs::read_dir(folder).map_err(Error::at(folder))?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut found: Vec<PathBuf> = paths.filter(|path| name(path).ends_with(ending)).collect();
    match (found.pop(), found.len()) {
        (Some(path), 0) => Ok(path),
        (found, rest) => Err(Error::Data {
            path: folder.to_owned(),
            expected: format!(
                "one file *{ending}, got {}",
                rest + usize::from(found.is_some())
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace_root;

    #[test]
    fn the_version_of_cuda_is_that_of_the_repository() -> Result<(), Error> {
        let path = workspace_root().join(".cargo/config.toml");
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        assert!(text.contains(&format!("CUDARC_CUDA_VERSION = \"{CUDA_VERSION}\"")));
        Ok(())
    }

    #[test]
    fn a_second_wheel_in_the_folder_is_an_error() -> Result<(), Error> {
        let folder = tempfile::tempdir().map_err(Error::at(Path::new("temporary folder")))?;
        let write =
            |file: &str| fs::write(folder.path().join(file), "").map_err(Error::at(folder.path()));
        assert!(only(folder.path(), ".whl").is_err());
        write("a.whl")?;
        write("a.txt")?;
        assert_eq!(only(folder.path(), ".whl")?, folder.path().join("a.whl"));
        write("b.whl")?;
        let error = only(folder.path(), ".whl").unwrap_err().to_string();
        assert!(error.contains("one file *.whl, got 2"), "{error}");
        Ok(())
    }
}
