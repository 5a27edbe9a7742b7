//! An independent oracle: matrix representations over the Gaussian integers.
//!
//! Vectors become matrices on qubits by the Jordan–Wigner construction. A null vector takes a qubit
//! of its own, two other vectors share one:
//!
//! ```text
//! null:      Z ⊗ .. ⊗ Z ⊗ N ⊗ 1 ⊗ .. ⊗ 1,    N = (X + iY)/2
//! others:    Z ⊗ .. ⊗ Z ⊗ X ⊗ 1 ⊗ .. ⊗ 1  and  Z ⊗ .. ⊗ Z ⊗ Y ⊗ 1 ⊗ .. ⊗ 1,  times i if negative
//! ```
//!
//! `N` is half the sum of a vector that squares to +1 and one that squares to −1, so it squares to
//! zero. Products are matrix products: no masks, no exchange counts, no metric. Besides the table under test, only the
//! names of the blades come from the crate.

use cayley::{Algebra, ProductKind, Signature, Term};

use crate::support::algebras;

/// A Gaussian integer `re + i im`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gaussian {
    re: i64,
    im: i64,
}

const ZERO: Gaussian = Gaussian { re: 0, im: 0 };
const ONE: Gaussian = Gaussian { re: 1, im: 0 };
const MINUS_ONE: Gaussian = Gaussian { re: -1, im: 0 };
const I: Gaussian = Gaussian { re: 0, im: 1 };
const MINUS_I: Gaussian = Gaussian { re: 0, im: -1 };

impl Gaussian {
    fn plus(self, other: Gaussian) -> Gaussian {
        Gaussian {
            re: self.re + other.re,
            im: self.im + other.im,
        }
    }

