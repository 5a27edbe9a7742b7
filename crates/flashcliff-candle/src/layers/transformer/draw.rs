//! Random numbers of dropout: a seed and a counter of steps on the device.
//!
//! The numbers that a layer drops are a function of a key, of the counter and of the place in the tokens
//! (`flashcliff::dropout`). Nothing is drawn in order. So a captured step drops others each time, because it counts
//! on by itself; a block that runs again in the backward pass drops the same; and a run that takes up the counter
//! goes on as if it had never stopped.

use candle_core::{DType, Device, Result, Tensor, Var};
use flashcliff::dropout::key_of;

use crate::Error;
use crate::checkpoint::Checkpoint;

/// The name of the counter in a checkpoint.
const NAME: &str = "draws";

/// The random numbers of a training run, for [`GradeDropout`](crate::layers::transformer::GradeDropout) and the layers that have it.
///
/// [`Self::draw`] gives the numbers of one pass through a network and counts on. The counter lies on the device, so it
/// also counts in captured steps.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use flashcliff_candle::layers::transformer::{Channels, Draws, Geometry, GradeDropout, Tokens};
///
/// let algebra = flashcliff::Algebra::new(flashcliff::Signature::new(3, 0, 0)?)?;
/// let channels = Channels::new(4, 8);
/// let layer = GradeDropout::over(algebra, channels, 0.5)?;
/// let x = Tensor::ones((2, 3, channels.width_over(8)), DType::F32, &Device::Cpu)?;
/// let x = Tokens::from_packed(x, channels)?;
///
/// let draws = Draws::new(1, &Device::Cpu)?;
/// let (first, second) = (layer.forward(&x, Some(&draws.draw()?))?, layer.forward(&x, Some(&draws.draw()?))?);
/// assert_ne!(
///     first.packed().flatten_all()?.to_vec1::<f32>()?,
///     second.packed().flatten_all()?.to_vec1::<f32>()?
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Draws {
    seed: u64,
    /// The passes so far, `[1]`.
    counter: Var,
}

/// The random numbers of one pass through a network, forwards and backwards.
#[derive(Clone, Debug)]
pub struct Draw {
    key: u64,
    /// The number of the pass, `[1]`, in memory that nothing writes.
    step: Tensor,
}

impl Draws {
    /// The numbers of a seed on a device, before the first pass.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn new(seed: u64, device: &Device) -> std::result::Result<Self, Error> {
        Ok(Self {
            seed,
            counter: Var::zeros(1, DType::U32, device)?,
        })
    }

    /// The numbers of the next pass. Passes have their own, also within one step of training.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn draw(&self) -> Result<Draw> {
        let step = self.counter.as_detached_tensor().affine(1.0, 1.0)?;
        self.counter.set(&step)?;
        Ok(Draw {
            key: self.seed,
            step,
        })
    }

    /// Takes up the numbers after so many passes, as [`Self::import`] does.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn continue_after(&self, passes: u32) -> std::result::Result<(), Error> {
        let counter = Tensor::new(&[passes], self.counter.device())?;
        Ok(self.counter.set(&counter)?)
    }

    /// The passes so far. On a GPU the call waits.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn passes(&self) -> std::result::Result<u32, Error> {
        Ok(first(&self.counter)?)
    }

    /// Adds the counter to a checkpoint, as `{prefix}draws`.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn export(
        &self,
        prefix: &str,
        checkpoint: &mut Checkpoint,
    ) -> std::result::Result<(), Error> {
        // A copy, since checkpoints share what they get.
        let counter = Tensor::new(&[self.passes()?], &Device::Cpu)?;
        checkpoint.insert(format!("{prefix}{NAME}"), &counter);
        Ok(())
    }

    /// Takes the counter out of a checkpoint that [`Self::export`] filled.
    ///
    /// # Errors
    /// A missing tensor, a wrong shape or a wrong type.
    pub fn import(&self, prefix: &str, checkpoint: &Checkpoint) -> std::result::Result<(), Error> {
        let counter = checkpoint.get(&format!("{prefix}{NAME}"), &[1], DType::U32)?;
        self.continue_after(first(&counter)?)
    }
}

impl Draw {
    /// Other numbers for each place, such as a block of a network: layers that get the same numbers drop alike.
    #[must_use]
    pub fn of(&self, place: u64) -> Self {
        Self {
            key: key_of(self.key, place),
            step: self.step.clone(),
        }
    }

    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    pub(crate) fn step(&self) -> &Tensor {
        &self.step
    }

    /// The number of the pass on the host. It is asked for on the CPU only.
    pub(crate) fn number(&self) -> Result<u32> {
        first(&self.step)
    }
}

fn first(counter: &Tensor) -> Result<u32> {
    counter.squeeze(0)?.to_scalar()
}
