//! The features of queries, keys and values of heads.
//!
//! A query has for each channel its blades without a norm-free part and without the weight of a point (`INNER`), then for each channel five
//! features of its point, then its scalars; a key likewise. Their dot product is the inner product of the multivectors and of the scalars, less
//! squared distances of points. A value has all blades of all channels, then scalars.

use super::{BLADES, number};
use crate::op::Scalar;

/// The blades of the inner product: those without the null vector, but for the weight of a point, which belongs to its distance.
pub(super) const INNER: [usize; 7] = [0, 2, 3, 4, 8, 9, 10];
/// The blades of a point: three coordinates, and its weight.
pub(super) const POINT: [usize; 4] = [11, 12, 13, 14];
/// The features of a point.
pub(super) const DISTANCE: usize = 5;
/// Regularises the distance of points without weight.
pub(super) const EPS: f64 = 1e-3;

/// Whether features are those of a query, a key or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Query,
    Key,
    Value,
}

/// The sizes of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) multivectors: usize,
    pub(super) scalars: usize,
}

impl Head {
    /// The number of features of a part.
    pub(super) fn features(self, part: Part) -> usize {
        match part {
            Part::Value => BLADES * self.multivectors + self.scalars,
            _ => (INNER.len() + DISTANCE) * self.multivectors + self.scalars,
        }
    }

    /// Writes the features of a part. `x(channel, blade)` and `s(channel)` read the head; `log_weights` are those of the head's distances.
    pub(super) fn write<T: Scalar>(
        self,
        part: Part,
        x: impl Fn(usize, usize) -> T,
        s: impl Fn(usize) -> T,
        log_weights: &[T],
        features: &mut [T],
    ) {
        let mv = self.multivectors;
        let first_scalar = features.len() - self.scalars;
        for (channel, to) in features[first_scalar..].iter_mut().enumerate() {
            *to = s(channel);
        }
        if part == Part::Value {
            for (channel, to) in features[..BLADES * mv].chunks_exact_mut(BLADES).enumerate() {
                for (blade, to) in to.iter_mut().enumerate() {
                    *to = x(channel, blade);
                }
            }
            return;
        }
        let (inner, rest) = features.split_at_mut(INNER.len() * mv);
        let distances = rest[..DISTANCE * mv].chunks_exact_mut(DISTANCE);
        let channels = inner.chunks_exact_mut(INNER.len()).zip(distances);
        for (channel, (inner, distance)) in channels.enumerate() {
            for (to, blade) in inner.iter_mut().zip(INNER) {
                *to = x(channel, blade);
            }
            let point = Point::new(POINT.map(|blade| x(channel, blade)));
            let of_query = (part == Part::Query).then(|| exponential(log_weights[channel]));
            distance.copy_from_slice(&point.features(of_query));
        }
    }

    /// Adds the gradient of a part's features to that of the head: `add_x(channel, blade, value)` and `add_s(channel, value)`. `of_weights` gets
    /// the gradient of the logarithms of a query's weights added.
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of `write`, and their gradients"
    )]
    pub(super) fn read_gradient<T: Scalar>(
        self,
        part: Part,
        x: impl Fn(usize, usize) -> T,
        log_weights: &[T],
        gradient: &[T],
        mut add_x: impl FnMut(usize, usize, T),
        mut add_s: impl FnMut(usize, T),
        of_weights: &mut [T],
    ) {
        let mv = self.multivectors;
        let first_scalar = gradient.len() - self.scalars;
        for (channel, &g) in gradient[first_scalar..].iter().enumerate() {
            add_s(channel, g);
        }
        if part == Part::Value {
            for (channel, g) in gradient[..BLADES * mv].chunks_exact(BLADES).enumerate() {
                for (blade, &g) in g.iter().enumerate() {
                    add_x(channel, blade, g);
                }
            }
            return;
        }
        let (inner, rest) = gradient.split_at(INNER.len() * mv);
        let distances = rest[..DISTANCE * mv].chunks_exact(DISTANCE);
        for (channel, (inner, g)) in inner.chunks_exact(INNER.len()).zip(distances).enumerate() {
            for (&g, blade) in inner.iter().zip(INNER) {
                add_x(channel, blade, g);
            }
            let point = Point::new(POINT.map(|blade| x(channel, blade)));
            let of_query = (part == Part::Query).then(|| exponential(log_weights[channel]));
            if let (Some(weight), Some(to)) = (of_query, of_weights.get_mut(channel)) {
                let features = point.features(Some(weight));
                features.iter().zip(g).for_each(|(&f, &g)| *to += f * g);
            }
            let of_point = point.gradient(of_query, g);
            for (blade, g) in POINT.into_iter().zip(of_point) {
                add_x(channel, blade, g);
            }
        }
    }
}

/// A point `(p, w)`, weighed: `p' = p w / (w^2 + eps)`, and `w'` likewise.
struct Point<T> {
    plain: [T; 4],
    factor: T,
    weighed: [T; 4],
}

impl<T: Scalar> Point<T> {
    fn new(plain: [T; 4]) -> Self {
        let w = plain[3];
        let factor = w / (w * w + number(EPS));
        Self {
            plain,
            factor,
            weighed: plain.map(|t| t * factor),
        }
    }

    /// For a query, with the weight of its distance, `(2 w' p', -w'^2, -|p'|^2)` times the weight; for a key `(w' p', |p'|^2, w'^2)`. The dot
    /// product is minus the weight times `|p'_q w'_k - p'_k w'_q|^2`.
    fn features(&self, of_query: Option<T>) -> [T; DISTANCE] {
        let [x, y, z, w] = self.weighed;
        let (square, weight) = (x * x + y * y + z * z, w * w);
        match of_query {
            None => [x * w, y * w, z * w, square, weight],
            Some(factor) => {
                let (twice, minus) = (factor + factor, T::zero() - factor);
                [
                    twice * x * w,
                    twice * y * w,
                    twice * z * w,
                    minus * weight,
                    minus * square,
                ]
            }
        }
    }

    /// The gradient of the point, from that of its features.
    fn gradient(&self, of_query: Option<T>, g: &[T]) -> [T; 4] {
        let zero = T::zero();
        let (products, square, weight) = match of_query {
            None => ([g[0], g[1], g[2]], g[3], g[4]),
            Some(factor) => {
                let (twice, minus) = (factor + factor, zero - factor);
                let products = [twice * g[0], twice * g[1], twice * g[2]];
                (products, minus * g[4], minus * g[3])
            }
        };
        let w = self.weighed[3];
        let mut of_weighed = [zero; 4];
        of_weighed[3] = (weight + weight) * w;
        for axis in 0..3 {
            let p = self.weighed[axis];
            of_weighed[axis] = products[axis] * w + (square + square) * p;
            of_weighed[3] += products[axis] * p;
        }
        let mut of_factor = zero;
        for (&g, &t) in of_weighed.iter().zip(&self.plain) {
            of_factor += g * t;
        }
        let (plain_w, eps) = (self.plain[3], number::<T>(EPS));
        let below = plain_w * plain_w + eps;
        let slope = (eps - plain_w * plain_w) / (below * below);
        let mut of_plain = of_weighed.map(|g| g * self.factor);
        of_plain[3] += of_factor * slope;
        of_plain
    }
}

fn exponential<T: Scalar>(value: T) -> T {
    number(flashcliff::Element::to_f64(value).exp())
}
