//! The operators of [`flashcliff`] on the CPU behind a C interface; `include/flashcliff.h` describes every function.
//!
//! No panic leaves this crate: each function that can fail returns a status, and keeps a message for its thread.
//!
//! * `status` - codes and messages.
//! * `settings` - options of operators from a text.
//! * `memory` - tensors and buffers of the caller, checked before they are borrowed.
//! * `operator` - operators and their two passes.

mod memory;
mod operator;
mod settings;
mod status;

pub use memory::Tensor;
pub use operator::{
    Operator, Plan, fc_backward, fc_forward, fc_operator_free, fc_operator_new, fc_plan_forward,
};
pub use status::{fc_last_error, fc_version};
