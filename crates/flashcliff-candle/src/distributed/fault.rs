//! The errors between ranks.

/// The reason why ranks cannot work together, or not any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A variable of the environment is missing or invalid.
    #[error(
        "{variable}: expected {expected}, got {got}; torchrun sets it, and so does whoever starts ranks by hand"
    )]
    Variable {
        /// The name of the variable.
        variable: &'static str,
        /// The values that it may have.
        expected: String,
        /// The value that it has.
        got: String,
    },

    /// Rank 0 cannot wait for the others.
    #[error(
        "rank 0 cannot listen at {address}: expected MASTER_ADDR to be a name or an address of this machine, and a port that is free"
    )]
    Listen {
        /// The address.
        address: String,
        /// The error of the system.
        source: std::io::Error,
    },

    /// A rank cannot reach rank 0.
    #[error(
        "expected rank 0 at {address} within {seconds} s: {reason}; check that it runs, and MASTER_ADDR and MASTER_PORT"
    )]
    Unreachable {
        /// The address.
        address: String,
        /// The time that was waited.
        seconds: u64,
        /// The error of the last try.
        reason: String,
    },

    /// Not all ranks came.
    #[error(
        "expected {size} ranks within {seconds} s, but {missing} did not come{strangers}; check that they run, and their MASTER_ADDR and MASTER_PORT"
    )]
    Missing {
        /// The number of ranks, with rank 0.
        size: usize,
        /// The time that was waited.
        seconds: u64,
        /// The ranks that did not come.
        missing: String,
        /// The connections that came from programs which are no ranks.
        strangers: String,
    },

    /// Another program than rank 0 listens at its address.
    #[error(
        "expected rank 0 of this program at {address}, got an answer of another program: {got}; choose another MASTER_PORT"
    )]
    Stranger {
        /// The address.
        address: String,
        /// The mistake in the answer.
        got: String,
    },

    /// Two ranks would not do the same work.
    #[error(
        "rank {rank} does not fit rank 0: expected {expected}, got {got}; start all ranks with the same program and the same options"
    )]
    Mismatch {
        /// The rank that came.
        rank: usize,
        /// The text of rank 0.
        expected: String,
        /// The text of the other rank.
        got: String,
    },

    /// Rank 0 did not take this rank.
    #[error("rank 0 refused this rank: {reason}")]
    Refused {
        /// The reason, in the words of rank 0.
        reason: String,
    },

    /// A rank ended, or is not heard of.
    #[error("rank {rank} is lost: {reason}")]
    Lost {
        /// The rank.
        rank: usize,
        /// The sign by which the loss was noticed.
        reason: String,
    },

    /// A rank said that it cannot go on.
    #[error("rank {rank} failed: {reason}")]
    Failed {
        /// The rank.
        rank: usize,
        /// The reason, in the words of that rank.
        reason: String,
    },

    /// A signal came before all ranks were there.
    #[error("stopped by a signal before all ranks were there")]
    Stopped,

    /// A rank sent what nobody expects at that point.
    #[error("expected {expected} from rank {rank}, got {got}")]
    Unexpected {
        /// The rank.
        rank: usize,
        /// The kind of the message that was expected.
        expected: &'static str,
        /// A description of what came.
        got: String,
    },

    /// There is no NCCL.
    #[error(
        "several GPUs need NCCL, which cannot be loaded: {tried}; install it (`pip install nvidia-nccl-cu13` has it) and name the folder of \
         libnccl.so.2 in LD_LIBRARY_PATH, or the folder above its `lib` in NCCL_HOME"
    )]
    NoNccl {
        /// The places that were tried, with the messages of the loader.
        tried: String,
    },

    /// NCCL returned an error.
    #[error("{call}: {reason}; NCCL_DEBUG=INFO says more")]
    Nccl {
        /// The function.
        call: &'static str,
        /// The messages of NCCL.
        reason: String,
    },
}
