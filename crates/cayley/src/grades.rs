//! Sets of grades: which parts of a multivector are present.

use std::fmt;
use std::str::FromStr;

use crate::{Algebra, Error, Signature};

/// A set of grades, held as a bit set.
///
/// ```
/// use cayley::GradeSet;
///
/// const ROTOR: GradeSet = GradeSet::of(&[0, 2]);
/// assert_eq!(ROTOR, GradeSet::even(3));
/// assert_eq!(ROTOR.to_string(), "0,2");
/// assert_eq!("0,2".parse(), Ok(ROTOR));
/// assert_eq!(ROTOR.union(GradeSet::odd(3)), GradeSet::full(3));
/// assert_eq!(ROTOR, [0, 2].into());
/// assert_eq!(ROTOR, (0..=3).step_by(2).collect());
/// assert_eq!(format!("{ROTOR:?}"), "GradeSet(0,2)");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GradeSet(u16);

impl GradeSet {
    /// The set without grades.
    pub const EMPTY: GradeSet = GradeSet(0);

    /// Grades `0..=dim`.
    ///
    /// # Panics
    ///
    /// If `dim` exceeds [`Signature::MAX_DIM`].
    pub const fn full(dim: usize) -> GradeSet {
        assert!(
            dim <= Signature::MAX_DIM,
            "a dimension is at most Signature::MAX_DIM"
        );
        GradeSet((1 << (dim + 1)) - 1)
    }

    /// The even grades of `0..=dim`.
    ///
    /// # Panics
    ///
    /// If `dim` exceeds [`Signature::MAX_DIM`].
    pub const fn even(dim: usize) -> GradeSet {
        GradeSet(Self::full(dim).0 & 0x5555)
    }

    /// The odd grades of `0..=dim`.
    ///
    /// # Panics
    ///
    /// If `dim` exceeds [`Signature::MAX_DIM`].
    pub const fn odd(dim: usize) -> GradeSet {
        GradeSet(Self::full(dim).0 & 0xAAAA)
    }

    /// The set of one grade.
    ///
    /// # Panics
    ///
    /// If `grade` exceeds [`Signature::MAX_DIM`].
    pub const fn single(grade: usize) -> GradeSet {
        assert!(
            grade <= Signature::MAX_DIM,
            "a grade is at most Signature::MAX_DIM"
        );
        GradeSet(1 << grade)
    }

    /// The set of the listed grades; repetitions are harmless.
    ///
    /// For grades that come from a user, see [`GradeSet::try_of`].
    ///
    /// # Panics
    ///
    /// If a grade exceeds [`Signature::MAX_DIM`]; in a constant, the build fails instead.
    pub const fn of(grades: &[usize]) -> GradeSet {
        let mut set = GradeSet::EMPTY;
        let mut position = 0;
        while position < grades.len() {
            set = set.union(GradeSet::single(grades[position]));
            position += 1;
        }
        set
    }

    /// The set of the listed grades; repetitions are harmless.
    ///
    /// # Errors
    ///
    /// [`Error::GradeOutOfRange`] if a grade exceeds [`Signature::MAX_DIM`].
    pub fn try_of(grades: &[usize]) -> Result<GradeSet, Error> {
        let max = Signature::MAX_DIM;
        match grades.iter().find(|&&grade| grade > max) {
            Some(&grade) => Err(Error::GradeOutOfRange { grade, max }),
            None => Ok(GradeSet::of(grades)),
        }
    }

    /// The bits: bit `g` is set if grade `g` is in the set.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether `grade` is in the set.
    pub const fn contains(self, grade: usize) -> bool {
        grade <= Signature::MAX_DIM && self.0 >> grade & 1 == 1
    }

    /// Whether every grade of `self` is in `other`.
    pub const fn is_subset(self, other: GradeSet) -> bool {
        self.0 & !other.0 == 0
    }

    /// Whether the set has no grade.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of grades in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The grades in increasing order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..=Signature::MAX_DIM).filter(move |&grade| self.contains(grade))
    }

    /// Grades of either set.
    pub const fn union(self, other: GradeSet) -> GradeSet {
        GradeSet(self.0 | other.0)
    }

    /// Grades of both sets.
    pub const fn intersection(self, other: GradeSet) -> GradeSet {
        GradeSet(self.0 & other.0)
    }

    /// Grades of `self` that are not in `other`.
    pub const fn difference(self, other: GradeSet) -> GradeSet {
        GradeSet(self.0 & !other.0)
    }

    /// Number of basis blades of `algebra` whose grade is in the set.
    pub fn blade_count(self, algebra: &Algebra) -> usize {
        self.iter()
            .map(|grade| algebra.grade_range(grade).len())
            .sum()
    }
}

impl<const N: usize> From<[usize; N]> for GradeSet {
    /// The set of the listed grades.
    ///
    /// # Panics
    ///
    /// The panic of [`GradeSet::of`].
    fn from(grades: [usize; N]) -> GradeSet {
        GradeSet::of(&grades)
    }
}

impl FromIterator<usize> for GradeSet {
    /// The set of the grades.
    ///
    /// # Panics
    ///
    /// The panic of [`GradeSet::of`].
    fn from_iter<I: IntoIterator<Item = usize>>(grades: I) -> GradeSet {
        let single = grades.into_iter().map(GradeSet::single);
        single.fold(GradeSet::EMPTY, GradeSet::union)
    }
}

impl fmt::Debug for GradeSet {
    /// Writes `GradeSet(0,2)`, or `GradeSet(none)` for the empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GradeSet({self})")
    }
}

impl fmt::Display for GradeSet {
    /// Writes `0,2`, or `none` for the empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (position, grade) in self.iter().enumerate() {
            let separator = if position == 0 { "" } else { "," };
            write!(f, "{separator}{grade}")?;
        }
        Ok(())
    }
}

impl FromStr for GradeSet {
    type Err = Error;

    /// Reads `0,2` in any order, or `none`; spaces around grades are allowed.
    fn from_str(text: &str) -> Result<GradeSet, Error> {
        if text.trim() == "none" {
            return Ok(GradeSet::EMPTY);
        }
        let parse = |part: &str| {
            let part = part.trim();
            let digits = part.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| part.parse().ok()).flatten()
        };
        let grades: Option<Vec<usize>> = text.split(',').map(parse).collect();
        match grades {
            Some(grades) => GradeSet::try_of(&grades),
            None => Err(Error::InvalidGradeSet {
                found: text.to_owned(),
            }),
        }
    }
}
