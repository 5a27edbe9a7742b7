//! Rotors and motors on the CPU: exponentials, logarithms, inverses, interpolation, and layers of versors, with gradients.
//!
//! A rotor is the exponential of a bivector: a rotation, a boost, a translation, or a product of these, then called a motor.
//! [`ops::sandwich`](crate::ops::sandwich) applies one to multivectors; [`Action`] applies one for each pair of channels.

mod action;
mod compiled;
mod interpolation;
mod items;
mod programs;

use flashcliff_program::rotor::{LARGEST_DIM, Map};

use crate::{Algebra, Element, Error, Operator, Tensor, TensorMut};
use items::check_all;
use programs::passes;

pub use action::{Action, ActionGradients};
pub(crate) use compiled::Compiled;
pub use interpolation::InterpolationGradients;

/// The blades of five dimensions.
const BLADES: usize = 1 << LARGEST_DIM;

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
        self.of_programs().name()
    }

    fn of_programs(self) -> Map {
        match self {
            Self::Exp => Map::Exp,
            Self::Log => Map::Log,
            Self::Inverse => Map::Inverse(0),
            Self::InverseOdd => Map::Inverse(1),
            Self::Normalized => Map::Normalized(0),
            Self::NormalizedOdd => Map::Normalized(1),
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

/// The rotors of an algebra of at most five dimensions, of any signature.
///
/// Tensors are `[blades, batch, channels]` with the blades of the grades that they carry. Elements are computed in `f64`
/// and rounded once, each on its own, so results do not depend on the number of threads. Tests hold the errors of `exp` in
/// `f64` to `2 eps |B|` of the largest part, for angles up to 250. In four and five dimensions more digits are lost where
/// two angles are nearly equal: `eps |B|^2 / d` at a difference `d`. The logarithm keeps its digits near `R = -1` below four
/// dimensions, where it only turns its plane by as much as `R` does; in four and five, at a distance `d`, its errors grow by
/// `1 / d^2`. Boosts of large rapidity `2 x` lose `exp(2 x)` in the accuracy of `log` and `normalized`.
///
/// Each map is a [program](crate::program) for `f64`, whose operators [`Self::operator`] and [`Self::path`] give: for
/// derivatives of every order, and for GPUs. An item without a result, such as the logarithm of -1, the inverse of
/// zero, or the exponential of a bivector beyond 2^27, is NaN, and its gradient is zero.
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
    algebra: Algebra,
}

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
        Ok(Self { algebra })
    }

    /// The numbers of blades of the input and the output of a map.
    pub fn blade_counts(&self, map: RotorMap) -> [usize; 2] {
        let (map, cayley) = (map.of_programs(), self.algebra.cayley());
        [map.reads(cayley)[0].1.len(), map.writes(cayley).len()]
    }

    /// The number of blades of versors.
    pub fn versor_blades(&self, parity: Parity) -> usize {
        Map::versors(self.algebra.cayley(), parity as usize).len()
    }

    /// A map as an operator on `f64`: its derivatives of every order are operators too, and it runs on GPUs. `None`
    /// if the algebra has no blades of a grade that the map reads or writes.
    ///
    /// ```
    /// use flashcliff::rotor::{RotorMap, Rotors};
    /// use flashcliff::{Algebra, Signature, Tensor};
    ///
    /// // The second derivative of a cosine is minus the cosine.
    /// let rotors = Rotors::new(Algebra::new(Signature::new(2, 0, 0)?)?)?;
    /// let exp = rotors.operator(RotorMap::Exp)?.ok_or("a plane has a bivector")?;
    /// let second = exp.gradient()?.gradient()?;
    /// let names: Vec<&str> = second.inputs().iter().map(|input| input.name).collect();
    /// assert_eq!(names, ["x", "grad_o", "grad_grad_x"]);
    /// let (angle, one) = ([2.0_f64], [1.0]);
    /// let cosine = [1.0, 0.0];
    /// let x = Tensor::new(&angle, &[1, 1, 1])?;
    /// let found = second.results(&[x, Tensor::new(&cosine, &[2, 1, 1])?, Tensor::new(&one, &[1, 1, 1])?])?;
    /// assert!((found[0][0] + 2.0_f64.cos()).abs() < 1e-15);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Operator::of`].
    pub fn operator(&self, map: RotorMap) -> Result<Option<Operator>, Error> {
        self.operator_of(map.of_programs())
    }

    /// An interpolation of normalised versors of a parity as two operators on `f64`: `log(reverse(a) b)` of `a` and
    /// `b`, with `-b` in place of `b` if that is nearer, and `a exp(t B)` of `a`, a position `t` of one blade, and
    /// the result `B` of the first. `None` if the algebra has no bivectors: versors of a line have nothing between
    /// them.
    ///
    /// The gradient of one operator for both would hold so many values at once that a GPU keeps them in memory.
    ///
    /// # Errors
    /// The errors of [`Operator::of`].
    pub fn path(&self, parity: Parity) -> Result<Option<[Operator; 2]>, Error> {
        let parity = parity as usize;
        let between = self.operator_of(Map::Between(parity))?;
        let along = self.operator_of(Map::Along(parity))?;
        Ok(between.zip(along).map(Into::into))
    }

    fn operator_of(&self, map: Map) -> Result<Option<Operator>, Error> {
        let passes = passes(self.algebra, map)?;
        Ok(passes.map(|passes| passes.map.operator.clone()))
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
        mut out: TensorMut<'_, T>,
    ) -> Result<(), Error> {
        let [reads, writes] = self.blade_counts(map);
        let others = [("out", writes, out.shape())];
        let items = check_all(map.name(), ("x", reads, x.shape()), &others)?;
        let Some(passes) = passes(self.algebra, map.of_programs())? else {
            // The exponential of no bivector is 1, and nothing is its logarithm.
            out.data_mut().fill(T::from_f64(1.0));
            return Ok(());
        };
        passes
            .map
            .run(items, &[x.data()], &mut [Some(out.data_mut())])
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
        mut out: TensorMut<'_, T>,
    ) -> Result<(), Error> {
        let [reads, writes] = self.blade_counts(map);
        let others = [("grad", writes, grad.shape()), ("out", reads, out.shape())];
        let items = check_all(map.name(), ("x", reads, x.shape()), &others)?;
        let Some(passes) = passes(self.algebra, map.of_programs())? else {
            // Nothing, or the logarithm of a scalar, which is nothing.
            out.data_mut().fill(T::from_f64(0.0));
            return Ok(());
        };
        let inputs = [x.data(), grad.data()];
        let gradient = &passes.gradient;
        gradient.run(items, &inputs, &mut [Some(out.data_mut())])
    }
}
