//! What a tensor is, by the functions that PyTorch offers other extensions: one call in place of several of Python's.
//!
//! Source: DLPack 1.3, `DLPackExchangeAPI` and `DLTensor`. PyTorch has it from 2.10 on.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::slice;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCapsule;

/// The name of the capsule that has the table.
const NAME: &CStr = c"dlpack_exchange_api";
/// The version whose table is read. Minor versions add to its end.
const MAJOR: u32 = 1;
/// The number of the CPU among devices.
const CPU: i32 = 1;
/// The number of GPUs with CUDA among devices.
const CUDA: i32 = 2;

/// The functions of a class of tensors.
#[repr(C)]
struct Table {
    major: u32,
    minor: u32,
    previous: *const Self,
    /// Functions that allocate tensors, and exchange tensors with owners.
    others: [*const c_void; 3],
    view: Option<unsafe extern "C" fn(*mut c_void, *mut View) -> c_int>,
    stream: *const c_void,
}

/// A tensor that its owner keeps.
#[repr(C)]
struct View {
    data: *mut c_void,
    device: i32,
    number: i32,
    axes: i32,
    dtype: (u8, u8, u16),
    shape: *const i64,
    strides: *const i64,
    offset: u64,
}

/// The function that describes the tensors of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange(unsafe extern "C" fn(*mut c_void, *mut View) -> c_int);

/// What a tensor is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// The code, the bits and the lanes of an element.
    pub(crate) dtype: (u8, u8, u16),
    /// The number of the GPU, -1 on the CPU.
    pub(crate) device: i64,
    pub(crate) shape: &'a [i64],
    pub(crate) is_contiguous: bool,
    pub(crate) address: usize,
}

impl Facts<'_> {
    pub(crate) fn bytes(&self) -> usize {
        // Sizes are not negative, and all elements have addresses.
        let elements: i64 = self.shape.iter().product();
        elements as usize * self.item_bytes()
    }

    pub(crate) fn item_bytes(&self) -> usize {
        usize::from(self.dtype.1) * usize::from(self.dtype.2) / 8
    }
}

impl Exchange {
    /// The function of a class and of those that inherit from it; `None` if it has none of this version.
    pub(crate) fn of(class: &Bound<'_, PyAny>) -> Option<Self> {
        static FOUND: PyOnceLock<Option<Exchange>> = PyOnceLock::new();
        let py = class.py();
        *FOUND.get_or_init(py, || {
            let capsule = class.getattr(intern!(py, "__dlpack_c_exchange_api__"));
            let capsule = capsule.ok()?.cast_into::<PyCapsule>().ok()?;
            let table = capsule.pointer_checked(Some(NAME)).ok()?;
            // SAFETY: a capsule of this name has such a table, which lives as long as the process; the version is read before what depends on it.
            let (major, view) = unsafe {
                let table = table.cast::<Table>().as_ref();
                (table.major, table.view)
            };
            view.filter(|_| major == MAJOR).map(Exchange)
        })
    }

    /// The facts of a tensor of the class; `None` if it has none that other extensions may see.
    pub(crate) fn facts<'a>(self, tensor: &'a Bound<'_, PyAny>) -> Option<Facts<'a>> {
        let mut view = MaybeUninit::<View>::uninit();
        // SAFETY: the object is of the class of the function, which fills in the view, or sets an exception.
        if unsafe { (self.0)(tensor.as_ptr().cast(), view.as_mut_ptr()) } != 0 {
            drop(PyErr::take(tensor.py()));
            return None;
        }
        // SAFETY: the function has filled it in.
        let view = unsafe { view.assume_init() };
        let device = match view.device {
            CPU => -1,
            CUDA => i64::from(view.number),
            _ => return None,
        };
        let list = |first: *const i64| match view.axes {
            0 => &[][..],
            // SAFETY: the tensor has so many axes, and lives while it is borrowed.
            axes => unsafe { slice::from_raw_parts(first, axes as usize) },
        };
        let shape = list(view.shape);
        Some(Facts {
            dtype: view.dtype,
            device,
            shape,
            is_contiguous: view.strides.is_null() || is_contiguous(shape, list(view.strides)),
            address: view.data.addr() + view.offset as usize,
        })
    }
}

/// Whether elements lie one after another, the last axis first.
fn is_contiguous(shape: &[i64], strides: &[i64]) -> bool {
    let mut step = 1;
    shape.iter().zip(strides).rev().all(|(&size, &stride)| {
        let fits = size == 1 || stride == step;
        step *= size;
        fits
    })
}
