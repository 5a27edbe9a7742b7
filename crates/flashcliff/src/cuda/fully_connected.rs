//! The fully connected product: kernels of its own, which form the products on their way to the
//! tensor cores.

use std::ffi::CString;
use std::ptr::{self, NonNull};

use flashcliff_sys as sys;

use super::call::{Call, Gradients, NO_GRADIENTS};
use super::dtype::{Dtypes, code};
use super::fault;
use super::lane::{address, gate_code};
use super::linear::MatmulPrecision;
use crate::operator::{self, Dims, Pass};
use crate::{Algebra, Dtype, Error};

/// The product on a device.
#[derive(Clone, Debug)]
pub(super) struct FullyConnected {
    operator: String,
    product: Product,
    places: Places,
    gate: sys::fc_gate,
    eps: f64,
    norm: bool,
    pub(super) precision: MatmulPrecision,
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

impl FullyConnected {
    pub(super) fn new(
        operator: &str,
        algebra: Algebra,
        product: &operator::FullyConnected,
    ) -> Result<Self, Error> {
        let missing = || Error::UnsupportedOnCuda {
            operator: operator.to_owned(),
            reason: format!(
                "no kernel of the fully connected product for {}",
                algebra.name()
            ),
        };
        let name = CString::new(algebra.name()).map_err(|_| missing())?;
        // SAFETY: the string ends in a zero byte.
        let found = unsafe { sys::fc_product_find(name.as_ptr()) };
        let found = NonNull::new(found.cast_mut()).ok_or_else(missing)?;
        let cayley = algebra.cayley();
        let [left, right, result] = product.grades().map(|grades| {
            let blades = 0..cayley.blade_count();
            places(blades.map(|blade| cayley.offset_in(grades, blade)))
        });
        let paths = product.paths();
        let all = cayley.paths();
        let path = all.iter().map(|path| paths.iter().position(|p| p == path));
        Ok(Self {
            operator: operator.to_owned(),
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
            precision: MatmulPrecision::default(),
        })
    }

    /// How the kernels multiply tensors of some types. 16-bit tensors are multiplied in their type.
    fn precision_of(&self, dtypes: Dtypes) -> Result<sys::fc_precision, Error> {
        let unsupported = |reason: String| Error::UnsupportedOnCuda {
            operator: self.operator.clone(),
            reason,
        };
        match (dtypes.lanes, self.precision) {
            (Dtype::Bf16, _) => Ok(sys::fc_precision::FC_PRECISION_BF16),
            (Dtype::F16, _) => Ok(sys::fc_precision::FC_PRECISION_F16),
            (Dtype::F32, MatmulPrecision::Highest) => Ok(sys::fc_precision::FC_PRECISION_F32),
            (Dtype::F32, MatmulPrecision::Tf32) => Ok(sys::fc_precision::FC_PRECISION_TF32),
            (Dtype::F32, precision) => Err(unsupported(format!(
                "it rounds f32 operands to TF32 or not at all, not as {precision:?}; tensors of 16 \
                 bits are multiplied as they are"
            ))),
            (Dtype::F64, _) => Err(unsupported(
                "there is no f64 kernel of it; it takes f32, bf16 and f16".to_owned(),
            )),
        }
    }

    /// Loads the kernels of both passes on the current device.
    pub(super) fn prepare(&self, dtypes: Dtypes) -> Result<(), Error> {
        let precision = self.precision_of(dtypes)?;
        // SAFETY: a product of the library.
        let code = unsafe { sys::fc_product_prepare(self.product.0.as_ptr(), precision) };
        fault::kernel("fc_product_prepare", code)
    }

    pub(super) fn workspace_bytes(
        &self,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        grads: &Gradients,
    ) -> Result<usize, Error> {
        let mut call = self.empty_call(dims, dtypes)?;
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
    pub(super) unsafe fn forward(&self, call: &Call) -> Result<(), Error> {
        let mut arguments = self.arguments(call, &NO_GRADIENTS)?;
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
    pub(super) unsafe fn backward(&self, call: &Call) -> Result<(), Error> {
        let mut arguments = self.arguments(call, &call.grads)?;
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
    fn arguments(&self, call: &Call, grads: &Gradients) -> Result<sys::fc_product_call, Error> {
        let mut arguments = self.empty_call(&call.dims, call.dtypes)?;
        let [x, y, w, ..] = call.inputs.map(address);
        (arguments.x, arguments.y, arguments.w) = (x, y, w);
        let [x, y, w, ..] = grads.map(|grad| address(grad.unwrap_or(0)));
        (arguments.grad_x, arguments.grad_y, arguments.grad_w) = (x, y, w);
        arguments.saved = address(call.saved);
        arguments.workspace = address(call.workspace);
        arguments.workspace_bytes = call.workspace_bytes;
        Ok(arguments)
    }

    fn empty_call(&self, dims: &Dims, dtypes: Dtypes) -> Result<sys::fc_product_call, Error> {
        let null = ptr::null_mut();
        Ok(sys::fc_product_call {
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
            precision: self.precision_of(dtypes)?,
            left: self.places.left,
            right: self.places.right,
            result: self.places.result,
            path: self.places.path,
        })
    }
}

/// Places as the library takes them.
fn places<const N: usize>(list: impl Iterator<Item = Option<usize>>) -> [i8; N] {
    let mut places = [-1; N];
    for (place, found) in places.iter_mut().zip(list) {
        // Algebras with kernels have at most 32 blades and 64 paths.
        *place = found.and_then(|at| i8::try_from(at).ok()).unwrap_or(-1);
    }
    places
}
