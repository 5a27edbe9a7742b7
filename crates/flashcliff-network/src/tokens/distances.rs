//! Features of distances as a separate step in front of attention, and their derivative, for gradients of gradients.
//!
//! Attention sees distances of points by features that are no blades. Here they take the place of blades that no
//! inner product reads, so that what follows is attention without distances. The derivative is computed in numbers
//! with a change beside them: the change of what the gradient makes of such numbers is the second derivative.

use std::ops::{Add, Mul, Neg, Sub};

use super::attention::Attention;
use super::chunk::Layout;
use super::features::{EPS, Part, Points};
use super::step::{Given, Gradients, ParametersMut};
use super::{Channels, number};
use crate::Number;
use crate::scratch::Buffer;

/// The features of distances of queries and keys in an input of attention; or how they change with its tokens and
/// with the logarithms of weights. The changes are channels after the channels of the tokens, and numbers after the
/// logarithms.
#[derive(Clone, Debug)]
pub struct Distances {
    pub(crate) attention: Attention,
    /// The input.
    pub(crate) side: usize,
    /// Whether this is the derivative.
    pub(crate) is_derivative: bool,
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

/// A number and its change.
#[derive(Clone, Copy, Default)]
struct Dual<T> {
    value: T,
    change: T,
}

impl<T: Number> Dual<T> {
    fn of(value: f64) -> Self {
        Self {
            value: number(value),
            change: T::default(),
        }
    }

    fn inverse(self) -> Self {
        let value = number::<T>(1.0) / self.value;
        Self {
            value,
            change: T::default() - self.change * value * value,
        }
    }
}

impl<T: Number> Add for Dual<T> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            value: self.value + other.value,
            change: self.change + other.change,
        }
    }
}

impl<T: Number> Sub for Dual<T> {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl<T: Number> Neg for Dual<T> {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            value: T::default() - self.value,
            change: T::default() - self.change,
        }
    }
}

impl<T: Number> Mul for Dual<T> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self {
            value: self.value * other.value,
            change: self.value * other.change + self.change * other.value,
        }
    }
}

/// A point with its weight among queries, or among keys: see [`flashcliff::attention::DistancePoint`], whose numbers these are.
struct Point<T> {
    plain: [Dual<T>; MOST],
    weighed: [Dual<T>; MOST],
    factor: Dual<T>,
    coordinates: usize,
    of_query: Option<Dual<T>>,
}

impl<T: Number> Point<T> {
    fn new(plain: [Dual<T>; MOST], coordinates: usize, of_query: Option<Dual<T>>) -> Self {
        let w = plain[coordinates];
        let factor = w * (w * w + Dual::of(EPS)).inverse();
        Self {
            weighed: plain.map(|own| own * factor),
            plain,
            factor,
            coordinates,
            of_query,
        }
    }

    /// What products of coordinates and the weight are times, and the numbers in front of the squares of the coordinates and of the weight.
    fn factors(&self) -> [Dual<T>; 3] {
        let one = Dual::of(1.0);
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

    fn features(&self) -> [Dual<T>; MOST] {
        let mut features = [Dual::default(); MOST];
        let ([of_product, of_square, of_weight], [square, weight]) =
            (self.factors(), self.places());
        let w = self.weighed[self.coordinates];
        for (feature, &p) in features.iter_mut().zip(&self.weighed[..self.coordinates]) {
            *feature = of_product * p * w;
        }
        let squares = self.weighed[..self.coordinates].iter().map(|&p| p * p);
        let sum = squares.fold(Dual::default(), Dual::add);
        features[square] = of_square * sum;
        features[weight] = of_weight * w * w;
        features
    }

    /// The gradients of the blades of the point, and of the logarithm of its weight, from the gradients of the
    /// features.
    fn gradient(&self, g: &[Dual<T>; MOST]) -> ([Dual<T>; MOST], Dual<T>) {
        let ([of_product, of_square, of_weight], [square, weight]) =
            (self.factors(), self.places());
        let two = Dual::of(2.0);
        let w = self.weighed[self.coordinates];
        let mut of_w = two * of_weight * g[weight] * w;
        let (mut to, mut of_factor) = ([Dual::default(); MOST], Dual::default());
        for at in 0..self.coordinates {
            let (p, of) = (self.weighed[at], of_product * g[at]);
            let of_p = of * w + two * of_square * g[square] * p;
            of_w = of_w + of * p;
            of_factor = of_factor + of_p * self.plain[at];
            to[at] = of_p * self.factor;
        }
        let plain = self.plain[self.coordinates];
        of_factor = of_factor + of_w * plain;
        let below = (plain * plain + Dual::of(EPS)).inverse();
        let slope = (Dual::of(EPS) - plain * plain) * below * below;
        to[self.coordinates] = of_w * self.factor + of_factor * slope;
        let pairs = self.features().into_iter().zip(g);
        let of_logarithm = pairs.map(|(feature, &g)| feature * g);
        (to, of_logarithm.fold(Dual::default(), Dual::add))
    }
}

/// Tokens and their changes, in separate layouts, and the logarithms of weights and their changes.
struct Both<'a, T: Number> {
    tokens: [Buffer<T>; 2],
    logarithms: [&'a [T]; 2],
}

impl Distances {
    /// The features of an input of attention with distances.
    pub(crate) fn new(attention: Attention, side: usize) -> Self {
        Self {
            attention,
            side,
            is_derivative: false,
        }
    }

