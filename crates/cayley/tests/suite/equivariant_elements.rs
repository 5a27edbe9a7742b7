//! The maps that commute with a group, against elements of the group.

use cayley::{Algebra, EquivariantMap, Group};

use crate::equivariant::cases;
use crate::support::{product_by_sorting, scaled};

/// A linear map: the image of each blade, in coefficients.
type Matrix = Vec<Vec<i64>>;

/// `x ↦ v (x_even − x_odd) v`, which is `v²` times the reflection along `v`.
fn reflection(algebra: &Algebra, vector: &[i64]) -> Matrix {
    let image_of = |blade: usize| {
        let mut image = vec![0; algebra.blade_count()];
        for (a, left) in algebra.grade_range(1).zip(vector) {
            let half = product_by_sorting(algebra, a, blade);
            for (b, right) in algebra.grade_range(1).zip(vector) {
                let whole =
                    half.and_then(|(c, sign)| scaled(product_by_sorting(algebra, c, b), sign));
                if let Some((output, sign)) = whole {
                    let sign = sign * algebra.grade_involution_sign(blade);
                    image[output] += i64::from(sign) * left * right;
                }
            }
        }
        image
    };
    (0..algebra.blade_count()).map(image_of).collect()
}

/// `x ↦ a(b(x))`.
fn compose(a: &Matrix, b: &Matrix) -> Matrix {
    let image_of = |middle: &Vec<i64>| {
        let mut image = vec![0; middle.len()];
        for (column, factor) in a.iter().zip(middle).filter(|(_, factor)| **factor != 0) {
            for (value, entry) in image.iter_mut().zip(column) {
                *value += factor * entry;
            }
        }
        image
    };
    b.iter().map(image_of).collect()
}

fn matrix(algebra: &Algebra, map: &EquivariantMap) -> Matrix {
    let mut matrix = vec![vec![0; algebra.blade_count()]; algebra.blade_count()];
    for entry in &map.entries {
        matrix[entry.input][entry.output] = i64::from(entry.sign);
    }
    matrix
}

/// Elements of the group itself: reflections along vectors in general position and along basis vectors for Pin, products
/// of two of them for Spin. These include translations, and elements that no motion connects with 1.
#[test]
fn maps_commute_with_reflections_and_their_products() {
    // Their squares are signed sums of different powers of 4, so none is zero.
    let directions = [
        [1, 2, 4, -8, 16, 32],
        [8, -1, 32, 2, 16, 4],
        [-2, 4, 32, 16, 8, 1],
    ];
    for (algebra, group, maps) in cases() {
        let n = algebra.dim();
        let not_null = (0..n).filter(|&t| algebra.signature().square(t) != 0);
        let basis = not_null.map(|t| (0..n).map(|s| i64::from(s == t)).collect());
        let general = directions.map(|v| v[..n].to_vec());
        let vectors: Vec<Vec<i64>> = general.into_iter().chain(basis).collect();
        let reflections = vectors.iter().map(|v| reflection(&algebra, v));
        let reflections: Vec<Matrix> = reflections.collect();
        let elements: Vec<Matrix> = match group {
            Group::Pin => reflections,
            Group::Spin => {
                let pairs = reflections.windows(2);
                pairs.map(|pair| compose(&pair[0], &pair[1])).collect()
            }
        };
        for map in &maps {
            let matrix = matrix(&algebra, map);
            for element in &elements {
                let what = format!("{} {group} {map:?}", algebra.signature());
                assert_eq!(
                    compose(&matrix, element),
                    compose(element, &matrix),
                    "{what}"
                );
            }
        }
    }
}
