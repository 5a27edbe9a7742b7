//! Features of distances as a separate step in front of attention, and their derivative, for gradients of gradients.
//!
//! Attention sees distances of points by features that are no blades. Here they take the place of blades that no
//! inner product reads, so that what follows is attention without distances. Derivatives of any order and their
//! gradients are the features of [jets](super::jet), and the gradients of these.

use super::Channels;
use super::attention::Attention;
use super::chunk::Layout;
use super::features::{EPS, Part, Points};
use super::jet::{Jet, along_one_more, with_components};
use super::step::{Given, Gradients, ParametersMut};
use crate::Number;
use crate::scratch::Buffer;

/// The features of distances of queries and keys in an input of attention, or their derivative along directions. Tokens
/// and logarithms of weights are jets then: the channels and the logarithms of each component after those before.
#[derive(Clone, Debug)]
pub struct Distances {
    pub(crate) attention: Attention,
    /// The input.
    pub(crate) side: usize,
    /// The components of tokens: one of the step itself, `2^n` of its derivative along `n` directions.
    pub(crate) components: usize,
}

/// What a multivector channel is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The channel among the channels of the input.
    pub(crate) column: usize,
    /// For channels of queries and keys, whether they are of queries, and the number of the weight.
    pub(crate) point: Option<(bool, usize)>,
}

/// The most blades of a point, and the most features of one.
const MOST: usize = 9;

/// A point with its weight among queries, or among keys: see [`flashcliff::attention::DistancePoint`], whose numbers these are.
struct Point<T, const N: usize> {
    plain: [Jet<T, N>; MOST],
    weighed: [Jet<T, N>; MOST],
    factor: Jet<T, N>,
    coordinates: usize,
    of_query: Option<Jet<T, N>>,
}

impl<T: Number, const N: usize> Point<T, N> {
    fn new(plain: [Jet<T, N>; MOST], coordinates: usize, of_query: Option<Jet<T, N>>) -> Self {
        let w = plain[coordinates];
        let factor = w * (w * w + Jet::constant(EPS)).inverse();
        Self {
            weighed: plain.map(|own| own * factor),
            plain,
            factor,
            coordinates,
            of_query,
        }
    }

    /// What products of coordinates and the weight are times, and the numbers in front of the squares of the coordinates and of the weight.
    fn factors(&self) -> [Jet<T, N>; 3] {
        let one = Jet::constant(1.0);
        match self.of_query {
            Some(weight) => [weight + weight, -weight, -weight],
            None => [one, one, one],
        }
    }

    /// The places of the squares of the coordinates and of the weight among the features.
    fn places(&self) -> [usize; 2] {
        let first = self.coordinates;
        match self.of_query {
            Some(_) => [first + 1, first],
            None => [first, first + 1],
        }
    }

    fn features(&self) -> [Jet<T, N>; MOST] {
        let mut features = [Jet::default(); MOST];
        let ([of_product, of_square, of_weight], [square, weight]) =
            (self.factors(), self.places());
        let w = self.weighed[self.coordinates];
        for (feature, &p) in features.iter_mut().zip(&self.weighed[..self.coordinates]) {
            *feature = of_product * p * w;
        }
        let squares = self.weighed[..self.coordinates].iter().map(|&p| p * p);
        let sum = squares.fold(Jet::default(), |sum, own| sum + own);
        features[square] = of_square * sum;
        features[weight] = of_weight * w * w;
        features
    }

    /// The gradients of the blades of the point, and of the logarithm of its weight, from the gradients of the
    /// features.
    fn gradient(&self, g: &[Jet<T, N>; MOST]) -> ([Jet<T, N>; MOST], Jet<T, N>) {
        let ([of_product, of_square, of_weight], [square, weight]) =
            (self.factors(), self.places());
        let two = Jet::constant(2.0);
        let w = self.weighed[self.coordinates];
        let mut of_w = two * of_weight * g[weight] * w;
        let (mut to, mut of_factor) = ([Jet::default(); MOST], Jet::default());
        for at in 0..self.coordinates {
            let (p, of) = (self.weighed[at], of_product * g[at]);
            let of_p = of * w + two * of_square * g[square] * p;
            of_w += of * p;
            of_factor += of_p * self.plain[at];
            to[at] = of_p * self.factor;
        }
        let plain = self.plain[self.coordinates];
        of_factor += of_w * plain;
        let below = (plain * plain + Jet::constant(EPS)).inverse();
        let slope = (Jet::constant(EPS) - plain * plain) * below * below;
        to[self.coordinates] = of_w * self.factor + of_factor * slope;
        let pairs = self.features().into_iter().zip(g);
        let of_logarithm = pairs.map(|(feature, &g)| feature * g);
        (to, of_logarithm.fold(Jet::default(), |sum, own| sum + own))
    }
}

