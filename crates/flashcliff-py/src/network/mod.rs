//! Networks for Python: described step by step, planned for sizes, and run as the two passes of a function of autograd.
//!
//! * `describe` - the description.
//! * `plan` - the plans of a described network.
//! * `stored` - networks of files.
//! * `host`, `gpu` - runs of a plan, over memory that Python owns.

mod describe;
#[cfg(feature = "cuda")]
pub(crate) mod gpu;
pub(crate) mod host;
pub(crate) mod plan;
pub(crate) mod stored;

pub(crate) use describe::{Network, TokenGeometry};
pub(crate) use plan::{NetworkFunction, NetworkPlan};
pub(crate) use stored::{StoredNetwork, network_file};
