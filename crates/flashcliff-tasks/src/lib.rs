//! Tasks with published errors: their data by seed, and the errors that papers report.
//!
//! | task | points of a sample | target | source |
//! |---|---|---|---|
//! | [`Task::Hulls`] | 16 in R^5 from N(0, I) | volume of the convex hull | CGENN, arXiv 2305.11141 |
//! | [`Task::Regression`] | 2 in R^5 from N(0, I) | an O(5)-invariant function | EMLP, arXiv 2104.09459; CGENN |
//! | [`Task::Volumes`] | 3 in R^3 from N(0, I) | signed volume, det / 10 | CGENN |
//! | [`Task::Gravity`] | 4 bodies: mass, position, velocity | their positions after 0.1 units of time | GATr, arXiv 2305.18415 |
//! | [`Task::Complexes`] | 8 in R^5 from N(0, I), with the complex of their hull | volume of the convex hull | CSMPN, arXiv 2402.10011 |
//! | [`Task::Bodies`] | 5 bodies: charge, position, velocity | their positions after a unit of time | EGNN, arXiv 2102.09844 |
//! | [`Task::Bodies5d`] | as for [`Task::Bodies`], in R^5 | as there | GLGENN, arXiv 2506.09625 |
//! | [`Task::Forces`] | 16 atoms of silicon, and the translations of their lattice | forces, and the energy | [`silicon`] |
//!
//! Two more are of another kind: [`bodies`], graphs of charged bodies, number for number the published data of EGNN, and [`jets`],
//! classes of particle jets, with the error of the best possible classifier.
//!
//! This crate knows no framework and no model: data are vectors of `f32` with a shape, and predictions come as a slice.
//!
//! ```
//! use flashcliff_tasks::{Sizes, Task, published};
//!
//! let sizes = Sizes { train: 256, val: 16, test: 16 };
//! let data = Task::Hulls.generate(sizes, 0)?;
//! assert_eq!(data.train.shape, [256, 16, 5]);
//! assert_eq!(data.train.inputs.len(), 256 * 16 * 5);
//!
//! // A model would predict from `data.test.inputs`. This one predicts the mean of the training targets.
//! let mean = data.train.targets.iter().sum::<f32>() / data.train.len() as f32;
//! let error = data.test.mean_squared_error(&vec![mean; data.test.len()])?;
//!
//! // Published errors are of trained networks: 256 samples, 512 steps of 128 samples.
//! for row in published::at_budget(Task::Hulls, 256, 512, 128) {
//!     println!("{}: {:.2}, here {error:.2} ({})", row.method, row.error(), row.source.paper);
//! }
//! # Ok::<(), flashcliff_tasks::TaskError>(())
//! ```
//!
//! `candle_core::Tensor::from_vec(split.inputs, &split.shape, &device)` makes a tensor of candle of the points, and
//! `ndarray::Array3::from_shape_vec(split.shape, split.inputs)` an array of ndarray.
//!
//! # Determinism
//! The data depend on the seed and the position of the sample, not on the number of threads. A smaller training set is a
//! prefix of a larger one, and the other splits do not change with it; for regression this holds before standardisation. The
//! published programs have this property because they read the first rows of one file. Points are drawn and targets computed
//! in `f64`, then rounded to `f32`. A test compares checksums, so a new version of this crate does not change the data
//! unnoticed.

pub mod bodies;
mod complexes;
mod dataset;
mod error;
mod gravity;
mod hull_volume;
mod hulls;
pub mod jets;
mod motion;
pub mod published;
mod regression;
mod sampling;
pub mod silicon;
mod volumes;

use std::fmt;
use std::ops::ControlFlow;

pub use dataset::{Dataset, Sizes, Split};
pub use error::{HullError, SplitName, TaskError};
pub use motion::Motion;

/// Observer of finished samples; may stop the work with [`ControlFlow::Break`].
///
/// It is called from any thread, with the number of samples that were finished since another call. These numbers add up to
/// [`Sizes::total`].
pub type Observer<'a> = &'a (dyn Fn(usize) -> ControlFlow<()> + Sync);