    fn times(self, other: Gaussian) -> Gaussian {
        Gaussian {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

/// A square matrix; each row lists its non-zero entries as (column, value), by column.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Matrix(Vec<Vec<(usize, Gaussian)>>);

impl Matrix {
    fn from_dense<const N: usize>(rows: [[Gaussian; N]; N]) -> Matrix {
        Matrix(rows.iter().map(|row| sparse(row)).collect())
    }

    fn identity(size: usize) -> Matrix {
        Matrix((0..size).map(|row| vec![(row, ONE)]).collect())
    }

    fn times(&self, other: &Matrix) -> Matrix {
        let mut dense = vec![ZERO; self.0.len()];
        let row_times = |row: &Vec<(usize, Gaussian)>| {
            dense.fill(ZERO);
            for &(middle, a) in row {
                for &(column, b) in &other.0[middle] {
                    dense[column] = dense[column].plus(a.times(b));
                }
            }
            sparse(&dense)
        };
        Matrix(self.0.iter().map(row_times).collect())
    }

    /// Kronecker product: entries of `other` scaled by each entry of `self`.
    fn tensor(&self, other: &Matrix) -> Matrix {
        let size = other.0.len();
        let mut rows = Vec::new();
        for row in &self.0 {
            for other_row in &other.0 {
                let mut entries = Vec::new();
                for &(column, a) in row {
                    for &(other_column, b) in other_row {
                        entries.push((column * size + other_column, a.times(b)));
                    }
                }
                rows.push(entries);
            }
        }
        Matrix(rows)
    }

    fn scaled(&self, factor: Gaussian) -> Matrix {
        let scale =
            |row: &Vec<(usize, Gaussian)>| row.iter().map(|&(c, v)| (c, v.times(factor))).collect();
        Matrix(self.0.iter().map(scale).collect())
    }

    fn is_zero(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }
}

fn sparse(row: &[Gaussian]) -> Vec<(usize, Gaussian)> {
    row.iter()
        .copied()
        .enumerate()
        .filter(|&(_, value)| value != ZERO)
        .collect()
}

/// The matrices of the vectors: null, then positive, then negative.
fn vector_matrices(signature: Signature) -> Vec<Matrix> {
    let x = Matrix::from_dense([[ZERO, ONE], [ONE, ZERO]]);
    let y = Matrix::from_dense([[ZERO, MINUS_I], [I, ZERO]]);
    let z = Matrix::from_dense([[ONE, ZERO], [ZERO, MINUS_ONE]]);
    let n = Matrix::from_dense([[ZERO, ONE], [ZERO, ZERO]]);
    let (p, q, r) = (signature.p(), signature.q(), signature.r());
    let qubits = r + (p + q).div_ceil(2);
    let on_qubit = |qubit: usize, matrix: &Matrix| {
        (0..qubits).fold(Matrix::identity(1), |left, position| {
            if position < qubit {
                left.tensor(&z)
            } else if position == qubit {
                left.tensor(matrix)
            } else {
                left.tensor(&Matrix::identity(2))
            }
        })
    };
    let null = (0..r).map(|qubit| on_qubit(qubit, &n));
    let others = (0..p + q).map(|number| {
        let matrix = on_qubit(r + number / 2, if number % 2 == 0 { &x } else { &y });
        matrix.scaled(if number < p { ONE } else { I })
    });
    null.chain(others).collect()
}

/// The matrix of every blade, from its name.
fn blade_matrices(algebra: &Algebra) -> Vec<Matrix> {
    let vectors = vector_matrices(algebra.signature());
    let first = if algebra.signature().r() > 0 { 0 } else { 1 };
    let size = vectors.first().map_or(1, |matrix| matrix.0.len());
    (0..algebra.blade_count())
        .map(|index| {
            let name = algebra.blade_name(index);
            let labels = name.strip_prefix('e').unwrap_or("").bytes();
            labels.fold(Matrix::identity(size), |product, label| {
                product.times(&vectors[usize::from(label - b'0') - first])
            })
        })
        .collect()
}

/// Pairs (left, right) for which a table of geometric terms disagrees with the matrices: a term is missing, has another
/// output or another sign, or appears twice.
fn mismatches(algebra: &Algebra, terms: &[Term]) -> Vec<(usize, usize)> {
    let count = algebra.blade_count();
    let matrices = blade_matrices(algebra);
    let mut claims = vec![Vec::new(); count * count];
    for term in terms {
        claims[term.left * count + term.right].push((term.output, term.sign));
    }
    let mut found = Vec::new();
    for left in 0..count {
        for right in 0..count {
            let product = matrices[left].times(&matrices[right]);
            let agrees = match claims[left * count + right][..] {
                [] => product.is_zero(),
                [(output, 1)] => product == matrices[output],
                [(output, -1)] => product == matrices[output].scaled(MINUS_ONE),
                _ => false,
            };
            if !agrees {
                found.push((left, right));
            }
        }
    }
    found
}

/// Rank of the blade matrices as vectors over the field of 65537 elements.
///
/// There 256² = −1, so `i -> 256` maps the Gaussian integers into the field; a rank there is a
/// lower bound of the rank over the complex numbers.
fn rank(matrices: &[Matrix]) -> usize {
    const PRIME: i64 = 65_537;
    let size = matrices[0].0.len();
    let flatten = |matrix: &Matrix| {
        let mut flat = vec![0; size * size];
        for (row, entries) in matrix.0.iter().enumerate() {
            for &(column, value) in entries {
                flat[row * size + column] = (value.re + 256 * value.im).rem_euclid(PRIME);
            }
        }
        flat
    };
    let mut rows: Vec<Vec<i64>> = matrices.iter().map(flatten).collect();
    let mut rank = 0;
    while let Some(row) = rows.pop() {
        let Some(pivot) = row.iter().position(|&value| value != 0) else {
            continue;
        };
        rank += 1;
        let inverse = power(row[pivot], PRIME - 2, PRIME);
        for other in rows.iter_mut().filter(|other| other[pivot] != 0) {
            let factor = other[pivot] * inverse % PRIME;
            for (value, &subtracted) in other.iter_mut().zip(&row) {
                *value = (*value - factor * subtracted).rem_euclid(PRIME);
            }
        }
    }
    rank
}

fn power(base: i64, exponent: i64, modulus: i64) -> i64 {
    let mut result = 1;
    for bit in (0..i64::BITS).rev() {
        result = result * result % modulus;
        if exponent >> bit & 1 == 1 {
            result = result * base % modulus;
        }
    }
    result
}

/// Every product of every signature with p + q + r <= 6.
#[test]
fn product_tables_agree_with_matrices() {
    let mut signatures = 0;
    for algebra in algebras(6) {
        let terms = algebra.product(ProductKind::Geometric);
        assert_eq!(mismatches(&algebra, &terms), [], "{}", algebra.signature());
        signatures += 1;
    }
    assert_eq!(signatures, 84);
}

/// Without this independence, equal matrices of different blades could hide a wrong output.
#[test]
fn blade_matrices_are_linearly_independent() {
    for algebra in algebras(6) {
        let matrices = blade_matrices(&algebra);
        assert_eq!(
            rank(&matrices),
            algebra.blade_count(),
            "{}",
            algebra.signature()
        );
    }
}

#[test]
fn the_rank_sees_a_dependence() {
    let algebra = Algebra::new(Signature::of(3, 0, 1));
    let mut matrices = blade_matrices(&algebra);
    matrices[5] = matrices[3].scaled(I);
    assert_eq!(rank(&matrices), 15);
    matrices[7] = Matrix(vec![Vec::new(); matrices[0].0.len()]);
    assert_eq!(rank(&matrices), 14);
}

#[test]
fn every_flipped_sign_is_reported() {
    for (p, q, r) in [(2, 0, 0), (0, 3, 0), (3, 0, 1)] {
        let algebra = Algebra::new(Signature::of(p, q, r));
        let terms = algebra.product(ProductKind::Geometric);
        for position in 0..terms.len() {
            let mut corrupt = terms.clone();
            corrupt[position].sign *= -1;
            let pair = (terms[position].left, terms[position].right);
            assert_eq!(mismatches(&algebra, &corrupt), [pair]);
        }
    }
}

#[test]
fn every_wrong_output_is_reported() {
    let algebra = Algebra::new(Signature::of(2, 0, 1));
    let terms = algebra.product(ProductKind::Geometric);
    for position in 0..terms.len() {
        let pair = (terms[position].left, terms[position].right);
        for shift in 1..algebra.blade_count() {
            let mut corrupt = terms.clone();
            corrupt[position].output = (terms[position].output + shift) % algebra.blade_count();
            assert_eq!(mismatches(&algebra, &corrupt), [pair]);
        }
    }
}

#[test]
fn missing_surplus_and_repeated_terms_are_reported() {
    let algebra = Algebra::new(Signature::of(3, 0, 1));
    let terms = algebra.product(ProductKind::Geometric);
    for position in 0..terms.len() {
        let pair = (terms[position].left, terms[position].right);
        let mut missing = terms.clone();
        missing.remove(position);
        assert_eq!(mismatches(&algebra, &missing), [pair]);
        let mut repeated = terms.clone();
        repeated.push(terms[position]);
        assert_eq!(mismatches(&algebra, &repeated), [pair]);
    }
    // e0 e0 = 0, but the table claims 1.
    let mut surplus = terms;
    surplus.push(Term {
        left: 1,
        right: 1,
        output: 0,
        sign: 1,
    });
    assert_eq!(mismatches(&algebra, &surplus), [(1, 1)]);
}

/// The oracle knows the metric: the table of one signature fails for another.
#[test]
fn the_table_of_another_metric_is_reported() {
    let euclidean = Algebra::new(Signature::of(3, 0, 0));
    let terms = euclidean.product(ProductKind::Geometric);
    for (p, q, r) in [(2, 1, 0), (0, 3, 0), (2, 0, 1)] {
        let other = Algebra::new(Signature::of(p, q, r));
        assert!(!mismatches(&other, &terms).is_empty());
    }
}
