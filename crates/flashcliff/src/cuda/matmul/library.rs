//! The functions of cuBLASLt that are used, found in the library at run time.
//!
//! cudarc has them too, but looks only for library names of the CUDA version that it was compiled for, and panics if it
//! finds none.

use std::ffi::{c_char, c_int, c_void};

use cudarc::cublaslt::sys as lt;

use crate::Error;
use crate::cuda::{fault, library};

/// A pointer to an object of the library: its state or a descriptor.
pub(super) type Handle = *mut c_void;

/// A `cublasStatus_t`; 0 is success. Newer libraries may have values that cudarc does not know.
pub(super) type Status = c_int;

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),* $(,)?) -> $result:ty;)*) => {
        /// Function pointers into cuBLASLt.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// Loads the library, unless it is loaded.
            pub(super) fn load() -> Result<Self, Error> {
                let library = library::cublas_lt()?;
                let missing = |error: libloading::Error| Error::CudaLibrary {
                    library: "cuBLASLt",
                    tried: error.to_string(),
                };
                Ok(Self {
                    // SAFETY: the types match cublasLt.h, the same in versions 12 and 13; the library stays loaded.
                    $($field: *unsafe { library.get($symbol) }.map_err(missing)?,)*
                })
            }
        }
    };
}

functions! {
    status_name = b"cublasLtGetStatusName\0": fn(Status) -> *const c_char;
    version = b"cublasLtGetVersion\0": fn() -> usize;
    create = b"cublasLtCreate\0": fn(*mut Handle) -> Status;
    destroy = b"cublasLtDestroy\0": fn(Handle) -> Status;
    create_product = b"cublasLtMatmulDescCreate\0":
        fn(*mut Handle, c_int, c_int) -> Status;
    set_product = b"cublasLtMatmulDescSetAttribute\0":
        fn(Handle, c_int, *const c_void, usize) -> Status;
    destroy_product = b"cublasLtMatmulDescDestroy\0": fn(Handle) -> Status;
    create_matrix = b"cublasLtMatrixLayoutCreate\0":
        fn(*mut Handle, c_int, u64, u64, i64) -> Status;
    set_matrix = b"cublasLtMatrixLayoutSetAttribute\0":
        fn(Handle, c_int, *const c_void, usize) -> Status;
    destroy_matrix = b"cublasLtMatrixLayoutDestroy\0": fn(Handle) -> Status;
    create_preference = b"cublasLtMatmulPreferenceCreate\0":
        fn(*mut Handle) -> Status;
    set_preference = b"cublasLtMatmulPreferenceSetAttribute\0":
        fn(Handle, c_int, *const c_void, usize) -> Status;
    destroy_preference = b"cublasLtMatmulPreferenceDestroy\0":
        fn(Handle) -> Status;
    choose = b"cublasLtMatmulAlgoGetHeuristic\0": fn(
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        c_int,
        *mut Choice,
        *mut c_int,
    ) -> Status;
    check_algorithm = b"cublasLtMatmulAlgoCheck\0": fn(
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        *const lt::cublasLtMatmulAlgo_t,
        *mut Choice,
    ) -> Status;
    configuration = b"cublasLtMatmulAlgoConfigGetAttribute\0":
        fn(*const lt::cublasLtMatmulAlgo_t, c_int, *mut c_void, usize, *mut usize) -> Status;
    capability = b"cublasLtMatmulAlgoCapGetAttribute\0":
        fn(*const lt::cublasLtMatmulAlgo_t, c_int, *mut c_void, usize, *mut usize) -> Status;
    multiply = b"cublasLtMatmul\0": fn(
        Handle,
        Handle,
        *const c_void,
        *const c_void,
        Handle,
        *const c_void,
        Handle,
        *const c_void,
        *const c_void,
        Handle,
        *mut c_void,
        Handle,
        *const lt::cublasLtMatmulAlgo_t,
        *mut c_void,
        usize,
        *mut c_void,
    ) -> Status;
}

impl Functions {
    /// The result of a call.
    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<(), Error> {
        match status {
            0 => Ok(()),
            _ => Err(self.error(call, status)),
        }
    }

    /// The error that a status stands for.
    pub(super) fn error(&self, call: &'static str, status: Status) -> Error {
        // SAFETY: the function takes any status and returns a static string.
        let name = unsafe { fault::owned((self.status_name)(status)) };
        Error::Cuda {
            call,
            name,
            description: format!("cuBLASLt status {status}"),
        }
    }
}

/// An algorithm that the library proposes: its `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
pub(super) struct Choice {
    pub(super) algorithm: lt::cublasLtMatmulAlgo_t,
    pub(super) workspace_bytes: usize,
    pub(super) state: Status,
    pub(super) waves: f32,
    pub(super) reserved: [c_int; 4],
}

impl Choice {
    /// A value to be overwritten.
    pub(super) const NONE: Self = Self {
        algorithm: lt::cublasLtMatmulAlgo_t { data: [0; 8] },
        workspace_bytes: 0,
        state: 0,
        waves: 0.0,
        reserved: [0; 4],
    };
}
