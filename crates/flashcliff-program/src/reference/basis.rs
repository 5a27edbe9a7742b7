//! The basis and the products of basis blades, written down from the definitions: a blade is a list of vectors, and a
//! product concatenates two lists and sorts the result.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use cayley::{GradeSet, ProductKind, Signature};

/// A blade with a coefficient; a coefficient of 0 means no blade.
pub type Signed = (usize, i64);

/// The basis of a signature in short-lex order, null vectors first, then positive, then negative.
#[derive(Debug)]
pub struct Basis {
    /// The number of vectors.
    pub dim: usize,
    /// The vectors of each blade, increasing.
    pub blades: Vec<Vec<usize>>,
    /// The signature.
    pub signature: Signature,
    squares: Vec<i64>,
    tables: RefCell<HashMap<(ProductKind, GradeSet, GradeSet), Rc<Table>>>,
}

/// A term of a bilinear product between stored components.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    /// The place of the left component.
    pub left: usize,
    /// The place of the right component.
    pub right: usize,
    /// The place in the output.
    pub output: usize,
    /// The number of the path.
    pub path: usize,
    /// The sign, or 0.
    pub sign: i64,
}

/// A bilinear product between operands that carry some grades.
#[derive(Debug)]
pub struct Table {
    /// The terms.
    pub terms: Vec<Term>,
    /// The blades of the output that can be non-zero, by grade.
    pub outputs: Vec<usize>,
    /// The paths as (left, output, right).
    pub paths: Vec<[usize; 3]>,
}

impl Basis {
    /// The basis of a signature.
    pub fn new(signature: Signature) -> Self {
        let (p, q, r) = (signature.p(), signature.q(), signature.r());
        let dim = p + q + r;
        let mut blades: Vec<Vec<usize>> = (0..1_usize << dim)
            .map(|mask| (0..dim).filter(|v| mask >> v & 1 == 1).collect())
            .collect();
        blades.sort_by_key(|blade| (blade.len(), blade.clone()));
        let squares = [vec![0; r], vec![1; p], vec![-1; q]].concat();
        Self {
            dim,
            blades,
            signature,
            squares,
            tables: RefCell::default(),
        }
    }

    /// The number of blades.
    #[allow(clippy::len_without_is_empty, reason = "there is always the scalar")]
    pub fn len(&self) -> usize {
        self.blades.len()
    }

    /// The grade of a blade.
    pub fn grade(&self, blade: usize) -> usize {
        self.blades[blade].len()
    }

    /// The square of a basis vector.
    pub fn square(&self, vector: usize) -> i64 {
        self.squares[vector]
    }

    /// The blades of some grades.
    pub fn stored(&self, grades: GradeSet) -> Vec<usize> {
        (0..self.len())
            .filter(|&b| grades.contains(self.grade(b)))
            .collect()
    }

    /// The geometric product: sorts the vectors of both blades and replaces equal pairs by their square.
    pub fn geometric(&self, left: usize, right: usize) -> Signed {
        let mut row = [self.blades[left].clone(), self.blades[right].clone()].concat();
        let mut sign = 1;
        for end in (1..row.len()).rev() {
            for at in 0..end {
                if row[at] > row[at + 1] {
                    row.swap(at, at + 1);
                    sign = -sign;
                }
            }
        }
        let mut at = 0;
        while at + 1 < row.len() {
            if row[at] == row[at + 1] {
                sign *= self.squares[row[at]];
                row.drain(at..at + 2);
            } else {
                at += 1;
            }
        }
        (self.find(&row), sign)
    }

    /// Any product of two basis blades.
    pub fn product(&self, kind: ProductKind, left: usize, right: usize) -> Signed {
        let (g, h) = (self.grade(left) as isize, self.grade(right) as isize);
        let (output, sign) = self.geometric(left, right);
        let part = |grade: isize| {
            let keep = self.grade(output) as isize == grade;
            (output, if keep { sign } else { 0 })
        };
        match kind {
            ProductKind::Geometric => (output, sign),
            ProductKind::Exterior => part(g + h),
            ProductKind::LeftContraction => part(h - g),
            ProductKind::RightContraction => part(g - h),
            ProductKind::Scalar => part(0),
            ProductKind::Commutator => (output, (sign - self.geometric(right, left).1) / 2),
            ProductKind::Regressive => {
                let (left, s) = self.dual(left);
                let (right, t) = self.dual(right);
                let (joined, u) = self.product(ProductKind::Exterior, left, right);
                let (output, v) = self.undual(joined);
                (output, s * t * u * v)
            }
        }
    }

