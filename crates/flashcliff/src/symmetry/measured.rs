//! The transformations that an operator is found to commute with.

use super::Symmetry;
use super::carried::{Carried, Tensors};
use super::draws::Draws;
use super::versors::{Vectors, Versor, reflecting};
use crate::operator::{Dims, Kind, Operator};
use crate::{Error, Tensor};

/// The largest difference that counts as rounding, relative to the largest number of an output.
const ROUNDING: f64 = 1e-8;

/// How often each kind of transformation is tried, with other numbers each time.
const ROUNDS: u64 = 4;

/// The sizes of the tensors.
const SIZES: Dims = Dims {
    batch: 2,
    in_channels: 3,
    out_channels: 2,
    scalar_channels: 2,
};

impl Operator {
    /// The transformations that the operator is found to commute with: for custom operators ([`Self::of`]), and for operators of the table,
    /// of which [`Self::symmetry`] states it.
    ///
    /// The operator is called on the CPU in `f64` with random numbers from -1 to 1, two batch elements and three channels. Random versors
    /// act on its inputs, then on its outputs, and the results are compared. A transformation counts as one that the operator commutes with
    /// if the differences are at most 1e-8 of the largest number of the output, in four draws. Of the groups of [`Symmetry`] the
    /// largest that passes is the answer. The draws are fixed, so an operator has one answer. The cost is that of at most 24 such calls.
    ///
    /// Tensors whose components have the names of blades transform as multivectors, and so do tensors of gradients; parameters and other
    /// numbers stay the same. [`Symmetry::EvenVersors`] and [`Symmetry::Rotations`] say that even products of reflections pass and odd ones
    /// do not, whatever odd ones do. Where the identity is the only such product, they say that a reflection changes the sign of the
    /// result.
    ///
    /// A part of the result that is smaller than the tolerance beside the rest is not seen, nor is what happens for numbers that are not
    /// drawn, such as behind a [`select`](crate::program::Graph::select) that is rarely taken.
    ///
    /// ```
    /// use flashcliff::program::{Multivector, Program};
    /// use flashcliff::{Algebra, GradeSet, Operator, ProgramOptions, Signature, Symmetry};
    ///
    /// // The vector with its first component doubled: a direction of space is singled out.
    /// let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
    /// let mut p = Program::new("stretched", "o = x + <x, e1> e1");
    /// let mut x = Multivector::input(&mut p, &algebra, "x", GradeSet::single(1));
    /// x.components[0] = p.graph.add(x.components[0], x.components[0]);
    /// x.output(&mut p, &algebra);
    /// let stretched = Operator::of(algebra, &p, &ProgramOptions::default())?;
    /// assert_eq!(stretched.measured_symmetry()?, Symmetry::None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotMeasured`] if all vectors of the algebra are null, so that there is no versor; if the names of
    /// components name only some blades of a grade, or name them in another order; for results that are not finite; and
    /// for derivatives of operators with matrix products, which do not name their blades. [`Error::Environment`] for a
    /// [variable](crate::environment) that means nothing.
    pub fn measured_symmetry(&self) -> Result<Symmetry, Error> {
        let refused = |reason: String| not_measured(self, reason);
        if reflecting(&self.algebra()) == 0 {
            let signature = self.algebra().signature();
            return Err(refused(format!(
                "expected an algebra with a vector that is not null, got {signature}"
            )));
        }
        if let Kind::Zero(_) = self.kind() {
            return Ok(Symmetry::Versors);
        }
        let tensors = Tensors::of(self).map_err(refused)?;
        Trials {
            operator: self,
            tensors,
        }
        .symmetry()
    }
}

fn not_measured(operator: &Operator, reason: String) -> Error {
    Error::NotMeasured {
        operator: operator.name().to_owned(),
        reason,
    }
}

/// What a transformation of the inputs does to an output that commutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Image {
    Along,
    /// The transformed output, negated.
    Against,
}

/// An operator that is tried with transformations.
struct Trials<'a> {
    operator: &'a Operator,
    tensors: Tensors,
}

