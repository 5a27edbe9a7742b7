//! The linear system whose solutions are the maps that commute with a group, and its rank.
//!
//! Generators come from the product by sorting, so they share no code with the list of maps. A rank modulo a prime is at
//! most the true one, so there are at most as many solutions as counted here. If as many independent maps are found,
//! both counts are exact.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use cayley::{Algebra, Group};

use crate::support::{Signed, product_by_sorting};

/// A linear map that sends each blade to a signed blade or to zero, and no two to the same one.
pub(crate) type Images = Vec<Signed>;

/// Maps that a map must commute with to commute with a group.
///
/// For Spin these are `x ↦ (Bx − xB)/2` for all bivectors `B`: the velocities of motions that start at 1. Pin has the
/// reflections along the basis vectors that are not null as well: they negate the blades that hold the vector.
pub(crate) fn generators(algebra: &Algebra, group: Group) -> Vec<Images> {
    let mut found: Vec<Images> = algebra
        .grade_range(2)
        .map(|bivector| commutator(algebra, bivector))
        .collect();
    if group == Group::Pin {
        let vectors = (0..algebra.dim()).filter(|&t| algebra.signature().square(t) != 0);
        found.extend(vectors.map(|t| reflection(algebra, t)));
    }
    found
}

fn commutator(algebra: &Algebra, bivector: usize) -> Images {
    let image = |x| {
        let left = product_by_sorting(algebra, bivector, x);
        let right = product_by_sorting(algebra, x, bivector);
        // Blades commute or anticommute, so half of the difference is zero or the product.
        left.filter(|_| left != right)
    };
    (0..algebra.blade_count()).map(image).collect()
}

fn reflection(algebra: &Algebra, vector: usize) -> Images {
    let signs = algebra.blades().iter().map(|blade| {
        let holds = blade.vectors().any(|t| t == vector);
        if holds { -1 } else { 1 }
    });
    signs
        .enumerate()
        .map(|(index, sign)| Some((index, sign)))
        .collect()
}

/// The equations `M A = A M` for the coefficients of a map `M` from one grade to one grade, for all generators `A`. The
/// generators keep grades, so maps between different pairs of grades do not mix.
pub(crate) fn equations(
    algebra: &Algebra,
    generators: &[Images],
    source: usize,
    target: usize,
) -> Vec<Row> {
    let (inputs, outputs) = (algebra.grade_range(source), algebra.grade_range(target));
    let mut rows = Vec::new();
    for images in generators {
        for input in inputs.clone() {
            for output in outputs.clone() {
                let mut row = Row::new();
                if let Some((moved, sign)) = images[input] {
                    *row.entry((output, moved)).or_default() += Residue::from(sign);
                }
                for from in outputs.clone() {
                    match images[from] {
                        Some((to, sign)) if to == output => {
                            *row.entry((from, input)).or_default() -= Residue::from(sign);
                        }
                        _ => {}
                    }
                }
                rows.push(row);
            }
        }
    }
    rows
}

/// An integer, read modulo [`PRIME`].
type Residue = i64;

/// The coefficients of an equation. The unknown `(i, j)` is the coefficient with which blade `j` contributes to blade `i`.
pub(crate) type Row = BTreeMap<(usize, usize), Residue>;

const PRIME: Residue = (1 << 31) - 1;

/// The rank of rows modulo [`PRIME`], by Gaussian elimination.
pub(crate) fn rank(rows: impl IntoIterator<Item = Row>) -> usize {
    // The rows of the echelon form by their first column, where they have a 1.
    let mut echelon: BTreeMap<(usize, usize), Row> = BTreeMap::new();
    for mut row in rows {
        while let Some((column, value)) = row.pop_first() {
            let leading = value.rem_euclid(PRIME);
            if leading == 0 {
                continue;
            }
            let Some(pivot) = echelon.get(&column) else {
                let inverse = power(leading, PRIME - 2);
                row.values_mut()
                    .for_each(|value| *value = (*value * inverse).rem_euclid(PRIME));
                row.insert(column, 1);
                echelon.insert(column, row);
                break;
            };
            for (&column, factor) in pivot.range((Excluded(column), Unbounded)) {
                let value = row.entry(column).or_default();
                *value = (*value - leading * factor).rem_euclid(PRIME);
            }
        }
    }
    echelon.len()
}

fn power(base: Residue, exponent: Residue) -> Residue {
    let (mut result, mut square, mut left) = (1, base, exponent);
    while left > 0 {
        if left % 2 == 1 {
            result = result * square % PRIME;
        }
        square = square * square % PRIME;
        left /= 2;
    }
    result
}

#[test]
fn ranks_of_known_matrices() {
    let row = |row: &[Residue; 3]| (0..3).map(|j| ((0, j), row[j])).collect();
    let rank_of = |rows: &[[Residue; 3]]| rank(rows.iter().map(row));
    assert_eq!(rank_of(&[]), 0);
    assert_eq!(rank_of(&[[0, 0, 0]]), 0);
    assert_eq!(rank_of(&[[0, 3, -3], [0, -6, 6]]), 1);
    assert_eq!(rank_of(&[[2, 3, 0], [-4, 5, 0]]), 2);
    assert_eq!(rank_of(&[[1, 2, 3], [4, 5, 6], [7, 8, 9]]), 2);
    assert_eq!(rank_of(&[[1, 2, 3], [4, 5, 6], [7, 8, 10]]), 3);
}