/// A task with a published generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Volume of the convex hull of 16 points in R^5, invariant under O(5). Targets are in units of the volume.
    ///
    /// Source: CGENN (Ruhe et al., NeurIPS 2023, arXiv 2305.11141).
    Hulls,
    /// An O(5)-invariant function of two vectors, standardised:
    /// `sin|x1| - |x2|^3 / 2 + x1 . x2 / (|x1| |x2|)`.
    ///
    /// Each vector is divided by its root mean square component, and targets have mean 0 and variance 1, both over the
    /// training set. [`Dataset::target_scale`] and [`Dataset::target_shift`] undo it.
    ///
    /// Source: EMLP (Finzi et al., ICML 2021, arXiv 2104.09459), with the standardisation of CGENN.
    Regression,
    /// A tenth of the determinant of three vectors in R^3: a pseudoscalar, so it changes sign under reflections.
    ///
    /// Source: CGENN (Ruhe et al., NeurIPS 2023, arXiv 2305.11141).
    Volumes,
    /// Positions of a star and three planets after a tenth of a unit of time, from their masses, positions and velocities.
    ///
    /// A sample has four rows of mass, three coordinates and three components of the velocity, and twelve targets: three
    /// coordinates for each body. It is drawn from the distribution of the published data, which another generator of random
    /// numbers made: the samples are others, the statistics are the same.
    ///
    /// Source: GATr (Brehmer et al., NeurIPS 2023, arXiv 2305.18415), the simulator of its repository.
    Gravity,
    /// Positions of five charged bodies after a unit of time, from their charges, positions and velocities: [`bodies`]
    /// has the parts of the data separately.
    ///
    /// A sample has five rows of charge, three coordinates and three components of the velocity, and fifteen targets:
    /// three coordinates for each body. With the seed [`bodies::SEED`] the data are the same as in the published files.
    ///
    /// Source: EGNN (Satorras et al., ICML 2021, arXiv 2102.09844).
    Bodies,
    /// Positions of five charged bodies in R^5 after a unit of time: [`Self::Bodies`] in five
    /// dimensions.
    ///
    /// A sample has five rows of charge, five coordinates and five components of the velocity, and
    /// 25 targets: five coordinates for each body. [`bodies`] says what is known of the published
    /// files.
    ///
    /// Source: GLGENN (Filimoshina and Shirokov, ICML 2025, arXiv 2506.09625).
    Bodies5d,
    /// Volume of the convex hull of 8 points in R^5, from the simplicial complex of the hull. Targets are in units of the volume.
    ///
    /// A sample has a row of 11 numbers for each vertex, edge and triangle of 8 points, each in the order of their
    /// corners: the position of a vertex, zeros for others; 1 if the simplex is in the complex, and then 1 divided by
    /// the number of its messages and 1 divided by the number of simplices, else zeros; 1 at its dimension.
    ///
    /// Source: CSMPN (Liu et al., ICLR 2024, arXiv 2402.10011).
    Complexes,
    /// Forces on the atoms of silicon, and the energy, from their places and the translations of
    /// their lattice: [`silicon`].
    ///
    /// A sample has 43 rows of four numbers, of 16 atoms and 27 translations, and 64 targets: for
    /// each atom its force and the weighted energy.
    ///
    /// Source: the potential of Stillinger and Weber (Phys. Rev. B 31, 5262, 1985); the crystals
    /// are drawn here.
    Forces,
}

impl Task {
    /// Every task.
    pub const ALL: [Self; 8] = [
        Self::Hulls,
        Self::Regression,
        Self::Volumes,
        Self::Gravity,
        Self::Bodies,
        Self::Bodies5d,
        Self::Complexes,
        Self::Forces,
    ];

