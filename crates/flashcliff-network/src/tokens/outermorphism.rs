//! The outermorphism of a linear map of vectors: the map of multivectors that keeps exterior products and is the linear map on vectors.
//!
//! It does not mix grades. Its entries are the minors of the matrix; each of a grade above 1 is a sum of products of
//! an entry of grade 1 and one of the grade below, for the first vector of a blade and the blade of the others:
//!
//! ```text
//! L(e_j ^ e_R) = L(e_j) ^ L(e_R)
//! ```

use std::ops::Range;

use flashcliff::cayley::ProductKind;

use super::{Geometry, number};
use crate::Number;

/// The entries of outermorphisms of a geometry, and how they follow from the entries of vectors, `L[i, j]`, which come
/// first, row by row.
#[derive(Clone, Debug)]
pub(crate) struct Outermorphism {
    pub(crate) blocks: Vec<Block>,
    pub(crate) terms: Vec<Term>,
    /// The number of vectors.
    vectors: usize,
}

/// The entries of a grade, a matrix of so many rows and columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// The first blade of tokens.
    pub(crate) blade: usize,
    pub(crate) size: usize,
    /// The first entry.
    pub(crate) entry: usize,
}

/// `entry += sign left right`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) entry: usize,
    pub(crate) left: usize,
    pub(crate) right: usize,
    pub(crate) sign: f64,
}

impl Block {
    /// The entries.
    fn entries(&self) -> Range<usize> {
        self.entry..self.entry + self.size * self.size
    }

    /// The entry of a row and a column.
    fn at(&self, row: usize, column: usize) -> usize {
        self.entry + row * self.size + column
    }
}

impl Outermorphism {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let cayley = geometry.algebra.cayley();
        let vectors = cayley.grade_range(1);
        let block = |range: &Range<usize>, blade, entry| Block {
            blade,
            size: range.len(),
            entry,
        };
        let mut made = Self {
            blocks: Vec::new(),
            terms: Vec::new(),
            vectors: vectors.len(),
        };
        if geometry.vectors {
            made.blocks.push(block(&vectors, 0, 0));
            return made;
        }
        let mut entry = 0;
        for grade in 1..=vectors.len() {
            let range = cayley.grade_range(grade);
            made.blocks.push(block(&range, range.start, entry));
            entry += range.len() * range.len();
            if grade > 1 {
                made.add_terms(geometry, grade);
            }
        }
        made
    }

    /// Adds the terms of a grade above 1.
    fn add_terms(&mut self, geometry: &Geometry, grade: usize) {
        let cayley = geometry.algebra.cayley();
        let [vectors, others, own] = [1, grade - 1, grade].map(|grade| cayley.grade_range(grade));
        let exterior = |left, right| cayley.multiply_with(ProductKind::Exterior, left, right);
        let [first, below, block] = [0, grade - 2, grade - 1].map(|at| self.blocks[at]);
        // Each blade as the product of its first vector and the blade of the others.
        let mut columns = vec![None; own.len()];
        for j in vectors.clone().rev() {
            for rest in others.clone() {
                if let Some((blade, sign)) = exterior(j, rest) {
                    columns[blade - own.start] = Some((j, rest, sign));
                }
            }
        }
        for (column, factors) in columns.into_iter().enumerate() {
            let Some((j, rest, sign)) = factors else {
                continue;
            };
            for i in vectors.clone() {
                for other in others.clone() {
                    let Some((blade, turned)) = exterior(i, other) else {
                        continue;
                    };
                    self.terms.push(Term {
                        entry: block.at(blade - own.start, column),
                        left: first.at(i - vectors.start, j - vectors.start),
                        right: below.at(other - others.start, rest - others.start),
                        sign: f64::from(sign * turned),
                    });
                }
            }
        }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.blocks.last().map_or(0, |block| block.entries().end)
    }

    /// The numbers of a frame.
    pub(crate) fn frame_len(&self) -> usize {
        self.vectors * self.vectors
    }

    /// Writes the entries for a frame.
    pub(crate) fn write<T: Number>(&self, frame: &[T], entries: &mut [T]) {
        let (own, others) = entries.split_at_mut(frame.len());
        own.copy_from_slice(frame);
        others.fill(T::default());
        for term in &self.terms {
            let product = entries[term.left] * entries[term.right];
            entries[term.entry] += product * number(term.sign);
        }
    }

    /// Adds the gradients of all entries up to the gradients of the frame's entries, the first ones.
    pub(crate) fn write_gradient<T: Number>(&self, entries: &[T], gradients: &mut [T]) {
        for term in self.terms.iter().rev() {
            let own = gradients[term.entry] * number(term.sign);
            gradients[term.left] += own * entries[term.right];
            gradients[term.right] += own * entries[term.left];
        }
    }
}
