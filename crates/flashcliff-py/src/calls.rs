//! Lists of calls of kernels that Python makes at once, with addresses that are not known while a list is made.

use std::sync::{Mutex, OnceLock, PoisonError};

use flashcliff::Error;
use flashcliff::cuda::items::Target;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::devices::{Devices, PyStream};
use crate::error::detached;

/// A call of a kernel, with addresses that may be open.
pub(crate) type Call = Box<dyn Fn(&Places<'_>, Target<'_>) -> Result<(), Error> + Send + Sync>;

/// The bit that open addresses have, and no address of a device.
const OPEN: u64 = 1 << 62;
/// The bits of an open address that are the offset in its region; the number of the region is above them.
const OFFSET_BITS: u32 = 42;

/// Where regions lie in a run of a list.
pub(crate) struct Places<'a>(&'a [u64]);

impl Places<'_> {
    /// The places of a call that is made at once: all addresses are what they are.
    pub(crate) const FIXED: Self = Self(&[]);

    /// The address that an address stands for; 0, which kernels refuse, for a region that there is not.
    pub(crate) fn at(&self, address: u64) -> u64 {
        if address & OPEN == 0 {
            return address;
        }
        let (region, offset) = (
            (address & !OPEN) >> OFFSET_BITS,
            address & ((1 << OFFSET_BITS) - 1),
        );
        let start = self.0.get(region as usize).copied().unwrap_or(0);
        if start == 0 { 0 } else { start + offset }
    }
}

/// Something that has addresses.
pub(crate) trait Placed: Copy {
    /// The value with the addresses of a run.
    fn placed(self, places: &Places<'_>) -> Self;
}

impl<T: Placed, const N: usize> Placed for [T; N] {
    fn placed(self, places: &Places<'_>) -> Self {
        self.map(|x| x.placed(places))
    }
}

impl<T: Placed> Placed for Option<T> {
    fn placed(self, places: &Places<'_>) -> Self {
        self.map(|x| x.placed(places))
    }
}

/// The buffer that a region lies in, and where.
type Region = (usize, u64);

/// A list of calls of kernels, in order. Functions that launch kernels take it in place of a stream.
///
/// An address in a call is that of memory, or open: [`Self::OPEN`], plus the number of a region shifted by [`Self::OFFSET_BITS`], plus
/// an offset. `close` says in which buffers regions lie, and `run` where buffers are.
///
/// Not for users: memory is not checked.
#[pyclass(frozen, module = "flashcliff._core")]
#[derive(Default)]
pub(crate) struct CallList {
    calls: Mutex<Vec<Call>>,
    closed: OnceLock<(Vec<Call>, Vec<Region>)>,
    devices: Devices,
}

impl CallList {
    /// Adds a call behind the others.
    pub(crate) fn push(&self, call: Call) -> PyResult<()> {
        if self.closed.get().is_some() {
            return Err(PyRuntimeError::new_err("the list of calls is closed"));
        }
        self.open().push(call);
        Ok(())
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl CallList {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    #[classattr]
    const OPEN: u64 = OPEN;

    #[classattr]
    const OFFSET_BITS: u32 = OFFSET_BITS;

    fn __len__(&self) -> usize {
        match self.closed.get() {
            Some((calls, _)) => calls.len(),
            None => self.open().len(),
        }
    }

    /// Ends the list. `regions` has the number of a buffer for each region, and the bytes before it there.
    fn close(&self, regions: Vec<Region>) -> PyResult<()> {
        let calls = std::mem::take(&mut *self.open());
        let closed = self.closed.set((calls, regions));
        closed.map_err(|_| PyRuntimeError::new_err("the list of calls is closed"))
    }

    /// Makes all calls. `buffers` are the addresses of buffers.
    fn run(&self, py: Python<'_>, buffers: Vec<u64>, stream: PyStream) -> PyResult<()> {
        let Some((calls, regions)) = self.closed.get() else {
            return Err(PyRuntimeError::new_err("the list of calls is not closed"));
        };
        let found: Option<Vec<u64>> = regions
            .iter()
            .map(|&(buffer, offset)| buffers.get(buffer).map(|start| start + offset))
            .collect();
        let Some(starts) = found else {
            let most = regions.iter().map(|(buffer, _)| buffer + 1).max();
            let expected = most.unwrap_or(0);
            let message = format!("expected {expected} buffers, got {}", buffers.len());
            return Err(PyValueError::new_err(message));
        };
        // A kernel may be compiled now, which sends messages to Python from other threads.
        detached(py, || {
            self.devices.with(stream, |target| {
                let places = Places(&starts);
                calls.iter().try_for_each(|call| call(&places, target))
            })
        })
    }
}
