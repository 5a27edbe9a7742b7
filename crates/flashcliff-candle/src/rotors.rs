//! Rotors and motors: exponentials, logarithms, inverses, interpolation, and layers of versors that act.
//!
//! A rotor is the exponential of a bivector: a rotation, a boost, a translation, or a product of these, then called a motor.
//! [`functional::sandwich`](crate::functional::sandwich) applies it.
//!
//! All functions take algebras of up to five dimensions with any signature. Multivectors are `[blades, batch, channels]`: bivectors hold
//! the blades of grade 2, rotors the blades of the even grades. A versor of odd [`Parity`], such as a reflection, holds the blades of the
//! odd grades.
//!
//! A map is an operator ([`Rotors::operator`]) on the CPU and on GPUs, where it is compiled at the first call. It has
//! derivatives of every order ([`op::gradients`](crate::op::gradients())). All types are computed in `f64`, and
//! results rounded once. [`action`] is one node on the CPU, and composed of
//! [`functional::sandwich`](crate::functional::sandwich) and a matrix product on a GPU.
//!
//! The formulas, where a logarithm is unique, and the accuracy: [`flashcliff::rotor`]. An item without a result is not finite,
//! and its gradient is zero: it does not spread to weights that all items share.
//!
//! ```
//! use candle_core::{DType, Device, Tensor, Var};
//! use flashcliff::rotor::Parity;
//! use flashcliff::{Algebra, Signature};
//! use flashcliff_candle::rotors;
//!
//! // A layer of four motors: from two channels to two.
//! let algebra = Algebra::new(Signature::new(3, 0, 1)?)?;
//! let bivectors = Var::zeros((6, 2, 2), DType::F32, &Device::Cpu)?;
//! let weight = Tensor::ones((2, 2), DType::F32, &Device::Cpu)?;
//! let x = Tensor::ones((16, 5, 2), DType::F32, &Device::Cpu)?;
//! let versors = rotors::exp(algebra, &bivectors)?;
//! let out = rotors::action(algebra, Parity::Even, None, &x, &versors, &weight)?;
//! let gradients = out.sqr()?.mean_all()?.backward()?;
//! assert_eq!(out.dims(), [16, 5, 2]);
//! assert!(gradients.get(&bivectors).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use candle_core::{Result, Tensor};
use flashcliff::rotor::{Parity, RotorMap, Rotors};
use flashcliff::{Algebra, GradeSet};

use crate::Error;
use crate::op::node::{self, Argument};
use crate::op::once::entering;
use crate::op::rotor::{Act, apply, in_f64, items, shape};

/// The exponential of bivectors, a rotor: `exp(B) = C(u) + B S(u)` with `u = B B`, `C(u) = cosh(sqrt u)` and
/// `S(u) = sinh(sqrt u) / sqrt u`.
///
/// From `[blades of grade 2, batch, channels]` to `[blades of even grades, batch, channels]`.
///
/// # Errors
/// More than five dimensions, another number of blades, and the errors of [`op::apply`](crate::op::apply).
pub fn exp(algebra: Algebra, b: &Tensor) -> Result<Tensor> {
    map(algebra, RotorMap::Exp, b)
}

/// The logarithm of rotors, a bivector: `exp(log(R)) = normalized(R)`.
///
/// From `[blades of even grades, batch, channels]` to `[blades of grade 2, batch, channels]`. At `R = -1` it is not unique,
/// and the result is not a number: see [`RotorMap::Log`].
///
/// # Errors
/// The errors of [`exp`].
pub fn log(algebra: Algebra, r: &Tensor) -> Result<Tensor> {
    map(algebra, RotorMap::Log, r)
}

/// The inverse `reverse(x) (x reverse(x))^(-1)` of any multivector of the parity that has one.
///
/// # Errors
/// The errors of [`exp`].
pub fn inverse(algebra: Algebra, parity: Parity, x: &Tensor) -> Result<Tensor> {
    let of = match parity {
        Parity::Even => RotorMap::Inverse,
        Parity::Odd => RotorMap::InverseOdd,
    };
    map(algebra, of, x)
}

/// The versor `(x reverse(x))^(-1/2) x`, with `V reverse(V) = 1`, or -1 where it was negative.
///
/// # Errors
/// The errors of [`exp`].
pub fn normalized(algebra: Algebra, parity: Parity, x: &Tensor) -> Result<Tensor> {
    map(algebra, normalized_of(parity), x)
}

