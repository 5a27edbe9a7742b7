//! Charged bodies: where five of them are after a unit of time. The data set of EGNN, number for
//! number, and data of its generator in five dimensions.
//!
//! A sample is a graph of [`BODIES`] bodies, each with an edge from every other one ([`edges`]). Inputs are the
//! charges, and positions and velocities at frame [`FROM_FRAME`] of a trajectory; targets are the positions at frame
//! [`TO_FRAME`]. Frame `k` is after `100 (k + 1)` steps of 0.001 units of time.
//!
//! - Charges are -1 or 1, equally likely. Positions are from N(0, I). Velocities have random directions and the length 0.5.
//! - A body outside of the box `[-5, 5]^3` (in five dimensions `[-5, 5]^5`) is reflected once, at
//!   the start. There are no walls later.
//! - Bodies have mass 1, and equal charges repel each other: `F_i = sum_j q_i q_j (x_i - x_j) / r^3`. Each component
//!   of the sum is cut to [-100, 100].
//! - A step is `v += F(x) dt`, then `x += v dt`.
//!
//! # The published files
//! EGNN's program writes them with `--num-train 10000 --seed 43 --sufix small`. One stream of NumPy draws the [`DRAWN`]
//! training, validation and test trajectories, of which papers use [`PUBLISHED`]. With [`SEED`] the draws here are the
//! same, bit for bit, including the draws of trajectories that nobody uses and of noise that is multiplied by zero.
//! Operations have the order and rounding of the program, in `f64`; the data are rounded to `f32` where EGNN's loader
//! does it.
//!
//! What the program computes from its draws depends on the machine: BLAS fuses multiplications and additions or does
//! not, and NumPy takes powers from the C library or, on CPUs with AVX-512, from its own vector code. The data here
//! agree with NumPy on x86-64 Linux with fused products and without AVX-512. Bodies that meet amplify the last bit: if
//! products or powers are rounded in another way, 90% of the samples keep all bits of their `f32`, but in 2.6% the mean
//! squared difference of the targets is above 0.001. Over the test set it is 0.0005. Errors on files of different
//! machines can be compared to about that.
//!
//! # Five dimensions
//! GLGENN's `data/synthetic_sim.py` is EGNN's generator with `dim = 5` and no other change: forces
//! still fall with the square of the distance. [`generate_in`] makes these data. Frames, walls,
//! speeds and the order of draws are as in three dimensions. GLGENN's repository does not say with
//! which seed and how many trajectories its files were made, so [`SEED`] and [`DRAWN`] are the
//! values of EGNN's command here. GLGENN's loader reads as many validation and test samples as
//! training samples.
//!
//! # Errors of papers
//! The metric is the mean of squared errors over coordinates, bodies and samples: [`BodiesSplit::mean_squared_error`].
//! [`REPORTED`] has the errors of papers. The best straight line, `x + 0.72 v` from the training set, has the test
//! error 0.0835. Errors in five dimensions are in [`published`](crate::published).
//!
//! Source: EGNN (Satorras et al., ICML 2021, arXiv 2102.09844), after the simulator of NRI (Kipf et
//! al., ICML 2018, arXiv 1802.04687); in five dimensions GLGENN (Filimoshina and Shirokov, ICML
//! 2025, arXiv 2506.09625).

mod legacy;
mod reported;
mod system;

use rayon::prelude::*;

use crate::dataset::{Dataset, Split, mean_squared_error};
use crate::{Motion, Observer, Sizes, SplitName, Task, TaskError};
use legacy::LegacyRng;
pub(crate) use reported::{CGENN, MVN};
pub use reported::{REPORTED, Reported};
use system::{Axes, System};

/// Bodies of one sample.
pub const BODIES: usize = 5;
/// Dimension of the space of EGNN's bodies, [`Task::Bodies`].
pub const DIM: usize = 3;
/// Dimension of the space of GLGENN's bodies, [`Task::Bodies5d`].
pub const DIM_5D: usize = 5;
/// The frame of the inputs.
pub const FROM_FRAME: usize = 30;
/// The frame of the targets.
pub const TO_FRAME: usize = 40;
/// The seed of the published files.
pub const SEED: u32 = 43;
/// Samples that papers train, validate and test with.
pub const PUBLISHED: Sizes = Sizes {
    train: 3000,
    ..DRAWN
};
/// Trajectories that the published program draws, and so the most samples that there are.
pub const DRAWN: Sizes = Sizes {
    train: 10_000,
    val: 2000,
    test: 2000,
};

/// The step of the inputs, and the number of steps from there to the targets.
const FROM_STEP: usize = step_of(FROM_FRAME);
const STEPS: usize = step_of(TO_FRAME) - FROM_STEP;

/// Numbers of a body: charge, position, velocity.
pub(crate) const fn row(dim: usize) -> usize {
    1 + 2 * dim
}