    /// How the features change; `None` for a derivative.
    pub(crate) fn derivative(&self) -> Option<Self> {
        (!self.is_derivative).then(|| Self {
            is_derivative: true,
            ..self.clone()
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.is_derivative {
            true => "distances_tangent",
            false => "distances",
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

    /// How many times the channels and the logarithms are there.
    pub(crate) fn times(&self) -> usize {
        if self.is_derivative { 2 } else { 1 }
    }

    pub(crate) fn input(&self) -> Channels {
        self.channels().times(self.times())
    }

    /// The logarithms of weights that the step reads. Keys have none.
    pub(crate) fn len(&self) -> usize {
        match self.side {
            0 => self.attention.heads * self.attention.head.multivectors,
            _ => 0,
        }
    }

    pub(crate) fn parameter_len(&self) -> usize {
        self.times() * self.len()
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

    fn both<'a, T: Number>(&self, given: &Given<'a, T>) -> Both<'a, T> {
        let layout = self.layout(given.chunk.rows(), self.input());
        let mut tokens = layout.parted(given.x, self.channels());
        if !self.is_derivative {
            tokens[1] = Buffer::take(tokens[0].len());
            tokens[1].fill(T::default());
        }
        let (own, changes) = given.parameters.joined().split_at(self.len());
        Both {
            tokens,
            logarithms: [own, changes],
        }
    }

    /// Calls a function with the elements of the blades of each channel of a point, the number of its weight if it is
    /// of a query, and the point.
    fn for_each_point<T: Number>(
        &self,
        rows: usize,
        both: &Both<'_, T>,
        mut work: impl FnMut(&dyn Fn(usize) -> usize, Option<usize>, &Point<T>),
    ) {
        let width = self.channels().multivectors;
        let points = self.points();
        let [x, u] = &both.tokens;
        for unit in self.units() {
            let Some((is_query, weight)) = unit.point else {
                continue;
            };
            for row in 0..rows {
                let place = |blade: usize| (blade * rows + row) * width + unit.column;
                let blade = |at: usize| match at <= points.coordinates {
                    true => Dual {
                        value: x[place(points.first + at)],
                        change: u[place(points.first + at)],
                    },
                    false => Dual::default(),
                };
                let of_query = is_query.then(|| {
                    let [own, changes] = both.logarithms;
                    let value = own[weight].exponential();
                    let change = changes.get(weight).copied().unwrap_or_default();
                    Dual {
                        value,
                        change: value * change,
                    }
                });
                let point = Point::new(std::array::from_fn(blade), points.coordinates, of_query);
                work(&place, is_query.then_some(weight), &point);
            }
        }
    }

    pub(crate) fn forward<T: Number>(&self, given: &Given<'_, T>, y: &mut [T]) {
        let (both, slots) = (self.both(given), self.slots());
        y.copy_from_slice(&both.tokens[usize::from(self.is_derivative)]);
        self.for_each_point(given.chunk.rows(), &both, |place, _, point| {
            for (&slot, feature) in slots.iter().zip(point.features()) {
                y[place(slot)] = match self.is_derivative {
                    true => feature.change,
                    false => feature.value,
                };
            }
        });
    }

    pub(crate) fn backward<T: Number>(&self, given: &Given<'_, T>, g: &[T], to: Gradients<'_, T>) {
        let (rows, both) = (given.chunk.rows(), self.both(given));
        let (slots, points) = (self.slots(), self.points());
        // The gradient of what does not change, and that of its change: the former is the change of the latter.
        let [mut of, mut of_change] = [(); 2].map(|()| Buffer::take(g.len()));
        of.fill(T::default());
        of_change.copy_from_slice(g);
        let mut none: [T; 0] = [];
        let of_logarithms = to.parameters.map_or(&mut none[..], ParametersMut::joined);
        of_logarithms.fill(T::default());
        let len = self.len();
        self.for_each_point(rows, &both, |place, weight, point| {
            let mut given = [Dual::default(); MOST];
            for (&slot, given) in slots.iter().zip(&mut given) {
                given.value = std::mem::take(&mut of_change[place(slot)]);
            }
            let (found, of_logarithm) = point.gradient(&given);
            for (at, found) in found[..=points.coordinates].iter().enumerate() {
                of_change[place(points.first + at)] += found.value;
                of[place(points.first + at)] += found.change;
            }
            let Some(weight) = weight.filter(|_| !of_logarithms.is_empty()) else {
                return;
            };
            match self.is_derivative {
                true => {
                    of_logarithms[weight] += of_logarithm.change;
                    of_logarithms[len + weight] += of_logarithm.value;
                }
                false => of_logarithms[weight] += of_logarithm.value,
            }
        });
        let Some(to) = to.x else { return };
        match self.is_derivative {
            true => {
                let own = self.channels();
                self.layout(rows, self.input())
                    .join([&*of, &*of_change], [own; 2], to);
            }
            false => to.copy_from_slice(&of_change),
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
