//! The scale of a loss: gradients of 16 bits are computed multiplied by it, so that small ones are not 0.

use candle_core::{DType, Device, Tensor, Var};

use crate::Error;

/// How the scale of a loss changes. All numbers but the interval are powers of two, so scaling rounds nothing.
///
/// The defaults are the same as in `torch.amp.GradScaler`, with bounds: a run that overflows at scale 1 has diverged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossScaleOptions {
    /// The scale of the first step. Default: 2^16.
    pub initial: f64,
    /// The factor of the scale after [`interval`](Self::interval) steps without overflow. Default: 2.
    pub growth: f64,
    /// The factor of the scale after an overflow. Default: 0.5.
    pub backoff: f64,
    /// The steps without overflow after which the scale grows. Default: 2000.
    pub interval: u64,
    /// The least scale. A step that overflows at this scale is refused. Default: 1.
    pub least: f64,
    /// The largest scale. Default: 2^24.
    pub most: f64,
}

/// A scale and its history.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LossScaleState {
    /// The scale of the next step.
    pub scale: f64,
    /// The steps since the scale was chosen; a skipped step counts for none.
    pub good: u64,
    /// The steps that were skipped.
    pub skipped: u64,
}

impl Default for LossScaleOptions {
    fn default() -> Self {
        Self {
            initial: 65_536.0,
            growth: 2.0,
            backoff: 0.5,
            interval: 2000,
            least: 1.0,
            most: 16_777_216.0,
        }
    }
}

impl LossScaleOptions {
    /// The state before the first step.
    pub const fn start(&self) -> LossScaleState {
        LossScaleState {
            scale: self.initial,
            good: 0,
            skipped: 0,
        }
    }

    /// The state after a step whose gradients overflowed, or did not; `None` if they overflowed at the least scale. A GPU does the same
    /// operations.
    ///
    /// ```
    /// use flashcliff_candle::optim::LossScaleOptions;
    ///
    /// let options = LossScaleOptions { interval: 2, ..LossScaleOptions::default() };
    /// let skipped = options.next(options.start(), true).unwrap();
    /// assert_eq!((skipped.scale, skipped.skipped), (32_768.0, 1));
    /// let once = options.next(skipped, false).unwrap();
    /// assert_eq!((once.scale, once.good), (32_768.0, 1));
    /// let twice = options.next(once, false).unwrap();
    /// assert_eq!((twice.scale, twice.good), (65_536.0, 0));
    /// ```
    pub fn next(&self, state: LossScaleState, overflow: bool) -> Option<LossScaleState> {
        match overflow {
            true if state.scale <= self.least => None,
            true => Some(LossScaleState {
                scale: (state.scale * self.backoff).max(self.least),
                good: 0,
                skipped: state.skipped + 1,
            }),
            false if state.good + 1 >= self.interval => Some(LossScaleState {
                scale: (state.scale * self.growth).min(self.most),
                good: 0,
                ..state
            }),
            false => Some(LossScaleState {
                good: state.good + 1,
                ..state
            }),
        }
    }

    /// Checks the ranges.
    pub(super) fn check(&self) -> Result<(), Error> {
        let (initial, growth, backoff) = (self.initial, self.growth, self.backoff);
        let within = (self.least..=self.most).contains(&initial);
        for (option, expected, got, fits) in [
            (
                "loss_scale.least",
                "a power of two",
                self.least,
                is_power(self.least),
            ),
            (
                "loss_scale.most",
                "a power of two",
                self.most,
                is_power(self.most),
            ),
            (
                "loss_scale.initial",
                "a power of two between the least and the largest scale",
                initial,
                is_power(initial) && within,
            ),
            (
                "loss_scale.growth",
                "a power of two >= 1",
                growth,
                is_power(growth) && growth >= 1.0,
            ),
            (
                "loss_scale.backoff",
                "a power of two below 1",
                backoff,
                is_power(backoff) && backoff < 1.0,
            ),
            (
                "loss_scale.interval",
                "at least 1 step",
                self.interval as f64,
                self.interval > 0,
            ),
        ] {
            if !fits {
                return Err(Error::Option {
                    option,
                    expected,
                    got,
                });
            }
        }
        Ok(())
    }
}

