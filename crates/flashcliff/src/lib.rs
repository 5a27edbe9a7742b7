//! Clifford-algebra operators for neural networks: fused, generated, with their gradients.
//!
//! This crate has neither a tensor type nor autograd: an [`Operator`] runs forward and
//! backward on borrowed slices, and frameworks (candle, PyTorch) wrap it in their own tensors and autograd.
//! Whole networks are in the crate `flashcliff-network`, and training is in `flashcliff-candle`.
//!
//! ```
//! use flashcliff::{Algebra, Signature, Tensor, ops};
//!
//! let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
//! let op = ops::sgp_norm(algebra, &ops::ProductOptions::default())?;
//! let (batch, channels) = (2, 5);
//! let x = vec![0.5_f32; 8 * batch * channels];
//! let w = vec![0.1_f32; channels * algebra.path_count()];
//! let x = Tensor::new(&x, &[8, batch, channels])?;
//! let w = Tensor::new(&w, &[channels, 20])?;
//! let evaluation = op.evaluate(&[x, x, w])?;
//! assert_eq!(evaluation.output_shape, [8, batch, channels]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | for | see |
//! |---|---|
//! | the operators by name, and their options | [`ops`] |
//! | gradients, derivatives, memory, operators of your own | [`Operator`], [`program`] |
//! | rotors, messages on graphs, sums over segments | [`rotor`], [`messages`], [`segments`] |
//! | parts of transformers on CPUs | [`attention`], [`equivariant`], [`dropout`] |
//!
//! # Conventions
//! Tensors of multivectors are `[blades, batch, channels]`, contiguous, channels innermost; blades
//! are in short-lex order (by grade, then lexicographic), of the grades that the tensor carries.
//! Signs and the order of the basis are as in [`cayley`].
//!
//! # Algebras
//! Every signature of up to 8 dimensions works, with operands of any grades. Cargo features (`cl200` and `cl300` are
//! the default, `all-algebras` has nine) and the variable `FLASHCLIFF_ALGEBRAS="1,1,1;2,1,0"` say, when the crate is
//! built, which algebras get compiled kernels. The default features `plain-products` (products without weights, the
//! sandwich product) and `fully-connected` (`fcgp_norm`) say for which operators. Kernels are compiled for `f32`, and
//! with the feature `f64` for that type too. With the feature `macros`, `flashcliff::algebra!(1, 1, 1)` compiles the
//! kernels of a signature in the crate that calls it. A build script compiles your own [programs](program). Everything
//! else is interpreted on the CPU: this is slower, but the results are the same. See [`Algebra`].
//!
//! # Arrays
//! With the feature `ndarray`, `Tensor::try_from(&array)?` borrows an array of the crate ndarray in standard layout,
//! `TensorMut::try_from(&mut array)?` writes to one in place, and `Evaluation::array`, `Evaluation::into_array` and
//! `Operator::gradient_arrays` give results as arrays. Nothing is copied. `flashcliff::ndarray` is the crate in the version
//! that is used.
//!
//! # Determinism
//! Results are the same bit for bit from run to run and for every number of threads, on one
//! [tier](Tier). Tiers differ by rounding.
//!
//! # Threads
//! Work is spread over the current rayon pool when there is enough of it; outside of pools, over as many threads as
//! [`threads`] says. Environment variables are read as [`environment`] says.
//!
//! # Debug builds
//! Functions of elements are compiled in this crate, for `f32` and for `f64`. A debug build of a program is nearly as
//! fast as a release build if it optimises its dependencies, and hundreds of times slower if it does not:
//!
//! ```toml
//! [profile.dev.package."*"]
//! opt-level = 3
//! ```
//!
//! # GPUs
//! With the feature `cuda`, which is off by default and needs nvcc to build, `flashcliff::cuda` runs
//! the operators on NVIDIA GPUs. Such a program runs on machines without a driver too. The feature `jit` compiles the
//! kernels of algebras and grades that were not built, when they are first used.

#[doc(hidden)]
pub mod ahead;
mod algebra;
#[cfg(feature = "ndarray")]
mod arrays;
pub mod attention;
mod compiled;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod dropout;
mod element;
pub mod environment;
pub mod equivariant;
mod error;
mod few;
pub mod files;
pub mod host_memory;
mod interpreter;
mod kept;
mod kernel;
pub mod lion;
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod macros;
pub mod memory;
pub mod messages;
mod operator;
pub mod ops;
mod options;
mod pass;
pub mod program;
mod programs;
pub mod rotor;
pub mod segments;
mod sizes;
mod symmetry;
mod tensor;
pub mod threads;
#[cfg(feature = "cuda")]
mod tuning_table;

#[cfg(feature = "ndarray")]
pub use ::ndarray;
pub use algebra::Algebra;
pub use cayley;
pub use cayley::{Blade, GradeSet, Path, ProductKind, Signature, Term};
#[cfg(feature = "cuda")]
pub use cuda::Device;
pub use element::{Dtype, Element};
pub use error::Error;
pub use flashcliff_kernels::simd::{Loop, Tier, TierError};
pub use flashcliff_kernels::{Gate, UnknownOption};
pub use operator::{Cost, Dim, Dims, Evaluation, Footprint, Operator, ProgramOptions, TensorSpec};
pub use options::{Bias, Invariant, Norm, WeightLayout};
pub use pass::Pass;
pub use symmetry::{SYMMETRIES, Symmetry, SymmetryRow};
pub use tensor::{Tensor, TensorMut};

// The Rust programs of the guide about algebras are documentation tests here. `flashcliff-candle` runs the programs of other chapters.
#[cfg(all(doctest, feature = "macros"))]
#[doc = include_str!("../../../docs/guide/src/algebras.md")]
mod guide {}
