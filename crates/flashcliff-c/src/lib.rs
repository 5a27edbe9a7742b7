//! The operators of [`flashcliff`], and networks from files, behind a C interface, on the CPU, with the feature `cuda` on NVIDIA GPUs too;
//! `include/flashcliff.h` describes every function.
//!
//! No panic leaves this crate: each function that can fail returns a status, and keeps a message for its thread.
//!
//! * `status` - codes and messages.
//! * `settings` - options of operators from a text.
//! * `memory` - tensors and buffers of the caller, checked before they are borrowed.
//! * `operator` - operators and their two passes on the CPU.
//! * `cuda` - operators on GPUs.
//! * `network` - networks with their weights.

mod cuda;
mod memory;
mod network;
mod operator;
mod settings;
mod status;
#[cfg(test)]
mod tests;

pub use cuda::{
    CudaCall, CudaOperator, CudaPlan, fc_cuda_backward, fc_cuda_forward, fc_cuda_operator_free,
    fc_cuda_operator_new, fc_cuda_plan_call,
};
pub use memory::Tensor;
pub use network::{
    CudaNetwork, CudaNetworkCall, CudaNetworkSizes, Machine, Network, NetworkBatch, NetworkCall,
    NetworkEnd, NetworkGradients, NetworkRelationEnd, NetworkRunner, Relation,
    fc_cuda_network_backward, fc_cuda_network_explain, fc_cuda_network_free, fc_cuda_network_plan,
    fc_cuda_network_run, fc_cuda_network_sizes_of, fc_network_backward, fc_network_counts,
    fc_network_explain, fc_network_free, fc_network_input, fc_network_load, fc_network_output,
    fc_network_parameter, fc_network_parameter_values, fc_network_plan, fc_network_relation,
    fc_network_relation_count, fc_network_run, fc_network_runner_free, fc_relation_free,
    fc_relation_new, fc_relation_new_i64,
};
pub use operator::{
    Operator, Plan, fc_backward, fc_forward, fc_operator_free, fc_operator_new, fc_plan_forward,
};
pub use status::{fc_last_error, fc_version};
