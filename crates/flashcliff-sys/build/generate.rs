//! Writes the kernels of the algebras that the build asks for.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use codegen::emit::cuda;
use flashcliff_program::selection::{self, VARIABLE};

/// The command that headers name as their origin.
const ORIGIN: &str = "the build script of flashcliff-sys";

/// Updates `folder` to the kernels that the build asks for. A file that is right keeps its date; a file that is no longer
/// wanted is removed.
pub(crate) fn into(folder: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let signatures = selection::of_build_script(|name| env::var(name).ok())?;
    let files = cuda::emit(&signatures, ORIGIN)?.into_iter();
    let files: BTreeMap<PathBuf, String> = files
        .map(|file| (folder.join(file.path), file.text))
        .collect();
    fs::create_dir_all(folder)?;
    remove_others(folder, &files)?;
    for (path, text) in files {
        if fs::read_to_string(&path).is_ok_and(|present| present == text) {
            continue;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    Ok(())
}

fn remove_others(folder: &Path, files: &BTreeMap<PathBuf, String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, files)?;
        } else if !files.contains_key(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
