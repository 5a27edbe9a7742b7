//! Compiles your own operators ahead of time, in a build script.
//!
//! `flashcliff::Operator::of` makes an operator of any program, and interprets it on the CPU unless it is compiled. [`compile`] writes Rust
//! that compiles programs: a build script calls it, and the crate includes the file. The results have the bits of interpreted ones.
//! A macro could not do it: it sees the text of a program's function and cannot run it.
//!
//! ```no_run
//! // build.rs
//! use flashcliff_build::program::{Multivector, Program};
//! use flashcliff_build::{GradeSet, ProductKind, Request, Signature, cayley, compile};
//!
//! fn square() -> Program {
//!     let algebra = cayley::Algebra::new(Signature::of(3, 0, 0));
//!     let mut p = Program::new("square", "o = x x");
//!     let x = Multivector::input(&mut p, &algebra, "x", GradeSet::full(3));
//!     let square = x.product(&mut p.graph, &algebra, ProductKind::Geometric, &x);
//!     square.output(&mut p, &algebra);
//!     p
//! }
//!
//! fn main() {
//!     if let Err(error) = compile("programs.rs", [Request::of(square())]) {
//!         println!("cargo::error={error}");
//!     }
//! }
//! ```
//!
//! ```text
//! // main.rs
//! mod compiled {
//!     include!(concat!(env!("OUT_DIR"), "/programs.rs"));
//! }
//!
//! fn main() {
//!     // From now on the whole process finds the kernels.
//!     compiled::register();
//! }
//! ```
//!
//! # What counts
//! - The crate depends on `flashcliff` under this name, in the version of `flashcliff-build`. Another version is an error of the build.
//! - `Operator::of` finds kernels by what a program computes. The build script and the crate call one function that
//!   builds it: it stands in a module of both. This crate has the names of the builder that `flashcliff` has, so that
//!   `extern crate flashcliff_build as flashcliff;` makes the module mean the same in both. Operators that were made
//!   before `register()` stay interpreted.
//! - A request has the adjoint, which `Operator::backward` runs. A program whose gradient is run as an operator, as
//!   networks do, is asked for by [`Request::and_gradient`].
//! - Kernels are compiled for `f32`, and for `f64` if `flashcliff` has its feature `f64`, for all vector units of the
//!   target, with the profile of the crate. What is not optimised is many times slower. A small crate for the
//!   programs alone saves time in builds, and `[profile.dev.package.NAME]` optimises it in debug builds too.
//! - Stages are unsafe functions, so the crate cannot forbid unsafe code. A small crate for the programs can be the one that does not.
//! - The kernels are for CPUs. On CUDA a program is compiled at its first call, with the feature `jit` of `flashcliff`.

#![forbid(unsafe_code)]

mod error;

use std::path::{self, Component, PathBuf};
use std::{env, fs};

pub use cayley;
pub use cayley::{Blade, GradeSet, Path, ProductKind, Signature, Term};
pub use codegen::Error as ProgramError;
pub use codegen::emit::rust::Request;
pub use error::Error;
pub use flashcliff_program::ir::Gate;
pub use flashcliff_program::plan::{Excess, Refusal};

/// The builder of programs, as `flashcliff::program` has it.
pub mod program {
    pub use flashcliff_program::ir::{
        Argument, Digest, Function, Graph, Id, LaneTensor, Node, Parameter, Program, Returned,
        Total, Uniform, Width,
    };
    pub use flashcliff_program::spec::Multivector;
}

/// Writes the kernels of programs into a file in the folder `OUT_DIR` of the build script, and returns its path. An
/// unchanged file keeps its date. The text is the same, byte for byte, for the same requests.
///
/// The file has a function `register`, by which the library finds the kernels.
///
/// # Errors
/// [`Error::NoFolder`] outside of a build script, [`Error::FileName`] for a name with folders, [`Error::Programs`] for
/// what is not an operator or has no room in kernels, and [`Error::File`] for a file that cannot be written.
pub fn compile(file: &str, requests: impl IntoIterator<Item = Request>) -> Result<PathBuf, Error> {
    let folder = env::var_os("OUT_DIR").ok_or(Error::NoFolder)?;
    compile_into(path::Path::new(&folder), file, requests)
}

fn compile_into(
    folder: &path::Path,
    file: &str,
    requests: impl IntoIterator<Item = Request>,
) -> Result<PathBuf, Error> {
    let mut parts = path::Path::new(file).components();
    let (Some(Component::Normal(_)), None) = (parts.next(), parts.next()) else {
        return Err(Error::FileName {
            file: file.to_owned(),
        });
    };
    let text = codegen::emit::rust::requested(requests).map_err(Error::Programs)?;
    let path = folder.join(file);
    if fs::read_to_string(&path).is_ok_and(|known| known == text) {
        return Ok(path);
    }
    match fs::write(&path, text) {
        Ok(()) => Ok(path),
        Err(source) => Err(Error::File { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::program::Program;
    use super::*;

    fn identity() -> Program {
        let mut p = Program::new("identity", "o = x");
        let x = p.input("x", vec!["1".to_owned()]);
        p.output("o", vec!["1".to_owned()], x);
        p
    }

    #[test]
    fn an_unchanged_file_keeps_its_date() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let write = || compile_into(folder.path(), "programs.rs", [Request::of(identity())]);
        let path = write()?;
        let text = fs::read_to_string(&path)?;
        assert!(text.contains(&identity().digest().to_string()));
        let date = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        fs::File::options()
            .write(true)
            .open(&path)?
            .set_modified(date)?;
        assert_eq!(write()?, path);
        assert_eq!(fs::metadata(&path)?.modified()?, date);
        fs::write(&path, "another text")?;
        assert_eq!(write()?, path);
        assert_eq!(fs::read_to_string(&path)?, text);
        Ok(())
    }

    #[test]
    fn mistakes_are_told_apart() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let compile = |file, program| compile_into(folder.path(), file, [Request::of(program)]);
        for file in ["", "..", "a/b.rs", "/b.rs"] {
            let error = compile(file, identity()).unwrap_err();
            assert!(matches!(error, Error::FileName { .. }), "{error}");
        }
        let error = compile("p.rs", Program::new("nothing", "")).unwrap_err();
        assert!(matches!(error, Error::Programs(_)), "{error}");
        assert!(error.to_string().contains("`nothing`"), "{error}");
        fs::create_dir(folder.path().join("p.rs"))?;
        let error = compile("p.rs", identity()).unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
        Ok(())
    }

    #[test]
    fn nothing_is_compiled_outside_of_a_build_script() {
        // Cargo sets the variable for build scripts, and for crates that have one. This crate has none.
        let error = compile("programs.rs", []).unwrap_err();
        assert!(matches!(error, Error::NoFolder), "{error}");
    }
}