/// The versor between two: `a exp(t log(reverse(a) b))`, with `a` at `t = 0` and `b` or `-b`, the nearer one, at `t = 1`.
///
/// `a` and `b` are `[blades of the parity, batch, channels]`, `t` broadcasts to `[batch, channels]`. Both versors are
/// normalised. There are gradients by all three.
///
/// # Errors
/// The errors of [`exp`], and a `t` that does not broadcast.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use flashcliff::rotor::Parity;
/// use flashcliff::{Algebra, Signature};
/// use flashcliff_candle::rotors;
///
/// let plane = Algebra::new(Signature::new(2, 0, 0)?)?;
/// let still = Tensor::new(&[[[1.0_f64]], [[0.0]]], &Device::Cpu)?;
/// let turned = Tensor::new(&[[[0.0_f64]], [[1.0]]], &Device::Cpu)?;
/// let t = Tensor::new(0.5_f64, &Device::Cpu)?;
/// let half = rotors::interpolate(plane, Parity::Even, &still, &turned, &t)?;
/// let angle = rotors::log(plane, &half)?.flatten_all()?.to_vec1::<f64>()?[0];
/// assert!((angle - std::f64::consts::FRAC_PI_4).abs() < 1e-15);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn interpolate(
    algebra: Algebra,
    parity: Parity,
    a: &Tensor,
    b: &Tensor,
    t: &Tensor,
) -> Result<Tensor> {
    let rotors = Rotors::new(algebra).map_err(Error::from)?;
    let [batch, channels] = items("interpolate", "a", rotors.versor_blades(parity), a.dims())?;
    if b.dims() != a.dims() {
        let expected = format!("{:?}", a.dims());
        return Err(shape("interpolate", "b", expected, b.dims()).into());
    }
    let t = entering(t)?.broadcast_as((batch, channels))?;
    let sizes = [batch, channels];
    let Some(normalized) = rotors
        .operator(normalized_of(parity))
        .map_err(Error::from)?
    else {
        // Nothing has no odd versors.
        return Ok(a.clone());
    };
    let dtype = a.dtype();
    let [a, b, t] = in_f64("interpolate", [a, b, &t])?;
    let a = apply(normalized.clone(), &[&a], sizes)?;
    let b = apply(normalized, &[&b], sizes)?;
    let found = match rotors.path(parity).map_err(Error::from)? {
        Some([between, along]) => {
            let step = apply(between, &[&a, &b], sizes)?;
            apply(along, &[&a, &t, &step], sizes)?
        }
        None => a,
    };
    found.to_dtype(dtype)
}

/// A layer whose weights are versors: `o[m] = sum over n of weight[m, n] V[m, n] x[n] reverse(V[m, n])`.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades of grades, batch, in]` |
/// | `versors` | `[blades of the parity, out, in]` |
/// | `weight` | `[out, in]` |
/// | `o` | `[blades of grades, batch, out]` |
///
/// `grades` are the grades of `x`, all by default. Versors act as they are; see [`flashcliff::rotor::Action`].
///
/// Source: Ruhe et al., "Geometric Clifford algebra networks" (2023, arXiv 2302.06594), section 3.
///
/// # Errors
/// More than five dimensions, grades that the algebra lacks, other shapes, and the errors of [`op::apply`](crate::op::apply).
pub fn action(
    algebra: Algebra,
    parity: Parity,
    grades: Option<GradeSet>,
    x: &Tensor,
    versors: &Tensor,
    weight: &Tensor,
) -> Result<Tensor> {
    let function = Act::new(algebra, parity, grades)?;
    let arguments = [x, versors, weight].map(Argument::whole);
    Ok(node::apply(&Arc::new(function), &arguments)?)
}

fn normalized_of(parity: Parity) -> RotorMap {
    match parity {
        Parity::Even => RotorMap::Normalized,
        Parity::Odd => RotorMap::NormalizedOdd,
    }
}

fn map(algebra: Algebra, map: RotorMap, x: &Tensor) -> Result<Tensor> {
    let rotors = Rotors::new(algebra).map_err(Error::from)?;
    let [reads, writes] = rotors.blade_counts(map);
    let sizes = items(map.name(), "x", reads, x.dims())?;
    let Some(operator) = rotors.operator(map).map_err(Error::from)? else {
        // The exponential of no bivector is 1, and nothing is its logarithm.
        return Tensor::ones((writes, sizes[0], sizes[1]), x.dtype(), x.device());
    };
    let [wide] = in_f64(map.name(), [x])?;
    apply(operator, &[&wide], sizes)?.to_dtype(x.dtype())
}
