//! The errors of benchmarks.

/// An error of a benchmark. It says what was expected and what came.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the library.
    #[error(transparent)]
    Core(#[from] flashcliff::Error),

    /// The table has no such operator.
    #[error("unknown operator `{got}`: expected one of {expected}")]
    UnknownOperator {
        /// The names that exist.
        expected: String,
        /// The name that was asked for.
        got: String,
    },

    /// No formula is known by which the operator could be checked, so its time would mean nothing.
    #[error(
        "{operator}: expected a formula to check it with, got none; add one to flashcliff-bench"
    )]
    NoFormula {
        /// The operator.
        operator: &'static str,
    },

    /// The operator that was to be timed gives another result than its formula.
    #[error("{case}: expected {tensor}[{index}] = {expected} within {tolerance:e}, got {got}")]
    WrongResult {
        /// The case.
        case: String,
        /// The tensor that differs.
        tensor: String,
        /// The element that differs.
        index: usize,
        /// The value of the formula in f64.
        expected: f64,
        /// The value of the operator.
        got: f64,
        /// The largest difference that rounding explains.
        tolerance: f64,
    },

    /// A type that a device does not compute with.
    #[error("{device}: expected one of {expected}, got {got}")]
    NoSuchType {
        /// The device.
        device: &'static str,
        /// The types of the device.
        expected: &'static str,
        /// The type that was asked for.
        got: flashcliff::Dtype,
    },

    /// The work of a case could not be captured as a CUDA graph.
    #[error("{case}: expected calls that can be captured: {reason}")]
    NotCaptured {
        /// The case.
        case: String,
        /// The reason.
        reason: String,
    },

    /// A kernel of the floor failed.
    #[error("{call} failed with code {code} of CUDA")]
    Kernel {
        /// The function.
        call: &'static str,
        /// Its code.
        code: i32,
    },

    /// A text that is not a report.
    #[error("expected a report of `flashcliff bench --json`, of format {expected}: {reason}")]
    NotReport {
        /// The format that is read.
        expected: u32,
        /// The fault of the text.
        reason: String,
    },
}
