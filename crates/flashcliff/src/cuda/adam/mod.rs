//! Adam, AdamW and Lion for all parameters of a network at once.
//!
//! * `settings` - the options.
//! * `state` - what a step reads and changes, in device memory.
//! * `launch` - the checks and launches of a step.
//! * `list` - steps for hosts that keep the state themselves.

mod launch;
mod list;
mod settings;
mod state;

pub use launch::AdamParameter;
pub use list::{AdamGroup, AdamList, AdamMember, AdamRate};
pub use settings::{AdamRule, AdamSettings, LossScaling, ScheduleShape};
pub use state::AdamState;

use flashcliff_sys as sys;

use super::device::Device;
use crate::Error;

/// Adam, AdamW or Lion on a GPU, for a fixed list of parameters.
///
/// For each parameter `p` with gradient `g`, at its step `t = 1, 2, ...`:
/// ```text
/// g <- clip g + weight_decay p            (AdamW: clip g)
/// m <- m + (1 - beta1) (g - m)
/// v <- beta2 v + (1 - beta2) g g
/// p <- keep p - rate / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
/// ```
/// With [`AdamRule::Lion`], whose `sign` of 0 is 0 and of what is not a number is that:
/// ```text
/// g <- clip g + weight_decay p            (decoupled decay: clip g)
/// p <- keep p - rate sign(beta1 m + (1 - beta1) g)
/// m <- beta2 m + (1 - beta2) g
/// ```
/// `rate` is the learning rate times the factor of the schedule. `clip` is `clip_norm / norm` if the norm of all gradients together
/// exceeds `clip_norm`, else 1. `keep` is `1 - rate weight_decay` for decoupled decay, else 1.
///
/// *Adaptive clipping* takes for `clip_norm` 1.5 times the mean and 2 times the standard deviation of the last 50 records. A record is
/// the norm of a step, or its `clip_norm` if that is less; before the first step there is one of 1e5.
///
/// A step takes three launches for up to 64 parameters of one type. All that changes from step to step lies in device memory, in a
/// state that the host allocates: so a step can be captured into a CUDA graph and replayed. A step whose loss or whose norm is not
/// finite is *refused*: it changes no parameter, no moment and no step count.
///
/// Gradients may come multiplied by the *scale of the loss*, which also lies in device memory
/// ([`Adam::scaled_step`]). They are divided by it. If the norm is not finite though the loss is, the step is
/// *skipped*: it changes as little as a refused one, and the scale falls.
///
/// Coefficients and the norm are computed in `f64`; coefficients are rounded to the type of the parameter, and the rest is computed in
/// that type, rounded after each operation. The norm is a sum in a fixed order. So results are the same bit for bit every time. Without
/// clipping and schedule they equal the results of the same formulas on the CPU, bit for bit.
///
/// Source: D. P. Kingma and J. Ba, *Adam: a method for stochastic optimization*, ICLR 2015, algorithm 1; I. Loshchilov and F. Hutter,
/// *Decoupled weight decay regularization*, ICLR 2019, algorithm 2; X. Chen et al., *Symbolic discovery of optimization algorithms*,
/// NeurIPS 2023, algorithm 2.
#[derive(Clone, Debug)]
pub struct Adam {
    device: Device,
    options: sys::fc_adam_options,
    rule: AdamRule,
    learning_rate: f64,
    has_scaling: bool,
    counts: Vec<usize>,
    layout: state::Layout,
}

impl Adam {
    /// An optimiser of parameters with so many elements each. The place of a parameter in the list is its slot.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn new(device: &Device, settings: &AdamSettings, counts: &[usize]) -> Result<Self, Error> {
        Ok(Self {
            device: device.clone(),
            options: settings.checked()?,
            rule: settings.rule,
            learning_rate: settings.learning_rate,
            has_scaling: settings.loss_scaling.is_some(),
            counts: counts.to_vec(),
            layout: state::Layout::of(counts),
        })
    }

    /// The bytes of the state. The memory must be aligned to 256 bytes, as allocations are.
    pub fn state_bytes(&self) -> usize {
        self.layout.bytes
    }

    /// The bytes of the state of an optimiser whose parameters have done so many steps each, to be copied to the device.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if there are fewer step counts than parameters.
    pub fn state(&self, steps: &[u32]) -> Result<Vec<u8>, Error> {
        self.resumed_state(steps, &[])
    }

    /// Does the same as [`Self::state`], with the records of adaptive clipping, the oldest first.
    ///
    /// # Errors
    /// The errors of [`Self::state`].
    pub fn resumed_state(&self, steps: &[u32], clip_records: &[f64]) -> Result<Vec<u8>, Error> {
        self.layout.encode(self.learning_rate, steps, clip_records)
    }

    /// The state that some bytes mean, once they are copied from the device.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`].
    pub fn read_state(&self, bytes: &[u8]) -> Result<AdamState, Error> {
        self.layout.decode(bytes)
    }

    /// Where the learning rate lies in the state, as an `f64` in the byte order of the machine.
    pub fn learning_rate_bytes() -> std::ops::Range<usize> {
        state::Layout::LEARNING_RATE
    }
}
