//! The parts of an invariant network that are not operators: points, the norm of multivectors, an activation, an
//! error, sums, weights in another order.
//!
//! Values and their gradients are `F64` all, or each `F32` or of one type of 16 bits: so a call also takes values of
//! 16 bits to `F32`, or back. All are computed in `F32` or `F64`. Nothing waits, nothing is allocated, and every call
//! can be captured.

use cudarc::driver::CudaStream;
use flashcliff_sys as sys;

use super::adam::LossScaling;
use super::device::Device;
use super::dtype::code;
use super::launches;
use super::queue::Queue;
use super::tensor::{Layout, Tensor, TensorMut};
use crate::cuda::Address;
use crate::{Dtype, Error};

/// A function of a number, between the linear maps of a perceptron.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `max(x, 0)`; the slope at 0 is 0.
    Relu,
}

impl Activation {
    fn code(self) -> sys::fc_activation {
        match self {
            Self::Silu => sys::fc_activation::FC_ACTIVATION_SILU,
            Self::Relu => sys::fc_activation::FC_ACTIVATION_RELU,
        }
    }
}

/// A call: its name, its device, and its stream.
struct Call<'a> {
    name: &'static str,
    device: &'a Device,
    stream: &'a CudaStream,
}

impl Call<'_> {
    /// Checks the device, the type and the number of elements of tensors that are all `F32` or all `F64`, and returns the type.
    fn check(&self, tensors: &[(&'static str, &Layout, usize)]) -> Result<Dtype, Error> {
        let first = tensors
            .first()
            .map_or(Dtype::F32, |(_, layout, _)| layout.dtype);
        let expected = "f32 or f64, the same for all tensors";
        let fits = |dtype| dtype == first && matches!(dtype, Dtype::F32 | Dtype::F64);
        self.checked(tensors, expected, fits)?;
        Ok(first)
    }

    /// Does the same for two lists of tensors, each of one type, and returns both types.
    fn check_both(
        &self,
        own: &[(&'static str, &Layout, usize)],
        others: &[(&'static str, &Layout, usize)],
    ) -> Result<[Dtype; 2], Error> {
        let first = |tensors: &[(&'static str, &Layout, usize)]| {
            tensors
                .first()
                .map_or(Dtype::F32, |(_, layout, _)| layout.dtype)
        };
        let (from, to) = (first(own), first(others));
        self.checked(own, "the same for these tensors", |dtype| dtype == from)?;
        let expected = format!("{from}, or one of f32 and a type of 16 bits beside the other");
        let together = from == to
            || (from != Dtype::F64 && to != Dtype::F64 && (from == Dtype::F32 || to == Dtype::F32));
        self.checked(others, &expected, |dtype| dtype == to && together)?;
        Ok([from, to])
    }

    /// Checks the device, the type and the number of elements of tensors.
    fn checked(
        &self,
        tensors: &[(&'static str, &Layout, usize)],
        expected: &str,
        fits: impl Fn(Dtype) -> bool,
    ) -> Result<(), Error> {
        if self.stream.context().cu_ctx() != self.device.context().cu_ctx() {
            return Err(Error::CudaContext {
                ordinal: self.stream.context().ordinal(),
            });
        }
        for &(tensor, layout, len) in tensors {
            let (operator, tensor) = (self.name.to_owned(), tensor.to_owned());
            if !fits(layout.dtype) {
                return Err(Error::DtypeMismatch {
                    operator,
                    tensor,
                    expected: expected.to_owned(),
                    got: layout.dtype,
                });
            }
            if layout.ordinal != self.device.ordinal() {
                return Err(Error::DeviceMismatch {
                    operator,
                    tensor,
                    expected: self.device.ordinal(),
                    got: layout.ordinal,
                });
            }
            if layout.len != len {
                return Err(Error::ShapeMismatch {
                    operator,
                    tensor,
                    expected: format!("of {len} elements"),
                    got: layout.shape.as_slice().to_vec(),
                });
            }
        }
        self.device.make_current()
    }

    /// The error that a tensor does not have these axes.
    fn axes(&self, tensor: &str, expected: &str, got: &[usize]) -> Error {
        Error::ShapeMismatch {
            operator: self.name.to_owned(),
            tensor: tensor.to_owned(),
            expected: expected.to_owned(),
            got: got.to_vec(),
        }
    }
}

/// Points `[batch, points, dim]` as multivectors of grades 0 and 1, `[1 + dim, batch, points]`, whose scalar is 0.
///
/// # Errors
/// Tensors of another shape, type or device; [`Error::Cuda`].
pub fn points(
    device: &Device,
    stream: &CudaStream,
    from: Tensor<'_>,
    mut to: TensorMut<'_>,
) -> Result<(), Error> {
    let call = Call {
        name: "points",
        device,
        stream,
    };
    let &[batch, points, dim] = from.shape() else {
        return Err(call.axes("from", "[batch, points, dim]", from.shape()));
    };
    if to.shape() != [dim + 1, batch, points] {
        return Err(call.axes("to", "[1 + dim, batch, points]", to.shape()));
    }
    let len = (dim + 1) * batch * points;
    let types = call.check_both(
        &[("from", from.layout(), dim * batch * points)],
        &[("to", to.layout(), len)],
    )?;
    let queue = Queue::of(stream);
    let ((from, _read), (to, _written)) = (from.acquire(&queue), to.acquire(&queue));
    // SAFETY: the tensors have the lengths that are checked above, on this device.
    let launch = || unsafe {
        sys::fc_points(
            address(from),
            address(to),
            batch as i64,
            points as i64,
            dim as i64,
            code(types[0]),
            code(types[1]),
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_points", launch)
}

/// The gradient of [`points`]: `grad_x[b][p][i] = grad_o[1 + i][b][p]`, with `grad_x` `[batch, points, dim]`. Both have one type.
///
/// # Errors
/// Tensors of another shape, type or device; [`Error::Cuda`].
pub fn points_backward(
    device: &Device,
    stream: &CudaStream,
    grad_o: Tensor<'_>,
    mut grad_x: TensorMut<'_>,
) -> Result<(), Error> {
    let call = Call {
        name: "points_backward",
        device,
        stream,
    };
    let &[batch, points, dim] = grad_x.shape() else {
        return Err(call.axes("grad_x", "[batch, points, dim]", grad_x.shape()));
    };
    if grad_o.shape() != [dim + 1, batch, points] {
        return Err(call.axes("grad_o", "[1 + dim, batch, points]", grad_o.shape()));
    }
    let (rows, dtype) = (batch * points, grad_x.dtype());
    let ends = [
        ("grad_x", grad_x.layout(), dim * rows),
        ("grad_o", grad_o.layout(), (dim + 1) * rows),
    ];
    call.checked(&ends, "the same for both tensors", |own| own == dtype)?;
    let queue = Queue::of(stream);
    let ((from, _read), (to, _written)) = (grad_o.acquire(&queue), grad_x.acquire(&queue));
    let vectors = from + (rows * dtype.bytes()) as Address;
    // SAFETY: the tensors have the lengths that are checked above, on this device, and the vectors lie after the scalars.
    let launch = || unsafe {
        sys::fc_reverse_axes(
            address(vectors),
            address(to),
            dim as i64,
            1,
            rows as i64,
            code(dtype),
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_reverse_axes", launch)
}

/// The Euclidean norm over blades: `o = sqrt(sum of x^2)`, with `x` `[blades, ...]` and `o` of the other axes.
///
/// # Errors
/// Tensors of another shape, type or device; [`Error::Cuda`].
pub fn blade_norm(
    device: &Device,
    stream: &CudaStream,
    x: Tensor<'_>,
    mut o: TensorMut<'_>,
) -> Result<(), Error> {
    let call = Call {
        name: "blade_norm",
        device,
        stream,
    };
    let (blades, rows) = blades_and_rows(&call, &x)?;
    let own = ("x", x.layout(), blades * rows);
    let types = call.check_both(&[own], &[("o", o.layout(), rows)])?;
    let queue = Queue::of(stream);
    let ((x, _read), (o, _written)) = (x.acquire(&queue), o.acquire(&queue));
    // SAFETY: the tensors have the lengths that are checked above, on this device.
    let launch = || unsafe {
        sys::fc_blade_norm(
            address(x),
            address(o),
            blades as i64,
            rows as i64,
            code(types[0]),
            code(types[1]),
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_blade_norm", launch)
}

/// The gradient of [`blade_norm`]: `grad_x = grad_o x / o`, 0 where `o` is 0.
///
/// # Errors
/// Tensors of another shape, type or device; [`Error::Cuda`].
pub fn blade_norm_backward(
    device: &Device,
    stream: &CudaStream,
    [x, o, grad_o]: [Tensor<'_>; 3],
    mut grad_x: TensorMut<'_>,
) -> Result<(), Error> {
    let call = Call {
        name: "blade_norm_backward",
        device,
        stream,
    };
    let (blades, rows) = blades_and_rows(&call, &x)?;
    let types = call.check_both(
        &[
            ("x", x.layout(), blades * rows),
            ("grad_x", grad_x.layout(), blades * rows),
        ],
        &[("o", o.layout(), rows), ("grad_o", grad_o.layout(), rows)],
    )?;
    let queue = Queue::of(stream);
    let ((x, _x), (o, _o)) = (x.acquire(&queue), o.acquire(&queue));
    let ((grad_o, _read), (grad_x, _written)) = (grad_o.acquire(&queue), grad_x.acquire(&queue));
    // SAFETY: the tensors have the lengths that are checked above, on this device.
    let launch = || unsafe {
        sys::fc_blade_norm_backward(
            address(x),
            address(o),
            address(grad_o),
            address(grad_x),
            blades as i64,
            rows as i64,
            code(types[0]),
            code(types[1]),
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_blade_norm_backward", launch)
}

/// `o = activation(x)`, elementwise.
///
/// # Errors
/// Tensors of another length, type or device; [`Error::Cuda`].
pub fn activate(
    device: &Device,
    stream: &CudaStream,
    activation: Activation,
    x: Tensor<'_>,
    mut o: TensorMut<'_>,
) -> Result<(), Error> {
    let call = Call {
        name: "activate",
        device,
        stream,
    };
    let len = x.layout().len;
    let types = call.check_both(&[("x", x.layout(), len)], &[("o", o.layout(), len)])?;
    let queue = Queue::of(stream);
    let ((x, _read), (o, _written)) = (x.acquire(&queue), o.acquire(&queue));
    // SAFETY: the tensors have the lengths that are checked above, on this device.
    let launch = || unsafe {
        sys::fc_activate(
            address(x),
            address(o),
            len as i64,
            activation.code(),
            code(types[0]),
            code(types[1]),
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_activate", launch)
}

/// The gradient of [`activate`]: `grad_x = grad_o activation'(x)`.
///
/// # Errors
/// Tensors of another length, type or device; [`Error::Cuda`].
pub fn activate_backward(
    device: &Device,
    stream: &CudaStream,
    activation: Activation,
    [x, grad_o]: [Tensor<'_>; 2],
    mut grad_x: TensorMut<'_>,
) -> Result<(), Error> {
    let call = Call {
        name: "activate_backward",
        device,
        stream,
    };
    let len = x.layout().len;
    let types = call.check_both(
        &[("x", x.layout(), len), ("grad_x", grad_x.layout(), len)],
        &[("grad_o", grad_o.layout(), len)],
    )?;
    let queue = Queue::of(stream);
    let ((x, _x), (grad_o, _read)) = (x.acquire(&queue), grad_o.acquire(&queue));
    let (grad_x, _written) = grad_x.acquire(&queue);
    // SAFETY: the tensors have the lengths that are checked above, on this device.
    let launch = || unsafe {
        sys::fc_activate_backward(
            address(x),
            address(grad_o),
            address(grad_x),
            len as i64,
            activation.code(),
            code(types[0]),
            code(types[1]),
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_activate_backward", launch)
}

/// A squared error and its gradient: `loss = scale sum of (y - target)^2`, added to what `loss` holds if `adds`, and
/// `grad = 2 scale loss_scale (y - target)`. `loss` has one element. The scale of the loss is the first of the
/// numbers that [`Adam::scaled_step`](super::Adam::scaled_step) keeps; without them it is 1. All tensors are `F32`,
/// or all are `F64`; the scale is `F64`.
///
/// # Errors
/// Tensors of another length, type or device; [`Error::Cuda`].
pub fn squared_error(
    device: &Device,
    stream: &CudaStream,
    [y, target]: [Tensor<'_>; 2],
    (scale, adds): (f64, bool),
    loss_scale: Option<Tensor<'_>>,
    mut loss: TensorMut<'_>,
    mut grad: TensorMut<'_>,
) -> Result<(), Error> {
    let call = Call {
        name: "squared_error",
        device,
        stream,
    };
    let len = y.layout().len;
    let dtype = call.check(&[
        ("y", y.layout(), len),
        ("target", target.layout(), len),
        ("loss", loss.layout(), 1),
        ("grad", grad.layout(), len),
    ])?;
    if let Some(own) = &loss_scale {
        let own = [("loss_scale", own.layout(), LossScaling::NUMBERS)];
        call.checked(&own, "f64", |dtype| dtype == Dtype::F64)?;
    }
    let queue = Queue::of(stream);
    let loss_scale = loss_scale.as_ref().map(|own| own.acquire(&queue));
    let ((y, _y), (target, _target)) = (y.acquire(&queue), target.acquire(&queue));
    let ((loss, _loss), (grad, _grad)) = (loss.acquire(&queue), grad.acquire(&queue));
    // SAFETY: the tensors have the lengths that are checked above, on this device.
    let launch = || unsafe {
        sys::fc_squared_error(
            address(y),
            address(target),
            address(loss),
            address(grad),
            len as i64,
            scale,
            loss_scale
                .as_ref()
                .map_or(std::ptr::null_mut(), |(at, _)| address(*at)),
            adds.into(),
            code(dtype),
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_squared_error", launch)
}

/// `o = scale (x + y)`, or `scale x` without a `y`, elementwise.
///
/// # Errors
/// Tensors of another length, type or device; [`Error::Cuda`].
pub fn scaled_sum(
    device: &Device,
    stream: &CudaStream,
    x: Tensor<'_>,
    y: Option<Tensor<'_>>,
    scale: f64,
    mut o: TensorMut<'_>,
) -> Result<(), Error> {
    let call = Call {
        name: "scaled_sum",
        device,
        stream,
    };
    let len = x.layout().len;
    let mut own = vec![("x", x.layout(), len)];
    own.extend(y.as_ref().map(|y| ("y", y.layout(), len)));
    let types = call.check_both(&own, &[("o", o.layout(), len)])?;
    let queue = Queue::of(stream);
    let ((x, _x), (o, _written)) = (x.acquire(&queue), o.acquire(&queue));
    let y = y.as_ref().map(|y| y.acquire(&queue));
    // SAFETY: the tensors have the lengths that are checked above, on this device.
    let launch = || unsafe {
        sys::fc_scaled_sum(
            address(x),
            y.as_ref()
                .map_or(std::ptr::null_mut(), |(at, _)| address(*at)),
            address(o),
            len as i64,
            scale,
            code(types[0]),
            code(types[1]),
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_scaled_sum", launch)
}

/// One blade: `o = x[blade]`, with `x` `[blades, ...]` and `o` of the other axes.
///
/// # Errors
/// A blade that `x` lacks; tensors of another shape, type or device; [`Error::Cuda`].
pub fn blade(
    device: &Device,
    stream: &CudaStream,
    x: Tensor<'_>,
    blade: usize,
    mut o: TensorMut<'_>,
) -> Result<(), Error> {
    let call = Call {
        name: "blade",
        device,
        stream,
    };
    let (blades, rows) = blades_with(&call, "x", x.shape(), blade)?;
    let own = ("x", x.layout(), blades * rows);
    let types = call.check_both(&[own], &[("o", o.layout(), rows)])?;
    let queue = Queue::of(stream);
    let ((x, _read), (o, _written)) = (x.acquire(&queue), o.acquire(&queue));
    // SAFETY: the tensors have the lengths that are checked above, on this device.
    let launch = || unsafe {
        sys::fc_blade(
            address(x),
            address(o),
            blade as i64,
            rows as i64,
            code(types[0]),
            code(types[1]),
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_blade", launch)
}

/// The gradient of [`blade`](fn@blade): `grad_x[blade] = grad_o`, and 0 for all other blades.
///
/// # Errors
/// A blade that `grad_x` lacks; tensors of another shape, type or device; [`Error::Cuda`].
pub fn blade_backward(
    device: &Device,
    stream: &CudaStream,
    grad_o: Tensor<'_>,
    blade: usize,
    mut grad_x: TensorMut<'_>,
) -> Result<(), Error> {
    let call = Call {
        name: "blade_backward",
        device,
        stream,
    };
    let (blades, rows) = blades_with(&call, "grad_x", grad_x.shape(), blade)?;
    let own = ("grad_x", grad_x.layout(), blades * rows);
    let types = call.check_both(&[own], &[("grad_o", grad_o.layout(), rows)])?;
    let queue = Queue::of(stream);
    let ((grad_o, _read), (grad_x, _written)) = (grad_o.acquire(&queue), grad_x.acquire(&queue));
    // SAFETY: the tensors have the lengths that are checked above, on this device.
    let launch = || unsafe {
        sys::fc_blade_backward(
            address(grad_o),
            address(grad_x),
            blade as i64,
            blades as i64,
            rows as i64,
            code(types[0]),
            code(types[1]),
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_blade_backward", launch)
}

/// A tensor `[first, middle, last]` with its axes in reverse order, `[last, middle, first]`: the weights of CGENN's fully connected product
/// as the kernels read them. Both have one type.
///
/// # Errors
/// Tensors of another shape, type or device; [`Error::Cuda`].
pub fn reverse_axes(
    device: &Device,
    stream: &CudaStream,
    from: Tensor<'_>,
    mut to: TensorMut<'_>,
) -> Result<(), Error> {
    let call = Call {
        name: "reverse_axes",
        device,
        stream,
    };
    let &[first, middle, last] = from.shape() else {
        return Err(call.axes("from", "[first, middle, last]", from.shape()));
    };
    if to.shape() != [last, middle, first] {
        return Err(call.axes("to", "[last, middle, first]", to.shape()));
    }
    let (len, dtype) = (first * middle * last, from.dtype());
    let ends = [("from", from.layout(), len), ("to", to.layout(), len)];
    call.checked(&ends, "the same for both tensors", |own| own == dtype)?;
    let queue = Queue::of(stream);
    let ((from, _read), (to, _written)) = (from.acquire(&queue), to.acquire(&queue));
    // SAFETY: the tensors have the lengths that are checked above, on this device.
    let launch = || unsafe {
        sys::fc_reverse_axes(
            address(from),
            address(to),
            first as i64,
            middle as i64,
            last as i64,
            code(dtype),
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_reverse_axes", launch)
}

/// `to += from`, elementwise.
///
/// # Errors
/// Tensors of another length, type or device; [`Error::Cuda`].
pub fn accumulate(
    device: &Device,
    stream: &CudaStream,
    mut to: TensorMut<'_>,
    from: Tensor<'_>,
) -> Result<(), Error> {
    let call = Call {
        name: "accumulate",
        device,
        stream,
    };
    let len = from.layout().len;
    let dtype = call.check(&[("from", from.layout(), len), ("to", to.layout(), len)])?;
    let queue = Queue::of(stream);
    let ((from, _read), (to, _written)) = (from.acquire(&queue), to.acquire(&queue));
    // SAFETY: the tensors have the lengths that are checked above, on this device.
    let launch = || unsafe {
        sys::fc_accumulate(
            address(to),
            address(from),
            len as i64,
            code(dtype),
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_accumulate", launch)
}

/// The blades and the other elements of a blade of a tensor `[blades, ...]`, among which a blade must be.
fn blades_with(
    call: &Call<'_>,
    tensor: &str,
    shape: &[usize],
    blade: usize,
) -> Result<(usize, usize), Error> {
    match *shape {
        [blades, ref rows @ ..] if blade < blades => Ok((blades, rows.iter().product())),
        _ => {
            let expected = format!("[blades, ...] with more than {blade} blades");
            Err(call.axes(tensor, &expected, shape))
        }
    }
}

fn blades_and_rows(call: &Call<'_>, x: &Tensor<'_>) -> Result<(usize, usize), Error> {
    match *x.shape() {
        [blades, ref rows @ ..] if blades > 0 => Ok((blades, rows.iter().product())),
        _ => Err(call.axes("x", "[blades, ...] with at least one blade", x.shape())),
    }
}

fn address<T>(address: Address) -> *mut T {
    address as *mut T
}
