//! The options of the optimisers.

use super::scale::LossScaleOptions;
use super::schedule::Schedule;
use crate::Error;

/// What a step does to an element. [`Adam`](super::Adam) has the formulas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// Adam, which is AdamW with decoupled decay.
    #[default]
    Adam,
    /// Lion, which has one moment. Its learning rates are 3 to 10 times as small as Adam's, and its decay that much larger.
    Lion,
}

/// Options of [`Adam`](super::Adam); the defaults are the same as in `torch.optim.Adam`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamOptions {
    /// What a step does to an element. Default: [`Rule::Adam`].
    pub rule: Rule,
    /// The learning rate, before the schedule. Default: 1e-3.
    pub learning_rate: f64,
    /// The decay rate of the mean of the gradients; for Lion that of the direction of a step. Default: 0.9.
    pub beta1: f64,
    /// The decay rate of the mean of the squared gradients; for Lion that of the mean of the gradients. Default: 0.999.
    pub beta2: f64,
    /// The number that is added to the root of the second moment. Lion has none. Default: 1e-8.
    pub eps: f64,
    /// The decay of the parameters. Default: 0.
    pub weight_decay: f64,
    /// Whether the decay is decoupled: it then shrinks the parameter by `rate weight_decay` of itself (AdamW). Otherwise it is added to
    /// the gradient, times the parameter (an L2 penalty), which is the default.
    pub decoupled: bool,
    /// The largest norm of all gradients together; larger ones are scaled down to it. `None` for any, the default.
    pub clip_norm: Option<f64>,
    /// Whether the largest norm is that of [adaptive clipping](super::Adam); `clip_norm` is `None` then. Default: no.
    pub adaptive_clipping: bool,
    /// The learning rate over the steps. Default: [`Schedule::default`].
    pub schedule: Schedule,
    /// The scale of the loss, for gradients of 16 bits. `None` for 1, the default.
    pub loss_scale: Option<LossScaleOptions>,
    /// Whether all steps after a refused one are refused too, so that the state stays what it was. Default: no.
    pub halt: bool,
}

impl Default for AdamOptions {
    fn default() -> Self {
        Self {
            rule: Rule::Adam,
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
            clip_norm: None,
            adaptive_clipping: false,
            schedule: Schedule::default(),
            loss_scale: None,
            halt: false,
        }
    }
}

impl AdamOptions {
    /// The options of Lion as it was published: a learning rate of 1e-4, decay rates of 0.9 and 0.99, decoupled decay.
    ///
    /// ```
    /// use flashcliff_candle::optim::{AdamOptions, Rule};
    ///
    /// let options = AdamOptions { weight_decay: 0.1, ..AdamOptions::lion() };
    /// assert_eq!((options.rule, options.beta2), (Rule::Lion, 0.99));
    /// ```
    pub fn lion() -> Self {
        Self {
            rule: Rule::Lion,
            learning_rate: 1e-4,
            beta2: 0.99,
            decoupled: true,
            ..Self::default()
        }
    }

    /// Checks the ranges.
    pub(super) fn check(&self) -> Result<(), Error> {
        let check = |option, expected, got: f64, fits: bool| match fits {
            true => Ok(()),
            false => Err(Error::Option {
                option,
                expected,
                got,
            }),
        };
        for (option, got) in [
            ("learning_rate", self.learning_rate),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
        ] {
            let fits = got.is_finite() && got >= 0.0;
            check(option, "a finite number >= 0", got, fits)?;
        }
        for (option, got) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            check(option, "a number in [0, 1)", got, (0.0..1.0).contains(&got))?;
        }
        let clip = self.clip_norm.unwrap_or(1.0);
        check("clip_norm", "a number above 0", clip, clip > 0.0)?;
        if let (Some(got), true) = (self.clip_norm, self.adaptive_clipping) {
            check("clip_norm", "none beside adaptive clipping", got, false)?;
        }
        if let Some(scale) = &self.loss_scale {
            scale.check()?;
        }
        self.schedule.check()
    }
}
