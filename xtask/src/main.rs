//! Tasks of the repository; `cargo xtask help` lists them.

#![forbid(unsafe_code)]

mod bindings;
mod command;
mod cuda_check;
mod cuda_toolkit;
mod dist;
mod error;
mod figures;
mod generate;
mod git;
mod gpu_bundle;
mod guide;
mod install;
mod layering;
mod marked;
mod output;
mod packages;
mod pins;
mod prose;
mod publish;
mod release;
mod surface;

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
    /// Write the review copies of generated kernels, `codegen/review/`, and the files derived from the table of operators.
    Gen {
        /// Change nothing; fail if a copy is missing, differs or is not expected.
        #[arg(long)]
        check: bool,
        /// Write nothing; print the kernels of one operator in any algebra, such as `--print 4,1,0 sgp`.
        #[arg(long, num_args = 2, value_names = ["P,Q,R", "OPERATOR"], conflicts_with = "check")]
        print: Option<Vec<String>>,
    },
    /// Write what the documents say of speed and accuracy, from the data in `benches/results/`.
    Figures {
        /// Change nothing; fail if a document does not agree with the data.
        #[arg(long)]
        check: bool,
    },
    /// Check that crates depend only on the layers below them.
    Layering,
    /// Check the guide, `docs/guide`: contents, links, pictures, and that a test runs each block of code.
    Guide,
    /// Find bad habits of English in the lines that a change adds to Markdown and comments, and say what to write.
    Prose {
        /// The commit or branch that the change begins at: lines count that differ from the last commit shared with it.
        #[arg(default_value = "HEAD")]
        base: String,
        /// Fail if there are any.
        #[arg(long)]
        check: bool,
        /// Count the lines of all files; with `--check` fail if there are more bad habits than the tree may have.
        #[arg(long, conflicts_with = "base")]
        all: bool,
    },
    /// Install a CUDA toolkit into the build folder, for machines without one, and print its nvcc.
    CudaToolkit,
    /// Make the Rust declarations of the C interface of the CUDA kernels.
    Bindings {
        /// Change nothing; fail if the declarations are not the declarations of the header.
        #[arg(long)]
        check: bool,
    },
    /// Compile the CUDA kernels and check that only the listed ones use local memory.
    CudaCheck {
        /// Write the list of kernels that use local memory instead of checking it.
        #[arg(long)]
        bless: bool,
        /// Compile for these architectures only, as FLASHCLIFF_CUDA_ARCHS names them.
        #[arg(long, value_name = "LIST", conflicts_with = "bless")]
        archs: Option<String>,
        /// Compile the kernels of these algebras only, such as `cl301,cl500`, and of `cl200,cl300`.
        #[arg(
            long,
            value_name = "LIST",
            value_delimiter = ',',
            conflicts_with = "bless"
        )]
        algebras: Vec<String>,
    },
    /// Build the GPU tests into a folder that runs on machines with a driver only.
    GpuBundle {
        /// The folder; `gpu-bundle` in the build folder if not given.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// The architectures to compile for, as in FLASHCLIFF_CUDA_ARCHS.
        #[arg(long, value_name = "LIST", default_value = gpu_bundle::ARCHITECTURES)]
        archs: String,
        /// Add candle's GPU tests, with candle's kernels for the GPU that CUDA_COMPUTE_CAP names (a
        /// longer build).
        #[arg(long)]
        candle: bool,
    },
    /// Make the wheel, the source distribution and the packed crates, and check them where the repository is not.
    Dist(dist::Options),
    /// Build the C interface, and install header, static and shared library, a file for pkg-config, and the program if asked.
    Install(install::Options),
    /// Publish the packages of a release on crates.io and PyPI; without `--for-real` print the commands.
    Publish(publish::Options),
    /// Set the version everywhere, date the section of the changelog, and make the commit and its tag. Publishes nothing.
    Release {
        /// The version, greater than the one of today, such as 0.2.0.
        version: String,
        /// Change nothing; say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
}

fn main() -> ExitCode {
    let root = workspace_root();
    let result = match Arguments::parse().task {
        Task::Gen { check, print } => match print.as_deref() {
            Some([signature, operator]) => generate::print(signature, operator),
            _ => generate::run(&root, check),
        },
        Task::Figures { check } => figures::run(&root, check),
        Task::Layering => layering::run(&root),
        Task::Guide => guide::run(&root),
        Task::Prose {
            all: true, check, ..
        } => prose::all(&root, check),
        Task::Prose { base, check, .. } => prose::run(&root, &base, check),
        Task::CudaToolkit => cuda_toolkit::run(&root),
        Task::Bindings { check } => bindings::run(&root, check),
        Task::CudaCheck {
            bless,
            archs,
            algebras,
        } => {
            let part = cuda_check::Part {
                architectures: archs,
                algebras,
            };
            cuda_check::run(&root, bless, &part)
        }
        Task::GpuBundle { out, archs, candle } => gpu_bundle::run(&root, out, &archs, candle),
        Task::Dist(options) => dist::run(&root, &options),
        Task::Install(options) => install::run(&root, &options),
        Task::Publish(options) => publish::run(&root, &options),
        Task::Release { version, dry_run } => release::run(&root, &version, dry_run),
    };
    match result.and_then(output::print) {
        Ok(()) => ExitCode::SUCCESS,
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
