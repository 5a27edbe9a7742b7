//! The kernels of rows and of jets, compiled when they are first used.

use std::marker::PhantomData;

use cudarc::driver::sys::CUfunction;

use crate::Error;
use crate::cuda::device::Device;

/// The kernels of a text.
pub(super) trait Listed: Copy {
    /// The name of the text.
    #[cfg(feature = "jit")]
    const NAME: &'static str;
    #[cfg(feature = "jit")]
    const TEXT: &'static str;
    /// The names of the kernels in the order of their places.
    const NAMES: &'static [&'static str];

    /// The place of a kernel in the list.
    fn place(self) -> usize;
}

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

impl Listed for Function {
    #[cfg(feature = "jit")]
    const NAME: &'static str = "rows";
    #[cfg(feature = "jit")]
    const TEXT: &'static str = concat!(include_str!("loops.cuh"), include_str!("kernels.cu"));
    const NAMES: &'static [&'static str] = &[
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

    fn place(self) -> usize {
        self as usize
    }
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

impl Listed for JetFunction {
    #[cfg(feature = "jit")]
    const NAME: &'static str = "jets";
    #[cfg(feature = "jit")]
    const TEXT: &'static str = concat!(include_str!("loops.cuh"), include_str!("jets.cu"));
    const NAMES: &'static [&'static str] = &[
        "jet_softmax",
        "jet_softmax_gradient",
        "norms",
        "point_features",
        "point_features_gradient",
    ];

    fn place(self) -> usize {
        self as usize
    }
}

/// A loaded kernel with its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    pub(super) name: &'static str,
    pub(super) function: CUfunction,
}

/// The kernels of a list with some arguments of their templates, in the context of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernels<F> {
    /// The addresses of the functions. Modules are never unloaded, and the driver allows a function in all threads.
    functions: &'static [usize],
    list: PhantomData<F>,
}

impl<F: Listed> Kernels<F> {
    pub(super) fn get(self, function: F) -> Kernel {
        let place = function.place();
        Kernel {
            name: F::NAMES[place],
            function: self.functions[place] as CUfunction,
        }
    }

    #[cfg(not(feature = "jit"))]
    pub(super) fn new(_: &Device, _: &str) -> Result<Self, Error> {
        Err(Error::UnsupportedOnCuda {
            operator: "rows".to_owned(),
            reason: "these functions are compiled when they are first used, and the feature `jit` is off".to_owned(),
        })
    }

    /// The kernels for a device whose context is current, compiled if no one did before. Arguments are the text between
    /// the brackets of a template.
    #[cfg(feature = "jit")]
    pub(super) fn new(device: &Device, arguments: &str) -> Result<Self, Error> {
        use std::sync::{Mutex, PoisonError};

        use crate::cuda::jit;

        /// The device, the name of the text and the arguments; and the addresses.
        type Loaded = ((usize, &'static str, String), &'static [usize]);
        static LOADED: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());
        // The list is whole even after a panic.
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let ordinal = device.ordinal();
        let known = loaded
            .iter()
            .find(|((on, name, of), _)| *on == ordinal && *name == F::NAME && of == arguments);
        let functions = match known {
            Some((_, functions)) => *functions,
            None => {
                let expressions = F::NAMES.iter().map(|name| format!("{name}<{arguments}>"));
                let expressions: Vec<String> = expressions.collect();
                let expressions: Vec<&str> = expressions.iter().map(String::as_str).collect();
                let kernels = jit::text(F::NAME, F::TEXT, &expressions, device)?;
                let addresses: Vec<usize> = kernels
                    .iter()
                    .map(|kernel| kernel.as_ptr() as usize)
                    .collect();
                let functions: &'static [usize] = addresses.leak();
                loaded.push(((ordinal, F::NAME, arguments.to_owned()), functions));
                functions
            }
        };
        Ok(Self {
            functions,
            list: PhantomData,
        })
    }
}
