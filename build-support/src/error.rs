//! The errors of setting up the CUDA build.

use std::error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::toolkit::{OLDEST_NVCC, REMEDIES};
use crate::{Architecture, DEFAULT_ARCHITECTURES, Version, names};

/// An error of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no nvcc in any of the places.
    NoNvcc {
        /// The places, in the order of the search.
        searched: Vec<String>,
    },
    /// A variable names an nvcc, or a toolkit with one, that does not exist.
    NoSuchNvcc {
        /// The variable.
        variable: &'static str,
        /// The value of the variable.
        value: PathBuf,
        /// The path that was expected to be a file.
        expected: PathBuf,
    },
    /// nvcc could not be run.
    NvccFails {
        /// The compiler.
        nvcc: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// `nvcc --version` prints no version.
    NoVersion {
        /// The compiler.
        nvcc: PathBuf,
        /// The text that it printed instead.
        output: String,
    },
    /// nvcc is older than [`OLDEST_NVCC`].
    NvccTooOld {
        /// The compiler.
        nvcc: PathBuf,
        /// The version of the compiler.
        version: Version,
    },
    /// The toolkit lacks the static CUDA runtime.
    NoRuntime {
        /// The compiler.
        nvcc: PathBuf,
        /// The places where the library was expected.
        searched: Vec<PathBuf>,
    },
    /// A name is not an architecture that kernels are built for.
    UnknownArchitecture {
        /// The name.
        name: String,
    },
    /// An architecture is named more than once.
    RepeatedArchitecture {
        /// The name of the architecture.
        name: String,
    },
    /// The list of architectures is empty.
    NoArchitectures,
    /// A folder of CUDA sources has no source.
    NoSources {
        /// The folder.
        folder: PathBuf,
    },
    /// A source file is of no known kind.
    UnknownSource {
        /// The file.
        file: String,
    },
    /// A folder could not be read.
    Io {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNvcc { searched } => {
                writeln!(f, "no CUDA compiler (nvcc) found. Looked at:")?;
                for place in searched {
                    writeln!(f, "  {place}")?;
                }
                f.write_str(REMEDIES)
            }
            Self::NoSuchNvcc {
                variable,
                value,
                expected,
            } => write!(
                f,
                "{variable} is `{}`, but there is no nvcc at `{}`. Correct or unset the variable",
                value.display(),
                expected.display()
            ),
            Self::NvccFails { nvcc, source } => {
                write!(
                    f,
                    "`{} --version` could not be run: {source}",
                    nvcc.display()
                )
            }
            Self::NoVersion { nvcc, output } => write!(
                f,
                "`{} --version` was expected to say `release .., V<major>.<minor>.<build>`, \
                 but printed: {output}",
                nvcc.display()
            ),
            Self::NvccTooOld { nvcc, version } => write!(
                f,
                "{} is version {version}, but the kernels need at least {}.{}.\n{REMEDIES}",
                nvcc.display(),
                OLDEST_NVCC.major,
                OLDEST_NVCC.minor
            ),
            Self::NoRuntime { nvcc, searched } => {
                writeln!(
                    f,
                    "{} has no libcudart_static.a beside it. Looked in:",
                    nvcc.display()
                )?;
                for folder in searched {
                    writeln!(f, "  {}", folder.display())?;
                }
                f.write_str(REMEDIES)
            }
            Self::UnknownArchitecture { name } => {
                write!(
                    f,
                    "`{name}` is no architecture; {}",
                    expected_architectures()
                )
            }
            Self::RepeatedArchitecture { name } => {
                write!(f, "architecture `{name}` is named more than once")
            }
            Self::NoArchitectures => {
                write!(
                    f,
                    "the list of architectures is empty; {}",
                    expected_architectures()
                )
            }
            Self::NoSources { folder } => {
                write!(f, "there is no .cu file below {}", folder.display())
            }
            Self::UnknownSource { file } => write!(
                f,
                "`{file}` has no entry in the table of build-support/src/source.rs, which says for which GPUs a file \
                 is compiled"
            ),
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::NvccFails { source, .. } | Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

fn expected_architectures() -> String {
    format!(
        "expected some of {}, separated by commas (the default: {})",
        names(&Architecture::ALL).replace(' ', ", "),
        names(DEFAULT_ARCHITECTURES).replace(' ', ",")
    )
}
