//! The errors of this crate.

use std::fmt;

/// An error of making data, or of comparing predictions with them.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// A split is too small for its statistics, or empty.
    #[error("the {split} set needs at least {expected} samples, got {got}")]
    TooFewSamples {
        /// The split.
        split: SplitName,
        /// The smallest size that works.
        expected: usize,
        /// The size that was asked for.
        got: usize,
    },
    /// A split is larger than the published data.
    #[error("the {split} set has {most} samples at most, as the published data, got {got}")]
    TooManySamples {
        /// The split.
        split: SplitName,
        /// The largest size.
        most: usize,
        /// The size that was asked for.
        got: usize,
    },
    /// The stream that draws the data has no such seed.
    #[error("the data have seeds up to {most}, got {got}: choose another")]
    SeedTooLarge {
        /// The largest seed.
        most: u64,
        /// The seed that was asked for.
        got: u64,
    },
    /// The system has no memory for a split.
    #[error(
        "the {split} set of {samples} samples needs at least {bytes} bytes, which the system does not give: ask for fewer samples"
    )]
    OutOfMemory {
        /// The split.
        split: SplitName,
        /// The size that was asked for.
        samples: usize,
        /// The memory of the split while it is made.
        bytes: u128,
    },
    /// The [observer](crate::Observer) stopped the work.
    #[error("stopped before all samples were made")]
    Stopped,
    /// The number of predictions is not the number of targets.
    #[error("expected {expected} predictions, one for each target, got {got}")]
    PredictionCount {
        /// The targets of the split.
        expected: usize,
        /// The predictions given.
        got: usize,
    },
    /// The hull of one sample could not be computed.
    #[error("sample {sample} of the {split} set (seed {seed}): {source}")]
    Hull {
        /// The split.
        split: SplitName,
        /// Position in the split.
        sample: usize,
        /// Seed of the data, to make the sample again.
        seed: u64,
        /// The error of the points of the sample.
        source: HullError,
    },
}

/// The reason why the volume of the hull of a sample is not known.
///
/// Points of a normal distribution are in general position, so only rounding can be the reason.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HullError {
    /// A hull with an interior needs one point more than the dimension.
    #[error("a hull in 5 dimensions needs at least 6 points, got {got}")]
    TooFewPoints {
        /// Number of points.
        got: usize,
    },
    /// A coordinate is NaN or infinite.
    #[error("point {point} has a coordinate that is not finite")]
    NotFinite {
        /// Index of the first such point.
        point: usize,
    },
    /// All points lie in one hyperplane.
    #[error("the points lie in a hyperplane: {facets} facets found, expected at least 6")]
    Flat {
        /// Number of facets found.
        facets: usize,
    },
    /// A facet is not a simplex: more than five points lie in one supporting hyperplane.
    #[error("the points {vertices:?} and others lie in one supporting hyperplane")]
    NotSimplicial {
        /// Five points that span the hyperplane.
        vertices: [usize; 5],
    },
    /// Rounding made the side of some point uncertain, so the facets that were found do not form a closed surface.
    #[error(
        "the facets do not close: their area vectors sum to {residual:e} of the surface, expected less than {limit:e}"
    )]
    NotClosed {
        /// Length of the sum of the area vectors over the sum of their lengths.
        residual: f64,
        /// The largest accepted value.
        limit: f64,
    },
}

/// A part of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SplitName {
    /// Samples to learn from.
    Train,
    /// Samples to report while training.
    Validation,
    /// Samples to report at the end.
    Test,
}

impl fmt::Display for SplitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Train => "training",
            Self::Validation => "validation",
            Self::Test => "test",
        })
    }
}
