//! The features of queries, keys and values of heads.
//!
//! | part | features, in order |
//! |---|---|
//! | query | for each channel the blades that have a norm, with the sign of the norm; with distances, for each channel those of its point; the scalars |
//! | key | the same without signs |
//! | value | for each channel all blades; the scalars |
//!
//! With distances the weight of a point belongs to its distance and is not among the blades. The dot product of a query and a key is the inner product
//! of their multivectors and scalars, less the squared distances of points.

use flashcliff::attention::DistancePoint;

use super::{Channels, Geometry, number};
use crate::Number;

/// Regularises the distance of points without weight.
pub(crate) const EPS: f64 = 1e-3;

/// Whether features are those of a query, a key or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Query,
    Key,
    Value,
}

/// The blades of a point of Cl(n,0,1): the coordinates, then its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Points {
    pub(crate) first: usize,
    pub(crate) coordinates: usize,
}

impl Points {
    /// The number of features of a point.
    pub(crate) fn features(self) -> usize {
        DistancePoint::<f64>::count(self.coordinates)
    }

    /// A point of a channel.
    fn of<T: Number>(self, blade: impl Fn(usize) -> T) -> DistancePoint<T> {
        DistancePoint::new(self.coordinates, EPS, |axis| [blade(self.first + axis)])
    }
}

/// A head: its sizes, and what its queries and keys are compared by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) multivectors: usize,
    pub(crate) scalars: usize,
    pub(crate) blades: usize,
    /// The blades of the inner product, and their signs.
    pub(crate) inner: Vec<(usize, f64)>,
    /// The blades of points, if attention sees their distances.
    pub(crate) points: Option<Points>,
}

impl Head {
    pub(crate) fn new(geometry: &Geometry, channels: Channels) -> Self {
        let dim = geometry.algebra.cayley().dim();
        let points = geometry.distances.then(|| Points {
            first: geometry.reference_blade() + 1 - dim,
            coordinates: dim - 1,
        });
        // The weight of a point belongs to its distance.
        let weight = points.map(|_| geometry.reference_blade());
        let norms = geometry.norms().into_iter().enumerate();
        let inner = norms.filter(|&(blade, norm)| norm != 0 && Some(blade) != weight);
        Self {
            multivectors: channels.multivectors,
            scalars: channels.scalars,
            blades: geometry.blades(),
            inner: inner
                .map(|(blade, norm)| (blade, f64::from(norm)))
                .collect(),
            points,
        }
    }

    pub(crate) fn channels(&self) -> Channels {
        Channels::new(self.multivectors, self.scalars)
    }

    /// The number of features of a part.
    pub(crate) fn features(&self, part: Part) -> usize {
        let of_channel = match part {
            Part::Value => self.blades,
            _ => self.inner.len() + self.points.map_or(0, Points::features),
        };
        of_channel * self.multivectors + self.scalars
    }

    /// Writes the features of a part. `x(channel, blade)` and `s(channel)` read the head; `log_weights` are those of the head's distances.
    pub(crate) fn write<T: Number>(
        &self,
        part: Part,
        x: impl Fn(usize, usize) -> T,
        s: impl Fn(usize) -> T,
        log_weights: &[T],
        features: &mut [T],
    ) {
        let mv = self.multivectors;
        let first_scalar = features.len() - self.scalars;
        let (features, scalars) = features.split_at_mut(first_scalar);
        for (channel, to) in scalars.iter_mut().enumerate() {
            *to = s(channel);
        }
        if part == Part::Value {
            for (channel, to) in features.chunks_exact_mut(self.blades).enumerate() {
                for (blade, to) in to.iter_mut().enumerate() {
                    *to = x(channel, blade);
                }
            }
            return;
        }
        let count = self.inner.len();
        let (inner, distances) = features.split_at_mut(count * mv);
        for (channel, inner) in inner.chunks_exact_mut(count).enumerate() {
            for (to, &(blade, sign)) in inner.iter_mut().zip(&self.inner) {
                *to = signed(part, sign, x(channel, blade));
            }
        }
        let Some(points) = self.points else {
            return;
        };
        let distances = distances.chunks_exact_mut(points.features());
        for (channel, distance) in distances.enumerate() {
            let point = points.of(|blade| x(channel, blade));
            let of_query = (part == Part::Query).then(|| [exponential(log_weights[channel])]);
            point.features(of_query, |at, [value]| distance[at] = value);
        }
    }

    /// Adds the gradient of a part's features to that of the head: `add_x(channel, blade, value)` and `add_s(channel, value)`. `of_weights` gets
    /// the gradient of the logarithms of a query's weights added.
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of `write`, and their gradients"
    )]
    pub(crate) fn read_gradient<T: Number>(
        &self,
        part: Part,
        x: impl Fn(usize, usize) -> T,
        log_weights: &[T],
        gradient: &[T],
        mut add_x: impl FnMut(usize, usize, T),
        mut add_s: impl FnMut(usize, T),
        of_weights: &mut [T],
    ) {
        let mv = self.multivectors;
        let (gradient, scalars) = gradient.split_at(gradient.len() - self.scalars);
        for (channel, &g) in scalars.iter().enumerate() {
            add_s(channel, g);
        }
        if part == Part::Value {
            for (channel, g) in gradient.chunks_exact(self.blades).enumerate() {
                for (blade, &g) in g.iter().enumerate() {
                    add_x(channel, blade, g);
                }
            }
            return;
        }
        let count = self.inner.len();
        let (inner, distances) = gradient.split_at(count * mv);
        for (channel, inner) in inner.chunks_exact(count).enumerate() {
            for (&g, &(blade, sign)) in inner.iter().zip(&self.inner) {
                add_x(channel, blade, signed(part, sign, g));
            }
        }
        let Some(points) = self.points else {
            return;
        };
        for (channel, g) in distances.chunks_exact(points.features()).enumerate() {
            let point = points.of(|blade| x(channel, blade));
            let of_query = (part == Part::Query).then(|| [exponential(log_weights[channel])]);
            if let (Some(weight), Some(to)) = (of_query, of_weights.get_mut(channel)) {
                point.features(Some(weight), |at, [feature]| *to += feature * g[at]);
            }
            point.gradient(
                of_query,
                |at| [g[at]],
                |axis, [g]| add_x(channel, points.first + axis, g),
            );
        }
    }
}

/// A blade of a query has the sign of its norm.
fn signed<T: Number>(part: Part, sign: f64, value: T) -> T {
    match part == Part::Query && sign < 0.0 {
        true => T::default() - value,
        false => value,
    }
}

fn exponential<T: Number>(value: T) -> T {
    number(flashcliff::Element::to_f64(value).exp())
}
