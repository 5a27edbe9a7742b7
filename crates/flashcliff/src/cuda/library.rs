//! Shared libraries that are loaded at run time.
//!
//! cudarc would panic if a library were missing, so this module looks for libraries before cudarc is called.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;

use crate::Error;

/// The file names of the driver. cudarc tries all of them too.
#[cfg(not(windows))]
const DRIVER: &[&str] = &["libcuda.so.1", "libcuda.so"];
#[cfg(windows)]
const DRIVER: &[&str] = &["nvcuda.dll"];

#[cfg(not(windows))]
const CUBLAS_LT: &[&str] = &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"];
#[cfg(windows)]
const CUBLAS_LT: &[&str] = &["cublasLt64_13.dll", "cublasLt64_12.dll"];

/// The folders where toolkits and the wheels of PyPI keep libraries, below the folders that variables name.
const FOLDERS: &[(&str, &[&str])] = &[
    ("NCCL_HOME", &["lib"]),
    ("CUDA_HOME", &["lib64", "lib", "bin/x64", "bin"]),
    ("CUDA_PATH", &["lib64", "lib", "bin/x64", "bin"]),
    (
        "VIRTUAL_ENV",
        &["lib/python*/site-packages/nvidia/cu13/lib"],
    ),
    (
        "VIRTUAL_ENV",
        &[
            "lib/python*/site-packages/nvidia/cublas/lib",
            "lib/python*/site-packages/nvidia/curand/lib",
            "lib/python*/site-packages/nvidia/cuda_nvrtc/lib",
            "lib/python*/site-packages/nvidia/nccl/lib",
        ],
    ),
    ("CONDA_PREFIX", &["lib"]),
];

/// Checks that there is a driver to load. A driver that is found stays loaded.
pub(super) fn driver() -> Result<(), Error> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| first(DRIVER.iter().map(PathBuf::from)));
    match loaded {
        Ok(_) => Ok(()),
        Err(reason) => Err(Error::NoCudaDriver {
            reason: reason.clone(),
        }),
    }
}

/// Finds cuBLASLt, which stays loaded.
pub(super) fn cublas_lt() -> Result<&'static Library, Error> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| load_library(CUBLAS_LT));
    loaded.as_ref().map_err(|tried| Error::CudaLibrary {
        library: "cuBLASLt",
        tried: tried.clone(),
    })
}

/// Loads a shared library of CUDA, by the first of some file names that works. It is looked for where the loader looks,
/// and so also among the libraries that are loaded, then in `$NCCL_HOME`, `$CUDA_HOME`, `$CUDA_PATH`, `$VIRTUAL_ENV` and
/// `$CONDA_PREFIX`, then beside the libraries of CUDA that are loaded.
///
/// # Errors
/// A list of all places that were tried, with the messages of the loader.
pub fn load_library(names: &[&str]) -> Result<Library, String> {
    let folders = FOLDERS.iter().flat_map(|&(variable, below)| {
        let root = std::env::var_os(variable).map(PathBuf::from);
        root.into_iter()
            .flat_map(move |root| below.iter().flat_map(move |path| expand(&root, path)))
    });
    let named = names.iter().map(PathBuf::from);
    let found = folders
        .chain(folders_of_loaded())
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    first(named.chain(found.filter(|path| path.exists())))
}

/// The folders of the libraries of CUDA that the process has loaded, and where the wheels of PyPI that hold these keep others: in the
/// same folder, or in one beside it.
fn folders_of_loaded() -> impl Iterator<Item = PathBuf> {
    // Only Linux has the file.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut folders = Vec::new();
    for path in maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])))
    {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy())
            .unwrap_or_default();
        let is_of_cuda = ["libcublas", "libcudart", "libcudnn", "libnv"]
            .iter()
            .any(|start| name.starts_with(start));
        let Some(folder) = path.parent().filter(|_| is_of_cuda) else {
            continue;
        };
        let beside = ["../../cuda_nvrtc/lib", "../../nccl/lib"].map(|path| folder.join(path));
        for folder in [folder.to_owned()].into_iter().chain(beside) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders.into_iter()
}

/// Loads the first library that can be loaded; else returns the messages of the loader.
fn first(candidates: impl Iterator<Item = PathBuf>) -> Result<Library, String> {
    let mut tried = Vec::new();
    for candidate in candidates {
        // SAFETY: the initialisers of NVIDIA's libraries have no requirements.
        match unsafe { Library::new(&candidate) } {
            Ok(library) => return Ok(library),
            Err(error) => tried.push(explain(&candidate, &error)),
        }
    }
    Err(tried.join("; "))
}

/// The message of the loader, which the error itself leaves to its source.
fn explain(candidate: &Path, error: &libloading::Error) -> String {
    let name = candidate.display().to_string();
    let said = error
        .source()
        .map_or_else(|| error.to_string(), |source| source.to_string());
    // glibc's message begins with the name too.
    match said.starts_with(&name) {
        true => said,
        false => format!("{name}: {said}"),
    }
}

/// The folders below `root` that match a path, in which one part may end in `*`.
fn expand(root: &Path, path: &str) -> Vec<PathBuf> {
    let mut folders = vec![root.to_owned()];
    for part in path.split('/') {
        folders = match part.strip_suffix('*') {
            None => folders.iter().map(|folder| folder.join(part)).collect(),
            Some(prefix) => folders
                .iter()
                .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
                .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
                .map(|entry| entry.path())
                .collect(),
        };
    }
    folders
}
