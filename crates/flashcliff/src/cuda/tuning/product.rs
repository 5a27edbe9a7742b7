//! A matrix product by itself.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};

use crate::cuda::array::{self, Array};
use crate::cuda::matmul::{Form, MatmulPrecision, ONE, Product};
use crate::cuda::queue::Queue;
use crate::cuda::{Device, Scratch};
use crate::{Dtype, Error};

/// The name of the product in errors.
const NAME: &str = "matrix product";

/// A matrix product `o = x w^T` of row-major matrices with all its memory, launched as operators launch theirs. The
/// speed of a large one is what a GPU reaches.
#[derive(Debug)]
pub struct MatrixProduct {
    device: Device,
    stream: Arc<CudaStream>,
    x: Array,
    w: Array,
    o: Array,
    workspace: CudaSlice<u8>,
    /// The sizes in the order of cuBLASLt: out, rows, in.
    size: (usize, usize, usize),
    precision: MatmulPrecision,
}

impl MatrixProduct {
    /// The product of `x [rows, in]` and `w [out, in]`, two arrays of one type, on a stream of the device.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::DtypeMismatch`]; [`Error::DeviceMismatch`] and [`Error::CudaContext`] for what
    /// belongs elsewhere; [`Error::Cuda`] if there is no memory for the result.
    pub fn new(
        device: &Device,
        stream: &Arc<CudaStream>,
        [x, w]: [Array; 2],
        precision: MatmulPrecision,
    ) -> Result<Self, Error> {
        let ordinals = [
            ("stream", stream.context().ordinal()),
            ("x", x.view()?.ordinal()),
            ("w", w.view()?.ordinal()),
        ];
        for (tensor, got) in ordinals {
            if got != device.ordinal() {
                return Err(Error::DeviceMismatch {
                    operator: NAME.to_owned(),
                    tensor: tensor.to_owned(),
                    expected: device.ordinal(),
                    got,
                });
            }
        }
        if stream.context().cu_ctx() != device.context().cu_ctx() {
            return Err(Error::CudaContext {
                ordinal: device.ordinal(),
            });
        }
        if w.dtype() != x.dtype() {
            return Err(Error::DtypeMismatch {
                operator: NAME.to_owned(),
                tensor: "w".to_owned(),
                expected: format!("{}, as x is", x.dtype()),
                got: w.dtype(),
            });
        }
        let shape_mismatch = |tensor: &str, expected: String, got: &Array| Error::ShapeMismatch {
            operator: NAME.to_owned(),
            tensor: tensor.to_owned(),
            expected,
            got: got.shape().to_vec(),
        };
        let &[rows, channels] = x.shape() else {
            return Err(shape_mismatch("x", "[rows, in]".to_owned(), &x));
        };
        let out = match *w.shape() {
            [out, same] if same == channels => out,
            _ => return Err(shape_mismatch("w", format!("[out, {channels}]"), &w)),
        };
        let size = (out, rows, channels);
        let workspace = described(size, x.dtype(), precision, [0; 3])
            .problem
            .workspace_bytes();
        Ok(Self {
            device: device.clone(),
            stream: stream.clone(),
            o: Array::zeros(stream, x.dtype(), &[rows, out])?,
            x,
            w,
            workspace: array::scratch(stream, workspace)?,
            size,
            precision,
        })
    }

    /// Launches the product on its stream, by the algorithm of the device for it.
    ///
    /// # Errors
    /// [`Error::CudaLibrary`] without cuBLASLt, [`Error::Cuda`].
    pub fn launch(&mut self) -> Result<(), Error> {
        self.device.make_current()?;
        let blas = self.device.blas()?;
        let queue = Queue::of(&self.stream);
        let (x, w) = (self.x.view()?, self.w.view()?);
        let mut o = self.o.view_mut()?;
        let mut workspace = Scratch::new(&mut self.workspace);
        // The guards are dropped after the launch.
        let [(x, _x), (w, _w)] = [&x, &w].map(|tensor| tensor.acquire(&queue));
        let (o, _o) = o.acquire(&queue);
        let (workspace, _workspace) = workspace.acquire(&queue);
        let product = described(self.size, self.x.dtype(), self.precision, [w, x, o]);
        // SAFETY: these are the addresses of three matrices of the problem's sizes and of its workspace, whose release cudarc
        // orders after this use. The stream belongs to the context, which is current.
        unsafe { blas.run(&product, workspace, queue.raw()) }
    }

    /// The result.
    pub fn output(&self) -> &Array {
        &self.o
    }
}

/// The product for cuBLASLt, with the addresses of `w`, `x` and `o`.
fn described(
    size: (usize, usize, usize),
    dtype: Dtype,
    precision: MatmulPrecision,
    addresses: [u64; 3],
) -> Product {
    Product::new(
        Form::TimesTranspose,
        size,
        ONE,
        [dtype; 2],
        addresses,
        precision,
    )
}
