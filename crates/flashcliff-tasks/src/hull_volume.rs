//! Volume of a convex hull in R^5 from exterior products.
//!
//! Five points a, b, c, d, e span the hyperplane whose normal n is the Hodge dual of (b-a) ^ (c-a) ^ (d-a) ^ (e-a).
//! It carries a facet when all other points lie on one side. The simplex of a facet and the origin has the volume
//! |n . a| / 5!, and with the origin inside the hull the simplices of all facets fill it:
//!
//! ```text
//! volume = (1 / 5!) sum over facets |n . a|
//! ```
//!
//! All `binomial(N, 5)` hyperplanes are tried (4,368 for the 16 points of the task). The product is extended one vector
//! at a time in nested loops, so a hyperplane costs 20 multiplications and a few side tests until one fails.
//! The points must be in general position, as random points are: hulls with facets that are not simplices are refused.
//!
//! Check: the area vectors of a closed surface sum to zero (Minkowski), which fails if rounding had let a facet be
//! missed or taken twice.

use crate::HullError;

/// Dimension of the points.
pub(crate) const DIM: usize = 5;

/// Largest length of the sum of the area vectors, relative to the surface.
const CLOSURE: f64 = 1e-9;

type Vector = [f64; DIM];
/// Components 01, 02, 03, 04, 12, 13, 14, 23, 24, 34.
type Bivector = [f64; 10];
/// Components 012, 013, 014, 023, 024, 034, 123, 124, 134, 234.
type Trivector = [f64; 10];

/// Volume of the convex hull of `points`.
///
/// # Errors
/// [`HullError`] for fewer than six points, coordinates that are not finite, flat clouds, and hulls with facets that are not simplices or
/// that rounding does not resolve.
pub(crate) fn hull_volume(points: &[Vector]) -> Result<f64, HullError> {
    hull(points).map(|found| found.volume)
}

/// A convex hull.
#[derive(Debug)]
pub(crate) struct Hull {
    pub(crate) volume: f64,
    /// The points of each facet, ascending.
    pub(crate) facets: Vec<[usize; DIM]>,
}

/// The convex hull of `points`.
pub(crate) fn hull(points: &[Vector]) -> Result<Hull, HullError> {
    if points.len() <= DIM {
        return Err(HullError::TooFewPoints { got: points.len() });
    }
    if let Some(point) = points.iter().position(|p| !p.iter().all(|v| v.is_finite())) {
        return Err(HullError::NotFinite { point });
    }
    let points = centred(points);
    let n = points.len();
    let mut surface = Surface::default();
    for a in 0..n {
        for b in a + 1..n {
            let ab = sub(&points[b], &points[a]);
            for c in b + 1..n {
                let abc = wedge2(&ab, &sub(&points[c], &points[a]));
                for d in c + 1..n {
                    let abcd = wedge3(&abc, &sub(&points[d], &points[a]));
                    for e in d + 1..n {
                        let normal = dual4(&abcd, &sub(&points[e], &points[a]));
                        surface.try_facet(&points, [a, b, c, d, e], &normal)?;
                    }
                }
            }
        }
    }
    let volume = surface.volume()?;
    Ok(Hull {
        volume,
        facets: surface.facets,
    })
}

/// The sums over the facets that were found so far.
#[derive(Default)]
struct Surface {
    facets: Vec<[usize; DIM]>,
    /// Sum of |n . a|: 5! times the volume.
    cone: f64,
    /// Sum of the outward normals, 4! times the sum of the area vectors.
    area: Vector,
    /// Sum of the lengths of the normals.
    length: f64,
}

impl Surface {
    /// Adds the hyperplane through the five points if it carries a facet.
    fn try_facet(
        &mut self,
        points: &[Vector],
        vertices: [usize; 5],
        normal: &Vector,
    ) -> Result<(), HullError> {
        let offset = dot(normal, &points[vertices[0]]);
        let (mut below, mut above, mut on) = (false, false, false);
        for (i, point) in points.iter().enumerate() {
            if vertices.contains(&i) {
                continue;
            }
            let side = dot(normal, point) - offset;
            below |= side < 0.0;
            above |= side > 0.0;
            on |= side == 0.0;
            if below && above {
                return Ok(());
            }
        }
        if !below && !above {
            // Five dependent points span no hyperplane; in a flat cloud no point is off any.
            return Ok(());
        }
        if on {
            return Err(HullError::NotSimplicial { vertices });
        }
        self.facets.push(vertices);
        self.cone += offset.abs();
        self.length += dot(normal, normal).sqrt();
        let outward = if below { 1.0 } else { -1.0 };
        for (sum, v) in self.area.iter_mut().zip(normal) {
            *sum += outward * v;
        }
        Ok(())
    }

