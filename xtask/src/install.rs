//! `install`: header, static and shared library of the C interface, and a file for pkg-config.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::{Error, command};

/// The name by which programs ask for the shared library, as `crates/flashcliff-c/build.rs` sets it.
const SONAME: &str = "libflashcliff.so.0";

pub(crate) fn run(root: &Path, prefix: &Path, cuda: bool) -> Result<String, Error> {
    let prefix = std::path::absolute(prefix).map_err(Error::at(prefix))?;
    let target = command::target_folder(root)?;
    let mut build = command::cargo(root);
    build.args(["build", "--release", "--package", "flashcliff-c"]);
    if cuda {
        build.args(["--features", "flashcliff-c/cuda"]);
    }
    command::output(&mut build)?;
    let built = target.join("release");
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    let pkgconfig = lib.join("pkgconfig");
    for folder in [&include, &pkgconfig] {
        fs::create_dir_all(folder).map_err(Error::at(folder))?;
    }
    let header = root.join("crates/flashcliff-c/include/flashcliff.h");
    for (from, to) in [
        (header, include.join("flashcliff.h")),
        (built.join("libflashcliff_c.a"), lib.join("libflashcliff.a")),
        (built.join("libflashcliff_c.so"), lib.join(SONAME)),
    ] {
        fs::copy(&from, &to).map_err(Error::at(&from))?;
    }
    let link = lib.join("libflashcliff.so");
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link).map_err(Error::at(&link))?;
    }
    symlink(SONAME, &link).map_err(Error::at(&link))?;
    let path = pkgconfig.join("flashcliff.pc");
    fs::write(&path, description(&prefix, cuda)).map_err(Error::at(&path))?;
    Ok(format!(
        "installed; PKG_CONFIG_PATH={} cc program.c $(pkg-config --cflags --libs flashcliff)",
        pkgconfig.display()
    ))
}

/// The file for pkg-config. The static library needs what Rust's standard library does, with CUDA kernels that of C++, too.
fn description(prefix: &Path, cuda: bool) -> String {
    let more = if cuda { " -lstdc++" } else { "" };
    format!(
        "prefix={}\nincludedir=${{prefix}}/include\nlibdir=${{prefix}}/lib\n\nName: flashcliff\n\
         Description: Operators of Clifford-algebra neural networks\nVersion: {}\nCflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lflashcliff\nLibs.private: -lgcc_s -lutil -lrt -lpthread -lm -ldl{more}\n",
        prefix.display(),
        env!("CARGO_PKG_VERSION")
    )
}