impl Distances {
    /// The features of an input of attention with distances.
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
            1 => "distances",
            _ => "distances_tangent",
        }
    }

    /// Attention that reads the features where they are.
    pub(crate) fn plain(attention: &Attention) -> Attention {
        let slots = slots(attention).into_iter().map(|blade| (blade, 1.0));
        let mut plain = attention.clone();
        plain.geometry.distances = false;
        plain.head.points = None;
        plain.head.inner.extend(slots);
        plain.head.inner.sort_by_key(|own| own.0);
        plain
    }

    /// The channels of the result.
    pub(crate) fn channels(&self) -> Channels {
        self.attention.sides()[self.side]
    }

    pub(crate) fn input(&self) -> Channels {
        self.channels().times(self.components)
    }

    /// The logarithms of weights that the step reads. Keys have none.
    pub(crate) fn len(&self) -> usize {
        match self.side {
            0 => self.attention.heads * self.attention.head.multivectors,
            _ => 0,
        }
    }

    pub(crate) fn parameter_len(&self) -> usize {
        self.components * self.len()
    }

    /// The multivector channels of the input.
    pub(crate) fn units(&self) -> Vec<Unit> {
        let channels = self.attention.head.multivectors;
        let mut units = Vec::new();
        for place in self.attention.places_of(self.side) {
            for channel in 0..channels {
                for head in 0..place.heads {
                    let is_query = place.part == Part::Query;
                    let is_point = place.part != Part::Value;
                    units.push(Unit {
                        column: place.first.multivectors + channel * place.heads + head,
                        point: is_point.then_some((is_query, head * channels + channel)),
                    });
                }
            }
        }
        units
    }

    /// The blades in whose place features are.
    pub(crate) fn slots(&self) -> Vec<usize> {
        slots(&self.attention)
    }

    /// The blades of a point.
    pub(crate) fn points(&self) -> Points {
        self.attention.head.points.unwrap_or(Points {
            first: 0,
            coordinates: 0,
        })
    }

    fn layout(&self, rows: usize, channels: Channels) -> Layout {
        self.attention.layout(rows, channels)
    }

    /// Calls a function with the elements of the blades of each channel of a point, the number of its weight if it is
    /// of a query, and the point.
    fn for_each_point<T: Number, const N: usize>(
        &self,
        rows: usize,
        (tokens, logarithms): (&[Buffer<T>], &[T]),
        mut work: impl FnMut(&dyn Fn(usize) -> usize, Option<usize>, &Point<T, N>),
    ) {
        let width = self.channels().multivectors;
        let points = self.points();
        let jet = |of: &dyn Fn(usize) -> T| Jet::<T, N>(std::array::from_fn(of));
        for unit in self.units() {
            let Some((is_query, weight)) = unit.point else {
                continue;
            };
            for row in 0..rows {
                let place = |blade: usize| (blade * rows + row) * width + unit.column;
                let blade = |at: usize| match at <= points.coordinates {
                    true => jet(&|component| tokens[component][place(points.first + at)]),
                    false => Jet::default(),
                };
                let of_query = is_query.then(|| {
                    jet(&|component| logarithms[component * self.len() + weight]).exponential()
                });
                let point = Point::new(std::array::from_fn(blade), points.coordinates, of_query);
                work(&place, is_query.then_some(weight), &point);
            }
        }
    }

    /// The components of tokens.
    fn tokens<T: Number>(&self, given: &Given<'_, T>) -> Vec<Buffer<T>> {
        let layout = self.layout(given.chunk.rows(), self.input());
        layout.runs_of_channels(given.x, self.components)
    }

    pub(crate) fn forward<T: Number>(&self, given: &Given<'_, T>, y: &mut [T]) {
        let (tokens, slots) = (self.tokens(given), self.slots());
        let read = (&tokens[..], given.parameters.joined());
        y.copy_from_slice(&tokens[self.components - 1]);
        with_components!(self.components, N => {
            self.for_each_point::<T, N>(given.chunk.rows(), read, |place, _, point| {
                for (&slot, feature) in slots.iter().zip(point.features()) {
                    y[place(slot)] = feature.0[Jet::<T, N>::LAST];
                }
            });
        });
    }

    pub(crate) fn backward<T: Number>(&self, given: &Given<'_, T>, g: &[T], to: Gradients<'_, T>) {
        let (rows, tokens) = (given.chunk.rows(), self.tokens(given));
        let (slots, points) = (self.slots(), self.points());
        let (last, len) = (self.components - 1, self.len());
        // Blades without features are the last component of tokens.
        let mut of: Vec<Buffer<T>> = tokens.iter().map(|own| Buffer::take(own.len())).collect();
        of[..last].iter_mut().for_each(|of| of.fill(T::default()));
        of[last].copy_from_slice(g);
        let mut none: [T; 0] = [];
        let of_logarithms = to.parameters.map_or(&mut none[..], ParametersMut::joined);
        of_logarithms.fill(T::default());
        let read = (&tokens[..], given.parameters.joined());
        with_components!(self.components, N => {
            self.for_each_point::<T, N>(rows, read, |place, weight, point| {
                let mut given = [Jet::default(); MOST];
                for (&slot, given) in slots.iter().zip(&mut given) {
                    *given = Jet::of(std::mem::take(&mut of[last][place(slot)]));
                }
                let (found, of_logarithm) = point.gradient(&given);
                for (at, found) in found[..=points.coordinates].iter().enumerate() {
                    for (of, &component) in of.iter_mut().zip(found.0.iter().rev()) {
                        of[place(points.first + at)] += component;
                    }
                }
                let Some(weight) = weight.filter(|_| !of_logarithms.is_empty()) else {
                    return;
                };
                for (set, &component) in of_logarithm.0.iter().rev().enumerate() {
                    of_logarithms[set * len + weight] += component;
                }
            });
        });
        if let Some(to) = to.x {
            self.layout(rows, self.input()).join_runs(&of, to);
        }
    }
}

/// As many blades as a point has features, none of which the inner product reads.
fn slots(attention: &Attention) -> Vec<usize> {
    let head = &attention.head;
    let is_read = |blade: usize| head.inner.iter().any(|own| own.0 == blade);
    let count = head.points.map_or(0, Points::features);
    let free = (0..head.blades).filter(|&blade| !is_read(blade));
    free.take(count).collect()
}
