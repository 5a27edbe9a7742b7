//! Rotors and motors on the CPU: exponentials, logarithms, inverses, interpolation, and layers of versors, with gradients.
//!
//! A rotor is the exponential of a bivector: a rotation, a boost, a translation, or a product of these, then called a motor.
//! [`ops::sandwich`](crate::ops::sandwich) applies one to multivectors; [`Action`] applies one for each pair of channels.

mod action;
mod compiled;
mod interpolation;
mod items;
mod maps;
mod number;
mod parts;
mod ring;

use crate::kept::Kept;
use crate::{Algebra, Element, Error, Signature, Tensor, TensorMut};
use items::{ITEM_FLOPS, check_all, gather, pull_back, run};
use maps::Maps;
use number::{Jet, Number};
use parts::Parts;

pub use action::{Action, ActionGradients};
pub(crate) use compiled::Compiled;
pub use interpolation::InterpolationGradients;

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
    /// that are no exponential. They need not be normalised.
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
    /// The name of the map: `exp`, `log`, `inverse`, `normalized`.
    pub fn name(self) -> &'static str {
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

/// The grades of a versor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parity {
    /// Even grades: rotors, such as rotations and motors.
    #[default]
    Even,
    /// Odd grades: reflections, and rotors after a reflection.
    Odd,
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
/// and rounded once, each on its own, so results do not depend on the number of threads. Tests hold the errors of `exp` in
/// `f64` to `2 eps |B|` of the largest part, for angles up to 250. In four and five dimensions more digits are lost where
/// two angles are nearly equal: `eps |B|^2 / d` at a difference `d`. The logarithm keeps its digits near `R = -1` below four
/// dimensions, where it only turns its plane by as much as `R` does; in four and five, at a distance `d`, its errors grow by
/// `1 / d^2`. Boosts of large rapidity `2 x` lose `exp(2 x)` in the accuracy of `log` and `normalized`.
///
/// Gradients are exact derivatives of what is computed, by numbers that carry their derivatives. A gradient takes about as
/// many times the work of the map as the map has inputs. An item without a result, such as the logarithm of -1 or the
/// inverse of zero, is not finite, and its gradient is zero.
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
#[derive(Clone, Copy, Debug)]
pub struct Rotors {
    tables: &'static Tables,
}

/// The products and blades of an algebra, made once in a process.
#[derive(Debug)]
struct Tables {
    signature: Signature,
    maps: Maps,
    bivectors: Vec<usize>,
    versors: [Vec<usize>; 2],
}

static TABLES: Kept<Tables> = Kept::new();

/// The largest number of dimensions. From six on the square of a bivector generates a larger ring.
const LARGEST_DIM: usize = 5;

fn check_dimensions(operator: &'static str, algebra: Algebra) -> Result<(), Error> {
    if algebra.dim() <= LARGEST_DIM {
        return Ok(());
    }
    Err(Error::TooManyDimensions {
        operator,
        signature: algebra.signature(),
        expected: LARGEST_DIM,
    })
}

impl Rotors {
    /// The rotors of an algebra.
    ///
    /// # Errors
    /// [`Error::TooManyDimensions`] for more than five dimensions.
    pub fn new(algebra: Algebra) -> Result<Self, Error> {
        check_dimensions("rotors", algebra)?;
        let signature = algebra.signature();
        if let Some(tables) = TABLES.iter().find(|tables| tables.signature == signature) {
            return Ok(Self { tables });
        }
        let maps = Maps::new(algebra.cayley());
        let tables = TABLES.add(Tables {
            signature,
            bivectors: maps.blades(|grade| grade == 2),
            versors: [
                maps.blades(|grade| grade % 2 == 0),
                maps.blades(|grade| grade % 2 == 1),
            ],
            maps,
        });
        Ok(Self { tables })
    }

    /// The numbers of blades of the input and the output of a map.
    pub fn blade_counts(&self, map: RotorMap) -> [usize; 2] {
        [map.reads(), map.writes()].map(|carried| self.blades(carried).len())
    }

    /// The number of blades of versors.
    pub fn versor_blades(&self, parity: Parity) -> usize {
        self.tables.versors[parity as usize].len()
    }

    fn blades(&self, carried: Carried) -> &'static [usize] {
        match carried {
            Carried::Bivectors => &self.tables.bivectors,
            Carried::Even => &self.tables.versors[0],
            Carried::Odd => &self.tables.versors[1],
        }
    }

    /// Computes a map.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if the tensors do not have the blades of the map, or differ in their other axes.
    #[inline]
    pub fn map<T: Element>(
        &self,
        map: RotorMap,
        x: Tensor<'_, T>,
        out: TensorMut<'_, T>,
    ) -> Result<(), Error> {
        T::rotor_map(self, map, x, out)
    }

    pub(super) fn map_here<T: Element>(
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
    #[inline]
    pub fn gradient<T: Element>(
        &self,
        map: RotorMap,
        x: Tensor<'_, T>,
        grad: Tensor<'_, T>,
        out: TensorMut<'_, T>,
    ) -> Result<(), Error> {
        T::rotor_gradient(self, map, x, grad, out)
    }

    pub(super) fn gradient_here<T: Element>(
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
        let maps = &self.tables.maps;
        match map {
            RotorMap::Exp => maps.exp(x),
            RotorMap::Log => maps.log(x),
            RotorMap::Inverse => maps.inverse(x, 0),
            RotorMap::InverseOdd => maps.inverse(x, 1),
            RotorMap::Normalized => maps.normalized(x, 0, true),
            RotorMap::NormalizedOdd => maps.normalized(x, 1, true),
        }
    }
}
