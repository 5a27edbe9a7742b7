//! Networks for Python: described step by step, planned for sizes, and run as the two passes of a function of autograd.
//!
//! * `describe` - the description.
//! * `plan` - the plans of a described network.
//! * `host`, `gpu` - runs of a plan, over memory that Python owns.

mod describe;
#[cfg(feature = "cuda")]
mod gpu;
mod host;
mod plan;

pub(crate) use describe::{Network, TokenGeometry};
pub(crate) use plan::{NetworkFunction, NetworkPlan};