/// How bodies move in a space of `D` dimensions.
pub(crate) const fn motion<const D: usize>() -> Motion {
    Motion {
        bodies: BODIES,
        dim: D,
        steps: STEPS,
        time: STEPS as f64 * system::TIME_STEP,
        advance: advance::<D>,
    }
}

/// The step that a frame is stored after.
const fn step_of(frame: usize) -> usize {
    100 * (frame + 1)
}

/// Moves the bodies of a sample, as rows of numbers.
fn advance<const D: usize>(bodies: &mut [f64], steps: usize) {
    let mut system = System::<D>::of(bodies);
    system.advance(steps);
    system.write(bodies);
}

/// Samples of one split, in a space of `D` dimensions. All vectors are row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct BodiesSplit<const D: usize = DIM> {
    /// Charges, `[samples, BODIES]`: -1 or 1.
    pub charges: Vec<f32>,
    /// Positions at [`FROM_FRAME`], `[samples, BODIES, D]`.
    pub positions: Vec<f32>,
    /// Velocities at [`FROM_FRAME`], `[samples, BODIES, D]`.
    pub velocities: Vec<f32>,
    /// Positions at [`TO_FRAME`], `[samples, BODIES, D]`.
    pub targets: Vec<f32>,
}

impl<const D: usize> BodiesSplit<D> {
    /// The number of samples.
    pub fn len(&self) -> usize {
        self.charges.len() / BODIES
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// The mean squared error of predicted positions over coordinates, bodies and samples.
    ///
    /// Squares are summed in `f64`, in order. The mean of no sample is NaN.
    ///
    /// # Errors
    /// [`TaskError::PredictionCount`] unless `predictions` has the length of [`Self::targets`].
    pub fn mean_squared_error(&self, predictions: &[f32]) -> Result<f64, TaskError> {
        mean_squared_error(predictions, &self.targets)
    }

    /// The samples as rows of numbers.
    fn split(&self) -> Split {
        let bodies = self.charges.iter().zip(self.positions.chunks_exact(D));
        let bodies = bodies.zip(self.velocities.chunks_exact(D));
        let numbers = |((&charge, x), v): ((&f32, &[f32]), &[f32])| {
            let before = [charge].into_iter().chain(x.iter().copied());
            before.chain(v.iter().copied()).collect::<Vec<f32>>()
        };
        Split {
            inputs: bodies.flat_map(numbers).collect(),
            shape: [self.len(), BODIES, row(D)],
            targets: self.targets.clone(),
            target_len: BODIES * D,
        }
    }

    fn of(samples: &[Sample<D>]) -> Self {
        let stored =
            |axes: fn(&Sample<D>) -> &Axes<D>| samples.iter().map(axes).flat_map(rows).collect();
        let charges = samples.iter().flat_map(|sample| sample.from.charges);
        Self {
            charges: charges.map(|q| q as f32).collect(),
            positions: stored(|sample| &sample.from.positions),
            velocities: stored(|sample| &sample.from.velocities),
            targets: stored(|sample| &sample.to),
        }
    }
}

/// Training, validation and test samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Bodies<const D: usize = DIM> {
    /// Samples to learn from.
    pub train: BodiesSplit<D>,
    /// Samples to report while training.
    pub val: BodiesSplit<D>,
    /// Samples to report at the end.
    pub test: BodiesSplit<D>,
}

/// Makes the samples of a seed in three dimensions, the first ones of each split, in parallel on
/// rayon's current pool.
///
/// They depend on the sizes and the seed as the data of [tasks](crate#determinism) do. The observer is called for each sample.
///
/// ```
/// use flashcliff_tasks::{Sizes, bodies};
///
/// let sizes = Sizes { train: 2, val: 0, test: 1 };
/// let data = bodies::generate(sizes, bodies::SEED, &|_| std::ops::ControlFlow::Continue(()))?;
/// assert_eq!(data.train.positions.len(), 2 * bodies::BODIES * bodies::DIM);
///
/// // Bodies that keep their velocities for a unit of time.
/// let moved = data.test.positions.iter().zip(&data.test.velocities).map(|(x, v)| x + v);
/// println!("linear motion: {:.4}", data.test.mean_squared_error(&moved.collect::<Vec<_>>())?);
/// # Ok::<(), flashcliff_tasks::TaskError>(())
/// ```
///
/// # Errors
/// [`TaskError::TooFewSamples`] without training samples; [`TaskError::TooManySamples`] beyond [`DRAWN`];
/// [`TaskError::Stopped`] if the observer stopped the work.
pub fn generate(sizes: Sizes, seed: u32, observer: Observer<'_>) -> Result<Bodies, TaskError> {
    generate_in(sizes, seed, observer)
}

