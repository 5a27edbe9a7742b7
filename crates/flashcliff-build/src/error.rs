//! The errors of build scripts.

use std::path::PathBuf;
use std::{fmt, io};

use crate::ProgramError;

/// The reason why programs are not compiled.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The variable `OUT_DIR` is not set: the caller is not a build script.
    NoFolder,
    /// The name of the file is not one name.
    FileName {
        /// The value that was given.
        file: String,
    },
    /// A program is not an operator, or kernels have no room for its derivatives.
    Programs(ProgramError),
    /// The file cannot be written.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFolder => f.write_str(
                "expected the variable OUT_DIR, which cargo sets for build scripts, got none: call `compile` in build.rs",
            ),
            Self::FileName { file } => write!(
                f,
                "expected the name of a file in OUT_DIR, such as `programs.rs`, got `{file}`"
            ),
            Self::Programs(error) => error.fmt(f),
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Programs(error) => Some(error),
            Self::File { source, .. } => Some(source),
            Self::NoFolder | Self::FileName { .. } => None,
        }
    }
}
