//! The option `--precision`.

use clap::ValueEnum;
use flashcliff_candle::precision::{self, Precision};
use serde::{Deserialize, Serialize};

use super::optimiser::name;
use crate::device::DeviceName;
use crate::error::Error;

/// How matrix products on a GPU round their operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PrecisionName {
    /// They do not.
    #[default]
    Highest,
    /// To TF32: 8 bits of exponent, 10 of fraction.
    Tf32,
}

impl PrecisionName {
    /// Checks that a device has the precision.
    ///
    /// # Errors
    /// [`Error::PrecisionOnCpu`].
    pub(super) fn check(self, device: DeviceName) -> Result<(), Error> {
        match (self, device) {
            (Self::Highest, _) | (_, DeviceName::Cuda(_)) => Ok(()),
            (other, DeviceName::Cpu) => Err(Error::PrecisionOnCpu { got: name(other) }),
        }
    }

    /// Makes it the precision of the process.
    pub(super) fn set(self) {
        precision::set(match self {
            Self::Highest => Precision::Highest,
            Self::Tf32 => Precision::Tf32,
        });
    }
}