/// Whether a number is a power of two: normal, positive, and without a fraction beside the leading bit.
fn is_power(number: f64) -> bool {
    number.is_normal() && number > 0.0 && number.to_bits() << 12 == 0
}

/// The scale of a loss, which an optimiser changes and an objective reads. Clones share it.
///
/// It lies on the device of the parameters and stays where it is, so captured steps use it. [`Adam::loss_scale`](super::Adam::loss_scale)
/// gives that of an optimiser.
#[derive(Debug, Clone)]
pub struct LossScale {
    options: LossScaleOptions,
    /// The scale, the good steps and the skipped ones, in `f64`.
    numbers: Var,
}

impl LossScale {
    pub(super) fn new(options: LossScaleOptions, device: &Device) -> Result<Self, Error> {
        let start = numbers(options.start());
        let numbers = Var::from_tensor(&Tensor::new(&start, device)?)?;
        Ok(Self { options, numbers })
    }

    /// The options.
    pub fn options(&self) -> &LossScaleOptions {
        &self.options
    }

    /// The scale of the next step, and how it came about. On a GPU the call waits for the steps to end.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn state(&self) -> Result<LossScaleState, Error> {
        let numbers = self.numbers.as_tensor().to_vec1::<f64>()?;
        Ok(LossScaleState {
            scale: numbers[0],
            good: numbers[1] as u64,
            skipped: numbers[2] as u64,
        })
    }

    /// A loss multiplied by the scale, for a backward pass through candle's graph. Nothing waits.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn multiply(&self, loss: &Tensor) -> Result<Tensor, Error> {
        let scale = self.numbers.as_tensor().detach().narrow(0, 0, 1)?;
        let scale = scale.to_dtype(loss.dtype())?.reshape(())?;
        Ok(loss.broadcast_mul(&scale)?)
    }

    /// Changes the state.
    pub(super) fn set(&self, state: LossScaleState) -> Result<(), Error> {
        let numbers = Tensor::new(&numbers(state), self.numbers.device())?;
        Ok(self.numbers.set(&numbers)?)
    }

    /// The state in a checkpoint, as [`LossScale::export`] wrote it.
    pub(super) fn read(&self, stored: &Tensor) -> Result<LossScaleState, Error> {
        let stored = stored.to_vec1::<f64>()?;
        let (least, most) = (self.options.least, self.options.most);
        let counts = stored[1..].iter().all(|n| n.fract() == 0.0 && *n >= 0.0);
        if !is_power(stored[0]) || !(least..=most).contains(&stored[0]) || !counts {
            return Err(Error::Option {
                option: "loss_scale of a checkpoint",
                expected: "a power of two between the least and the largest scale, and whole counts",
                got: stored[0],
            });
        }
        Ok(LossScaleState {
            scale: stored[0],
            good: stored[1] as u64,
            skipped: stored[2] as u64,
        })
    }

    /// The state as a tensor for a checkpoint.
    pub(super) fn export(&self) -> Result<Tensor, Error> {
        Ok(Tensor::new(&numbers(self.state()?), &Device::Cpu)?)
    }

    /// The numbers on the device.
    #[cfg(feature = "cuda")]
    pub(crate) fn tensor(&self) -> &Tensor {
        self.numbers.as_tensor()
    }

    /// Whether both are one.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.numbers.id() == other.numbers.id()
    }
}

/// The type and the number of the numbers of a scale.
pub(super) const STORED: (DType, usize) = (DType::F64, 3);

fn numbers(state: LossScaleState) -> [f64; STORED.1] {
    [state.scale, state.good as f64, state.skipped as f64]
}