impl Trials<'_> {
    fn symmetry(&self) -> Result<Symmetry, Error> {
        let algebra = self.operator.algebra();
        let mirrored = self.passes(Vectors::OfOneSquare, 1, Image::Along)?;
        let turned = match reflecting(&algebra) {
            // Two reflections along the one vector are the identity.
            1 => self.passes(Vectors::OfOneSquare, 1, Image::Against)?,
            _ => self.passes(Vectors::OfOneSquare, 2, Image::Along)?,
        };
        let moved = match algebra.dim() {
            1 => mirrored || turned,
            _ => self.passes(Vectors::Any, 2, Image::Along)?,
        };
        Ok(match (moved, mirrored, turned) {
            // One odd versor and all even ones make up all versors.
            (true, true, _) => Symmetry::Versors,
            (true, false, _) => Symmetry::EvenVersors,
            (false, true, _) => Symmetry::Orthogonal,
            (false, false, true) => Symmetry::Rotations,
            (false, false, false) => Symmetry::None,
        })
    }

    /// Whether products of reflections pass, of so many or of two more.
    fn passes(&self, vectors: Vectors, count: usize, image: Image) -> Result<bool, Error> {
        for round in 0..ROUNDS {
            let mut draws = Draws::new(round);
            let inputs = self.inputs(&mut draws);
            let count = count + 2 * usize::from(round % 2 == 1);
            let versor = Versor::draw(&self.operator.algebra(), vectors, count, &mut draws);
            if !self.commutes(&inputs, &versor, image)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn commutes(&self, inputs: &[Vec<f64>], versor: &Versor, image: Image) -> Result<bool, Error> {
        let sign = if image == Image::Against { -1.0 } else { 1.0 };
        let plain = self.results(inputs)?;
        let wanted = self.moved(&self.tensors.outputs, versor, &plain);
        let found = self.results(&self.moved(&self.tensors.inputs, versor, inputs))?;
        let mut pairs = wanted.iter().zip(&found);
        Ok(pairs.all(|(wanted, found)| deviation(wanted, found, sign) <= ROUNDING))
    }

    fn shapes(&self) -> impl Iterator<Item = Vec<usize>> {
        let inputs = self.operator.inputs().iter();
        inputs.map(|input| input.shape(&SIZES))
    }

    fn inputs(&self, draws: &mut Draws) -> Vec<Vec<f64>> {
        self.shapes()
            .map(|shape| {
                let len: usize = shape.iter().product();
                (0..len).map(|_| draws.number()).collect()
            })
            .collect()
    }

    fn moved(&self, carried: &[Carried], versor: &Versor, tensors: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let algebra = self.operator.algebra();
        let moved = carried
            .iter()
            .zip(tensors)
            .map(|(carried, x)| match carried {
                Carried::Blades(blades) => versor.apply(&algebra, blades, x),
                Carried::Numbers => x.clone(),
            });
        moved.collect()
    }

    fn results(&self, inputs: &[Vec<f64>]) -> Result<Vec<Vec<f64>>, Error> {
        let mut tensors = Vec::with_capacity(inputs.len());
        for (values, shape) in inputs.iter().zip(self.shapes()) {
            tensors.push(Tensor::new(values, &shape)?);
        }
        let results = self.operator.results(&tensors)?;
        match results.iter().flatten().find(|value| !value.is_finite()) {
            None => Ok(results),
            Some(value) => Err(not_measured(
                self.operator,
                format!("expected finite results for numbers from -1 to 1, got {value}"),
            )),
        }
    }
}

/// The largest difference from so many times what is wanted, relative to the largest number; 0 if there is no difference.
fn deviation(wanted: &[f64], found: &[f64], sign: f64) -> f64 {
    let mut largest = 0.0_f64;
    let mut difference = 0.0_f64;
    for (wanted, found) in wanted.iter().zip(found) {
        largest = largest.max(wanted.abs()).max(found.abs());
        difference = difference.max((sign * wanted - found).abs());
    }
    if difference == 0.0 {
        0.0
    } else {
        difference / largest
    }
}
