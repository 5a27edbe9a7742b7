//! Signatures to range over, and a slow product that works on lists of vectors.

use cayley::{Algebra, Signature};

/// Every signature with p + q + r <= `max_dim`.
pub(crate) fn signatures(max_dim: usize) -> Vec<Signature> {
    let mut found = Vec::new();
    for p in 0..=max_dim {
        for q in 0..=max_dim - p {
            for r in 0..=max_dim - p - q {
                found.push(Signature::new(p, q, r).expect("the dimension is in range"));
            }
        }
    }
    found
}

/// The algebras of [`signatures`].
pub(crate) fn algebras(max_dim: usize) -> impl Iterator<Item = Algebra> {
    signatures(max_dim).into_iter().map(Algebra::new)
}

/// A blade index with a sign; `None` is zero.
pub(crate) type Signed = Option<(usize, i8)>;

/// Multiplies a signed blade by a sign.
pub(crate) fn scaled(value: Signed, sign: i8) -> Signed {
    value.map(|(index, own)| (index, own * sign))
}

/// The part of a signed blade whose grade is `grade`; a negative grade has no part.
pub(crate) fn part(algebra: &Algebra, value: Signed, grade: isize) -> Signed {
    value.filter(|&(index, _)| algebra.grade_of(index) as isize == grade)
}

/// The geometric product by its definition: write both lists of vectors in a row, exchange neighbours that are in the
/// wrong order (each exchange negates), and replace equal neighbours by their square.
pub(crate) fn product_by_sorting(algebra: &Algebra, left: usize, right: usize) -> Signed {
    let vectors = |index: usize| algebra.blades()[index].vectors();
    let mut row: Vec<usize> = vectors(left).chain(vectors(right)).collect();
    let mut sign = 1;
    let mut position = 0;
    while position + 1 < row.len() {
        let (first, second) = (row[position], row[position + 1]);
        if first == second {
            sign *= algebra.signature().square(first);
            row.drain(position..position + 2);
            position = position.saturating_sub(1);
        } else if first > second {
            row.swap(position, position + 1);
            sign = -sign;
            position = position.saturating_sub(1);
        } else {
            position += 1;
        }
    }
    let output = (0..algebra.blade_count()).find(|&index| vectors(index).eq(row.iter().copied()));
    (sign != 0).then(|| (output.expect("the vectors are distinct and sorted"), sign))
}
