//! Tasks of the repository: `cargo xtask gen`, `cargo xtask layering`.

#![forbid(unsafe_code)]

mod error;
mod generate;
mod layering;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use error::Error;

#[derive(Parser)]
#[command(name = "cargo xtask", about)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Generate the kernels of every algebra of codegen/src/spec/algebras.rs.
    Gen {
        /// Change nothing; fail if a generated file is missing, differs or is not expected.
        #[arg(long)]
        check: bool,
    },
    /// Check that crates depend only on the layers below them.
    Layering,
}

fn main() -> ExitCode {
    let root = workspace_root();
    let result = match Arguments::parse().task {
        Task::Gen { check } => generate::run(&root, check),
        Task::Layering => layering::run(&root),
    };
    match result {
        Ok(message) => {
            println!("{message}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The folder above this package.
fn workspace_root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}