/// Does the same as [`generate`] in a space of `D` dimensions. A build with `D = 0` fails.
///
/// ```
/// use flashcliff_tasks::{Sizes, bodies};
///
/// let sizes = Sizes { train: 1, val: 0, test: 0 };
/// let on = |_| std::ops::ControlFlow::Continue(());
/// let data = bodies::generate_in::<{ bodies::DIM_5D }>(sizes, bodies::SEED, &on)?;
/// assert_eq!(data.train.targets.len(), bodies::BODIES * 5);
/// # Ok::<(), flashcliff_tasks::TaskError>(())
/// ```
///
/// # Errors
/// The errors of [`generate`].
pub fn generate_in<const D: usize>(
    sizes: Sizes,
    seed: u32,
    observer: Observer<'_>,
) -> Result<Bodies<D>, TaskError> {
    const { assert!(D > 0, "a space has one dimension or more") };
    check(sizes)?;
    let starts = starts::<D>(sizes, seed).into_par_iter();
    let samples: Vec<Sample<D>> = starts
        .map(|start| {
            let sample = Sample::of(start);
            let stopped = observer(1).is_break();
            (!stopped).then_some(sample).ok_or(TaskError::Stopped)
        })
        .collect::<Result<_, _>>()?;
    let (train, others) = samples.split_at(sizes.train);
    let (val, test) = others.split_at(sizes.val);
    Ok(Bodies {
        train: BodiesSplit::of(train),
        val: BodiesSplit::of(val),
        test: BodiesSplit::of(test),
    })
}

/// The data of a task whose bodies move in `D` dimensions. NumPy's stream has seeds of 32 bits.
pub(crate) fn task<const D: usize>(
    task: Task,
    sizes: Sizes,
    seed: u64,
    observer: Observer<'_>,
) -> Result<Dataset, TaskError> {
    let own = u32::try_from(seed).map_err(|_| TaskError::SeedTooLarge {
        most: u32::MAX.into(),
        got: seed,
    })?;
    let data = generate_in::<D>(sizes, own, observer)?;
    Ok(Dataset {
        task,
        train: data.train.split(),
        val: data.val.split(),
        test: data.test.split(),
        target_scale: 1.0,
        target_shift: 0.0,
    })
}

/// Edges of a batch of graphs, in which every body gets one from each other body of its graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edges {
    /// The row of the body that an edge leads to. It rises.
    pub receivers: Vec<u32>,
    /// The row of the body that an edge comes from. It rises among the edges of a receiver.
    pub senders: Vec<u32>,
}

/// The `20 graphs` edges of a batch, whose body `i` of graph `g` is row `5 g + i`.
///
/// The order is that of EGNN's loader, whose edges have the attribute `q_receiver q_sender`.
pub fn edges(graphs: u16) -> Edges {
    let bodies = BODIES as u32;
    let pairs = (0..u32::from(graphs) * bodies).flat_map(|receiver| {
        let first = receiver - receiver % bodies;
        (first..first + bodies).map(move |sender| (receiver, sender))
    });
    let (receivers, senders) = pairs.filter(|(to, from)| to != from).unzip();
    Edges { receivers, senders }
}

/// A sample before it is rounded.
struct Sample<const D: usize> {
    from: System<D>,
    to: Axes<D>,
}

impl<const D: usize> Sample<D> {
    fn of(mut system: System<D>) -> Self {
        system.advance(FROM_STEP);
        let from = system.clone();
        system.advance(STEPS);
        let to = system.positions;
        Self { from, to }
    }
}

/// The rows of bodies, as stored.
fn rows<const D: usize>(axes: &Axes<D>) -> impl Iterator<Item = f32> {
    (0..BODIES).flat_map(|body| axes.iter().map(move |axis| axis[body] as f32))
}

fn check(sizes: Sizes) -> Result<(), TaskError> {
    let splits = [
        (SplitName::Train, 1, sizes.train, DRAWN.train),
        (SplitName::Validation, 0, sizes.val, DRAWN.val),
        (SplitName::Test, 0, sizes.test, DRAWN.test),
    ];
    for (split, expected, got, most) in splits {
        if got < expected {
            return Err(TaskError::TooFewSamples {
                split,
                expected,
                got,
            });
        }
        if got > most {
            return Err(TaskError::TooManySamples { split, most, got });
        }
    }
    Ok(())
}

/// The starts of the samples, training first. One stream draws all of them, so those between are skipped.
fn starts<const D: usize>(sizes: Sizes, seed: u32) -> Vec<System<D>> {
    let mut rng = LegacyRng::new(seed);
    let mut starts = Vec::with_capacity(sizes.total());
    let splits = [
        (sizes.train, DRAWN.train),
        (sizes.val, DRAWN.val),
        (sizes.test, DRAWN.test),
    ];
    for (wanted, drawn) in splits {
        for trajectory in 0..drawn {
            if starts.len() == sizes.total() {
                return starts;
            }
            if trajectory < wanted {
                starts.push(System::draw(&mut rng));
            } else {
                System::<D>::skip(&mut rng);
            }
        }
    }
    starts
}

#[cfg(test)]
mod tests;
