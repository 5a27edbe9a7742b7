//! GPUs.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::{CudaContext, CudaStream, result, sys as driver};
use flashcliff_sys as sys;

use super::matmul::{BlasLt, Knob, Watch};
use super::{fault, library};
use crate::Error;
use crate::tuning_table::{Gpu, KnobKey, Place, Tables};

/// A GPU, with its primary CUDA context. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Device {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Arc<CudaContext>,
    capability: (i32, i32),
    blas: OnceLock<Arc<BlasLt>>,
    tables: Arc<Tables>,
    /// The record of the choices that calls ask for, if the device is being tuned.
    watch: Option<Arc<Watch>>,
}

/// The devices that [`Device::cuda`] has given out. cudarc orders uses of memory among the streams of one context
/// object, so all callers must share that object.
static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());

impl Device {
    /// The GPU number `ordinal`, as CUDA counts them (`CUDA_VISIBLE_DEVICES`). All calls for one GPU share its context.
    ///
    /// # Errors
    /// [`Error::NoCudaDriver`], [`Error::CudaDriverTooOld`], [`Error::NoCudaDevice`],
    /// [`Error::CudaOrdinal`], [`Error::CudaArchitecture`], or [`Error::Cuda`] if the driver fails
    /// otherwise.
    pub fn cuda(ordinal: usize) -> Result<Self, Error> {
        let count = Self::count()?;
        if ordinal >= count {
            return Err(Error::CudaOrdinal { ordinal, count });
        }
        // The list is whole even after a panic.
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = devices.iter().find(|device| device.ordinal() == ordinal) {
            return Ok(device.clone());
        }
        let context = CudaContext::new(ordinal);
        let context = context.map_err(fault::driver("cuDevicePrimaryCtxRetain"))?;
        let device = Self::from_context(context)?;
        devices.push(device.clone());
        Ok(device)
    }

