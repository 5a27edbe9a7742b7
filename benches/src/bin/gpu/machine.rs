//! The machine of a measurement.

use std::{env, fs};

use flashcliff::Device;
use flashcliff::cuda::cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use serde::Serialize;

use crate::error::{Error, driver};

/// Facts about a GPU and the program.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) gpu: String,
    /// The version of the driver, as its kernel module reports it.
    pub(crate) driver: String,
    /// The CUDA version that the driver supports.
    pub(crate) cuda: String,
    pub(crate) compute_capability: (i32, i32),
    pub(crate) multiprocessors: i32,
    pub(crate) clock_khz: i32,
    pub(crate) l2_bytes: usize,
    pub(crate) memory_bytes: usize,
    /// The commit that the program was built from.
    pub(crate) commit: String,
}

impl Machine {
    pub(crate) fn new(device: &Device) -> Result<Self, Error> {
        let attribute = |attribute| {
            let value = device.context().attribute(attribute);
            value.map_err(driver("cuDeviceGetAttribute"))
        };
        let l2 = attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
        Ok(Self {
            gpu: device.name()?,
            driver: kernel_module(),
            cuda: cuda_version()?,
            compute_capability: device.compute_capability(),
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            clock_khz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            l2_bytes: usize::try_from(l2).unwrap_or(0),
            memory_bytes: device.total_memory()?,
            commit: commit(),
        })
    }

    /// The largest number of f32 operations a second: a fused multiply-add for each lane and cycle.
    pub(crate) fn peak_flops(&self) -> f64 {
        let lanes = match self.compute_capability {
            (8, 0) => 64,
            _ => 128,
        };
        f64::from(self.multiprocessors) * f64::from(2 * lanes) * f64::from(self.clock_khz) * 1e3
    }
}

/// The version of NVIDIA's kernel module.
fn kernel_module() -> String {
    let text = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let mut words = text.lines().next().unwrap_or_default().split_whitespace();
    let version = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    version.unwrap_or("unknown").to_owned()
}

fn cuda_version() -> Result<String, Error> {
    let mut version = 0;
    // SAFETY: the pointer is valid.
    let got = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    got.result().map_err(driver("cuDriverGetVersion"))?;
    Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
}

/// The commit of the program. A bundle brings it as a file beside the program.
fn commit() -> String {
    let program = env::current_exe().ok();
    let file = program.and_then(|program| Some(program.parent()?.join("COMMIT")));
    let text = file.and_then(|file| fs::read_to_string(file).ok());
    text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
