//! The headers of a release of PyTorch, and the names that its libraries export.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::empty;
use super::library;
use crate::{Error, command};

/// The wheels whose headers are taken. The wheels of Linux on x86-64 have the same headers, beside gigabytes for CUDA.
const PLATFORM: [&str; 2] = ["manylinux_2_28_aarch64", "manylinux2014_aarch64"];
/// The libraries that the call path calls.
const LIBRARIES: [&str; 3] = ["libc10.so", "libtorch_cpu.so", "libtorch_python.so"];
/// The list of exported names in the folder of a release.
const EXPORTS: &str = "exports.txt";

/// Takes the headers and the libraries out of a wheel.
const UNPACK: &str = "import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        if name.startswith('torch/include/') or name in sys.argv[3:]:
            wheel.extract(name, sys.argv[2])
";

/// Says where the PyTorch of a Python is, what its version is, and which ABI it has.
const ASK: &str = "import os, torch
print(os.path.dirname(torch.__file__))
print(torch.__version__)
print(int(torch._C._GLIBCXX_USE_CXX11_ABI))
";

/// The headers of a release.
#[derive(Debug)]
pub(super) struct Headers {
    pub(super) version: String,
    /// The folder `torch/include`.
    pub(super) include: PathBuf,
    /// Whether strings have the layout of C++11, for each kind of build that there is.
    pub(super) abis: &'static [bool],
    /// What its libraries export.
    pub(super) exports: Vec<String>,
}

impl Headers {
    /// The headers of a release, downloaded unless that was done before.
    pub(super) fn download(version: &str, target: &Path) -> Result<Self, Error> {
        let folder = target.join("torch-headers").join(version);
        if !folder.join(EXPORTS).is_file() {
            eprintln!("downloading the headers of PyTorch {version}");
            fetch(version, &folder)?;
        }
        let path = folder.join(EXPORTS);
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        Ok(Self {
            version: version.to_owned(),
            include: folder.join("torch/include"),
            abis: abis(version),
            exports: text.lines().map(str::to_owned).collect(),
        })
    }

    /// The headers of the PyTorch that a Python has.
    pub(super) fn installed(python: &Path) -> Result<Self, Error> {
        let said = command::output(Command::new(python).args(["-c", ASK])).map_err(Error::pip)?;
        let lines: Vec<&str> = said.lines().collect();
        let [folder, version, abi] = lines[..] else {
            return Err(Error::Data {
                path: python.to_owned(),
                expected: format!("a PyTorch that says where it is, got {said}"),
            });
        };
        let folder = Path::new(folder);
        Ok(Self {
            version: version.to_owned(),
            include: folder.join("include"),
            abis: if abi == "1" { &[true] } else { &[false] },
            exports: exports_in(&folder.join("lib"))?,
        })
    }
}

/// The kinds of builds of a release. The builds of 2.6 for the CPU and for CUDA 12.4 have strings from before C++11.
fn abis(version: &str) -> &'static [bool] {
    match version.starts_with("2.6.") {
        true => &[false, true],
        false => &[true],
    }
}

fn fetch(version: &str, folder: &Path) -> Result<(), Error> {
    empty(folder)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps"]);
    pip.args(["--only-binary", ":all:", "--implementation", "cp"]);
    pip.args(["--python-version", "3.12", "--abi", "cp312"]);
    for platform in PLATFORM {
        pip.args(["--platform", platform]);
    }
    pip.arg("--dest")
        .arg(folder)
        .arg(format!("torch=={version}"));
    pip.env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    command::output(&mut pip).map_err(Error::pip)?;
    let wheel = super::super::wheel::only(folder, ".whl")?;
    let mut unpack = Command::new("python3");
    unpack.args(["-c", UNPACK]).arg(&wheel).arg(folder);
    unpack.args(LIBRARIES.map(|library| format!("torch/lib/{library}")));
    command::output(&mut unpack)?;
    fs::remove_file(&wheel).map_err(Error::at(&wheel))?;
    let libraries = folder.join("torch/lib");
    let exports = exports_in(&libraries)?;
    fs::remove_dir_all(&libraries).map_err(Error::at(&libraries))?;
    // The list comes last: with it the folder is complete.
    let list = folder.join(EXPORTS);
    fs::write(&list, exports.join("\n")).map_err(Error::at(&list))
}

/// What the libraries in a folder export.
fn exports_in(folder: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for library in LIBRARIES {
        names.extend(
            library::symbols(&folder.join(library))?
                .into_iter()
                .filter(|symbol| symbol.defined)
                .map(|symbol| symbol.name),
        );
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}