    /// The name in lower case: `hulls`, `regression`, `volumes`, `gravity`, `nbody`, `nbody5d`,
    /// `csmpn-hulls` or `forces`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hulls => "hulls",
            Self::Regression => "regression",
            Self::Volumes => "volumes",
            Self::Gravity => "gravity",
            Self::Bodies => "nbody",
            Self::Bodies5d => "nbody5d",
            Self::Complexes => "csmpn-hulls",
            Self::Forces => "forces",
        }
    }

    /// The number of points of one sample.
    pub const fn points(self) -> usize {
        match self {
            Self::Hulls => hulls::POINTS,
            Self::Regression => regression::POINTS,
            Self::Volumes => volumes::DIM,
            Self::Gravity => gravity::BODIES,
            Self::Bodies | Self::Bodies5d => bodies::BODIES,
            Self::Complexes => complexes::SIMPLICES,
            Self::Forces => silicon::ATOMS + silicon::IMAGES,
        }
    }

    /// The dimension of a point: the numbers of a row of a sample.
    pub const fn dim(self) -> usize {
        match self {
            Self::Hulls => hull_volume::DIM,
            Self::Regression => regression::DIM,
            Self::Volumes => volumes::DIM,
            Self::Gravity => gravity::ROW,
            Self::Bodies => bodies::row(bodies::DIM),
            Self::Bodies5d => bodies::row(bodies::DIM_5D),
            Self::Complexes => complexes::ROW,
            Self::Forces => silicon::ROW,
        }
    }

    /// The number of targets of one sample.
    pub const fn target_len(self) -> usize {
        match self {
            Self::Hulls | Self::Regression | Self::Volumes | Self::Complexes => 1,
            Self::Gravity => gravity::BODIES * gravity::DIM,
            Self::Bodies => bodies::BODIES * bodies::DIM,
            Self::Bodies5d => bodies::BODIES * bodies::DIM_5D,
            Self::Forces => silicon::ATOMS * silicon::TARGETS,
        }
    }

    /// Makes the data of a seed, in parallel on rayon's current pool.
    ///
    /// The data depend on the sizes and the seed alone; see the [crate](crate#determinism).
    ///
    /// # Errors
    /// [`TaskError::TooFewSamples`] if the training set is empty, or for [`Task::Regression`] has fewer than two samples, of
    /// which it takes the standard deviation. [`TaskError::TooManySamples`] for more of
    /// [`Task::Bodies`] or [`Task::Bodies5d`] than [`bodies::DRAWN`], and [`TaskError::SeedTooLarge`]
    /// for a seed of theirs beyond 32 bits. [`TaskError::OutOfMemory`] if there is no memory for the
    /// data.
    /// [`TaskError::Hull`] if rounding leaves the hull of a sample undecided.
    pub fn generate(self, sizes: Sizes, seed: u64) -> Result<Dataset, TaskError> {
        self.generate_observed(sizes, seed, &keep_on)
    }

    /// Does the same as [`Self::generate`], for a progress bar or work that can be stopped.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use flashcliff_tasks::{Sizes, Task, TaskError};
    ///
    /// let sizes = Sizes { train: 100, val: 10, test: 10 };
    /// let stopped = Task::Volumes.generate_observed(sizes, 0, &|_samples| ControlFlow::Break(()));
    /// assert_eq!(stopped, Err(TaskError::Stopped));
    /// ```
    ///
    /// # Errors
    /// The errors of [`Self::generate`], and [`TaskError::Stopped`] if the observer stopped the work.
    pub fn generate_observed(
        self,
        sizes: Sizes,
        seed: u64,
        observer: Observer<'_>,
    ) -> Result<Dataset, TaskError> {
        match self {
            Self::Hulls => hulls::generate(sizes, seed, observer),
            Self::Regression => regression::generate(sizes, seed, observer),
            Self::Volumes => volumes::generate(sizes, seed, observer),
            Self::Gravity => gravity::generate(sizes, seed, observer),
            Self::Bodies => bodies::task::<{ bodies::DIM }>(self, sizes, seed, observer),
            Self::Bodies5d => bodies::task::<{ bodies::DIM_5D }>(self, sizes, seed, observer),
            Self::Complexes => complexes::generate(sizes, seed, observer),
            Self::Forces => silicon::generate(sizes, seed, observer),
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An observer that lets the work go on.
fn keep_on(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
