//! The errors of this crate.

/// The reason why a network could not be made, planned or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of an operator: a shape that does not fit, a device that fails, ...
    #[error(transparent)]
    Core(#[from] flashcliff::Error),

    /// A node got a value of another shape than it takes.
    #[error("{node}: expected {expected}, got {got}")]
    Shape {
        /// The node.
        node: String,
        /// The shape that it takes.
        expected: String,
        /// The shape that it got.
        got: String,
    },

    /// A node got too many or too few values.
    #[error("{node}: expected {expected} values, got {got}")]
    Count {
        /// The node.
        node: String,
        /// The number that it takes.
        expected: String,
        /// The number that it got.
        got: usize,
    },

    /// A choice of a [geometry](crate::tokens::Geometry) that its algebra does not have.
    #[error("{choice}: expected {expected}, got {got}")]
    Geometry {
        /// The choice.
        choice: &'static str,
        /// The algebras that have it.
        expected: &'static str,
        /// The algebra.
        got: String,
    },

    /// Sequences that do not fit the rows of a plan.
    #[error(
        "sequences: expected offsets of {count} that ascend from 0 to {rows}, of a plan of one sample, got {got}"
    )]
    Sequences {
        /// The rows of the plan.
        rows: usize,
        /// The sequences of items.
        count: usize,
        /// The offsets.
        got: String,
    },

    /// A row of a relation that belongs to no row.
    #[error(
        "segments: expected each row to belong to one of {count} from 0 up, got {got} for row {row}"
    )]
    Index {
        /// The row.
        row: usize,
        /// The number of rows that it may belong to.
        count: usize,
        /// The number that the row names.
        got: String,
    },

    /// A relation of more rows or targets than 32 bits can number.
    #[error(
        "segments: expected at most 4294967295 rows and targets, got {rows} rows and {count} targets"
    )]
    TooManySegments {
        /// The rows.
        rows: usize,
        /// The rows that they may belong to.
        count: usize,
    },

    /// An option out of its range.
    #[error("{option}: expected {expected}, got {got}")]
    Option {
        /// The option.
        option: &'static str,
        /// The values that it takes.
        expected: &'static str,
        /// The value.
        got: f64,
    },

    /// A value of another network.
    #[error("expected a value of this network, which has {count}, got value {got}")]
    Unknown {
        /// The values that the network has.
        count: usize,
        /// The number of the value.
        got: usize,
    },

    /// A value that no node computes stands where a computed one must.
    #[error("{what}: expected a value that a node computes, got {got}")]
    NotComputed {
        /// What takes the value.
        what: &'static str,
        /// The value.
        got: String,
    },

    /// A value that is there twice among the outputs of a stage. A run writes each value to one place.
    #[error("outputs: expected each value once, got {got} twice")]
    OutputTwice {
        /// The output.
        got: String,
    },

    /// An output of a stage that an earlier stage computes.
    #[error("outputs of stage {stage}: expected values that no earlier stage computes, got {got}")]
    EarlierStage {
        /// The number of the stage, from 0 up.
        stage: usize,
        /// The output.
        got: String,
    },

    /// A node whose gradient is not known.
    #[error(
        "{node} has no gradient here: an error is the end of a network; attention has second derivatives, but gradients of masks and frames have none"
    )]
    NoGradient {
        /// The node.
        node: String,
    },

    /// A gradient is wanted by a value that no result depends on.
    #[error(
        "{value}: expected an input or parameter that a result depends on, got one without a gradient: leave it out"
    )]
    Independent {
        /// The input or parameter.
        value: String,
    },

    /// Memory that a host lends has another length.
    #[error("{what} {index}: expected {expected} elements, got {got}")]
    Length {
        /// An input, a parameter, an output, or other memory of a run.
        what: &'static str,
        /// Its number.
        index: usize,
        /// The elements of the plan.
        expected: usize,
        /// The elements that are there.
        got: usize,
    },

    /// A plan on a device that it was not made for.
    #[error("expected a plan for {expected}, got one for {got}")]
    OtherPlan {
        /// What runs it.
        expected: String,
        /// What the plan is for.
        got: String,
    },
}
