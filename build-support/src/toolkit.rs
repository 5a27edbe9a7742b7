//! Finds nvcc and the rest of its toolkit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use crate::{Environment, Error, Version};

/// The folder in the build folder where `cargo xtask cuda-toolkit` installs its toolkit.
pub const INSTALLED_TOOLKIT: &str = "cuda-toolkit/nvidia/cu13";

/// The oldest nvcc that knows all architectures.
pub const OLDEST_NVCC: Version = Version {
    major: 12,
    minor: 8,
    build: 0,
};

/// The remedies for users without a usable toolkit.
pub(crate) const REMEDIES: &str = "Either install CUDA 12.8 or later and set CUDA_HOME to its folder \
     (or FLASHCLIFF_NVCC to its nvcc), or run `cargo xtask cuda-toolkit` in the repository of \
     flashcliff, which installs a toolkit into the build folder and nowhere else";

/// The variables that name nvcc itself; the first one that is set wins.
const COMPILERS: [&str; 2] = ["FLASHCLIFF_NVCC", "NVCC"];
/// The variables that name a toolkit.
const TOOLKITS: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];
/// The folders where toolkits keep libraries: full installations, wheels, then full ones without links.
const LIBRARY_FOLDERS: [&str; 4] = [
    "lib64",
    "lib",
    "targets/x86_64-linux/lib",
    "targets/sbsa-linux/lib",
];
/// The file of the runtime that programs link.
const RUNTIME: &str = "libcudart_static.a";

/// A CUDA compiler and its surroundings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolkit {
    /// The compiler.
    pub nvcc: PathBuf,
    /// The folder of the toolkit, which holds `bin`.
    pub root: PathBuf,
    /// The folder of `libcudart_static.a`.
    pub libraries: PathBuf,
    /// The version of the compiler.
    pub version: Version,
}

impl Toolkit {
    /// The variables that decide which toolkit is found, apart from `PATH`.
    pub const VARIABLES: [&str; 4] = [COMPILERS[0], COMPILERS[1], TOOLKITS[0], TOOLKITS[1]];

    /// The first nvcc of: `FLASHCLIFF_NVCC`, `NVCC` (a path, or a name to look up in `PATH`),
    /// `CUDA_HOME`, `CUDA_PATH` (a folder with `bin/nvcc`), `PATH`, `/usr/local/cuda`, and the toolkit
    /// that `cargo xtask cuda-toolkit` installs into the build folder.
    ///
    /// # Errors
    /// No nvcc is found; a variable names one that does not exist (it is never skipped); nvcc does not run; it is older
    /// than [`OLDEST_NVCC`]; or the static runtime is missing.
    pub fn find(environment: &Environment) -> Result<Self, Error> {
        Self::find_with(environment, |nvcc| {
            let output = Command::new(nvcc).arg("--version").output()?;
            if output.status.success() {
                return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
            }
            let errors = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("{}: {errors}", output.status)))
        })
    }

    /// The path of a tool of the toolkit; `None` if the toolkit does not have it.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<PathBuf> {
        Some(self.root.join("bin").join(name)).filter(|path| path.is_file())
    }

    /// Does the same as [`Toolkit::find`], with another way to run `nvcc --version`.
    fn find_with(
        environment: &Environment,
        run: impl Fn(&Path) -> io::Result<String>,
    ) -> Result<Self, Error> {
        let nvcc = locate(environment)?;
        let output = run(&nvcc).map_err(|source| Error::NvccFails {
            nvcc: nvcc.clone(),
            source,
        })?;
        let Some(version) = Version::from_nvcc(&output) else {
            return Err(Error::NoVersion { nvcc, output });
        };
        if version < OLDEST_NVCC {
            return Err(Error::NvccTooOld { nvcc, version });
        }
        let mut searched = Vec::new();
        for root in roots(&nvcc) {
            for folder in LIBRARY_FOLDERS {
                let libraries = root.join(folder);
                if libraries.join(RUNTIME).is_file() {
                    return Ok(Self {
                        nvcc,
                        root,
                        libraries,
                        version,
                    });
                }
                searched.push(libraries);
            }
        }
        Err(Error::NoRuntime { nvcc, searched })
    }
}

fn locate(environment: &Environment) -> Result<PathBuf, Error> {
    let mut searched = Vec::new();
    for variable in COMPILERS {
        if let Some(value) = environment.variable(variable) {
            let value = PathBuf::from(value);
            let found = match value.components().count() {
                1 => in_path(environment, &value),
                _ => Some(value.clone()).filter(|path| path.is_file()),
            };
            return found.ok_or_else(|| Error::NoSuchNvcc {
                variable,
                expected: value.clone(),
                value,
            });
        }
        searched.push(format!("{variable}, which is not set"));
    }
    for variable in TOOLKITS {
        if let Some(value) = environment.variable(variable) {
            let value = PathBuf::from(value);
            let expected = value.join("bin/nvcc");
            return match expected.is_file() {
                true => Ok(expected),
                false => Err(Error::NoSuchNvcc {
                    variable,
                    value,
                    expected,
                }),
            };
        }
        searched.push(format!("{variable}, which is not set"));
    }
    if let Some(nvcc) = in_path(environment, Path::new("nvcc")) {
        return Ok(nvcc);
    }
    searched.push("the folders of PATH".to_owned());
    let installed = environment.target_folders.iter();
    let installed = installed.map(|folder| folder.join(INSTALLED_TOOLKIT));
    for root in [environment.system_toolkit.clone()]
        .into_iter()
        .chain(installed)
    {
        let nvcc = root.join("bin/nvcc");
        if nvcc.is_file() {
            return Ok(nvcc);
        }
        searched.push(nvcc.display().to_string());
    }
    Err(Error::NoNvcc { searched })
}

fn in_path(environment: &Environment, name: &Path) -> Option<PathBuf> {
    let folders = env::split_paths(environment.variable("PATH")?);
    let mut candidates = folders.map(|folder| folder.join(name));
    candidates.find(|path| path.is_file())
}

/// The folders that may be the toolkit of a compiler: the folder of the file that all links lead to, and the folder
/// where the compiler was found. The second matters for wrappers, whose links lead elsewhere.
fn roots(nvcc: &Path) -> Vec<PathBuf> {
    let real = fs::canonicalize(nvcc).ok();
    let mut roots: Vec<PathBuf> = Vec::new();
    for path in real.iter().map(PathBuf::as_path).chain([nvcc]) {
        if let Some(root) = path.parent().and_then(Path::parent)
            && !roots.iter().any(|known| known == root)
        {
            roots.push(root.to_owned());
        }
    }
    roots
}

#[cfg(test)]
mod tests;
