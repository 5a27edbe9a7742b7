//! Features of points whose dot product is minus a squared distance, for some points side by side.

use crate::Element;

/// The most blades of a point: the coordinates and the weight.
const AXES: usize = 8;

/// Points `(p, w)` of Cl(n,0,1), weighed: `p' = p w / (w^2 + eps)`, and `w'` likewise. `LANES` of them are computed at once.
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
pub struct DistancePoint<T, const LANES: usize = 1> {
    plain: [[T; LANES]; AXES],
    weighed: [[T; LANES]; AXES],
    factor: [T; LANES],
    eps: T,
    coordinates: usize,
}

impl<T: Element, const LANES: usize> DistancePoint<T, LANES> {
    /// Points of so many coordinates, at most seven, with their weights after them. `eps` regularises points without weight.
    #[inline(always)]
    pub fn new(coordinates: usize, eps: f64, blade: impl Fn(usize) -> [T; LANES]) -> Self {
        let coordinates = coordinates.min(AXES - 1);
        let mut plain = [[T::default(); LANES]; AXES];
        for (at, to) in plain.iter_mut().enumerate().take(coordinates + 1) {
            *to = blade(at);
        }
        let (w, eps) = (plain[coordinates], T::from_f64(eps));
        let factor = each(w, |w| w / sum(eps, w * w));
        let mut weighed = plain;
        for t in &mut weighed[..=coordinates] {
            *t = product(*t, factor);
        }
        Self {
            plain,
            weighed,
            factor,
            eps,
            coordinates,
        }
    }

    /// The number of features of a point with so many coordinates.
    pub const fn count(coordinates: usize) -> usize {
        coordinates.saturating_add(2)
    }

    /// Calls a function with the index of each feature and the features: of queries with their weights, or of keys.
    #[inline(always)]
    pub fn features(&self, of_query: Option<[T; LANES]>, mut put: impl FnMut(usize, [T; LANES])) {
        let (axes, w) = (self.coordinates, self.weighed[self.coordinates]);
        let mut square = [T::default(); LANES];
        for &p in &self.weighed[..axes] {
            square = both(square, product(p, p), sum);
        }
        let weight = product(w, w);
        let (of_product, squares) = match of_query {
            None => ([T::from_f64(1.0); LANES], [square, weight]),
            Some(factor) => {
                let minus = each(factor, |x| T::default() - x);
                let squares = [product(minus, weight), product(minus, square)];
                (both(factor, factor, sum), squares)
            }
        };
        for (axis, &p) in self.weighed[..axes].iter().enumerate() {
            put(axis, product(product(of_product, p), w));
        }
        put(axes, squares[0]);
        put(axes + 1, squares[1]);
    }

    /// Calls a function with the index of each blade and its gradients, from the gradients of the features.
    #[inline(always)]
    pub fn gradient(
        &self,
        of_query: Option<[T; LANES]>,
        g: impl Fn(usize) -> [T; LANES],
        mut put: impl FnMut(usize, [T; LANES]),
    ) {
        let zero = T::default();
        let axes = self.coordinates;
        let (of_product, square, weight) = match of_query {
            None => ([T::from_f64(1.0); LANES], g(axes), g(axes + 1)),
            Some(factor) => {
                let minus = each(factor, |x| zero - x);
                let (square, weight) = (product(minus, g(axes + 1)), product(minus, g(axes)));
                (both(factor, factor, sum), square, weight)
            }
        };
        let w = self.weighed[axes];
        let (square, weight) = (both(square, square, sum), both(weight, weight, sum));
        let mut of_w = product(weight, w);
        let mut of_factor = [zero; LANES];
        for axis in 0..axes {
            let (p, of) = (self.weighed[axis], product(of_product, g(axis)));
            let of_p = both(product(of, w), product(square, p), sum);
            of_w = both(of_w, product(of, p), sum);
            of_factor = both(of_factor, product(of_p, self.plain[axis]), sum);
            put(axis, product(of_p, self.factor));
        }
        let plain = self.plain[axes];
        of_factor = both(of_factor, product(of_w, plain), sum);
        let slope = each(plain, |w| {
            let below = sum(self.eps, w * w);
            (self.eps - w * w) / (below * below)
        });
        let through_factor = product(of_factor, slope);
        put(axes, both(product(of_w, self.factor), through_factor, sum));
    }
}

// Functions of arrays in the standard library are calls where their closures are long.

#[inline(always)]
fn each<T: Copy, const LANES: usize>(mut a: [T; LANES], f: impl Fn(T) -> T) -> [T; LANES] {
    for a in &mut a {
        *a = f(*a);
    }
    a
}

#[inline(always)]
fn both<T: Copy, const LANES: usize>(
    mut a: [T; LANES],
    b: [T; LANES],
    f: impl Fn(T, T) -> T,
) -> [T; LANES] {
    for (a, b) in a.iter_mut().zip(b) {
        *a = f(*a, b);
    }
    a
}

#[inline(always)]
fn product<T: Element, const LANES: usize>(a: [T; LANES], b: [T; LANES]) -> [T; LANES] {
    both(a, b, |a, b| a * b)
}

#[inline(always)]
fn sum<T: Element>(a: T, b: T) -> T {
    let mut sum = a;
    sum += b;
    sum
}
