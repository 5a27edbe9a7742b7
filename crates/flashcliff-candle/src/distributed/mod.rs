//! Training on several GPUs: one process a GPU, a *rank* each, which share every batch.
//!
//! ```text
//! rank 0                                          rank 1, 2, ...
//! World::from_environment                         World::from_environment
//! Links::join   <---- hello: rank, agreement ---- Links::join          TCP, kept for the whole run
//! Communicator  ----- id of NCCL ---------------> Communicator         NCCL
//! model, optimiser --- their state -------------> import               Links::send, Links::receive
//! Communicator::broadcast ----------------------> broadcast            data, from GPU to GPU
//! each step, on all ranks, in one captured graph:
//!     Communicator::evaluate: Objective::evaluate on the rank's share of the batch, and beside its backward pass
//!         loss and gradients become their means over the ranks, in buckets
//!     Adam::objective_step: the same numbers on all ranks, so the same parameters
//! ```
//! The mean over ranks of the mean over equal shares is the mean over the batch. So loss and gradients are the same as on one GPU with the
//! whole batch, up to the order in which numbers are added. Norms, clipping and refusals come after it, so they act on the whole batch.
//!
//! * [`World`] - who takes part, from the variables that `torchrun` sets.
//! * [`Links`] - a connection from rank 0 to each rank. It carries messages, and notices when a rank is lost.
//! * [`Communicator`] - sums over GPUs, by NCCL, which is looked for when the first communicator is made.
//! * [`Fault`] - what can go wrong between ranks.

mod environment;
mod fault;
mod links;
#[cfg(feature = "cuda")]
mod nccl;
#[cfg(not(feature = "cuda"))]
mod none;
mod rendezvous;
mod wire;

pub use environment::World;
pub use fault::Fault;
pub use links::{Links, Timing};
#[cfg(feature = "cuda")]
pub use nccl::Communicator;
#[cfg(not(feature = "cuda"))]
pub use none::Communicator;
