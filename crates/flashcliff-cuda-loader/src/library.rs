//! The libraries that are loaded at their first call.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use flashcliff::cuda::load_library;

/// A library of CUDA whose functions this crate defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The driver. Without it, functions return `CUDA_ERROR_STUB_LIBRARY`.
    Cuda,
    /// cuBLAS. Without it, functions return `CUBLAS_STATUS_NOT_INITIALIZED`.
    Cublas,
    /// cuBLASLt. Without it, functions return `CUBLAS_STATUS_NOT_INITIALIZED`.
    CublasLt,
    /// cuRAND. Without it, functions return `CURAND_STATUS_NOT_INITIALIZED`.
    Curand,
    /// NVRTC. Without it, functions return `NVRTC_ERROR_INTERNAL_ERROR`.
    Nvrtc,
    /// NCCL. Without it, functions return `ncclSystemError`.
    Nccl,
}

impl Library {
    /// All libraries, in the order in which the build script numbers them.
    pub const ALL: [Self; 6] = [
        Self::Cuda,
        Self::Cublas,
        Self::CublasLt,
        Self::Curand,
        Self::Nvrtc,
        Self::Nccl,
    ];

    /// The name of the library.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cuda => "the CUDA driver",
            Self::Cublas => "cuBLAS",
            Self::CublasLt => "cuBLASLt",
            Self::Curand => "cuRAND",
            Self::Nvrtc => "NVRTC",
            Self::Nccl => "NCCL",
        }
    }

    /// Loads the library, unless it is loaded. It stays loaded. It is looked for as [`flashcliff::cuda::load_library`]
    /// describes.
    ///
    /// # Errors
    /// A list of all places that were tried, with the messages of the loader.
    pub fn load(self) -> Result<(), &'static str> {
        self.get().map(drop)
    }

    pub(crate) fn get(self) -> Result<&'static libloading::Library, &'static str> {
        static LOADED: [OnceLock<Result<libloading::Library, String>>; Library::ALL.len()] =
            [const { OnceLock::new() }; Library::ALL.len()];
        let loaded = LOADED[self as usize].get_or_init(|| load_library(self.files()));
        loaded.as_ref().map_err(String::as_str)
    }

    /// The names of the library's file, with the newest version first.
    const fn files(self) -> &'static [&'static str] {
        match self {
            Self::Cuda => &["libcuda.so.1", "libcuda.so"],
            Self::Cublas => &["libcublas.so.13", "libcublas.so.12", "libcublas.so"],
            Self::CublasLt => &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
            Self::Curand => &["libcurand.so.10", "libcurand.so"],
            Self::Nvrtc => &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
            // The wheels of PyPI have the first name only.
            Self::Nccl => &["libnccl.so.2", "libnccl.so"],
        }
    }

    /// The stand-in for a function that the library lacks, and for all functions if there is no library.
    pub(crate) fn missing(self, function: &CStr) -> *const () {
        match function.to_bytes() {
            b"cublasGetStatusName"
            | b"cublasGetStatusString"
            | b"cublasLtGetStatusName"
            | b"cublasLtGetStatusString"
            | b"nvrtcGetErrorString"
            | b"ncclGetErrorString"
            | b"ncclGetLastError" => no_text as *const (),
            b"cublasGetCudartVersion" | b"cublasLtGetCudartVersion" | b"cublasLtGetVersion" => {
                no_version as *const ()
            }
            _ => match self {
                Self::Cuda => no_driver as *const (),
                Self::Cublas | Self::CublasLt => no_cublas as *const (),
                Self::Curand => no_curand as *const (),
                Self::Nvrtc => no_nvrtc as *const (),
                Self::Nccl => no_nccl as *const (),
            },
        }
    }
}

/// `CUDA_ERROR_STUB_LIBRARY`.
extern "C" fn no_driver() -> c_int {
    34
}

/// `CUBLAS_STATUS_NOT_INITIALIZED`.
extern "C" fn no_cublas() -> c_int {
    1
}

/// `CURAND_STATUS_NOT_INITIALIZED`.
extern "C" fn no_curand() -> c_int {
    101
}

/// `NVRTC_ERROR_INTERNAL_ERROR`.
extern "C" fn no_nvrtc() -> c_int {
    11
}

/// `ncclSystemError`.
extern "C" fn no_nccl() -> c_int {
    2
}

extern "C" fn no_version() -> usize {
    0
}

extern "C" fn no_text() -> *const c_char {
    c"the library is not loaded".as_ptr()
}
