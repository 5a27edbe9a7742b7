//! The errors of a search.

use crate::Wrong;

/// An error of a search.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the library: of an operator, of CUDA, or of the file of a tuning table.
    #[error(transparent)]
    Core(#[from] flashcliff::Error),
    /// An operator gives wrong results with the choices that are in use, so there is nothing to compare other choices
    /// with.
    #[error("{operator}: cannot be tuned, since what is in use is wrong: {reason}")]
    Reference {
        /// The operator.
        operator: String,
        /// The difference that was found.
        reason: Wrong,
    },
}
