//! Features of points whose dot product is minus a squared distance.

use crate::Element;

/// The most blades of a point: the coordinates and the weight.
const AXES: usize = 8;

/// A point `(p, w)` of Cl(n,0,1), weighed: `p' = p w / (w^2 + eps)`, and `w'` likewise.
///
/// | features | numbers |
/// |---|---|
/// | of a query, each times its weight | `2 w' p'`, `-w'^2`, `-\|p'\|^2` |
/// | of a key | `w' p'`, `\|p'\|^2`, `w'^2` |
///
/// Their dot product is minus the weight times `|p'_q w'_k - p'_k w'_q|^2`.
///
/// Source: GATr (arXiv 2305.18415, appendix A).
#[derive(Clone, Copy, Debug)]
pub struct DistancePoint<T> {
    plain: [T; AXES],
    weighed: [T; AXES],
    factor: T,
    eps: T,
    coordinates: usize,
}

impl<T: Element> DistancePoint<T> {
    /// A point of so many coordinates, at most seven, with its weight behind them. `eps` regularises points without weight.
    pub fn new(coordinates: usize, eps: f64, blade: impl Fn(usize) -> T) -> Self {
        let coordinates = coordinates.min(AXES - 1);
        let mut plain = [T::default(); AXES];
        for (at, to) in plain.iter_mut().enumerate().take(coordinates + 1) {
            *to = blade(at);
        }
        let (w, eps) = (plain[coordinates], T::from_f64(eps));
        let mut below = eps;
        below += w * w;
        let factor = w / below;
        Self {
            plain,
            weighed: plain.map(|t| t * factor),
            factor,
            eps,
            coordinates,
        }
    }

    /// The number of features of a point with so many coordinates.
    pub const fn count(coordinates: usize) -> usize {
        coordinates + 2
    }

    /// Calls a function with the index of each feature and the feature: of a query with its weight, or of a key.
    pub fn features(&self, of_query: Option<T>, mut put: impl FnMut(usize, T)) {
        let (axes, w) = (self.coordinates, self.weighed[self.coordinates]);
        let mut square = T::default();
        for &p in &self.weighed[..axes] {
            square += p * p;
        }
        let (of_product, squares) = match of_query {
            None => (T::from_f64(1.0), [square, w * w]),
            Some(factor) => {
                let minus = T::default() - factor;
                (twice(factor), [minus * (w * w), minus * square])
            }
        };
        for (axis, &p) in self.weighed[..axes].iter().enumerate() {
            put(axis, of_product * p * w);
        }
        put(axes, squares[0]);
        put(axes + 1, squares[1]);
    }

    /// Calls a function with the index of each blade and its gradient, from that of the features.
    pub fn gradient(
        &self,
        of_query: Option<T>,
        g: impl Fn(usize) -> T,
        mut put: impl FnMut(usize, T),
    ) {
        let zero = T::default();
        let axes = self.coordinates;
        let (of_product, square, weight) = match of_query {
            None => (T::from_f64(1.0), g(axes), g(axes + 1)),
            Some(factor) => {
                let minus = zero - factor;
                (twice(factor), minus * g(axes + 1), minus * g(axes))
            }
        };
        let w = self.weighed[axes];
        let mut of_weighed = [zero; AXES];
        of_weighed[axes] = twice(weight) * w;
        for axis in 0..axes {
            let (p, product) = (self.weighed[axis], of_product * g(axis));
            of_weighed[axis] = product * w;
            of_weighed[axis] += twice(square) * p;
            of_weighed[axes] += product * p;
        }
        let mut of_factor = zero;
        for (&g, &t) in of_weighed.iter().zip(&self.plain) {
            of_factor += g * t;
        }
        let plain_w = self.plain[axes];
        let mut below = self.eps;
        below += plain_w * plain_w;
        let slope = (self.eps - plain_w * plain_w) / (below * below);
        for (axis, &g) in of_weighed[..axes].iter().enumerate() {
            put(axis, g * self.factor);
        }
        let mut of_w = of_weighed[axes] * self.factor;
        of_w += of_factor * slope;
        put(axes, of_w);
    }
}

fn twice<T: Element>(x: T) -> T {
    let mut sum = x;
    sum += x;
    sum
}
