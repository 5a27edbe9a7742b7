//! The norm of heads as a separate step, and its derivative, for gradients of gradients of attention.
//!
//! Each norm is `y = x φ(m)` of the numbers `x` of a group, with `m = Σ σ_i x_i² / n`, signs `σ` that are constant
//! almost everywhere, and `φ(m) = 1 / sqrt(m + eps)` or `1 / sqrt(max(m, eps))`. With `d = σ x / n` the gradient of `x` from
//! a gradient `g` of `y` is
//!
//! ```text
//! φ g + 2 φ' (g·x) d
//! ```
//!
//! Derivatives of any order and their gradients are these formulas for [jets](super::jet). Numbers that a norm takes the
//! mean from are replaced by their distances from it, and so are the gradients.

use super::attention::passes::Side;
use super::attention::{Attention, Place};
use super::chunk::Layout;
use super::jet::{Jet, along_one_more, with_components};
use super::step::{Given, Gradients};
use super::{Channels, joint, norm, number};
use crate::scratch::Buffer;
use crate::{Error, Number};

/// The norm of the heads of queries, keys and values in an input of attention, or its derivative along directions. Tokens
/// are jets then: the channels of each component after the channels of the component before.
#[derive(Clone, Debug)]
pub struct HeadNorm {
    /// The attention whose input is normalised.
    pub(crate) attention: Attention,
    /// The input.
    pub(crate) side: usize,
    /// The components of tokens: one of the step itself, `2^n` of its derivative along `n` directions.
    pub(crate) components: usize,
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

impl Kind {
    /// `φ` and `φ'` at a mean.
    fn slopes<T: Number, const N: usize>(self, mean: Jet<T, N>) -> [Jet<T, N>; 2] {
        let (base, moves) = match self {
            Self::Multivectors if mean.0[0] > number(norm::EPS) => (mean, true),
            Self::Multivectors => (Jet::constant(norm::EPS), false),
            Self::Scalars => (mean + Jet::constant(norm::SCALAR_EPS), true),
            Self::Both => (mean + Jet::constant(joint::EPS), true),
        };
        let value = number::<T>(1.0) / base.0[0].root();
        let slope = match moves {
            true => Jet::constant(-0.5) * base.power(-1.5, value / base.0[0]),
            false => Jet::default(),
        };
        [base.power(-0.5, value), slope]
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
    fn take<T: Number, const N: usize>(&self, from: &[Buffer<T>]) -> Vec<Jet<T, N>> {
        let number = |at: usize| Jet(std::array::from_fn(|component| from[component][at]));
        let mut own: Vec<_> = self.elements().map(number).collect();
        self.centre(&mut own);
        own
    }

    fn centre<T: Number, const N: usize>(&self, own: &mut [Jet<T, N>]) {
        if self.kind != Kind::Scalars {
            return;
        }
        let mut sum = Jet::default();
        own.iter().for_each(|&x| sum += x);
        let mean = Jet(sum.0.map(|sum| sum / number(own.len().max(1) as f64)));
        own.iter_mut().for_each(|x| *x = *x - mean);
    }

    /// `σ / n` of each number.
    fn weights<T: Number, const N: usize>(&self, x: &[Jet<T, N>]) -> Vec<T> {
        let (zero, each) = (T::default(), number::<T>(1.0 / self.count.max(1) as f64));
        let mut weights = Vec::with_capacity(x.len());
        let (mut square, mut first) = (zero, 0);
        for (at, &(_, norm)) in self.blades.iter().enumerate() {
            let norm: T = number(f64::from(norm));
            square += norm * x[at].0[0] * x[at].0[0];
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

/// A group at some numbers.
struct Normed<T, const N: usize> {
    x: Vec<Jet<T, N>>,
    /// `d`.
    weighed: Vec<Jet<T, N>>,
    /// `φ` and `φ'`.
    slopes: [Jet<T, N>; 2],
}

impl<T: Number, const N: usize> Normed<T, N> {
    fn new(group: &Group, x: &[Buffer<T>]) -> Self {
        let x = group.take(x);
        let weights = group.weights(&x);
        let pairs = x.iter().zip(weights);
        let weighed: Vec<_> = pairs.map(|(&x, weight)| Jet::of(weight) * x).collect();
        let mut mean = Jet::default();
        x.iter().zip(&weighed).for_each(|(&x, &d)| mean += d * x);
        Self {
            slopes: group.kind.slopes(mean),
            weighed,
            x,
        }
    }

    fn forward(&self) -> impl Iterator<Item = T> {
        let factor = self.slopes[0];
        self.x
            .iter()
            .map(move |&x| (factor * x).0[Jet::<T, N>::LAST])
    }

    fn backward(&self, g: &[Jet<T, N>]) -> Vec<Jet<T, N>> {
        let mut of_factor = Jet::default();
        g.iter()
            .zip(&self.x)
            .for_each(|(&g, &x)| of_factor += g * x);
        let [value, slope] = self.slopes;
        let of_weighed = slope * (of_factor + of_factor);
        let pairs = self.weighed.iter().zip(g);
        pairs.map(|(&d, &g)| value * g + of_weighed * d).collect()
    }
}

impl HeadNorm {
    /// The norm of an input of attention.
    pub(crate) fn new(attention: Attention, side: usize) -> Self {
        Self {
            attention,
            side,
            components: 1,
        }
    }

    /// The derivative along one more direction; `None` if there are as many as a step has.
    pub(crate) fn derivative(&self) -> Option<Self> {
        along_one_more(self.components).map(|components| Self {
            components,
            ..self.clone()
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.components {
            1 => "head_norm",
            _ => "head_norm_tangent",
        }
    }

    /// The channels of the result.
    pub(crate) fn channels(&self) -> Channels {
        self.attention.sides()[self.side]
    }

    pub(crate) fn input(&self) -> Channels {
        self.channels().times(self.components)
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
        if self.components == 1 {
            let normed = self.attention.normalised(&self.seen(given))?;
            y.copy_from_slice(&normed);
            return Ok(());
        }
        let rows = given.chunk.rows();
        let x = self.layout(rows).runs_of_channels(given.x, self.components);
        with_components!(self.components, N => self.for_each_group(rows, |group| {
            let normed = Normed::<T, N>::new(group, &x);
            for (at, own) in group.elements().zip(normed.forward()) {
                y[at] = own;
            }
        }));
        Ok(())
    }

    pub(crate) fn backward<T: Number>(
        &self,
        given: &Given<'_, T>,
        g: &[T],
        to: Gradients<'_, T>,
    ) -> Result<(), Error> {
        let Some(to) = to.x else { return Ok(()) };
        if self.components == 1 {
            return self.attention.normalised_gradient(&self.seen(given), g, to);
        }
        let (rows, layout) = (given.chunk.rows(), self.layout(given.chunk.rows()));
        let x = layout.runs_of_channels(given.x, self.components);
        let mut of: Vec<_> = x.iter().map(|x| Buffer::take(x.len())).collect();
        with_components!(self.components, N => self.for_each_group(rows, |group| {
            let mut g: Vec<_> = group.elements().map(|at| Jet::of(g[at])).collect();
            group.centre(&mut g);
            let found = Normed::<T, N>::new(group, &x).backward(&g);
            for (at, found) in group.elements().zip(found) {
                for (of, component) in of.iter_mut().zip(found.0.into_iter().rev()) {
                    of[at] = component;
                }
            }
        }));
        layout.join_runs(&of, to);
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
