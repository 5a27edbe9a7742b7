//! The option `--device`, which says where a command computes.

use std::fmt;
use std::str::FromStr;

use candle_core::Device;
use clap::Args;
use flashcliff_candle::device::{Opening, cuda_observed};

use crate::error::Error;

/// The option `--device`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DeviceArgs {
    /// Where to compute: cpu, cuda (the first GPU) or cuda:N; `flashcliff info` lists GPUs.
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceName::Cpu)]
    device: DeviceName,
}

impl DeviceArgs {
    /// The device.
    ///
    /// # Errors
    /// A GPU that does not exist, or a program that was built without CUDA.
    pub(crate) fn open(self) -> Result<Device, Error> {
        self.open_observed(&mut |_| {})
    }

    /// Does the same as [`DeviceArgs::open`], and calls a function at the begin of each part of the work for a GPU.
    pub(crate) fn open_observed(self, observe: &mut dyn FnMut(Opening)) -> Result<Device, Error> {
        match self.device {
            DeviceName::Cpu => Ok(Device::Cpu),
            DeviceName::Cuda(ordinal) => Ok(cuda_observed(ordinal, observe)?),
        }
    }

    /// The option with this value.
    pub(crate) fn of(device: DeviceName) -> Self {
        Self { device }
    }

    /// The name of the device.
    pub(crate) fn name(self) -> DeviceName {
        self.device
    }
}

/// The number of GPUs of this machine.
///
/// # Errors
/// A program that was built without CUDA; no driver.
#[cfg(feature = "cuda")]
pub(crate) fn gpu_count() -> Result<usize, Error> {
    Ok(flashcliff::Device::count()?)
}

/// The number of GPUs of this machine.
///
/// # Errors
/// A program that was built without CUDA, as this one was.
#[cfg(not(feature = "cuda"))]
pub(crate) fn gpu_count() -> Result<usize, Error> {
    Err(flashcliff_candle::Error::BuiltWithoutCuda.into())
}

/// A device on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceName {
    /// The CPU.
    Cpu,
    /// A GPU, as CUDA counts them.
    Cuda(usize),
}

/// A name that no device has.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("expected cpu, cuda or cuda:N with the number of a GPU, got `{got}`")]
pub(crate) struct NoSuchDevice {
    got: String,
}

impl FromStr for DeviceName {
    type Err = NoSuchDevice;

    fn from_str(name: &str) -> Result<Self, NoSuchDevice> {
        let known = match name {
            "cpu" => Some(Self::Cpu),
            "cuda" => Some(Self::Cuda(0)),
            _ => name
                .strip_prefix("cuda:")
                .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .map(Self::Cuda),
        };
        known.ok_or_else(|| NoSuchDevice {
            got: name.to_owned(),
        })
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (name, device) in [
            ("cpu", DeviceName::Cpu),
            ("cuda:0", DeviceName::Cuda(0)),
            ("cuda:12", DeviceName::Cuda(12)),
        ] {
            assert_eq!(name.parse(), Ok(device));
            assert_eq!(device.to_string(), name);
        }
        assert_eq!("cuda".parse(), Ok(DeviceName::Cuda(0)));
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            "gpu",
            "CPU",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda:x",
            "cuda:99999999999999999999",
        ] {
            let error = name.parse::<DeviceName>().unwrap_err().to_string();
            assert!(
                error.contains("cuda:N") && error.contains(&format!("`{name}`")),
                "{error}"
            );
        }
    }
}