    /// How many GPUs there are, at least 1.
    ///
    /// # Errors
    /// [`Error::NoCudaDriver`], [`Error::CudaDriverTooOld`], [`Error::NoCudaDevice`].
    pub fn count() -> Result<usize, Error> {
        library::driver()?;
        check_version()?;
        result::init().map_err(|error| match error.0 {
            driver::CUresult::CUDA_ERROR_STUB_LIBRARY => Error::NoCudaDriver {
                reason: "libcuda is the stub of the CUDA toolkit".to_owned(),
            },
            _ => Error::NoCudaDevice {
                reason: fault::explain(error),
            },
        })?;
        let count = result::device::get_count().map_err(fault::driver("cuDeviceGetCount"))?;
        match usize::try_from(count) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(Error::NoCudaDevice {
                reason: format!("it counts {count}"),
            }),
        }
    }

    /// The GPU of a context that a host has already. Keep the device: the plans that cuBLASLt has made are dropped with
    /// it. Reads the [tuning tables](super::tuning) of the GPU.
    ///
    /// # Errors
    /// [`Error::CudaContext`] if it is not the primary context, [`Error::CudaDriverTooOld`],
    /// [`Error::CudaArchitecture`], [`Error::Cuda`].
    pub fn from_context(context: Arc<CudaContext>) -> Result<Self, Error> {
        if !context.is_primary() {
            return Err(Error::CudaContext {
                ordinal: context.ordinal(),
            });
        }
        check_version()?;
        let capability = context.compute_capability();
        let capability = capability.map_err(fault::driver("cuDeviceGetAttribute"))?;
        // SAFETY: the function returns a static string.
        let built_for = unsafe { fault::owned(sys::fc_architectures()) };
        if !built_for
            .split_whitespace()
            .any(|code| runs(code, capability))
        {
            return Err(Error::CudaArchitecture {
                device: context.name().unwrap_or_else(|_| "the GPU".to_owned()),
                capability,
                built_for,
            });
        }
        Self::opened(context, capability, Place::from_env(), None)
    }

    /// A device of the same GPU and context whose tuning tables are read anew, from a place. It starts without plans
    /// for matrix products. Tensors and streams may be shared with the other device.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn with_tuning(&self, place: Place) -> Result<Self, Error> {
        let context = self.inner.context.clone();
        Self::opened(context, self.inner.capability, place, None)
    }

    /// A device of the same GPU for a search: `watch` records the choices that calls ask for, and can force them.
    pub(super) fn watched(&self, watch: Arc<Watch>) -> Result<Self, Error> {
        let place = self.inner.tables.place().clone();
        let context = self.inner.context.clone();
        Self::opened(context, self.inner.capability, place, Some(watch))
    }

    fn opened(
        context: Arc<CudaContext>,
        capability: (i32, i32),
        place: Place,
        watch: Option<Arc<Watch>>,
    ) -> Result<Self, Error> {
        let name = context.name().map_err(fault::driver("cuDeviceGetName"))?;
        let gpu = Gpu {
            name,
            compute_capability: capability,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                context,
                capability,
                blas: OnceLock::new(),
                tables: Arc::new(Tables::read(gpu, place)),
                watch,
            }),
        })
    }

    /// The tuning tables of the device.
    pub fn tuning(&self) -> &Tables {
        &self.inner.tables
    }

    /// The value of a knob of a pass, a whole number that changes how the pass is cut: the one in the tuning tables if it
    /// is one of `values`, else `default`. A [watched device](super::tuning::WatchedDevice) may be forced to another of
    /// `values`.
    pub fn knob(&self, key: &KnobKey, name: &str, default: i64, values: &[i64]) -> i64 {
        let known = |value: &i64| values.contains(value);
        let value = self.tuning().knob(key, name).filter(known);
        let value = value.unwrap_or(default);
        let Some(watch) = &self.inner.watch else {
            return value;
        };
        watch.saw_knob(Knob {
            key: key.clone(),
            name: name.to_owned(),
            value,
            values: values.to_vec(),
        })
    }

    /// The number of the device.
    pub fn ordinal(&self) -> usize {
        self.inner.context.ordinal()
    }

    /// The name of the device, such as `NVIDIA H100 80GB HBM3`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn name(&self) -> Result<String, Error> {
        let name = self.inner.context.name();
        name.map_err(fault::driver("cuDeviceGetName"))
    }

    /// The compute capability of the device, such as `(9, 0)`.
    pub fn compute_capability(&self) -> (i32, i32) {
        self.inner.capability
    }

    /// The memory of the device, in bytes.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn total_memory(&self) -> Result<usize, Error> {
        let total = self.inner.context.total_mem();
        total.map_err(fault::driver("cuDeviceTotalMem"))
    }

    /// The context of the device.
    ///
    /// With several streams, cudarc records an event for each use of its memory. Hosts that order streams themselves
    /// can switch this off with `disable_event_tracking`. Views made by `from_raw` are never tracked.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.inner.context
    }

    /// The default stream. It cannot be captured into a graph.
    pub fn default_stream(&self) -> Arc<CudaStream> {
        self.inner.context.default_stream()
    }

    /// A new stream, which does not wait for the default stream.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn new_stream(&self) -> Result<Arc<CudaStream>, Error> {
        let stream = self.inner.context.new_stream();
        stream.map_err(fault::driver("cuStreamCreate"))
    }

    /// Makes the context current on this thread, if it is not yet.
    pub(crate) fn make_current(&self) -> Result<(), Error> {
        let bound = self.inner.context.bind_to_thread();
        bound.map_err(fault::driver("cuCtxSetCurrent"))
    }

    /// cuBLASLt, loaded at the first call.
    pub(crate) fn blas(&self) -> Result<Arc<BlasLt>, Error> {
        if let Some(blas) = self.inner.blas.get() {
            return Ok(blas.clone());
        }
        // If two threads get here at once, both use the handle of the first.
        let Inner {
            context,
            tables,
            watch,
            ..
        } = &*self.inner;
        let blas = Arc::new(BlasLt::new(context, tables.clone(), watch.clone())?);
        Ok(self.inner.blas.get_or_init(|| blas).clone())
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.inner.context == other.inner.context
    }
}

impl Eq for Device {}

/// Checks that the driver runs the CUDA version that the kernels were built with. Any minor version will do, but not an
/// older major version.
fn check_version() -> Result<(), Error> {
    let mut version = 0;
    // SAFETY: the pointer is valid; the call also works before `cuInit`.
    let got = unsafe { driver::cuDriverGetVersion(&raw mut version) };
    got.result().map_err(fault::driver("cuDriverGetVersion"))?;
    // SAFETY: the function returns a constant.
    let needed = unsafe { sys::fc_runtime_version() };
    if version / 1000 < needed / 1000 {
        return Err(Error::CudaDriverTooOld {
            driver: version,
            needed,
        });
    }
    Ok(())
}

/// Whether code for an architecture, such as `80`, `90a` or `ptx80`, runs on a GPU. PTX runs on all later
/// architectures, machine code on later ones of the same major version, and code with an `a` on that architecture
/// alone.
fn runs(code: &str, (major, minor): (i32, i32)) -> bool {
    let capability = 10 * major + minor;
    let (ptx, code) = match code.strip_prefix("ptx") {
        Some(code) => (true, code),
        None => (false, code),
    };
    let number = code.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let Ok(built) = number.parse::<i32>() else {
        return false;
    };
    match (code.len() > number.len(), ptx) {
        (true, _) => built == capability,
        (false, true) => built <= capability,
        (false, false) => built / 10 == major && built <= capability,
    }
}
