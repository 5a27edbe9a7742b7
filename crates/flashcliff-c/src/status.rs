//! Codes and messages of errors.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use flashcliff::Error;

/// Success, `FC_OK`.
const OK: c_int = 0;
/// `FC_BAD_ARGUMENT`: the caller can repair the call.
const BAD_ARGUMENT: c_int = 1;
/// `FC_UNSUPPORTED`: there is no such operator.
const UNSUPPORTED: c_int = 2;
/// `FC_INTERNAL`: a fault of the library.
const INTERNAL: c_int = 3;
/// `FC_NO_CUDA`: no GPU can be used.
const NO_CUDA: c_int = 4;
/// `FC_CUDA_FAILED`: a call of CUDA failed.
const CUDA_FAILED: c_int = 5;

/// `FC_BAD_FILE`: a file cannot be read, or has no network that this version can run.
const BAD_FILE: c_int = 6;

/// An error of a call.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the library.
    Library(Error),
    /// An argument that C can pass and Rust cannot.
    Argument(String),
    /// A file.
    File(String),
    /// A build without CUDA that was asked for it.
    #[cfg(not(feature = "cuda"))]
    NoCuda(String),
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Library(error.into())
    }
}

impl Failure {
    /// A null pointer where there must be none.
    pub(crate) fn null(argument: &str) -> Self {
        Self::Argument(format!("{argument}: expected a pointer, got NULL"))
    }

    /// An error of a file with a network.
    pub(crate) fn file(error: flashcliff_network::file::Error) -> Self {
        Self::File(error.to_string())
    }

    /// An error of a plan or of a run of a network.
    pub(crate) fn network(error: flashcliff_network::Error) -> Self {
        match error {
            flashcliff_network::Error::Core(error) => Self::Library(error),
            error => Self::Argument(error.to_string()),
        }
    }

    fn code_and_message(self) -> (c_int, String) {
        match self {
            Self::Argument(message) => (BAD_ARGUMENT, message),
            Self::File(message) => (BAD_FILE, message),
            #[cfg(not(feature = "cuda"))]
            Self::NoCuda(message) => (NO_CUDA, message),
            Self::Library(error) => {
                let code = match error {
                    Error::UnsupportedGrades { .. } | Error::UnsupportedOnCuda { .. } => {
                        UNSUPPORTED
                    }
                    Error::NoCudaDriver { .. }
                    | Error::NoCudaDevice { .. }
                    | Error::CudaDriverTooOld { .. }
                    | Error::CudaOrdinal { .. }
                    | Error::CudaArchitecture { .. }
                    | Error::CudaLibrary { .. } => NO_CUDA,
                    Error::Cuda { .. } | Error::CudaCompilation { .. } => CUDA_FAILED,
                    _ => BAD_ARGUMENT,
                };
                (code, error.to_string())
            }
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn keep(message: String) {
    // A zero byte would end the text.
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
}

/// Runs the body of a C function. Errors and panics become a code and a message.
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => OK,
        Ok(Err(failure)) => {
            let (code, message) = failure.code_and_message();
            keep(message);
            code
        }
        Err(_) => {
            keep("a fault of flashcliff: it panicked; please report it".to_owned());
            INTERNAL
        }
    }
}

/// The message of the last call in this thread that failed.
#[unsafe(no_mangle)]
pub extern "C" fn fc_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn fc_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
