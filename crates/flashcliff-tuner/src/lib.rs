//! The search for faster choices of the operators of [`flashcliff`] on a GPU.
//!
//! For a matrix product cuBLASLt proposes several algorithms, and its heuristics do not always know the fastest. A `Tuner`
//! runs the algorithms within the pass that they belong to, and keeps those that are faster and right. The choices go
//! to a file of the user, which every `flashcliff::Device` reads when it is opened: `flashcliff::cuda::tuning` says where
//! it is.
//!
//! # What is right
//! Both passes of the operator are compared with `f64` on the same inputs. The largest difference and the root of the
//! mean square must stay within what rounding explains: the rounding of sums, the rounding to the type in memory, and
//! four times the change of the results when inputs are moved by what the precision rounds. In the root of the mean
//! square, no candidate may be less accurate than the heuristics' choice by more than a factor of 2. Results must be
//! the same bit for bit in every run.
//!
//! # Features
//! `cuda`, which is off by default and needs nvcc to build, has the `Tuner`. Without it there are only the descriptions of
//! measurements and verdicts.
#![cfg_attr(
    feature = "cuda",
    doc = r#"
# Example
```no_run
use std::ops::ControlFlow;

use flashcliff::cuda::{Device, MatmulPrecision};
use flashcliff::{Algebra, Dims, Dtype, Signature, ops};
use flashcliff_tuner::{Settings, Tuner, Workload};

let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
let mut tuner = Tuner::new(&Device::cuda(0)?, Settings::default())?;
let workload = Workload {
    operator: ops::mv_linear(algebra, &ops::LinearOptions::default())?,
    dims: Dims { batch: 4096, in_channels: 512, out_channels: 512, scalar_channels: 0, },
    dtype: Dtype::F32,
    precision: MatmulPrecision::Tf32,
};
tuner.tune(&workload, &mut |trial| {
    println!("{}: {}", trial.subject, trial.verdict);
    ControlFlow::Continue(())
})?;
tuner.save()?;
# Ok::<(), Box<dyn std::error::Error>>(())
```
"#
)]
#![forbid(unsafe_code)]

#[cfg(feature = "cuda")]
mod call;
#[cfg(feature = "cuda")]
mod clock;
#[cfg(feature = "cuda")]
mod error;
#[cfg(feature = "cuda")]
mod random;
#[cfg(feature = "cuda")]
mod roofline;
#[cfg(feature = "cuda")]
mod scratch;
#[cfg_attr(
    not(feature = "cuda"),
    allow(
        dead_code,
        unused_imports,
        reason = "the search on a GPU uses the rest, and the tests"
    )
)]
mod search;
#[cfg(feature = "cuda")]
mod session;
#[cfg(feature = "cuda")]
mod tuner;

#[cfg(feature = "cuda")]
pub use error::Error;
#[cfg(feature = "cuda")]
pub use roofline::Roofline;
pub use search::{Effort, Times, Verdict, Wrong};
#[cfg(feature = "cuda")]
pub use session::Trial;
#[cfg(feature = "cuda")]
pub use tuner::{Outcome, PassTimes, Saved, Settings, Tuner, Workload};
