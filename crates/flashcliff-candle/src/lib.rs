//! flashcliff in candle: its operators with gradients, the layers of CGENN, flash-clifford and GATr, and
//! models made of them.
//!
//! * [`op`] - any core operator as a differentiable candle operation.
//! * [`functional`] - the operators as functions of tensors.
//! * [`rotors`] - exponentials, logarithms and interpolation of rotors, and layers of versors.
//! * [`layers`] - parameters and the operators that use them, under PyTorch's names and shapes.
//! * [`models`] - CGENN's models of convex hulls, O(5) regression, signed volumes and charged bodies; GATr and its model of
//!   gravity; CSMPN's model on simplices; forces of atoms.
//! * [`init`] - parameters drawn from a seed.
//! * [`optim`] - Adam, AdamW and Lion with a state that can be saved, clipping and schedules.
//! * [`objective`] - losses of models and of custom networks with all gradients, without candle's graph.
//! * [`capture`] - training steps on resident data, captured as one CUDA graph.
//! * [`timeline`] - what the time of a step is spent on.
//! * [`explain`](mod@explain) - what a network runs, before it is timed: calls, kernels, bytes, modelled times.
//! * [`distributed`] - training on several GPUs, one process each.
//! * [`checkpoint`] - safetensors files, written atomically; they say the algebra and the norm of each layer.
//! * [`output_file`] - files written without harm to existing files.
//! * [`device`] - the CPU, or a GPU with the feature `cuda`.
//! * [`precision`] - how matrix products on a GPU round.
//!
//! Multivector tensors are `[blades, batch, channels]`, in `f32` or `f64`; on a GPU single operators and
//! layers also run in `bf16` and `f16`.
//!
//! One step of training:
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use flashcliff_candle::models::{Architecture, Model};
//! use flashcliff_candle::optim::{Adam, AdamOptions};
//!
//! let model = Model::new(Architecture::Regression { width: 16 }, 7, DType::F32)?;
//! let mut adam = Adam::new(model.parameters().variables(), AdamOptions::default())?;
//! let points = Tensor::ones((4, 2, 5), DType::F32, &Device::Cpu)?;
//! let targets = Tensor::ones(4, DType::F32, &Device::Cpu)?;
//! let loss = (model.forward(&points)? - targets)?.sqr()?.mean_all()?;
//! adam.step(&loss.backward()?)?;
//! # Ok::<(), flashcliff_candle::Error>(())
//! ```
//!
//! # Determinism
//! A seed determines the parameters. Every operator, gradient and step is the same bit for bit from run to run, on one
//! kind of CPU or GPU. On a GPU this holds for one version of cuBLASLt and one tuning table.

// Memory of a GPU is allocated without clearing it; an optimiser writes to many variables at once; work in
// order needs no events. There is no other unsafe code.
#![cfg_attr(not(feature = "cuda"), forbid(unsafe_code))]
#![cfg_attr(feature = "cuda", deny(unsafe_code))]

pub mod capture;
pub mod checkpoint;
mod choices;
pub mod device;
pub mod distributed;
mod error;
pub mod explain;
pub mod functional;
pub mod init;
pub mod layers;
pub mod models;
pub mod objective;
pub mod op;
pub mod optim;
pub mod output_file;
pub mod precision;
pub mod rotors;
pub mod timeline;

pub use error::Error;

// The Rust programs of the guide are documentation tests here. The crate `flashcliff` runs those about algebras.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/src/layout.md")]
    mod layout {}
    #[doc = include_str!("../../../docs/guide/src/layers.md")]
    mod layers {}
    #[doc = include_str!("../../../docs/guide/src/training.md")]
    mod training {}
    #[doc = include_str!("../../../docs/guide/src/errors.md")]
    mod errors {}
}
