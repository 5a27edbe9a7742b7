//! Rotors and motors on the CPU: exponentials, logarithms, inverses, interpolation, with gradients.
//!
//! A rotor is the exponential of a bivector: a rotation, a boost, a translation, or a product of these, then called a motor.
//! [`ops::sandwich`](crate::ops::sandwich) applies it.

mod maps;
mod number;
mod parts;
mod ring;

use crate::kernel::tasks::Chunks;
use crate::{Algebra, Element, Error, Tensor, TensorMut, threads};
use maps::Maps;
use number::{Jet, Number};
use parts::Parts;

/// A map of one multivector, between bivectors and versors.
///
/// | map | input | output |
/// |---|---|---|
/// | [`Exp`](Self::Exp) | bivectors | even grades |
/// | [`Log`](Self::Log) | even grades | bivectors |
/// | [`Inverse`](Self::Inverse), [`Normalized`](Self::Normalized) | even grades | even grades |
/// | [`InverseOdd`](Self::InverseOdd), [`NormalizedOdd`](Self::NormalizedOdd) | odd grades | odd grades |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RotorMap {
    /// `exp(B) = C(u) + B S(u)` with `u = B B`, `C(u) = cosh(sqrt u)`, `S(u) = sinh(sqrt u) / sqrt u`.
    Exp,
    /// The logarithm: `exp(log(R)) = normalized(R)`.
    ///
    /// A single rotation by an angle below `2 pi` has a logarithm of the norm `angle / 2`, below `pi`. In four and five
    /// dimensions, a rotation in two planes by `2 x` and `2 y` has `|x + y|` and `|x - y|` at most `pi`: of all logarithms
    /// it is the shortest. At `R = -1` the logarithm is not unique, and the result is not a number. Nor is it for rotors
    /// that are no exponential.
    Log,
    /// `reverse(x) (x reverse(x))^(-1)`, of any even multivector that has an inverse.
    Inverse,
    /// [`Inverse`](Self::Inverse) of odd multivectors.
    InverseOdd,
    /// `(x reverse(x))^(-1/2) x`: a versor `V` with `V reverse(V) = 1`, even if `x` was none.
    ///
    /// Where metrics have both signs, `x reverse(x)` can be negative. The result then has -1.
    Normalized,
    /// [`Normalized`](Self::Normalized) of odd multivectors.
    NormalizedOdd,
}

impl RotorMap {
    fn name(self) -> &'static str {
        match self {
            Self::Exp => "exp",
            Self::Log => "log",
            Self::Inverse | Self::InverseOdd => "inverse",
            Self::Normalized | Self::NormalizedOdd => "normalized",
        }
    }

    fn reads(self) -> Carried {
        match self {
            Self::Exp => Carried::Bivectors,
            Self::Log | Self::Inverse | Self::Normalized => Carried::Even,
            Self::InverseOdd | Self::NormalizedOdd => Carried::Odd,
        }
    }

    fn writes(self) -> Carried {
        match self {
            Self::Exp => Carried::Even,
            Self::Log => Carried::Bivectors,
            same => same.reads(),
        }
    }
}

/// The grades of a tensor.
#[derive(Clone, Copy)]
enum Carried {
    Bivectors,
    Even,
    Odd,
}

/// The rotors of an algebra of at most five dimensions, of any signature.
///
/// Tensors are `[blades, batch, channels]` with the blades of the grades that they carry. Elements are computed in `f64`
/// and rounded once, each on its own, so results do not depend on the number of threads. Tests hold
/// the errors of `exp` in `f64` to 1e-12 of the largest part; near `R = -1`, at a distance `d`, the logarithm has errors that grow by `1 / d`, and by
/// `1 / d^2` in four and five dimensions. Boosts of large rapidity `2 x` lose `exp(2 x)` in the accuracy of `log` and
/// `normalized`.
///
/// Gradients are exact derivatives of what is computed, by numbers that carry their derivatives. A gradient takes about as
/// many times the work of the map as the map has inputs.
///
/// Sources: Roelfs and De Keninck, "Graded symmetry groups: plane and simple" (2021, arXiv 2107.03771); Dorst and De
/// Keninck, "Guided tour to the plane-based geometric algebra PGA" (2022).
///
/// ```
/// use flashcliff::rotor::{RotorMap, Rotors};
/// use flashcliff::{Algebra, Signature, Tensor, TensorMut};
///
/// let rotors = Rotors::new(Algebra::new(Signature::new(2, 0, 0)?)?)?;
/// let angle = std::f64::consts::FRAC_PI_4;
/// let mut rotor = [0.0; 2];
/// rotors.map(RotorMap::Exp, Tensor::new(&[angle], &[1, 1, 1])?, TensorMut::new(&mut rotor, &[2, 1, 1])?)?;
/// assert!((rotor[0] - angle.cos()).abs() < 1e-15 && (rotor[1] - angle.sin()).abs() < 1e-15);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rotors {
    maps: Maps,
    bivectors: Vec<usize>,
    versors: [Vec<usize>; 2],
}

/// The largest number of dimensions. From six on the square of a bivector generates a larger ring.
const LARGEST_DIM: usize = 5;

