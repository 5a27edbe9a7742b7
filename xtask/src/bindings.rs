//! `bindings`: the Rust declarations of the C interface of the kernels.
//!
//! bindgen takes longer to compile than all other tasks together, so it is behind a cargo feature. The task starts
//! itself a second time with that feature, and with the C parser that bindgen loads.

#[cfg(feature = "bindings")]
mod header;

use std::path::Path;

use crate::Error;

/// Writes the declarations, or checks them.
#[cfg(not(feature = "bindings"))]
pub(crate) fn run(root: &Path, check: bool) -> Result<String, Error> {
    use crate::{command, pins};

    let mut again = command::cargo(root);
    again
        .args(["run", "--quiet", "--release", "--package", "xtask"])
        .args(["--features", "bindings", "--", "bindings"])
        .args(check.then_some("--check"));
    if std::env::var_os("LIBCLANG_PATH").is_none() {
        let libclang = pins::LIBCLANG.ensure(&command::target_folder(root)?)?;
        again.env("LIBCLANG_PATH", libclang.join("clang/native"));
    }
    Ok(command::output(&mut again)?.trim_end().to_owned())
}

/// Writes the declarations, or checks them.
#[cfg(feature = "bindings")]
pub(crate) fn run(root: &Path, check: bool) -> Result<String, Error> {
    use std::fs;

    let path = root.join(header::RUST);
    let wanted = header::translate(root)?;
    if !check {
        fs::write(&path, wanted).map_err(Error::at(&path))?;
        return Ok(format!("{} written", header::RUST));
    }
    let present = fs::read(&path).map_err(Error::at(&path))?;
    if present == wanted.as_bytes() {
        return Ok(format!("{} is up to date", header::RUST));
    }
    Err(Error::OutOfDate {
        command: header::COMMAND,
        differences: vec![format!("  differs: {}", header::RUST)],
    })
}
