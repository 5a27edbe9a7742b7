//! Random versors and their action on tensors of multivectors.

use flashcliff::{GradeSet, ProductKind};

use crate::random::Random;
use flashcliff_program::reference::Basis;

/// The vectors that a versor is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Any vectors that are not null: the whole Pin group with translations and boosts.
    Pin,
    /// Vectors that are positive or negative, but not mixed, without null part: O(p) x O(q), which also preserves the
    /// Euclidean length of every grade.
    Euclidean,
}

/// The action `x -> w (x_even + (-1)^count x_odd) w^-1` of a product `w` of `count` unit vectors,
/// as a matrix over blades.
pub(crate) struct Action {
    /// The entries by output blade, then input blade.
    matrix: Vec<Vec<f64>>,
    /// The determinant on vectors.
    pub(crate) determinant: f64,
}

impl Action {
    pub(crate) fn random(basis: &Basis, group: Group, count: usize, random: &mut Random) -> Self {
        let scalar = |value: f64| {
            let mut x = vec![0.0; basis.len()];
            x[0] = value;
            x
        };
        let (mut versor, mut inverse) = (scalar(1.0), scalar(1.0));
        for _ in 0..count {
            let (vector, square) = unit_vector(basis, group, random);
            let reciprocal: Vec<f64> = vector.iter().map(|v| v / square).collect();
            versor = multiply(basis, &versor, &vector);
            inverse = multiply(basis, &reciprocal, &inverse);
        }
        let sign = 1.0 - 2.0 * (count % 2) as f64;
        let mut matrix = vec![vec![0.0; basis.len()]; basis.len()];
        for blade in 0..basis.len() {
            let mut x = scalar(0.0);
            x[blade] = if basis.grade(blade) % 2 == 1 {
                sign
            } else {
                1.0
            };
            let image = multiply(basis, &multiply(basis, &versor, &x), &inverse);
            for (row, value) in matrix.iter_mut().zip(image) {
                row[blade] = value;
            }
        }
        Self {
            matrix,
            determinant: sign,
        }
    }

    /// The reflection that negates one basis vector.
    pub(crate) fn reflection(basis: &Basis, vector: usize) -> Self {
        let sign = |blade: usize| 1.0 - 2.0 * f64::from(basis.blades[blade].contains(&vector));
        let row = |i: usize| {
            (0..basis.len())
                .map(|j| if i == j { sign(i) } else { 0.0 })
                .collect()
        };
        Self {
            matrix: (0..basis.len()).map(row).collect(),
            determinant: -1.0,
        }
    }

    /// Acts on a tensor that carries some grades.
    pub(crate) fn apply(&self, basis: &Basis, grades: GradeSet, x: &[f64]) -> Vec<f64> {
        let stored = basis.stored(grades);
        let lanes = x.len() / stored.len().max(1);
        let mut out = vec![0.0; x.len()];
        for (i, &to) in stored.iter().enumerate() {
            for (k, &from) in stored.iter().enumerate() {
                let factor = self.matrix[to][from];
                for lane in 0..lanes {
                    out[i * lanes + lane] += factor * x[k * lanes + lane];
                }
            }
        }
        out
    }

    /// The largest entry that mixes grades. It is only rounding if the matrix is an action.
    fn leak(&self, basis: &Basis) -> f64 {
        let mut leak = 0.0_f64;
        for (to, row) in self.matrix.iter().enumerate() {
            for (from, value) in row.iter().enumerate() {
                if basis.grade(to) != basis.grade(from) {
                    leak = leak.max(value.abs());
                }
            }
        }
        leak
    }
}

/// A random vector whose square is +1 or -1 and that is not too close to a null vector, with its square.
fn unit_vector(basis: &Basis, group: Group, random: &mut Random) -> (Vec<f64>, f64) {
    let signs: Vec<i64> = (0..basis.dim)
        .map(|v| basis.square(v))
        .filter(|&s| s != 0)
        .collect();
    loop {
        // A Euclidean vector takes the sign of a random non-null basis vector.
        let wanted = signs[(random.unit().abs() * signs.len() as f64) as usize % signs.len()];
        let component = |v: usize| match group == Group::Euclidean && basis.square(v) != wanted {
            true => 0.0,
            false => random.unit(),
        };
        let components: Vec<f64> = (0..basis.dim).map(component).collect();
        let squares = components
            .iter()
            .enumerate()
            .map(|(v, x)| basis.square(v) as f64 * x * x);
        let square: f64 = squares.sum();
        let length: f64 = components.iter().map(|x| x * x).sum();
        if square.abs() < 0.2 * length || length < 0.1 {
            continue;
        }
        let mut vector = vec![0.0; basis.len()];
        for (v, x) in components.iter().enumerate() {
            vector[1 + v] = x / square.abs().sqrt();
        }
        return (vector, square.signum());
    }
}

fn multiply(basis: &Basis, x: &[f64], y: &[f64]) -> Vec<f64> {
    let full = GradeSet::full(basis.dim);
    let mut out = vec![0.0; basis.len()];
    for term in &basis.table(ProductKind::Geometric, full, full).terms {
        out[term.output] += term.sign as f64 * x[term.left] * y[term.right];
    }
    out
}

#[test]
fn actions_keep_grades_and_the_quadratic_form() {
    let mut random = Random::new(5);
    for algebra in flashcliff::Algebra::shipped() {
        let basis = Basis::new(algebra.signature());
        for count in 1..5 {
            let action = Action::random(&basis, Group::Pin, count, &mut random);
            assert!(action.leak(&basis) < 1e-9, "{} leaks", algebra.name());
            let full = GradeSet::full(basis.dim);
            let x = random.reals(basis.len());
            let form = |x: &[f64]| -> f64 {
                x.iter()
                    .enumerate()
                    .map(|(b, x)| basis.quadratic(b) as f64 * x * x)
                    .sum()
            };
            let moved = action.apply(&basis, full, &x);
            assert!((form(&moved) - form(&x)).abs() < 1e-8, "{}", algebra.name());
        }
    }
}
