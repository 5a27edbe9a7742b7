//! A device whose choices are seen and can be forced.

use std::sync::Arc;

use crate::Error;
use crate::cuda::Device;
use crate::cuda::matmul::{Knob, Plan, Watch};
use crate::tuning_table::{Algorithm, KnobKey, Problem};

/// A device of the same GPU, context and tuning tables as another. It records the choices that calls ask for, and takes
/// choices that are forced. The other device, and all others, keep their choices.
#[derive(Debug)]
pub struct WatchedDevice {
    device: Device,
    watch: Arc<Watch>,
}

/// The choices that calls asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The matrix products whose algorithms were asked for, each once, in the order of the calls.
    pub products: Vec<Problem>,
    /// The knobs, each once, in the order of the calls.
    pub knobs: Vec<Knob>,
}

impl WatchedDevice {
    /// A watched device beside another, in which nothing is forced.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn new(device: &Device) -> Result<Self, Error> {
        let watch = Arc::new(Watch::default());
        Ok(Self {
            device: device.watched(watch.clone())?,
            watch,
        })
    }

    /// The device. The calls of operators on it are seen.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Takes the choices that calls asked for since this was last called.
    pub fn take_seen(&self) -> Seen {
        let (products, knobs) = self.watch.take_seen();
        Seen { products, knobs }
    }

    /// The algorithm that computes a product: the one that is forced, else that of the tuning tables, else that of the
    /// heuristics.
    ///
    /// # Errors
    /// [`Error::CudaLibrary`] without cuBLASLt, [`Error::Cuda`] if it has no algorithm.
    pub fn in_use(&self, problem: &Problem) -> Result<Candidate, Error> {
        let blas = self.device.blas()?;
        let plan = blas.plan(problem)?;
        Ok(Candidate {
            watch: self.watch.clone(),
            algorithm: blas.describe(&plan)?,
            plan,
        })
    }

    /// At most `most` algorithms that the heuristics propose for a product, best first. All add in a fixed order.
    ///
    /// # Errors
    /// The errors of [`Self::in_use`].
    pub fn proposals(&self, problem: &Problem, most: usize) -> Result<Vec<Algorithm>, Error> {
        self.device.blas()?.proposals(problem, most)
    }

    /// A product with an algorithm, or the reason why the algorithm cannot compute the product.
    ///
    /// # Errors
    /// The errors of [`Self::in_use`].
    pub fn candidate(
        &self,
        problem: &Problem,
        algorithm: &Algorithm,
    ) -> Result<Result<Candidate, String>, Error> {
        let plan = self.device.blas()?.plan_with(problem, algorithm)?;
        Ok(plan.map(|plan| Candidate {
            watch: self.watch.clone(),
            algorithm: *algorithm,
            plan,
        }))
    }

    /// Forces a knob to a value from now on. A value that the knob cannot have is not used.
    pub fn force_knob(&self, key: KnobKey, name: String, value: i64) {
        self.watch.force_knob(key, name, value);
    }

    /// The total seconds on the GPU of all launches of a product within some work, and the number of these launches.
    /// Waits until they are done.
    ///
    /// # Errors
    /// The error of the work, [`Error::Cuda`].
    pub fn seconds_of<E: From<Error>>(
        &self,
        problem: &Problem,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<(f64, usize), E> {
        self.watch.time(Some(*problem));
        let done = work();
        let taken = self.watch.take_seconds();
        self.watch.time(None);
        done?;
        Ok(taken?)
    }
}

/// A matrix product of a [`WatchedDevice`], with an algorithm that can compute it.
#[derive(Clone, Debug)]
pub struct Candidate {
    watch: Arc<Watch>,
    algorithm: Algorithm,
    plan: Arc<Plan>,
}

impl Candidate {
    /// The algorithm.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// Makes calls on the watched device compute the product by this algorithm from now on.
    pub fn force(&self) {
        self.watch.force(self.plan.clone());
    }
}
