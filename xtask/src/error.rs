//! What can go wrong in a task.

use std::io;
use std::path::{Path, PathBuf};

/// An error of a task.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// A file or folder could not be read or written.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The specification names a signature that does not exist.
    #[error("codegen/src/spec/algebras.rs: {0}")]
    Signature(#[from] cayley::Error),
    /// The specification names a signature twice.
    #[error("codegen/src/spec/algebras.rs lists {0} more than once")]
    Repeated(cayley::Signature),
    /// Generated files are not what the generator makes.
    #[error(
        "generated files are out of date, run `cargo xtask gen`:\n{}",
        differences.join("\n")
    )]
    OutOfDate { differences: Vec<String> },
    /// A crate depends on a layer that it must not know.
    #[error("layering:\n{}", violations.join("\n"))]
    Layering { violations: Vec<String> },
    /// A tool failed.
    #[error("`{command}` failed: {output}")]
    Tool { command: String, output: String },
}

impl Error {
    /// For `map_err`: an I/O error with its path.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}