    /// The dual: the `d` with `e_b ^ d = I`.
    pub fn dual(&self, blade: usize) -> Signed {
        let complement = self.complement(blade);
        (complement, self.exterior_sign(blade, complement))
    }

    /// The inverse dual: the `d` with `d ^ e_b = I`.
    pub fn undual(&self, blade: usize) -> Signed {
        let complement = self.complement(blade);
        (complement, self.exterior_sign(complement, blade))
    }

    /// The coefficient of the blade in `q(x)`, the scalar part of `reverse(x) x`.
    pub fn quadratic(&self, blade: usize) -> i64 {
        self.reverse(blade) * self.geometric(blade, blade).1
    }

    /// The sign of the reverse: the vectors in the opposite order.
    pub fn reverse(&self, blade: usize) -> i64 {
        let swaps = self.grade(blade) * self.grade(blade).saturating_sub(1) / 2;
        1 - 2 * (swaps as i64 % 2)
    }

    /// The sign of the grade involution: every vector negated.
    pub fn involution(&self, blade: usize) -> i64 {
        1 - 2 * (self.grade(blade) as i64 % 2)
    }

    /// All terms of a product, the outputs of reachable grades, and the paths in lexicographic order.
    pub fn table(&self, kind: ProductKind, left: GradeSet, right: GradeSet) -> Rc<Table> {
        let mut tables = self.tables.borrow_mut();
        let entry = tables.entry((kind, left, right));
        entry
            .or_insert_with(|| Rc::new(self.make_table(kind, left, right)))
            .clone()
    }

    fn make_table(&self, kind: ProductKind, left: GradeSet, right: GradeSet) -> Table {
        let (lefts, rights) = (self.stored(left), self.stored(right));
        let mut found = Vec::new();
        for (i, &a) in lefts.iter().enumerate() {
            for (k, &b) in rights.iter().enumerate() {
                let (output, sign) = self.product(kind, a, b);
                if sign != 0 {
                    let path = [self.grade(a), self.grade(output), self.grade(b)];
                    found.push((i, k, output, sign, path));
                }
            }
        }
        let mut paths: Vec<[usize; 3]> = found.iter().map(|f| f.4).collect();
        paths.sort_unstable();
        paths.dedup();
        let reached = |b: usize| paths.iter().any(|path| path[1] == self.grade(b));
        let outputs: Vec<usize> = (0..self.len()).filter(|&b| reached(b)).collect();
        let terms = found
            .into_iter()
            .map(|(left, right, output, sign, path)| Term {
                left,
                right,
                output: position(&outputs, &output),
                path: position(&paths, &path),
                sign,
            });
        Table {
            terms: terms.collect(),
            outputs,
            paths,
        }
    }

    fn find(&self, vectors: &[usize]) -> usize {
        position(&self.blades, &vectors.to_vec())
    }

    fn complement(&self, blade: usize) -> usize {
        let rest: Vec<usize> = (0..self.dim)
            .filter(|v| !self.blades[blade].contains(v))
            .collect();
        self.find(&rest)
    }

    /// The sign of sorting two disjoint lists, which needs no square.
    fn exterior_sign(&self, left: usize, right: usize) -> i64 {
        let swaps: usize = self.blades[left]
            .iter()
            .map(|v| self.blades[right].iter().filter(|w| *w < v).count())
            .sum();
        1 - 2 * (swaps as i64 % 2)
    }
}

fn position<T: PartialEq>(all: &[T], wanted: &T) -> usize {
    all.iter()
        .position(|one| one == wanted)
        .expect("the basis is complete")
}
