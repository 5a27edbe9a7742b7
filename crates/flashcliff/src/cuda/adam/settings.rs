//! The options of the optimisers.

use flashcliff_sys as sys;

use crate::Error;

/// What a step does to an element. [`Adam`](super::Adam) has the formulas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdamRule {
    /// Adam, which is AdamW with decoupled decay.
    #[default]
    Adam,
    /// Lion.
    Lion,
}

impl AdamRule {
    /// The rule for the kernels.
    pub(super) fn raw(self) -> sys::fc_adam_rule {
        match self {
            Self::Adam => sys::fc_adam_rule::FC_ADAM_RULE_ADAM,
            Self::Lion => sys::fc_adam_rule::FC_ADAM_RULE_LION,
        }
    }
}

/// Options of [`Adam`](super::Adam).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamSettings {
    /// What a step does to an element.
    pub rule: AdamRule,
    /// The learning rate before the schedule.
    pub learning_rate: f64,
    /// The decay rate of the mean of the gradients; for Lion that of the direction of a step.
    pub beta1: f64,
    /// The decay rate of the mean of the squared gradients; for Lion that of the mean of the gradients.
    pub beta2: f64,
    /// The number that is added to the root of the second moment. Lion has none.
    pub eps: f64,
    /// The decay of the parameters.
    pub weight_decay: f64,
    /// Whether the decay shrinks the parameter (AdamW) or is added to its gradient (Adam).
    pub decoupled: bool,
    /// The largest norm of all gradients together; `None` for any.
    pub clip_norm: Option<f64>,
    /// Whether the largest norm is that of [adaptive clipping](super::Adam); there is no other then.
    pub adaptive_clipping: bool,
    /// The changes of the scale of a loss, for [`Adam::scaled_step`](super::Adam::scaled_step); without them such steps are errors.
    pub loss_scaling: Option<LossScaling>,
    /// Whether all steps after a refused one are refused too.
    pub halt: bool,
    /// The shape of the schedule after its warm-up.
    pub shape: ScheduleShape,
    /// The steps in which the learning rate grows: the factor is `(s + 1) / warmup` at step `s`, counted from 0.
    pub warmup: u64,
    /// The steps of the whole schedule. Later ones have the factor of its end.
    pub steps: u64,
    /// The factor at the end of the schedule.
    pub floor: f64,
}

/// How the scale of a loss changes from step to step. All numbers but the interval are powers of two, so scaling rounds nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaling {
    /// The factor of the scale after some steps without overflow.
    pub growth: f64,
    /// The factor of the scale after an overflow.
    pub backoff: f64,
    /// The number of these steps.
    pub interval: u64,
    /// The least scale. A step that overflows at this scale is refused.
    pub least: f64,
    /// The largest scale.
    pub most: f64,
}

impl LossScaling {
    /// The numbers of type `F64` that a scale is in device memory: the scale of the next step, the steps since it changed, and the steps
    /// that were skipped.
    pub const NUMBERS: usize = size_of::<sys::fc_loss_scale>() / size_of::<f64>();

    /// The options for the kernels.
    fn checked(&self) -> Result<sys::fc_loss_scale_options, Error> {
        let power = |got: f64| got.is_normal() && got > 0.0 && got.to_bits() << 12 == 0;
        let (growth, backoff) = (self.growth, self.backoff);
        for (option, expected, got, fits) in [
            ("growth", "a power of two >= 1", growth, growth >= 1.0),
            ("backoff", "a power of two below 1", backoff, backoff < 1.0),
            ("least", "a power of two", self.least, true),
            (
                "most",
                "a power of two >= the least scale",
                self.most,
                self.most >= self.least,
            ),
        ] {
            if !power(got) || !fits {
                return Err(Error::InvalidOption {
                    option,
                    expected,
                    got,
                });
            }
        }
        if self.interval == 0 {
            return Err(Error::InvalidOption {
                option: "interval",
                expected: "at least 1 step",
                got: 0.0,
            });
        }
        Ok(sys::fc_loss_scale_options {
            growth,
            backoff,
            least: self.least,
            most: self.most,
            interval: self.interval as f64,
        })
    }
}

/// The factor of the learning rate after the warm-up, where `t` goes from 0 to 1 over the rest of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleShape {
    /// 1.
    #[default]
    Constant,
    /// `floor + (1 - floor) (1 + cos(pi t)) / 2`.
    Cosine,
    /// `floor + (1 - floor) cos(pi t / 2)`.
    HalfCosine,
}

/// The options of `torch.optim.Adam`: no decay, no clipping, a constant learning rate.
impl Default for AdamSettings {
    fn default() -> Self {
        Self {
            rule: AdamRule::Adam,
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
            clip_norm: None,
            adaptive_clipping: false,
            loss_scaling: None,
            halt: false,
            shape: ScheduleShape::Constant,
            warmup: 0,
            steps: 0,
            floor: 0.0,
        }
    }
}

impl AdamSettings {
    /// The options for the kernels.
    pub(super) fn checked(&self) -> Result<sys::fc_adam_options, Error> {
        let check = |option, expected, got: f64, fits: bool| match fits {
            true => Ok(()),
            false => Err(Error::InvalidOption {
                option,
                expected,
                got,
            }),
        };
        let positive = |got: f64| got.is_finite() && got >= 0.0;
        for (option, got) in [
            ("learning_rate", self.learning_rate),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
        ] {
            check(option, "a finite number >= 0", got, positive(got))?;
        }
        for (option, got) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            check(option, "a number in [0, 1)", got, (0.0..1.0).contains(&got))?;
        }
        let clip = self.clip_norm.unwrap_or(1.0);
        check("clip_norm", "a number above 0", clip, clip > 0.0)?;
        if let (Some(got), true) = (self.clip_norm, self.adaptive_clipping) {
            let expected = "none beside adaptive clipping";
            check("clip_norm", expected, got, false)?;
        }
        let floor = self.floor;
        check(
            "floor",
            "a number in [0, 1]",
            floor,
            (0.0..=1.0).contains(&floor),
        )?;
        let steps = |option, got: u64| {
            let checked = i64::try_from(got).ok();
            checked.ok_or(Error::InvalidOption {
                option,
                expected: "below 2^63",
                got: got as f64,
            })
        };
        Ok(sys::fc_adam_options {
            rule: self.rule.raw(),
            beta1: self.beta1,
            beta2: self.beta2,
            eps: self.eps,
            weight_decay: self.weight_decay,
            clip_norm: match self.clip_norm {
                // No norm exceeds it.
                Some(norm) if norm.is_finite() => norm,
                _ => 0.0,
            },
            floor,
            warmup: steps("warmup", self.warmup)?,
            steps: steps("steps", self.steps)?,
            schedule: match self.shape {
                ScheduleShape::Constant => sys::fc_schedule::FC_SCHEDULE_CONSTANT,
                ScheduleShape::Cosine => sys::fc_schedule::FC_SCHEDULE_COSINE,
                ScheduleShape::HalfCosine => sys::fc_schedule::FC_SCHEDULE_HALF_COSINE,
            },
            decoupled: self.decoupled.into(),
            halt: self.halt.into(),
            adaptive: self.adaptive_clipping.into(),
            scaling: match &self.loss_scaling {
                Some(scaling) => scaling.checked()?,
                None => sys::fc_loss_scale_options::default(),
            },
        })
    }
}
