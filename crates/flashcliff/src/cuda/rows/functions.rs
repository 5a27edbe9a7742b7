//! The kernels of rows, compiled when they are first used.

use cudarc::driver::sys::CUfunction;

use crate::Error;
use crate::cuda::device::Device;

/// A kernel of rows.
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
}

/// A kernel of jets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JetFunction {
    Softmax,
    SoftmaxGradient,
    Norms,
    PointFeatures,
    PointFeaturesGradient,
}

/// The names of the kernels of rows, in the order of [`Function`].
const NAMES: [&str; 14] = [
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
];

/// The names of the kernels of jets, in the order of [`JetFunction`].
const JET_NAMES: [&str; 5] = [
    "jet_softmax",
    "jet_softmax_gradient",
    "norms",
    "point_features",
    "point_features_gradient",
];

/// A loaded kernel with its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    pub(super) name: &'static str,
    pub(super) function: CUfunction,
}

/// The kernels of rows for one type in the context of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions([CUfunction; NAMES.len()]);

/// The kernels of jets with so many components for one type in the context of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct JetFunctions([CUfunction; JET_NAMES.len()]);

// SAFETY: modules are never unloaded, and the driver allows a function in all threads.
unsafe impl Send for Functions {}
// SAFETY: the same holds.
unsafe impl Sync for Functions {}
// SAFETY: the same holds.
unsafe impl Send for JetFunctions {}
// SAFETY: the same holds.
unsafe impl Sync for JetFunctions {}

impl Functions {
    /// The kernels for a device whose context is current.
    pub(super) fn new(device: &Device, scalar: &'static str) -> Result<Self, Error> {
        let expressions = NAMES.map(|name| format!("{name}<{scalar}>"));
        load(device, "rows", &expressions).map(Self)
    }

    pub(super) fn get(self, function: Function) -> Kernel {
        let at = function as usize;
        Kernel {
            name: NAMES[at],
            function: self.0[at],
        }
    }
}

impl JetFunctions {
    /// The kernels for a device whose context is current.
    pub(super) fn new(
        device: &Device,
        scalar: &'static str,
        components: usize,
    ) -> Result<Self, Error> {
        let expressions = JET_NAMES.map(|name| format!("{name}<{scalar}, {components}>"));
        load(device, "jets", &expressions).map(Self)
    }

    pub(super) fn get(self, function: JetFunction) -> Kernel {
        let at = function as usize;
        Kernel {
            name: JET_NAMES[at],
            function: self.0[at],
        }
    }
}

#[cfg(not(feature = "jit"))]
fn load<const N: usize>(_: &Device, _: &str, _: &[String; N]) -> Result<[CUfunction; N], Error> {
    Err(Error::UnsupportedOnCuda {
        operator: "rows".to_owned(),
        reason:
            "these functions are compiled when they are first used, and the feature `jit` is off"
                .to_owned(),
    })
}

/// The kernels of a text, which is compiled if no one did before.
#[cfg(feature = "jit")]
fn load<const N: usize>(
    device: &Device,
    name: &str,
    expressions: &[String; N],
) -> Result<[CUfunction; N], Error> {
    use std::collections::HashMap;
    use std::sync::{Mutex, PoisonError};

    use crate::cuda::jit;

    /// Kernels by the device and the first expression.
    type Loaded = HashMap<(usize, String), Vec<usize>>;
    static LOADED: Mutex<Option<Loaded>> = Mutex::new(None);
    // The table is whole even after a panic.
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let loaded = loaded.get_or_insert_default();
    let key = (device.ordinal(), expressions[0].clone());
    if !loaded.contains_key(&key) {
        let text = match name {
            "jets" => concat!(include_str!("loops.cuh"), include_str!("jets.cu")),
            _ => concat!(include_str!("loops.cuh"), include_str!("kernels.cu")),
        };
        let texts = expressions.each_ref().map(String::as_str);
        let kernels = jit::text(name, text, &texts, device)?;
        let kernels = kernels.iter().map(|kernel| kernel.as_ptr() as usize);
        loaded.insert(key.clone(), kernels.collect());
    }
    let known = &loaded[&key];
    Ok(std::array::from_fn(|at| known[at] as CUfunction))
}