/// The operations of a map of one item, about; they decide how items are shared.
const ITEM_FLOPS: usize = 1 << 11;

impl Rotors {
    /// The rotors of an algebra.
    ///
    /// # Errors
    /// [`Error::TooManyDimensions`] for more than five dimensions.
    pub fn new(algebra: Algebra) -> Result<Self, Error> {
        if algebra.dim() > LARGEST_DIM {
            return Err(Error::TooManyDimensions {
                operator: "rotors",
                signature: algebra.signature(),
                expected: LARGEST_DIM,
            });
        }
        let maps = Maps::new(algebra.cayley());
        Ok(Self {
            bivectors: maps.blades(|grade| grade == 2),
            versors: [
                maps.blades(|grade| grade % 2 == 0),
                maps.blades(|grade| grade % 2 == 1),
            ],
            maps,
        })
    }

    fn blades(&self, carried: Carried) -> &[usize] {
        match carried {
            Carried::Bivectors => &self.bivectors,
            Carried::Even => &self.versors[0],
            Carried::Odd => &self.versors[1],
        }
    }

    /// Computes a map.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if the tensors do not have the blades of the map, or differ in their other axes.
    pub fn map<T: Element>(
        &self,
        map: RotorMap,
        x: Tensor<'_, T>,
        out: TensorMut<'_, T>,
    ) -> Result<(), Error> {
        let (reads, writes) = (self.blades(map.reads()), self.blades(map.writes()));
        let others = [("out", writes.len(), out.shape())];
        let items = check_all(map.name(), ("x", reads.len(), x.shape()), &others)?;
        run(out, items, ITEM_FLOPS, |item, write| {
            let parts = gather(&x, reads, items, item, |value, _| value);
            let result = self.apply(map, &parts);
            for (to, &blade) in writes.iter().enumerate() {
                write(to, result[blade]);
            }
        });
        Ok(())
    }

    /// Computes the gradient of a map by its input from the gradient of its output.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if the tensors do not have the blades of the map, or differ in their other axes.
    pub fn gradient<T: Element>(
        &self,
        map: RotorMap,
        x: Tensor<'_, T>,
        grad: Tensor<'_, T>,
        out: TensorMut<'_, T>,
    ) -> Result<(), Error> {
        let (reads, writes) = (self.blades(map.reads()), self.blades(map.writes()));
        let others = [
            ("grad", writes.len(), grad.shape()),
            ("out", reads.len(), out.shape()),
        ];
        let items = check_all(map.name(), ("x", reads.len(), x.shape()), &others)?;
        match reads.len() {
            0..=4 => self.run_gradient::<T, 4>(map, x, grad, out, items),
            5..=8 => self.run_gradient::<T, 8>(map, x, grad, out, items),
            _ => self.run_gradient::<T, 16>(map, x, grad, out, items),
        }
        Ok(())
    }

    fn run_gradient<T: Element, const N: usize>(
        &self,
        map: RotorMap,
        x: Tensor<'_, T>,
        grad: Tensor<'_, T>,
        out: TensorMut<'_, T>,
        items: usize,
    ) {
        let (reads, writes) = (self.blades(map.reads()), self.blades(map.writes()));
        run(out, items, ITEM_FLOPS * N, |item, write| {
            let parts = gather(&x, reads, items, item, Jet::<N>::input);
            let result = self.apply(map, &parts);
            let total = pull_back(&result, writes, &grad, items, item);
            for (to, &slope) in total.iter().enumerate().take(reads.len()) {
                write(to, slope);
            }
        });
    }

    fn apply<X: Number>(&self, map: RotorMap, x: &Parts<X>) -> Parts<X> {
        let maps = &self.maps;
        match map {
            RotorMap::Exp => maps.exp(x),
            RotorMap::Log => maps.log(x),
            RotorMap::Inverse => maps.inverse(x, 0),
            RotorMap::InverseOdd => maps.inverse(x, 1),
            RotorMap::Normalized => maps.normalized(x, 0, true),
            RotorMap::NormalizedOdd => maps.normalized(x, 1, true),
        }
    }

    /// Interpolates between even versors: `a exp(t log(reverse(a) b))`, with `a` at `t = 0` and `b` or `-b` at `t = 1`.
    ///
    /// The nearer one to `a` of `b` and `-b` is taken, which act alike. Versors are normalised. For rotors of space this is
    /// the spherical linear interpolation of quaternions, for motors the screw motion at constant speed.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if the tensors do not have the even blades, or differ in their other axes.
    pub fn interpolate<T: Element>(
        &self,
        a: Tensor<'_, T>,
        b: Tensor<'_, T>,
        t: f64,
        out: TensorMut<'_, T>,
    ) -> Result<(), Error> {
        let blades = self.blades(Carried::Even);
        let count = blades.len();
        let others = [("b", count, b.shape()), ("out", count, out.shape())];
        let items = check_all("interpolate", ("a", count, a.shape()), &others)?;
        run(out, items, 2 * ITEM_FLOPS, |item, write| {
            let ends = [a, b].map(|x| gather(&x, blades, items, item, |value, _| value));
            let result = self.maps.interpolate([&ends[0], &ends[1]], t);
            for (to, &blade) in blades.iter().enumerate() {
                write(to, result[blade]);
            }
        });
        Ok(())
    }

