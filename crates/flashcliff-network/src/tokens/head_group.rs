//! The norm of heads as a separate step, and its derivative, for gradients of gradients of attention.
//!
//! Each norm is `y = x φ(m)` of the numbers `x` of a group, with `m = Σ σ_i x_i² / n`, signs `σ` that are constant
//! almost everywhere, and a function `φ` of one number. So with `d = σ x / n` and a change `u` of `x`
//!
//! ```text
//! y' = φ u + 2 φ' (d·u) x
//! ```
//!
//! and from a gradient `g` of `y'`, with `e = σ u / n`, the gradients of `x` and of `u` are
//!
//! ```text
//! 2 φ' (g·u) d + 4 φ'' (g·x) (d·u) d + 2 φ' (d·u) g + 2 φ' (g·x) e
//! φ g + 2 φ' (g·x) d
//! ```
//!
//! Numbers that a norm takes the mean from are replaced by their distances from it, and so are the gradients.

use super::attention::passes::Side;
use super::attention::{Attention, Place};
use super::chunk::Layout;
use super::step::{Given, Gradients};
use super::{Channels, joint, norm, number};
use crate::scratch::Buffer;
use crate::{Error, Number};

/// The norm of the heads of queries, keys and values in an input of attention; or how it changes with its tokens. The
/// changes are channels after the channels of the tokens.
#[derive(Clone, Debug)]
pub struct HeadNorm {
    /// The attention whose input is normalised.
    pub(crate) attention: Attention,
    /// The input.
    pub(crate) side: usize,
    /// Whether this is the derivative.
    pub(crate) is_derivative: bool,
}

/// A norm of a group of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `1 / sqrt(max(m, eps))` of multivectors.
    Multivectors,
    /// `1 / sqrt(m + eps)` of scalars without their mean.
    Scalars,
    /// `1 / sqrt(m + eps)` of vectors and scalars.
    Both,
}

/// The values of `φ` and of its derivatives.
struct Slopes<T> {
    value: T,
    first: T,
    second: T,
}

impl Kind {
    /// `φ` at a mean.
    fn slopes<T: Number>(self, mean: T) -> Slopes<T> {
        let (base, moves) = match self {
            Self::Multivectors if mean > number(norm::EPS) => (mean, true),
            Self::Multivectors => (number(norm::EPS), false),
            Self::Scalars => (mean + number(norm::SCALAR_EPS), true),
            Self::Both => (mean + number(joint::EPS), true),
        };
        let value = number::<T>(1.0) / base.root();
        let slope = |factor: f64| match moves {
            true => number::<T>(factor),
            false => T::default(),
        };
        Slopes {
            first: slope(-0.5) * value / base,
            second: slope(0.75) * value / (base * base),
            value,
        }
    }
}

/// The elements of a group in memory of tokens.
pub(crate) struct Group {
    pub(crate) kind: Kind,
    /// The elements of channels with a norm, channel by channel and grade by grade: the numbers of blades of a grade,
    /// with the squared norm of each.
    pub(crate) blades: Vec<(usize, i8)>,
    /// For each element of blades whether the next one is of another grade or channel.
    pub(crate) ends: Vec<bool>,
    pub(crate) scalars: Vec<usize>,
    /// What the sum of squares is divided by.
    pub(crate) count: usize,
    /// The elements of blades and of scalars in the rows before.
    before: [usize; 2],
}

impl Group {
    fn elements(&self) -> impl Iterator<Item = usize> {
        let [before, scalars_before] = self.before;
        let blades = self.blades.iter().map(move |own| own.0 + before);
        blades.chain(self.scalars.iter().map(move |at| at + scalars_before))
    }

    /// The numbers of the group, without their mean if the norm takes it.
    fn take<T: Number>(&self, from: &[T]) -> Vec<T> {
        let mut own: Vec<T> = self.elements().map(|at| from[at]).collect();
        self.centre(&mut own);
        own
    }

    fn put<T: Number>(&self, mut own: Vec<T>, to: &mut [T]) {
        self.centre(&mut own);
        for (at, number) in self.elements().zip(own) {
            to[at] = number;
        }
    }

    fn centre<T: Number>(&self, own: &mut [T]) {
        if self.kind != Kind::Scalars {
            return;
        }
        let mut sum = T::default();
        own.iter().for_each(|&x| sum += x);
        let mean = sum / number(own.len().max(1) as f64);
        own.iter_mut().for_each(|x| *x = *x - mean);
    }

