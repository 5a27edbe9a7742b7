//! The kernels of rows, compiled when they are first used.

use cudarc::driver::sys::CUfunction;

use crate::Error;
use crate::cuda::device::Device;

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Scale,
    Multiply,
    HeadSums,
    SwapAxes,
    TakeColumns,
    Turn,
    Softmax,
    SoftmaxGradient,
    Join,
    PackAll,
    Outermorphism,
    OutermorphismGradient,
    MultiplyFrames,
    FrameProducts,
    SoftmaxSecond,
    Norms,
    PointFeatures,
    PointFeaturesGradient,
}

/// The number of kernels.
const COUNT: usize = 18;

/// The names of the kernels, in the order of [`Function`].
const NAMES: [&str; COUNT] = [
    "scale",
    "multiply",
    "head_sums",
    "swap_axes",
    "take_columns",
    "turn",
    "softmax",
    "softmax_gradient",
    "join",
    "pack_all",
    "outermorphism",
    "outermorphism_gradient",
    "multiply_frames",
    "frame_products",
    "softmax_second",
    "norms",
    "point_features",
    "point_features_gradient",
];

impl Function {
    /// The name of the kernel.
    pub(super) fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// The kernels for one type in the context of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions([CUfunction; COUNT]);

// SAFETY: modules are never unloaded, and the driver allows a function in all threads.
unsafe impl Send for Functions {}
// SAFETY: the same holds.
unsafe impl Sync for Functions {}

impl Functions {
    pub(super) fn get(self, function: Function) -> CUfunction {
        self.0[function as usize]
    }

    #[cfg(not(feature = "jit"))]
    pub(super) fn new(_: &Device, _: bool) -> Result<Self, Error> {
        Err(Error::UnsupportedOnCuda {
            operator: "rows".to_owned(),
            reason: "these functions are compiled when they are first used, and the feature `jit` is off".to_owned(),
        })
    }

    /// The functions of a device whose context is current.
    #[cfg(feature = "jit")]
    pub(super) fn new(device: &Device, is_f64: bool) -> Result<Self, Error> {
        use std::sync::{Mutex, PoisonError};

        static LOADED: Mutex<Vec<((usize, bool), Functions)>> = Mutex::new(Vec::new());
        let key = (device.ordinal(), is_f64);
        // The list is whole even after a panic.
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = loaded.iter().find(|(known, _)| *known == key) {
            return Ok(*known);
        }
        let made = Self::load(device, is_f64)?;
        loaded.push((key, made));
        Ok(made)
    }

    #[cfg(feature = "jit")]
    fn load(device: &Device, is_f64: bool) -> Result<Self, Error> {
        use crate::cuda::jit;

        let scalar = if is_f64 { "double" } else { "float" };
        let expressions = NAMES.map(|name| format!("{name}<{scalar}>"));
        let expressions = expressions.each_ref().map(String::as_str);
        let text = include_str!("kernels.cu");
        let kernels = jit::text("rows", text, &expressions, device)?;
        let mut functions = [std::ptr::null_mut(); COUNT];
        for (function, kernel) in functions.iter_mut().zip(kernels) {
            *function = kernel.as_ptr();
        }
        Ok(Self(functions))
    }
}