    fn volume(&self) -> Result<f64, HullError> {
        if self.facets.len() <= DIM {
            return Err(HullError::Flat {
                facets: self.facets.len(),
            });
        }
        let residual = dot(&self.area, &self.area).sqrt() / self.length;
        if residual < CLOSURE {
            Ok(self.cone / 120.0)
        } else {
            Err(HullError::NotClosed {
                residual,
                limit: CLOSURE,
            })
        }
    }
}

/// The points relative to their mean, which lies inside their hull.
fn centred(points: &[Vector]) -> Vec<Vector> {
    let mut mean = [0.0; DIM];
    for point in points {
        for (m, v) in mean.iter_mut().zip(point) {
            *m += v / points.len() as f64;
        }
    }
    points.iter().map(|p| sub(p, &mean)).collect()
}

fn sub(u: &Vector, v: &Vector) -> Vector {
    std::array::from_fn(|i| u[i] - v[i])
}

fn dot(u: &Vector, v: &Vector) -> f64 {
    u.iter().zip(v).map(|(a, b)| a * b).sum()
}

/// u ^ v.
fn wedge2(u: &Vector, v: &Vector) -> Bivector {
    let c = |i: usize, j: usize| u[i] * v[j] - u[j] * v[i];
    [
        c(0, 1),
        c(0, 2),
        c(0, 3),
        c(0, 4),
        c(1, 2),
        c(1, 3),
        c(1, 4),
        c(2, 3),
        c(2, 4),
        c(3, 4),
    ]
}

/// b ^ v: component ijk is b_ij v_k - b_ik v_j + b_jk v_i.
fn wedge3(b: &Bivector, v: &Vector) -> Trivector {
    let [b01, b02, b03, b04, b12, b13, b14, b23, b24, b34] = *b;
    [
        b01 * v[2] - b02 * v[1] + b12 * v[0],
        b01 * v[3] - b03 * v[1] + b13 * v[0],
        b01 * v[4] - b04 * v[1] + b14 * v[0],
        b02 * v[3] - b03 * v[2] + b23 * v[0],
        b02 * v[4] - b04 * v[2] + b24 * v[0],
        b03 * v[4] - b04 * v[3] + b34 * v[0],
        b12 * v[3] - b13 * v[2] + b23 * v[1],
        b12 * v[4] - b14 * v[2] + b24 * v[1],
        b13 * v[4] - b14 * v[3] + b34 * v[1],
        b23 * v[4] - b24 * v[3] + b34 * v[2],
    ]
}

