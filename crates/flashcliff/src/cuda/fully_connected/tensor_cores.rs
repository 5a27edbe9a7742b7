//! Kernels of the fully connected product that form the path products on their way to the tensor cores.

use std::ffi::CString;
use std::ptr::{self, NonNull};

use flashcliff_sys as sys;

use crate::cuda::call::{Call, Gradients, NO_GRADIENTS};
use crate::cuda::dtype::{Dtypes, code};
use crate::cuda::fault;
use crate::cuda::lane::{address, gate_code};
use crate::operator::{self, Dims, Pass};
use crate::{Algebra, Error};

/// The kernels of a product with its options.
#[derive(Clone, Debug)]
pub(super) struct TensorCores {
    product: Product,
    places: Places,
    gate: sys::fc_gate,
    eps: f64,
    norm: bool,
}

#[derive(Clone, Copy, Debug)]
struct Product(NonNull<sys::fc_product>);

// SAFETY: products are static and the library synchronises what it remembers of them.
unsafe impl Send for Product {}
// SAFETY: as above.
unsafe impl Sync for Product {}

/// Where the blades and paths of the algebra are in the tensors; -1: absent.
#[derive(Clone, Debug)]
struct Places {
    left: [i8; sys::FC_MAX_BLADES as usize],
    right: [i8; sys::FC_MAX_BLADES as usize],
    result: [i8; sys::FC_MAX_BLADES as usize],
    path: [i8; sys::FC_MAX_PATHS as usize],
}

impl TensorCores {
    /// The kernels; none for an algebra of more than 3 dimensions.
    pub(super) fn find(algebra: Algebra, product: &operator::FullyConnected) -> Option<Self> {
        let name = CString::new(algebra.name()).ok()?;
        // SAFETY: the string ends in a zero byte.
        let found = unsafe { sys::fc_product_find(name.as_ptr()) };
        let found = NonNull::new(found.cast_mut())?;
        let cayley = algebra.cayley();
        let [left, right, result] = product.grades().map(|grades| {
            let blades = 0..cayley.blade_count();
            places(blades.map(|blade| cayley.offset_in(grades, blade)))
        });
        let paths = product.paths();
        let all = cayley.paths();
        let path = all.iter().map(|path| paths.iter().position(|p| p == path));
        Some(Self {
            product: Product(found),
            places: Places {
                left,
                right,
                result,
                path: places(path),
            },
            gate: gate_code(product.gate()),
            eps: product.eps(),
            norm: product.has_norm(),
        })
    }

    /// Loads the kernels of both passes on the current device.
    pub(super) fn prepare(&self, precision: sys::fc_precision) -> Result<(), Error> {
        // SAFETY: a product of the library.
        let code = unsafe { sys::fc_product_prepare(self.product.0.as_ptr(), precision) };
        fault::kernel("fc_product_prepare", code)
    }

    pub(super) fn workspace_bytes(
        &self,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        precision: sys::fc_precision,
        grads: &Gradients,
    ) -> Result<usize, Error> {
        let mut call = self.empty_call(dims, dtypes, precision);
        // Only whether gradients are null counts.
        let [x, y, w, ..] = grads.map(|grad| match grad {
            Some(_) => ptr::dangling_mut::<f64>().cast(),
            None => ptr::null_mut(),
        });
        (call.grad_x, call.grad_y, call.grad_w) = (x, y, w);
        let pass = match pass {
            Pass::Forward => sys::fc_pass::FC_FORWARD,
            Pass::Backward => sys::fc_pass::FC_BACKWARD,
        };
        let mut bytes = 0;
        // SAFETY: reads sizes and types of the call, and writes the number.
        let code = unsafe {
            sys::fc_product_workspace(
                self.product.0.as_ptr(),
                &raw const call,
                pass,
                &raw mut bytes,
            )
        };
        fault::kernel("fc_product_workspace", code)?;
        Ok(bytes)
    }

    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current.
    pub(super) unsafe fn forward(
        &self,
        call: &Call,
        precision: sys::fc_precision,
    ) -> Result<(), Error> {
        let mut arguments = self.arguments(call, precision, &NO_GRADIENTS);
        arguments.output = address(call.output);
        // SAFETY: the caller's; the library copies what it needs of the arguments.
        let code = unsafe {
            let stream = call.stream.cast();
            sys::fc_product_forward(self.product.0.as_ptr(), &raw const arguments, stream)
        };
        fault::kernel("fc_product_forward", code)
    }

    /// # Safety
    /// As for [`Self::forward`].
    pub(super) unsafe fn backward(
        &self,
        call: &Call,
        precision: sys::fc_precision,
    ) -> Result<(), Error> {
        let mut arguments = self.arguments(call, precision, &call.grads);
        // Only read.
        arguments.output = address(call.result);
        arguments.grad_output = address(call.output);
        // SAFETY: the caller's; the library copies what it needs of the arguments.
        let code = unsafe {
            let stream = call.stream.cast();
            sys::fc_product_backward(self.product.0.as_ptr(), &raw const arguments, stream)
        };
        fault::kernel("fc_product_backward", code)
    }

    /// What both passes read, and the gradients.
    fn arguments(
        &self,
        call: &Call,
        precision: sys::fc_precision,
        grads: &Gradients,
    ) -> sys::fc_product_call {
        let mut arguments = self.empty_call(&call.dims, call.dtypes, precision);
        let [x, y, w, ..] = call.inputs.map(address);
        (arguments.x, arguments.y, arguments.w) = (x, y, w);
        let [x, y, w, ..] = grads.map(|grad| address(grad.unwrap_or(0)));
        (arguments.grad_x, arguments.grad_y, arguments.grad_w) = (x, y, w);
        arguments.saved = address(call.saved);
        arguments.workspace = address(call.workspace);
        arguments.workspace_bytes = call.workspace_bytes;
        arguments
    }

    fn empty_call(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        precision: sys::fc_precision,
    ) -> sys::fc_product_call {
        let null = ptr::null_mut();
        sys::fc_product_call {
            x: null,
            y: null,
            w: null,
            output: null,
            saved: null,
            grad_output: null,
            grad_x: null,
            grad_y: null,
            grad_w: null,
            workspace: null,
            workspace_bytes: 0,
            // Sizes are below 2^63: `bind` bounds the elements of every tensor.
            batch: dims.batch as i64,
            in_: dims.in_channels as i64,
            out: dims.out_channels as i64,
            eps: self.eps,
            gate: self.gate,
            norm: self.norm.into(),
            lane_dtype: code(dtypes.lanes),
            param_dtype: code(dtypes.params),
            precision,
            left: self.places.left,
            right: self.places.right,
            result: self.places.result,
            path: self.places.path,
        }
    }
}

/// Places as the library takes them.
pub(super) fn places<const N: usize>(list: impl Iterator<Item = Option<usize>>) -> [i8; N] {
    let mut places = [-1; N];
    for (place, found) in places.iter_mut().zip(list) {
        // Algebras with kernels have at most 32 blades and 64 paths.
        *place = found.and_then(|at| i8::try_from(at).ok()).unwrap_or(-1);
    }
    places
}
