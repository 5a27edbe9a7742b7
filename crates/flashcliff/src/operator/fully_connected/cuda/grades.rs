//! The output grades of a product, ordered so that grades of the same shape are multiplied together.

use std::ops::Range;

use crate::Algebra;
use crate::operator;

/// A grade of the output.
#[derive(Clone, Debug)]
pub(super) struct OutputGrade {
    pub(super) grade: usize,
    /// The blades of this grade in the output.
    pub(super) blades: Range<usize>,
    /// The paths to this grade, in the order of the matrix products.
    pub(super) paths: Range<usize>,
}

impl OutputGrade {
    /// The number of blades and the number of paths.
    fn shape(&self) -> [usize; 2] {
        [self.blades.len(), self.paths.len()]
    }
}

/// The grades of the output and the paths to them, in the order of the matrix products.
#[derive(Clone, Debug)]
pub(super) struct OutputGrades {
    pub(super) all: Vec<OutputGrade>,
    /// For each path in that order, its place in the weights.
    pub(super) order: Vec<usize>,
}

/// The largest number of grades in a group. Two grades always have a constant distance; more of them may not.
const MOST_TOGETHER: usize = 2;

impl OutputGrades {
    pub(super) fn new(algebra: Algebra, product: &operator::FullyConnected) -> Self {
        let cayley = algebra.cayley();
        let paths = product.paths();
        let mut start = 0;
        let grades = product.grades()[2].iter().map(|grade| {
            let blades = start..start + cayley.grade_range(grade).len();
            start = blades.end;
            let to_grade = paths.iter().enumerate().filter(|(_, p)| p.output == grade);
            (grade, blades, to_grade.map(|(place, _)| place).collect())
        });
        let mut grades: Vec<(usize, Range<usize>, Vec<usize>)> = grades.collect();
        // The sort is stable, so grades of the same shape stay in order.
        grades.sort_by_key(|(_, blades, paths)| (blades.len(), paths.len()));
        let (mut all, mut order) = (Vec::new(), Vec::new());
        for (grade, blades, paths) in grades {
            let first = order.len();
            order.extend(paths);
            all.push(OutputGrade {
                grade,
                blades,
                paths: first..order.len(),
            });
        }
        Self { all, order }
    }

    /// Grades of the same shape, one or two.
    pub(super) fn groups(&self) -> impl Iterator<Item = &[OutputGrade]> {
        let equal = self.all.chunk_by(|a, b| a.shape() == b.shape());
        equal.flat_map(|grades| grades.chunks(MOST_TOGETHER))
    }

    /// The shapes of all grades, in ascending order: what the matrix products depend on.
    pub(super) fn shapes(&self) -> Vec<[usize; 2]> {
        self.all.iter().map(OutputGrade::shape).collect()
    }

    /// The number of blades of the output.
    pub(super) fn blades(&self) -> usize {
        self.all.iter().map(|grade| grade.blades.len()).sum()
    }

    /// The number of path products of a lane: for each path, the blades of its output grade.
    pub(super) fn path_products(&self) -> usize {
        self.all
            .iter()
            .map(|g| g.blades.len() * g.paths.len())
            .sum()
    }
}