    /// `σ / n` of each number.
    fn weights<T: Number>(&self, x: &[T]) -> Vec<T> {
        let (zero, each) = (T::default(), number::<T>(1.0 / self.count.max(1) as f64));
        let mut weights = Vec::with_capacity(x.len());
        let (mut square, mut first) = (zero, 0);
        for (at, &(_, norm)) in self.blades.iter().enumerate() {
            let norm: T = number(f64::from(norm));
            square += norm * x[at] * x[at];
            if self.ends[at] {
                let sign = match square {
                    square if square > zero => each,
                    square if square < zero => zero - each,
                    _ => zero,
                };
                let norms = self.blades[first..=at].iter();
                weights.extend(norms.map(|&(_, norm)| sign * number(f64::from(norm))));
                (square, first) = (zero, at + 1);
            }
        }
        weights.resize(x.len(), each);
        weights
    }
}

/// A group at some numbers, along a change of them.
struct Along<T> {
    x: Vec<T>,
    u: Vec<T>,
    weights: Vec<T>,
    slopes: Slopes<T>,
    /// `d·u`.
    change: T,
}

impl<T: Number> Along<T> {
    fn new(group: &Group, [x, u]: [&[T]; 2]) -> Self {
        let (x, u) = (group.take(x), group.take(u));
        let weights = group.weights(&x);
        let form = |y: &[T]| {
            let mut sum = T::default();
            for ((&weight, &x), &y) in weights.iter().zip(&x).zip(y) {
                sum += weight * x * y;
            }
            sum
        };
        Self {
            slopes: group.kind.slopes(form(&x)),
            change: form(&u),
            x,
            u,
            weights,
        }
    }

    fn forward(&self) -> Vec<T> {
        let of_x = number::<T>(2.0) * self.slopes.first * self.change;
        let pairs = self.x.iter().zip(&self.u);
        pairs
            .map(|(&x, &u)| self.slopes.value * u + of_x * x)
            .collect()
    }

    /// The gradients of the numbers and of their change.
    fn backward(&self, g: &[T]) -> [Vec<T>; 2] {
        let dot = |y: &[T]| {
            let mut sum = T::default();
            g.iter().zip(y).for_each(|(&g, &y)| sum += g * y);
            sum
        };
        let (of_x, of_u) = (dot(&self.x), dot(&self.u));
        let Slopes {
            value,
            first,
            second,
        } = self.slopes;
        let twice = number::<T>(2.0) * first;
        let of_d = twice * of_u + number::<T>(4.0) * second * of_x * self.change;
        let each = self.x.iter().zip(&self.u).zip(&self.weights).zip(g);
        let gradients = each.map(|(((&x, &u), &weight), &g)| {
            let (d, e) = (weight * x, weight * u);
            let of_number = of_d * d + twice * (self.change * g + of_x * e);
            (of_number, value * g + twice * of_x * d)
        });
        let (x, u) = gradients.unzip();
        [x, u]
    }
}

impl HeadNorm {
    /// The norm of an input of attention.
    pub(crate) fn new(attention: Attention, side: usize) -> Self {
        Self {
            attention,
            side,
            is_derivative: false,
        }
    }

    /// How the norm changes; `None` for a derivative.
    pub(crate) fn derivative(&self) -> Option<Self> {
        (!self.is_derivative).then(|| Self {
            is_derivative: true,
            ..self.clone()
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.is_derivative {
            true => "head_norm_tangent",
            false => "head_norm",
        }
    }

    /// The channels of the result.
    pub(crate) fn channels(&self) -> Channels {
        self.attention.sides()[self.side]
    }

    pub(crate) fn input(&self) -> Channels {
        let own = self.channels();
        match self.is_derivative {
            true => own.and(own),
            false => own,
        }
    }

    fn seen<'a, T>(&self, given: &Given<'a, T>) -> Side<'a, T> {
        Side {
            index: self.side,
            samples: given.chunk.samples,
            channels: self.channels(),
            x: given.x,
        }
    }

    fn layout(&self, rows: usize) -> Layout {
        self.attention.layout(rows, self.input())
    }

    /// Calls a function with each group of all rows.
    fn for_each_group(&self, rows: usize, mut work: impl FnMut(&Group)) {
        let own = self.channels();
        for place in self.attention.places_of(self.side) {
            for head in 0..place.heads {
                for mut group in self.groups(&place, rows, head) {
                    for row in 0..rows {
                        group.before = [row * own.multivectors, row * own.scalars];
                        work(&group);
                    }
                }
            }
        }
    }

    /// The groups of a packed row.
    #[cfg(feature = "cuda")]
    pub(crate) fn groups_of_a_row(&self) -> Vec<Group> {
        let mut all = Vec::new();
        for place in self.attention.places_of(self.side) {
            for head in 0..place.heads {
                all.extend(self.groups(&place, 1, head));
            }
        }
        all
    }

