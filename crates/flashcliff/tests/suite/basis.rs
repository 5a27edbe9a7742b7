//! The basis and the products of basis blades, written down from the definitions: a blade is a list of vectors, and a
//! product concatenates two lists and sorts the result.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use flashcliff::{GradeSet, ProductKind, Signature};

/// A blade with a coefficient; a coefficient of 0 means no blade.
pub(crate) type Signed = (usize, i64);

/// The basis of a signature in short-lex order, null vectors first, then positive, then negative.
pub(crate) struct Basis {
    pub(crate) dim: usize,
    /// The vectors of each blade, increasing.
    pub(crate) blades: Vec<Vec<usize>>,
    squares: Vec<i64>,
    tables: RefCell<HashMap<(ProductKind, GradeSet, GradeSet), Rc<Table>>>,
}

/// A term of a bilinear product between stored components.
#[derive(Clone, Copy)]
pub(crate) struct Term {
    pub(crate) left: usize,
    pub(crate) right: usize,
    pub(crate) output: usize,
    pub(crate) path: usize,
    pub(crate) sign: i64,
}

/// A bilinear product between operands that carry some grades.
pub(crate) struct Table {
    pub(crate) terms: Vec<Term>,
    /// The blades of the output that can be non-zero, by grade.
    pub(crate) outputs: Vec<usize>,
    /// The paths as (left, output, right).
    pub(crate) paths: Vec<[usize; 3]>,
}

impl Basis {
    pub(crate) fn new(signature: Signature) -> Self {
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
            squares,
            tables: RefCell::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.blades.len()
    }

    pub(crate) fn grade(&self, blade: usize) -> usize {
        self.blades[blade].len()
    }

    /// The square of a basis vector.
    pub(crate) fn square(&self, vector: usize) -> i64 {
        self.squares[vector]
    }

    pub(crate) fn stored(&self, grades: GradeSet) -> Vec<usize> {
        (0..self.len())
            .filter(|&b| grades.contains(self.grade(b)))
            .collect()
    }

    /// The geometric product: sorts the vectors of both blades and replaces equal pairs by their square.
    pub(crate) fn geometric(&self, left: usize, right: usize) -> Signed {
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
    pub(crate) fn product(&self, kind: ProductKind, left: usize, right: usize) -> Signed {
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
    pub(crate) fn dual(&self, blade: usize) -> Signed {
        let complement = self.complement(blade);
        (complement, self.exterior_sign(blade, complement))
    }

    /// The inverse dual: the `d` with `d ^ e_b = I`.
    pub(crate) fn undual(&self, blade: usize) -> Signed {
        let complement = self.complement(blade);
        (complement, self.exterior_sign(complement, blade))
    }

    /// The coefficient of the blade in `q(x)`, the scalar part of `reverse(x) x`.
    pub(crate) fn quadratic(&self, blade: usize) -> i64 {
        self.reverse(blade) * self.geometric(blade, blade).1
    }

    /// The sign of the reverse: the vectors in the opposite order.
    pub(crate) fn reverse(&self, blade: usize) -> i64 {
        let swaps = self.grade(blade) * self.grade(blade).saturating_sub(1) / 2;
        1 - 2 * (swaps as i64 % 2)
    }

    /// The sign of the grade involution: every vector negated.
    pub(crate) fn involution(&self, blade: usize) -> i64 {
        1 - 2 * (self.grade(blade) as i64 % 2)
    }

    /// All terms of a product, the outputs of reachable grades, and the paths in lexicographic order.
    pub(crate) fn table(&self, kind: ProductKind, left: GradeSet, right: GradeSet) -> Rc<Table> {
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

/// The tables were written down by others, so that the reference does not only confirm itself.
#[test]
fn the_reference_products_agree_with_published_tables() {
    let count = |p, q, r| {
        let basis = Basis::new(Signature::of(p, q, r));
        let full = GradeSet::full(basis.dim);
        let table = basis.table(ProductKind::Geometric, full, full);
        (table.terms.len(), table.paths.len())
    };
    // These are the non-zeros of Cayley tables and the numbers of grade paths.
    assert_eq!(count(2, 0, 0), (16, 10));
    assert_eq!(count(3, 0, 0), (64, 20));
    assert_eq!(count(3, 0, 1), (192, 34));
    assert_eq!(count(1, 3, 0), (256, 35));
    assert_eq!(count(5, 0, 0), (1024, 56));
    // In GATr's dual the components are reversed, with these signs.
    let signs = [1, -1, 1, -1, 1, 1, -1, 1, 1, -1, 1, -1, 1, -1, 1, 1];
    let basis = Basis::new(Signature::of(3, 0, 1));
    for blade in 0..16 {
        let (image, sign) = basis.dual(blade);
        assert_eq!(
            (image, sign),
            (15 - blade, signs[15 - blade]),
            "blade {blade}"
        );
    }
    // Quaternions: i j = k, with i = e1, j = e2, k = e12, and all squares are -1.
    let basis = Basis::new(Signature::of(0, 2, 0));
    assert_eq!(basis.geometric(1, 2), (3, 1));
    for unit in 1..4 {
        assert_eq!(basis.geometric(unit, unit), (0, -1));
    }
}