    /// Computes the gradients of [`interpolate`](Self::interpolate) by `a` and `b` from the gradient of its output.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if the tensors do not have the even blades, or differ in their other axes.
    pub fn interpolate_gradient<T: Element>(
        &self,
        a: Tensor<'_, T>,
        b: Tensor<'_, T>,
        t: f64,
        grad: Tensor<'_, T>,
        outs: [TensorMut<'_, T>; 2],
    ) -> Result<(), Error> {
        let blades = self.blades(Carried::Even);
        let count = blades.len();
        let others = [
            ("b", count, b.shape()),
            ("grad", count, grad.shape()),
            ("out", count, outs[0].shape()),
            ("out", count, outs[1].shape()),
        ];
        let items = check_all("interpolate", ("a", count, a.shape()), &others)?;
        for (side, out) in outs.into_iter().enumerate() {
            run(out, items, 32 * ITEM_FLOPS, |item, write| {
                let mut ends =
                    [a, b].map(|x| gather(&x, blades, items, item, |v, _| Jet::constant(v)));
                let from = [a, b][side];
                ends[side] = gather(&from, blades, items, item, Jet::<16>::input);
                let t = Jet::constant(t);
                let result = self.maps.interpolate([&ends[0], &ends[1]], t);
                let total = pull_back(&result, blades, &grad, items, item);
                for (to, &slope) in total.iter().enumerate().take(blades.len()) {
                    write(to, slope);
                }
            });
        }
        Ok(())
    }
}

/// The name of a tensor, the number of its blades, and its shape.
type Named<'a> = (&'a str, usize, &'a [usize]);

/// Checks the shapes of a call: the batch and the channels are those of the first tensor. Counts items.
fn check_all(
    operator: &str,
    (first, blades, like): Named<'_>,
    others: &[Named<'_>],
) -> Result<usize, Error> {
    let items = check(operator, first, blades, like, None)?;
    for &(tensor, blades, shape) in others {
        check(operator, tensor, blades, shape, Some(like))?;
    }
    Ok(items)
}

/// Checks a shape, and counts items: pairs of a batch element and a channel.
fn check(
    operator: &str,
    tensor: &str,
    blades: usize,
    shape: &[usize],
    like: Option<&[usize]>,
) -> Result<usize, Error> {
    let rest = like.and_then(|like| like.get(1..));
    if let [first, batch, channels] = *shape
        && first == blades
        && rest.is_none_or(|rest| rest == [batch, channels])
    {
        return Ok(batch * channels);
    }
    let expected = match rest {
        Some([batch, channels]) => format!("[{blades}, {batch}, {channels}]"),
        _ => format!("[{blades}, batch, channels]"),
    };
    Err(Error::ShapeMismatch {
        operator: operator.to_owned(),
        tensor: tensor.to_owned(),
        expected,
        got: shape.to_vec(),
    })
}

/// The blades of an item.
fn gather<T: Element, X: Number>(
    x: &Tensor<'_, T>,
    blades: &[usize],
    items: usize,
    item: usize,
    number: impl Fn(f64, usize) -> X,
) -> Parts<X> {
    let mut parts = Maps::zeros();
    for (from, &blade) in blades.iter().enumerate() {
        parts[blade] = number(x.data()[from * items + item].to_f64(), from);
    }
    parts
}

/// The gradient by the inputs of jets.
fn pull_back<T: Element, const N: usize>(
    result: &Parts<Jet<N>>,
    blades: &[usize],
    grad: &Tensor<'_, T>,
    items: usize,
    item: usize,
) -> [f64; N] {
    let mut total = [0.0; N];
    for (from, &blade) in blades.iter().enumerate() {
        let gradient = grad.data()[from * items + item].to_f64();
        for (total, slope) in total.iter_mut().zip(result[blade].slopes) {
            *total += gradient * slope;
        }
    }
    total
}

/// Runs `work(item, write)` for every item, where `write(k, value)` writes the blade of number `k`. Chunks of items are
/// shared among threads; each has its own part of every blade.
fn run<T: Element>(
    mut out: TensorMut<'_, T>,
    items: usize,
    flops: usize,
    work: impl Fn(usize, &mut dyn FnMut(usize, f64)) + Sync,
) {
    if items == 0 {
        return;
    }
    let chunks = Chunks::new(items, flops);
    let mut shares: Vec<Vec<&mut [T]>> = (0..chunks.count()).map(|_| Vec::new()).collect();
    for blade in out.data_mut().chunks_mut(items) {
        let mut rest = blade;
        for (chunk, share) in shares.iter_mut().enumerate() {
            let (own, others) = rest.split_at_mut(chunks.range(chunk).len());
            share.push(own);
            rest = others;
        }
    }
    threads::for_each(shares.into_iter().enumerate(), |(chunk, mut share)| {
        for (at, item) in chunks.range(chunk).enumerate() {
            work(item, &mut |blade, value| {
                share[blade][at] = T::from_f64(value);
            });
        }
    });
}
