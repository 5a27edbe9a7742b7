//! The learning rate over the steps of a run.

use std::f64::consts::{FRAC_PI_2, PI};

use crate::Error;

/// The factor of the learning rate at each step: a linear warm-up, then a shape.
///
/// At step `s`, counted from 0, the factor is `(s + 1) / warmup` while `s < warmup`. After that `t` goes from 0 to 1 over the rest of
/// the `steps`, and [`ScheduleShape`] has the formulas. Steps past the end have the factor of the end.
///
/// ```
/// use flashcliff_candle::optim::{Schedule, ScheduleShape};
///
/// let schedule = Schedule::new(ScheduleShape::Cosine, 100).with_warmup(10);
/// assert_eq!(schedule.factor(0), 0.1);
/// assert_eq!(schedule.factor(10), 1.0);
/// assert!((schedule.factor(55) - 0.5).abs() < 1e-12);
/// assert_eq!(schedule.factor(100), 0.0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Schedule {
    shape: ScheduleShape,
    steps: u64,
    warmup: u64,
    floor: f64,
}

/// The shape of a schedule after its warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleShape {
    /// 1.
    #[default]
    Constant,
    /// `floor + (1 - floor) (1 + cos(pi t)) / 2`, as `torch.optim.lr_scheduler.CosineAnnealingLR`.
    Cosine,
    /// `floor + (1 - floor) cos(pi t / 2)`.
    HalfCosine,
}

impl Schedule {
    /// A schedule over so many steps, without warm-up, which ends at 0 unless it is constant.
    pub const fn new(shape: ScheduleShape, steps: u64) -> Self {
        Self {
            shape,
            steps,
            warmup: 0,
            floor: 0.0,
        }
    }

    /// Sets the number of steps of the warm-up.
    #[must_use]
    pub const fn with_warmup(mut self, steps: u64) -> Self {
        self.warmup = steps;
        self
    }

    /// Sets the factor at the end, from 0 to 1.
    #[must_use]
    pub const fn with_floor(mut self, floor: f64) -> Self {
        self.floor = floor;
        self
    }

    /// The shape after the warm-up.
    pub const fn shape(&self) -> ScheduleShape {
        self.shape
    }

    /// The number of steps, with the warm-up.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// The number of steps of the warm-up.
    pub const fn warmup(&self) -> u64 {
        self.warmup
    }

    /// The factor at the end.
    pub const fn floor(&self) -> f64 {
        self.floor
    }

    /// The factor of the learning rate at a step, counted from 0. A GPU may compute a cosine that differs in its last bit.
    pub fn factor(&self, step: u64) -> f64 {
        if step < self.warmup {
            return (step + 1) as f64 / self.warmup as f64;
        }
        let rest = self.steps.saturating_sub(self.warmup).max(1);
        let t = ((step - self.warmup) as f64 / rest as f64).min(1.0);
        let wave = match self.shape {
            ScheduleShape::Constant => 1.0,
            // The end is 0, not the rounding error of a root.
            _ if t == 1.0 => 0.0,
            ScheduleShape::Cosine => 0.5 * (1.0 + (PI * t).cos()),
            ScheduleShape::HalfCosine => (FRAC_PI_2 * t).cos(),
        };
        self.floor + (1.0 - self.floor) * wave
    }

    /// Checks the options.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.warmup > 0 && self.warmup > self.steps {
            return Err(Error::Option {
                option: "schedule: warmup",
                expected: "at most the steps of the schedule",
                got: self.warmup as f64,
            });
        }
        if !(0.0..=1.0).contains(&self.floor) {
            return Err(Error::Option {
                option: "schedule: floor",
                expected: "a number in [0, 1]",
                got: self.floor,
            });
        }
        Ok(())
    }
}
