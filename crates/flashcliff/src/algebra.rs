//! The algebras that have kernels.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use cayley::{GradeSet, Path, Signature};

use crate::generated::ALGEBRAS;
use crate::kernel::Kernels;
use crate::kernel::program::Program;
use crate::{Error, environment, threads};

/// An algebra that has kernels: a handle, cheap to copy.
///
/// It has all methods of [`cayley::Algebra`]: blades and their names, grades, paths, product tables, signs, duals.
///
/// ```
/// use flashcliff::{Algebra, Path, ProductKind, Signature};
///
/// let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
/// assert_eq!((algebra.dim(), algebra.blade_count(), algebra.path_count()), (3, 8, 20));
/// assert_eq!(algebra.blade_name(algebra.grade_range(2).start), "e12");
/// assert_eq!(algebra.paths()[1], Path { left: 0, output: 1, right: 1 });
/// assert_eq!(algebra.product(ProductKind::Scalar).len(), 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Algebra {
    entry: &'static Entry,
}

struct Entry {
    kernels: &'static Kernels,
    cayley: cayley::Algebra,
    path_count: usize,
}

fn entries() -> &'static [Entry] {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    ENTRIES.get_or_init(|| {
        let entries = ALGEBRAS.iter().filter_map(|kernels| {
            let (p, q, r) = kernels.signature;
            let signature = Signature::new(p, q, r).ok()?;
            let cayley = cayley::Algebra::new(signature);
            let path_count = cayley.paths().len();
            Some(Entry {
                kernels,
                cayley,
                path_count,
            })
        });
        entries.collect()
    })
}

impl Algebra {
    /// The algebra of a signature.
    ///
    /// # Errors
    /// [`Error::UnsupportedSignature`] if no kernels were generated for it; the message says how
    /// to add it. [`Error::Environment`] for a [variable](environment) that means nothing.
    pub fn new(signature: Signature) -> Result<Self, Error> {
        environment::check()?;
        threads::note_process();
        let mut shipped = Self::shipped();
        let found = shipped.find(|algebra| algebra.signature() == signature);
        found.ok_or_else(|| Error::UnsupportedSignature {
            signature,
            shipped: Self::shipped()
                .map(|a| a.name())
                .collect::<Vec<_>>()
                .join(", "),
        })
    }

    /// Every algebra that has kernels.
    pub fn shipped() -> impl Iterator<Item = Self> {
        entries().iter().map(|entry| Self { entry })
    }

    /// Its signature.
    pub fn signature(&self) -> Signature {
        self.entry.cayley.signature()
    }

    /// Its name, such as `cl301`.
    pub fn name(&self) -> String {
        self.signature().name()
    }

    /// Blades, product tables and paths.
    pub fn cayley(&self) -> &'static cayley::Algebra {
        &self.entry.cayley
    }

    /// The number of blades.
    pub fn blade_count(&self) -> usize {
        self.entry.cayley.blade_count()
    }

    /// The number of grades.
    pub fn grade_count(&self) -> usize {
        self.entry.cayley.grade_count()
    }

    /// The number of paths of the geometric product.
    pub fn path_count(&self) -> usize {
        self.entry.path_count
    }

    pub(crate) fn full(&self) -> GradeSet {
        GradeSet::full(self.entry.cayley.dim())
    }

    /// A program by its key.
    pub(crate) fn program(
        &self,
        name: &str,
        left: GradeSet,
        right: GradeSet,
    ) -> Result<&'static Program, Error> {
        let cayley = self.cayley();
        cayley.check_grades(left)?;
        cayley.check_grades(right)?;
        let named = || {
            self.entry
                .kernels
                .programs
                .iter()
                .filter(|p| p.name == name)
        };
        let key = (left.bits(), right.bits());
        let found = named().find(|program| (program.left, program.right) == key);
        found.copied().ok_or_else(|| Error::UnsupportedGrades {
            operator: name.to_owned(),
            signature: self.signature(),
            left,
            right,
            shipped: named()
                .map(|p| format!("({}) and ({})", grades(p.left), grades(p.right)))
                .collect::<Vec<_>>()
                .join("; "),
        })
    }

    /// The program of one path of the fully connected product: paths with equal operand grades
    /// differ by the grade of the output.
    pub(crate) fn path_program(&self, path: Path) -> Result<&'static Program, Error> {
        let [left, output, right] = [path.left, path.output, path.right].map(GradeSet::single);
        let key = (left.bits(), output.bits(), right.bits());
        let mut programs = self.entry.kernels.programs.iter();
        let found = programs.find(|program| {
            program.name == "path_product" && (program.left, program.output, program.right) == key
        });
        found.copied().ok_or_else(|| Error::UnsupportedGrades {
            operator: format!("path product {path}"),
            signature: self.signature(),
            left,
            right,
            shipped: "every path of the Cayley table".to_owned(),
        })
    }
}

impl Deref for Algebra {
    type Target = cayley::Algebra;

    fn deref(&self) -> &cayley::Algebra {
        &self.entry.cayley
    }
}

/// The grade set of a bit set.
pub(crate) fn grades(bits: u16) -> GradeSet {
    let members = (0..=Signature::MAX_DIM).filter(|g| bits >> g & 1 == 1);
    members.fold(GradeSet::EMPTY, |set, g| set.union(GradeSet::single(g)))
}

impl fmt::Debug for Algebra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Algebra").field(&self.signature()).finish()
    }
}

impl PartialEq for Algebra {
    fn eq(&self, other: &Self) -> bool {
        self.signature() == other.signature()
    }
}

impl Eq for Algebra {}
