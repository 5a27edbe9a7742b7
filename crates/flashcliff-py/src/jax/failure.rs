//! Errors of calls from XLA: the library's messages with XLA's codes.

use std::ffi::{CString, c_int};
use std::ptr;

use flashcliff::Error;

use super::abi::{self, Api, CreateError, code};
use crate::error::rename;

/// Why a call was refused.
#[derive(Debug)]
pub(super) struct Failure {
    code: c_int,
    message: String,
}

impl Failure {
    /// A call that does not fit the operator.
    pub(super) fn refused(message: String) -> Self {
        Self {
            code: code::INVALID_ARGUMENT,
            message,
        }
    }

    /// A defect of the library or of the runtime.
    pub(super) fn defect(message: String) -> Self {
        Self {
            code: code::INTERNAL,
            message,
        }
    }

    pub(super) fn into_message(self) -> String {
        self.message
    }

    /// The error of the runtime, which the runtime destroys.
    ///
    /// # Safety
    /// The functions belong to the runtime.
    pub(super) unsafe fn raised(self, api: &Api) -> *mut abi::Error {
        let text = self.message.replace('\0', "\\0");
        let message = CString::new(text).unwrap_or_default();
        let mut arguments = CreateError {
            size: size_of::<CreateError>(),
            extension: ptr::null_mut(),
            message: message.as_ptr(),
            code: self.code,
        };
        // SAFETY: the caller promises it, and the message outlives the call, which copies it.
        unsafe { (api.create_error)(&raw mut arguments) }
    }
}

impl From<Error> for Failure {
    fn from(mut error: Error) -> Self {
        rename(&mut error);
        let code = match error {
            Error::OutOfMemory { .. } => code::RESOURCE_EXHAUSTED,
            Error::UnsupportedGrades { .. }
            | Error::UnsupportedOnCuda { .. }
            | Error::NotDifferentiable { .. }
            | Error::NoBackwardPass { .. } => code::UNIMPLEMENTED,
            Error::NoCudaDriver { .. }
            | Error::NoCudaDevice { .. }
            | Error::CudaDriverTooOld { .. }
            | Error::CudaOrdinal { .. }
            | Error::CudaArchitecture { .. }
            | Error::CudaContext { .. }
            | Error::CudaLibrary { .. }
            | Error::Cuda { .. } => code::INTERNAL,
            _ => code::INVALID_ARGUMENT,
        };
        Self {
            code,
            message: error.to_string(),
        }
    }
}

impl From<flashcliff_network::Error> for Failure {
    fn from(error: flashcliff_network::Error) -> Self {
        match error {
            flashcliff_network::Error::Core(error) => error.into(),
            error => Self::refused(error.to_string()),
        }
    }
}

impl From<flashcliff_network::file::Error> for Failure {
    fn from(error: flashcliff_network::file::Error) -> Self {
        Self::refused(error.to_string())
    }
}
