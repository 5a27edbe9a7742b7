//! The option `--precision`.

use clap::ValueEnum;
use flashcliff_candle::models::Architecture;
use flashcliff_candle::objective::{Features, ObjectiveOptions};
use flashcliff_candle::optim::{Adam, AdamOptions, LossScaleOptions};
use flashcliff_candle::precision::{self, Precision};
use serde::{Deserialize, Serialize};

use super::optimiser::name;
use crate::device::DeviceName;
use crate::error::Error;

/// The rounding of training steps on a GPU. Parameters and the optimiser are f32 in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PrecisionName {
    /// All is f32.
    #[default]
    Highest,
    /// Matrix products round their operands to TF32: 8 bits of exponent, 10 of fraction.
    Tf32,
    /// Values between layers and their gradients are bf16: 8 bits of exponent, 7 of fraction.
    Bf16,
    /// Values between layers and their gradients are f16: 5 bits of exponent, 10 of fraction. The loss is scaled.
    F16,
}

impl PrecisionName {
    /// Checks that a device and a network have the precision.
    ///
    /// # Errors
    /// [`Error::PrecisionOnCpu`], [`Error::PrecisionOfNetwork`].
    pub(super) fn check(self, device: DeviceName, network: Architecture) -> Result<(), Error> {
        match (self, device) {
            (Self::Highest, _) => Ok(()),
            (other, DeviceName::Cpu) => Err(Error::PrecisionOnCpu { got: name(other) }),
            (Self::Bf16 | Self::F16, _) if !network.has_plan() => Err(Error::PrecisionOfNetwork {
                got: name(self),
                network: network.name(),
            }),
            (Self::Tf32 | Self::Bf16 | Self::F16, DeviceName::Cuda(_)) => Ok(()),
        }
    }

    /// Makes it the precision of the process.
    pub(super) fn set(self) {
        precision::set(match self {
            // Products of 16 bits round nothing more; products of f32, as in the last layer, are exact.
            Self::Highest | Self::Bf16 | Self::F16 => Precision::Highest,
            Self::Tf32 => Precision::Tf32,
        });
    }

    /// The options of the optimiser, with a scale of the loss where gradients are f16.
    pub(super) fn scaled(self, options: AdamOptions) -> AdamOptions {
        AdamOptions {
            loss_scale: (self == Self::F16).then(LossScaleOptions::default),
            ..options
        }
    }

    /// The options of the objective whose gradients an optimiser takes.
    pub(super) fn objective(self, adam: &Adam) -> ObjectiveOptions {
        ObjectiveOptions {
            features: match self {
                Self::Highest | Self::Tf32 => Features::Model,
                Self::Bf16 => Features::Bf16,
                Self::F16 => Features::F16,
            },
            loss_scale: adam.loss_scale().cloned(),
            ..ObjectiveOptions::default()
        }
    }
}