/// Dual of t ^ v: the vector n with n . x = det(x, t ^ v), so component m is (-1)^m times the component without m.
fn dual4(t: &Trivector, v: &Vector) -> Vector {
    let [t012, t013, t014, t023, t024, t034, t123, t124, t134, t234] = *t;
    [
        t123 * v[4] - t124 * v[3] + t134 * v[2] - t234 * v[1],
        -(t023 * v[4] - t024 * v[3] + t034 * v[2] - t234 * v[0]),
        t013 * v[4] - t014 * v[3] + t034 * v[1] - t134 * v[0],
        -(t012 * v[4] - t014 * v[2] + t024 * v[1] - t124 * v[0]),
        t012 * v[3] - t013 * v[2] + t023 * v[1] - t123 * v[0],
    ]
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    fn close(got: f64, expected: f64, relative: f64) {
        assert!(
            (got - expected).abs() <= relative * expected.abs(),
            "{got} is not {expected}"
        );
    }

    fn unit(i: usize, length: f64) -> Vector {
        std::array::from_fn(|k| if k == i { length } else { 0.0 })
    }

    fn normal_points(n: usize, seed: u64) -> Vec<Vector> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..n)
            .map(|_| std::array::from_fn(|_| StandardNormal.sample(&mut rng)))
            .collect()
    }

    fn map(points: &[Vector], f: impl Fn(&Vector) -> Vector) -> Vec<Vector> {
        points.iter().map(f).collect()
    }

    /// Householder reflection of `p` along `u`.
    fn reflect(u: &Vector, p: &Vector) -> Vector {
        let t = 2.0 * dot(u, p) / dot(u, u);
        std::array::from_fn(|i| p[i] - t * u[i])
    }

    #[test]
    fn simplex_has_volume_one_over_120() {
        let mut points: Vec<Vector> = (0..5).map(|i| unit(i, 1.0)).collect();
        points.push([0.0; 5]);
        close(hull_volume(&points).unwrap(), 1.0 / 120.0, 1e-14);
    }

    #[test]
    fn cross_polytope_has_volume_32_over_120() {
        let points: Vec<Vector> = (0..5).flat_map(|i| [unit(i, 1.0), unit(i, -1.0)]).collect();
        close(hull_volume(&points).unwrap(), 32.0 / 120.0, 1e-14);
    }

    fn cube() -> Vec<Vector> {
        (0..32)
            .map(|bits| std::array::from_fn(|i| f64::from(bits >> i & 1)))
            .collect()
    }

    #[test]
    fn jittered_cube_has_volume_one() {
        let points: Vec<Vector> = cube()
            .iter()
            .zip(normal_points(32, 5))
            .map(|(p, noise)| std::array::from_fn(|i| p[i] + 1e-7 * noise[i]))
            .collect();
        close(hull_volume(&points).unwrap(), 1.0, 1e-5);
    }

    #[test]
    fn exact_cube_is_refused() {
        assert!(matches!(
            hull_volume(&cube()),
            Err(HullError::NotSimplicial { .. })
        ));
    }

    #[test]
    fn nearly_flat_facets_are_refused_or_right() {
        let (mut refused, mut right) = (0, 0);
        for seed in 0..60 {
            // Jitter from far below the rounding error to above it.
            let jitter = 10f64.powi(-18 + (seed % 6) as i32);
            let noise = normal_points(32, 1000 + seed);
            let u = &normal_points(1, seed)[0];
            let points: Vec<Vector> = map(&cube(), |p| reflect(u, p))
                .iter()
                .zip(noise)
                .map(|(p, noise)| std::array::from_fn(|i| p[i] + jitter * noise[i]))
                .collect();
            match hull_volume(&points) {
                Ok(volume) => {
                    close(volume, 1.0, 1e-9);
                    right += 1;
                }
                Err(HullError::NotSimplicial { .. } | HullError::NotClosed { .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(refused > 0 && right > 0, "{refused} {right}");
    }

    #[test]
    fn an_open_surface_is_refused() {
        let open = Surface {
            facets: vec![[0; DIM]; 6],
            cone: 1.0,
            area: unit(0, 0.5),
            length: 10.0,
        };
        assert_eq!(
            open.volume(),
            Err(HullError::NotClosed {
                residual: 0.05,
                limit: CLOSURE
            })
        );
    }

    #[test]
    fn inner_points_change_nothing() {
        let mut points: Vec<Vector> = (0..5).flat_map(|i| [unit(i, 3.0), unit(i, -3.0)]).collect();
        points.extend(map(&normal_points(4, 9), |p| p.map(|v| 0.1 * v)));
        close(hull_volume(&points).unwrap(), 243.0 * 32.0 / 120.0, 1e-13);
    }

    #[test]
    fn rotations_reflections_and_shifts_keep_the_volume() {
        for seed in 0..10 {
            let points = normal_points(16, seed);
            let volume = hull_volume(&points).unwrap();
            // Two reflections make a rotation.
            let [u, v] = [
                normal_points(1, 100 + seed)[0],
                normal_points(1, 200 + seed)[0],
            ];
            let reflected = map(&points, |p| reflect(&u, p));
            let rotated = map(&reflected, |p| reflect(&v, p));
            let shifted = map(&rotated, |p| p.map(|x| x + 10.0));
            for moved in [reflected, rotated, shifted] {
                close(hull_volume(&moved).unwrap(), volume, 1e-11);
            }
        }
    }

    #[test]
    fn volume_scales_with_the_determinant() {
        let points = normal_points(16, 3);
        let volume = hull_volume(&points).unwrap();
        // Upper triangular with the diagonal 1, 2, 3, 4, 5: determinant 120.
        let sheared = map(&points, |p| {
            std::array::from_fn(|i| {
                (i..5)
                    .map(|j| if i == j { i as f64 + 1.0 } else { 0.5 } * p[j])
                    .sum()
            })
        });
        close(hull_volume(&sheared).unwrap(), 120.0 * volume, 1e-11);
    }

    #[test]
    fn bad_points_are_typed_errors() {
        let points = normal_points(16, 1);
        assert_eq!(
            hull_volume(&points[..5]),
            Err(HullError::TooFewPoints { got: 5 })
        );
        let mut broken = points.clone();
        broken[7][2] = f64::NAN;
        assert_eq!(hull_volume(&broken), Err(HullError::NotFinite { point: 7 }));
        let flat = map(&points, |p| [p[0], p[1], p[2], p[3], 0.0]);
        assert_eq!(hull_volume(&flat), Err(HullError::Flat { facets: 0 }));
    }
}
