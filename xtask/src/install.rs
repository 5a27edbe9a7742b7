//! `install`: header, static and shared library of the C interface, a file for pkg-config, and the program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::{Error, command};

/// The name by which programs ask for the shared library, as `crates/flashcliff-c/build.rs` sets it.
const SONAME: &str = "libflashcliff.so.0";
/// The file name of the program.
const PROGRAM: &str = "flashcliff";

/// The options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The folder, as in `--prefix /usr/local`.
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
    /// Build the CUDA kernels too, which needs nvcc. Without it, functions for GPUs give an error.
    #[arg(long)]
    cuda: bool,
    /// Install the program `flashcliff` too, into the folder's `bin`.
    #[arg(long)]
    program: bool,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<String, Error> {
    let &Options { cuda, program, .. } = options;
    let prefix = std::path::absolute(&options.prefix).map_err(Error::at(&options.prefix))?;
    let target = command::target_folder(root)?;
    let mut build = command::cargo(root);
    build.args(["build", "--release"]);
    for (package, is_wanted) in [("flashcliff-c", true), ("flashcliff-cli", program)] {
        if is_wanted {
            build.args(["--package", package]);
            if cuda {
                build.args(["--features", &format!("{package}/cuda")]);
            }
        }
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
    if program {
        let (name, bin) = (PROGRAM, prefix.join("bin"));
        fs::create_dir_all(&bin).map_err(Error::at(&bin))?;
        let from = built.join(name);
        fs::copy(&from, bin.join(name)).map_err(Error::at(&from))?;
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