    /// The groups of a head of the first row of so many.
    fn groups(&self, place: &Place, rows: usize, head: usize) -> Vec<Group> {
        let (own, head_sizes) = (self.channels(), &self.attention.head);
        let geometry = &self.attention.geometry;
        let (norms, grades) = (geometry.norms(), geometry.grades());
        let grades: Vec<_> = grades.collect();
        let (mut blades, mut ends) = (Vec::new(), Vec::new());
        for channel in 0..head_sizes.multivectors {
            let column = place.first.multivectors + channel * place.heads + head;
            for grade in &grades {
                for blade in grade.clone() {
                    let at = blade * rows * own.multivectors + column;
                    blades.push((at, norms[blade]));
                    ends.push(blade + 1 == grade.end);
                }
            }
        }
        let first = head_sizes.blades * rows * own.multivectors;
        let scalars = (0..head_sizes.scalars).map(|at| first + place.scalar(own, 0, head, at));
        let scalars: Vec<usize> = scalars.collect();
        let [of_channels, of_scalars] = [head_sizes.multivectors, head_sizes.scalars];
        let of_both = |kind, blades, ends, scalars, count| Group {
            kind,
            blades,
            ends,
            scalars,
            count,
            before: [0; 2],
        };
        match geometry.vectors {
            true => vec![of_both(
                Kind::Both,
                blades,
                ends,
                scalars,
                of_channels + of_scalars,
            )],
            false => vec![
                of_both(Kind::Multivectors, blades, ends, Vec::new(), of_channels),
                of_both(Kind::Scalars, Vec::new(), Vec::new(), scalars, of_scalars),
            ],
        }
    }

    pub(crate) fn forward<T: Number>(
        &self,
        given: &Given<'_, T>,
        y: &mut [T],
    ) -> Result<(), Error> {
        if !self.is_derivative {
            let normed = self.attention.normalised(&self.seen(given))?;
            y.copy_from_slice(&normed);
            return Ok(());
        }
        let rows = given.chunk.rows();
        let [x, u] = self.layout(rows).parted(given.x, self.channels());
        self.for_each_group(rows, |group| {
            let along = Along::new(group, [&x, &u]);
            group.put(along.forward(), y);
        });
        Ok(())
    }

    pub(crate) fn backward<T: Number>(
        &self,
        given: &Given<'_, T>,
        g: &[T],
        to: Gradients<'_, T>,
    ) -> Result<(), Error> {
        let Some(to) = to.x else { return Ok(()) };
        if !self.is_derivative {
            return self.attention.normalised_gradient(&self.seen(given), g, to);
        }
        let (rows, own) = (given.chunk.rows(), self.channels());
        let [x, u] = self.layout(rows).parted(given.x, own);
        let mut of = [x.len(), u.len()].map(Buffer::take);
        self.for_each_group(rows, |group| {
            let along = Along::new(group, [&x, &u]);
            for (of, to) in along.backward(&group.take(g)).into_iter().zip(&mut of) {
                group.put(of, to);
            }
        });
        self.layout(rows).join([&*of[0], &*of[1]], [own; 2], to);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tokens::step::Parameters;
    use crate::tokens::{Draw, Geometry, chunk};

    /// What a step makes of one row.
    pub(crate) fn of_a_row(step: HeadNorm, x: &[f64]) -> Vec<f64> {
        let samples = chunk::Samples::Equal {
            samples: 1,
            items: 1,
        };
        let chunk = chunk::Chunk {
            samples,
            first_row: 0,
            context: samples,
            first_context_row: 0,
            first_sample: 0,
            draw: None::<Draw>,
        };
        let given = Given {
            chunk,
            x,
            other: &[],
            mask: (&[], [1; 4]),
            parameters: Parameters::Joined(&[]),
        };
        let blades = step.attention.head.blades;
        let mut y = vec![f64::NAN; step.channels().width_over(blades)];
        step.forward(&given, &mut y).unwrap();
        y
    }

    /// The derivative along a change is the difference of norms.
    #[test]
    fn norms_change_by_their_derivatives() {
        let attention = Attention::new(Geometry::lgatr_2().unwrap(), 2, Channels::new(2, 3), false);
        let norm = HeadNorm::new(attention, 0);
        let (own, blades) = (norm.channels(), norm.attention.head.blades);
        let number = |at: usize, by: usize| ((at * by) % 101) as f64 / 31.0 - 1.4;
        let [x, u]: [Vec<f64>; 2] = [37, 53].map(|by| {
            (0..own.width_over(blades))
                .map(|at| number(at, by))
                .collect()
        });
        let layout = norm.attention.layout(1, own.and(own));
        let mut both = vec![0.0; 2 * x.len()];
        layout.join([&x[..], &u[..]], [own; 2], &mut both);
        let found = of_a_row(norm.derivative().unwrap(), &both);
        let moved = |step: f64| -> Vec<f64> {
            let moved: Vec<f64> = x.iter().zip(&u).map(|(x, u)| x + step * u).collect();
            of_a_row(norm.clone(), &moved)
        };
        let (after, before) = (moved(1e-6), moved(-1e-6));
        for (at, found) in found.iter().enumerate() {
            let difference = (after[at] - before[at]) / 2e-6;
            assert!((found - difference).abs() < 1e-8, "{found}, {difference}");
        }
    }
}
