//! Prints the path of the nvcc that a build of the CUDA kernels would use: the search of [`Toolkit::find`], for tools that are
//! not written in Rust. To be run by `cargo run`, which sets the variables of a build script that the search reads.
//!
//! If there is no nvcc that can be used, the exit status is 2, and the reason is on stderr.

use std::process::ExitCode;

use flashcliff_build_support::{Environment, Toolkit};

fn main() -> ExitCode {
    match Toolkit::find(&Environment::of_build_script()) {
        Ok(toolkit) => {
            println!("{}", toolkit.nvcc.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
