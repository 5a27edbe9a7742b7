//! The layout of a tensor that carries some grades.

use std::ops::Range;

use cayley::GradeSet;

use crate::Algebra;

/// The blades of each grade in a tensor that carries some grades, as ranges; `None` for a missing grade.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) ranges: Vec<Option<Range<usize>>>,
    pub(super) blades: usize,
}

impl Layout {
    pub(super) fn new(algebra: Algebra, grades: GradeSet) -> Self {
        let cayley = algebra.cayley();
        let mut blades = 0;
        let ranges = (0..cayley.grade_count()).map(|grade| {
            let count = cayley.grade_range(grade).len();
            grades.contains(grade).then(|| {
                blades += count;
                blades - count..blades
            })
        });
        let ranges = ranges.collect();
        Self { ranges, blades }
    }

    pub(super) fn grades(&self) -> GradeSet {
        let present = self.ranges.iter().enumerate();
        let present = present.filter(|(_, range)| range.is_some());
        let grades: Vec<usize> = present.map(|(grade, _)| grade).collect();
        GradeSet::of(&grades)
    }

    pub(super) fn grade(&self, grade: usize) -> Range<usize> {
        self.ranges[grade].clone().unwrap_or(0..0)
    }

    pub(super) fn has_scalar(&self) -> bool {
        self.ranges[0].is_some()
    }
}
