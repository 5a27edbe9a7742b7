//! The functions of nodes that are no operators.

use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Sub};

use flashcliff::Element;

use super::Scales;
use crate::scratch::Pooled;
use crate::work::{Activation, Work};

/// `f32` or `f64`.
pub trait Number:
    Element
    + Pooled
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
    + MulAssign
{
    /// The square root.
    fn root(self) -> Self;

    /// The exponential.
    fn exponential(self) -> Self;
}

macro_rules! number {
    ($type:ty) => {
        impl Number for $type {
            // Loops that call it are compiled for the vectors of a CPU.
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }

            fn exponential(self) -> Self {
                self.exp()
            }
        }
    };
}

number!(f32);
number!(f64);

fn one<T: Number>() -> T {
    T::from_f64(1.0)
}

fn zero<T: Number>() -> T {
    T::default()
}

/// Writes the result of a node from its inputs. `shape` is the shape of the first input.
pub(super) fn forward<T: Number>(
    work: &Work,
    [x, y]: [Option<&[T]>; 2],
    shape: &[usize],
    o: &mut [T],
) {
    let x = x.unwrap_or_default();
    match work {
        Work::Points => points(x, shape[2], o),
        Work::BladeNorm => blade_norm(x, o),
        Work::Activation(kind) => each(x, o, |x| activate(*kind, x)),
        Work::ScaledSum(scale) => scaled_sum(x, y, T::from_f64(*scale), o),
        Work::Blade(blade) => o.copy_from_slice(&x[blade * o.len()..][..o.len()]),
        Work::BladesToChannels => transpose(x, shape[0], o),
        Work::ChannelsToBlades(blades) => transpose(x, x.len() / blades, o),
        Work::ReverseAxes => reverse_axes(x, [shape[0], shape[1], shape[2]], o),
        // All other kinds of work have their own calls.
        _ => {}
    }
}

/// Writes the gradient of an input of a node from the values that it reads. The last of these has a shape.
pub(super) fn gradient<T: Number>(
    work: &Work,
    inputs: [Option<&[T]>; 3],
    shape: &[usize],
    grad: &mut [T],
) {
    let [first, second, third] = inputs.map(Option::unwrap_or_default);
    match work {
        Work::Points => points_gradient(first, shape[0] - 1, grad),
        Work::BladeNorm => blade_norm_gradient([first, second, third], grad),
        Work::Activation(kind) => {
            for ((grad, &x), &g) in grad.iter_mut().zip(first).zip(second) {
                *grad = g * slope(*kind, x);
            }
        }
        Work::ScaledSum(scale) => scaled_sum(first, None, T::from_f64(*scale), grad),
        Work::Blade(blade) => {
            grad.fill(zero());
            grad[blade * first.len()..][..first.len()].copy_from_slice(first);
        }
        Work::ReverseAxes => reverse_axes(first, [shape[0], shape[1], shape[2]], grad),
        // No other node has a gradient of this kind.
        _ => {}
    }
}

/// The sum of squared errors times its scale, and the gradient if it has room.
pub(super) fn squared_error<T: Number>(
    [y, target]: [&[T]; 2],
    scales: Scales<'_>,
    gradient: &mut [T],
) -> f64 {
    let scale = T::from_f64(2.0 * scales.error * scales.gradient);
    for ((gradient, &y), &target) in gradient.iter_mut().zip(y).zip(target) {
        *gradient = scale * (y - target);
    }
    let square = |(&y, &target): (&T, &T)| {
        let difference = (y - target).to_f64();
        difference * difference
    };
    scales.error * y.iter().zip(target).map(square).sum::<f64>()
}

fn each<T: Number>(x: &[T], o: &mut [T], f: impl Fn(T) -> T) {
    for (o, &x) in o.iter_mut().zip(x) {
        *o = f(x);
    }
}

/// `o = scale (x + y)`, or `scale x`.
fn scaled_sum<T: Number>(x: &[T], y: Option<&[T]>, scale: T, o: &mut [T]) {
    match y {
        None => each(x, o, |x| scale * x),
        Some(y) => {
            for ((o, &x), &y) in o.iter_mut().zip(x).zip(y) {
                *o = scale * (x + y);
            }
        }
    }
}

/// `o[0] = 0`, `o[1 + i][b][p] = x[b][p][i]`.
fn points<T: Number>(x: &[T], dim: usize, o: &mut [T]) {
    let rows = o.len() / (dim + 1);
    let (scalars, vectors) = o.split_at_mut(rows);
    scalars.fill(zero());
    for (i, blade) in vectors.chunks_exact_mut(rows.max(1)).enumerate() {
        for (o, point) in blade.iter_mut().zip(x.chunks_exact(dim.max(1))) {
            *o = point[i];
        }
    }
}

/// `grad[b][p][i] = gradient[1 + i][b][p]`.
fn points_gradient<T: Number>(gradient: &[T], dim: usize, grad: &mut [T]) {
    let rows = grad.len() / dim.max(1);
    for (i, blade) in gradient.chunks_exact(rows.max(1)).skip(1).enumerate() {
        for (point, &g) in grad.chunks_exact_mut(dim).zip(blade) {
            point[i] = g;
        }
    }
}

fn blade_norm<T: Number>(x: &[T], o: &mut [T]) {
    o.fill(zero());
    if o.is_empty() {
        return;
    }
    for blade in x.chunks_exact(o.len()) {
        for (sum, &x) in o.iter_mut().zip(blade) {
            *sum += x * x;
        }
    }
    for sum in o {
        *sum = sum.root();
    }
}

/// The gradient of the norm over blades, 0 where the norm is.
fn blade_norm_gradient<T: Number>([x, norm, gradient]: [&[T]; 3], grad: &mut [T]) {
    if norm.is_empty() {
        return;
    }
    let blades = x.chunks_exact(norm.len());
    for (grad, blade) in grad.chunks_exact_mut(norm.len()).zip(blades) {
        let known = norm.iter().zip(gradient);
        for ((grad, &x), (&norm, &gradient)) in grad.iter_mut().zip(blade).zip(known) {
            let scale = match norm == zero() {
                true => zero(),
                false => gradient / norm,
            };
            *grad = scale * x;
        }
    }
}

/// The transpose of a matrix of so many rows.
fn transpose<T: Number>(x: &[T], rows: usize, o: &mut [T]) {
    if x.is_empty() {
        return;
    }
    for (i, row) in x.chunks_exact(x.len() / rows).enumerate() {
        for (o, &x) in o[i..].iter_mut().step_by(rows).zip(row) {
            *o = x;
        }
    }
}

/// `o[k][j][i] = x[i][j][k]`.
fn reverse_axes<T: Number>(x: &[T], [first, middle, last]: [usize; 3], o: &mut [T]) {
    for (at, o) in o.iter_mut().enumerate() {
        let [k, j, i] = [at / first / middle, at / first % middle, at % first];
        *o = x[(i * middle + j) * last + k];
    }
}

fn sigmoid<T: Number>(x: T) -> T {
    one::<T>() / (one::<T>() + (zero::<T>() - x).exponential())
}

fn activate<T: Number>(kind: Activation, x: T) -> T {
    match kind {
        Activation::Silu => x * sigmoid(x),
        Activation::Relu if x < zero() => zero(),
        Activation::Relu => x,
    }
}

fn slope<T: Number>(kind: Activation, x: T) -> T {
    match kind {
        Activation::Silu => {
            let s = sigmoid(x);
            s * (one::<T>() + x * (one::<T>() - s))
        }
        Activation::Relu if x > zero() => one(),
        Activation::Relu => zero(),
    }
}
