//! The basis of an algebra: its blades in order, their grades and their names.

use std::ops::Range;

use crate::{Blade, Error, GradeSet, Signature};

/// The geometric algebra of a signature, with its basis in short-lex order.
///
/// Blades are addressed by their index in that order; the [crate] page states the order and the
/// signs. Methods that take an index panic if it is not below [`Algebra::blade_count`]. Grades above
/// [`Algebra::dim`] have no blades; [`Algebra::check_grades`] reports them.
///
/// ```
/// use cayley::{Algebra, Signature};
///
/// let algebra = Algebra::new(Signature::new(3, 0, 0)?);
/// let names: Vec<_> = (0..algebra.blade_count()).map(|i| algebra.blade_name(i)).collect();
/// assert_eq!(names, ["1", "e1", "e2", "e3", "e12", "e13", "e23", "e123"]);
/// assert_eq!(algebra.grade_range(2), 4..7);
///
/// // e12 e12 = −1 and e1 e23 = e123.
/// assert_eq!(algebra.multiply(4, 4), Some((0, -1)));
/// assert_eq!(algebra.multiply(1, 6), Some((7, 1)));
///
/// // In a degenerate algebra a null vector squares to zero.
/// let degenerate = Algebra::new(Signature::new(3, 0, 1)?);
/// assert_eq!(degenerate.blade_name(1), "e0");
/// assert_eq!(degenerate.multiply(1, 1), None);
/// # Ok::<(), cayley::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algebra {
    signature: Signature,
    blades: Vec<Blade>,
    /// Index of the blade with a given mask.
    index_of_mask: Vec<usize>,
    /// Index of the first blade of each grade.
    grade_starts: Vec<usize>,
}

impl Algebra {
    /// The algebra of `signature`.
    pub fn new(signature: Signature) -> Algebra {
        let mut blades: Vec<Blade> = (0..1 << signature.dim()).map(Blade).collect();
        blades.sort_unstable();
        let mut index_of_mask = vec![0; blades.len()];
        for (index, blade) in blades.iter().enumerate() {
            index_of_mask[usize::from(blade.mask())] = index;
        }
        let grade_starts = (0..=signature.dim())
            .map(|grade| blades.partition_point(|blade| blade.grade() < grade))
            .collect();
        Algebra {
            signature,
            blades,
            index_of_mask,
            grade_starts,
        }
    }

    /// The signature.
    pub fn signature(&self) -> Signature {
        self.signature
    }

    /// Dimension `n` of the vector space.
    pub fn dim(&self) -> usize {
        self.signature.dim()
    }

    /// Number of basis blades, `2^n`.
    pub fn blade_count(&self) -> usize {
        self.blades.len()
    }

    /// Number of grades, `n + 1`.
    pub fn grade_count(&self) -> usize {
        self.dim() + 1
    }

    /// The basis blades in short-lex order.
    pub fn blades(&self) -> &[Blade] {
        &self.blades
    }

    /// Index of a blade.
    ///
    /// # Panics
    ///
    /// If the blade has a vector that the algebra lacks; see [`Algebra::find`].
    pub fn index_of(&self, blade: Blade) -> usize {
        match self.find(blade) {
            Some(index) => index,
            None => panic!("blade {blade:?} lies outside {}", self.signature),
        }
    }

    /// Index of a blade, or `None` if it has a vector that the algebra lacks.
    pub fn find(&self, blade: Blade) -> Option<usize> {
        self.index_of_mask.get(usize::from(blade.mask())).copied()
    }

    /// Grade of the blade at `index`.
    pub fn grade_of(&self, index: usize) -> usize {
        self.blades[index].grade()
    }

    /// Indices of the blades of a grade; empty for a grade above the dimension.
    pub fn grade_range(&self, grade: usize) -> Range<usize> {
        let start = |grade: usize| {
            let start = self.grade_starts.get(grade).copied();
            start.unwrap_or(self.blade_count())
        };
        start(grade)..start(grade.saturating_add(1))
    }

    /// Name of the blade at `index`: `1`, `e1`, `e12`, `e0123`.
    pub fn blade_name(&self, index: usize) -> String {
        let blade = self.blades[index];
        if blade == Blade::SCALAR {
            return "1".to_owned();
        }
        let labels = blade
            .vectors()
            .map(|vector| (vector + self.signature.first_label()).to_string());
        std::iter::once("e".to_owned()).chain(labels).collect()
    }

    /// Index of the blade with a given name, the inverse of [`Algebra::blade_name`].
    ///
    /// # Errors
    ///
    /// [`Error::UnknownBlade`] if the name is not one of this algebra's, with its vectors in
    /// increasing order.
    pub fn index_of_name(&self, name: &str) -> Result<usize, Error> {
        (0..self.blade_count())
            .find(|&index| self.blade_name(index) == name)
            .ok_or_else(|| Error::UnknownBlade {
                found: name.to_owned(),
                signature: self.signature,
            })
    }

    /// Checks that every grade of `grades` exists in this algebra.
    ///
    /// # Errors
    ///
    /// [`Error::GradeOutOfRange`] with the first grade above the dimension.
    pub fn check_grades(&self, grades: GradeSet) -> Result<(), Error> {
        match grades.difference(GradeSet::full(self.dim())).iter().next() {
            Some(grade) => Err(Error::GradeOutOfRange {
                grade,
                max: self.dim(),
            }),
            None => Ok(()),
        }
    }

    /// Indices of the blades whose grade is in `grades`, increasing. Grades above the dimension
    /// have no blades.
    pub fn blades_in(&self, grades: GradeSet) -> Vec<usize> {
        (0..self.blade_count())
            .filter(|&index| grades.contains(self.grade_of(index)))
            .collect()
    }

    /// Position of the blade at `index` in storage that holds only the blades of `grades`; `None`
    /// if its grade is absent.
    ///
    /// This inverts [`Algebra::blades_in`].
    pub fn offset_in(&self, grades: GradeSet, index: usize) -> Option<usize> {
        let grade = self.grade_of(index);
        if !grades.contains(grade) {
            return None;
        }
        let below: usize = (0..grade)
            .filter(|&lower| grades.contains(lower))
            .map(|lower| self.grade_range(lower).len())
            .sum();
        Some(below + index - self.grade_range(grade).start)
    }
}
