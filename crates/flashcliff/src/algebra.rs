//! Algebras with the programs of their operators. A program is compiled, or made when it is first asked for.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use cayley::{GradeSet, Path, Signature};
use flashcliff_kernels::program::Program;
use flashcliff_kernels::{ALGEBRAS, Kernels};
use flashcliff_program::spec;

use crate::kept::Kept;
use crate::programs::Known;
use crate::{Error, ahead, environment, threads};

/// An algebra with its operators: a handle, cheap to copy.
///
/// It has all methods of [`cayley::Algebra`]: blades and their names, grades, paths, product tables, signs, duals.
///
/// Every signature of up to 8 dimensions works. [Compiled](Self::is_compiled) algebras have their own kernels. Other operators - of other
/// algebras, of grades that no kernel was compiled for, of groups that the build left out - are planned when they are first made, and
/// interpreted. This is slower, but the results are the same bit for bit. `FLASHCLIFF_ALGEBRAS` and the features of this crate say what a
/// build compiles. On CUDA nothing is interpreted: with the feature `jit`, kernels that were not built are compiled at first use; without
/// it, asking for them is an error.
///
/// ```
/// use flashcliff::{Algebra, Path, ProductKind, Signature};
///
/// let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
/// assert_eq!((algebra.dim(), algebra.blade_count(), algebra.path_count()), (3, 8, 20));
/// assert_eq!(algebra.blade_name(algebra.grade_range(2).start), "e12");
/// assert_eq!(algebra.paths()[1], Path { left: 0, output: 1, right: 1 });
/// assert_eq!(algebra.product(ProductKind::Scalar).len(), 8);
/// assert!(algebra.is_compiled());
/// assert!(!"cl211".parse::<Algebra>()?.is_compiled());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Algebra {
    entry: &'static Entry,
}

/// The name of a program of the table of operators, and the grades of its operands.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Label {
    name: String,
    left: GradeSet,
    right: GradeSet,
    /// The grade of the output, for path products only.
    output: Option<GradeSet>,
}

struct Entry {
    /// The compiled programs of the algebra, if there are any.
    kernels: Option<&'static Kernels>,
    /// Whether programs of users may run on kernels.
    takes_kernels: bool,
    cayley: cayley::Algebra,
    path_count: usize,
    /// The programs that operators of the table have asked for, by their labels.
    named: Kept<(Label, &'static Known)>,
    /// Whether a message has said that there are no compiled programs.
    is_noted: AtomicBool,
}

impl Entry {
    fn new(signature: Signature, kernels: Option<&'static Kernels>, takes_kernels: bool) -> Self {
        let cayley = cayley::Algebra::new(signature);
        let path_count = cayley.paths().len();
        Self {
            kernels,
            takes_kernels,
            cayley,
            path_count,
            named: Kept::new(),
            is_noted: AtomicBool::new(false),
        }
    }
}

/// The grades that an operator may have, for error messages.
const EXPECTED: &str =
    "grades whose result is not empty; all grades for operators that take full multivectors";

/// The compiled algebras, in a list made at the first call.
fn entries() -> &'static [Entry] {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    ENTRIES.get_or_init(|| {
        let entries = ALGEBRAS.iter().filter_map(|&kernels| {
            let (p, q, r) = kernels.signature;
            let signature = Signature::new(p, q, r).ok()?;
            Some(Entry::new(signature, Some(kernels), true))
        });
        entries.collect()
    })
}

/// The algebras with kernels that other crates compiled and registered.
static REGISTERED: Kept<Entry> = Kept::new();

/// All programs that were compiled: with this crate, or registered by others.
pub(crate) fn kernels() -> impl Iterator<Item = &'static Program> {
    let compiled = entries().iter().chain(REGISTERED.iter());
    let lists = compiled.filter_map(|entry| entry.kernels);
    let of_algebras = lists.flat_map(|kernels| kernels.programs.iter().copied());
    of_algebras.chain(ahead::programs())
}

/// The algebras that were asked for and have no kernels, or should take none.
static INTERPRETED: Kept<Entry> = Kept::new();

impl Algebra {
    /// The algebra of a signature. If it has no compiled kernels, a message of the crate `log` says so once in a process, at
    /// the level `info`.
    ///
    /// # Errors
    /// [`Error::Environment`] for a [variable](environment) with an invalid value.
    pub fn new(signature: Signature) -> Result<Self, Error> {
        environment::check()?;
        threads::note_process();
        if let Some(algebra) = Self::compiled(signature) {
            return Ok(algebra);
        }
        let algebra = Self::without_kernels(signature, true);
        // No lock is held here: a logger may run operators.
        if !algebra.entry.is_noted.swap(true, Ordering::Relaxed) {
            log::info!(
                "{signature} is not among the algebras that this build compiled: on the CPU its operators are interpreted, \
                 which takes longer"
            );
        }
        Ok(algebra)
    }

    /// The algebra of a signature with compiled kernels, if there are any.
    fn compiled(signature: Signature) -> Option<Self> {
        let mut all = entries().iter().chain(REGISTERED.iter());
        let entry = all.find(|entry| entry.cayley.signature() == signature)?;
        Some(Self { entry })
    }

    /// The algebra of some kernels, which [`new`](Self::new) finds from now on, unless it has others.
    #[cfg(feature = "macros")]
    pub(crate) fn registered(kernels: &'static Kernels) -> Self {
        threads::note_process();
        let (p, q, r) = kernels.signature;
        let signature = Signature::of(p, q, r);
        Self::compiled(signature).unwrap_or_else(|| Self {
            entry: REGISTERED.add(Entry::new(signature, Some(kernels), true)),
        })
    }

    /// The algebra of a signature without its kernels: all its operators are interpreted, including operators of programs. If
    /// [`new`](Self::new) gives a compiled algebra for the same signature, the results of both are the same bit for bit.
    ///
    /// # Errors
    /// [`Error::Environment`] for a [variable](environment) that means nothing.
    pub fn interpreted(signature: Signature) -> Result<Self, Error> {
        environment::check()?;
        threads::note_process();
        Ok(Self::without_kernels(signature, false))
    }

    /// The algebra of a signature without its kernels; `takes_kernels` says whether programs of users may run on theirs.
    fn without_kernels(signature: Signature, takes_kernels: bool) -> Self {
        let mut known = INTERPRETED.iter();
        let known = known.find(|entry| {
            (entry.cayley.signature(), entry.takes_kernels) == (signature, takes_kernels)
        });
        let entry =
            known.unwrap_or_else(|| INTERPRETED.add(Entry::new(signature, None, takes_kernels)));
        Self { entry }
    }

    /// Whether operators of programs that users write may run on kernels: not if the algebra was asked for without.
    pub(crate) fn takes_kernels(&self) -> bool {
        self.entry.takes_kernels
    }

    /// Whether the algebra has compiled kernels. If not, all its operators of the table are interpreted.
    pub fn is_compiled(&self) -> bool {
        self.entry.kernels.is_some()
    }

    /// Every algebra that was compiled with this crate. Algebras of the macro `algebra!` are compiled with other crates.
    pub fn shipped() -> impl Iterator<Item = Self> {
        entries().iter().map(|entry| Self { entry })
    }

    /// The signature of the algebra.
    pub fn signature(&self) -> Signature {
        self.entry.cayley.signature()
    }

    /// The name of the algebra, such as `cl301`.
    pub fn name(&self) -> String {
        self.signature().name()
    }

    /// The blades, product tables and paths of the algebra.
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

    /// A program of the table of operators.
    pub(crate) fn program(
        &self,
        name: &str,
        left: GradeSet,
        right: GradeSet,
    ) -> Result<&'static Known, Error> {
        let cayley = self.cayley();
        cayley.check_grades(left)?;
        cayley.check_grades(right)?;
        let label = Label {
            name: name.to_owned(),
            left,
            right,
            output: None,
        };
        self.find(label).ok_or_else(|| Error::UnsupportedGrades {
            operator: name.to_owned(),
            signature: self.signature(),
            left,
            right,
            expected: EXPECTED,
        })
    }

    /// The program of one path of the fully connected product. Paths with equal operand grades differ by the grade of
    /// the output.
    pub(crate) fn path_program(&self, path: Path) -> Result<&'static Known, Error> {
        let [left, output, right] = [path.left, path.output, path.right].map(GradeSet::single);
        let label = Label {
            name: spec::PATH_PRODUCT.to_owned(),
            left,
            right,
            output: Some(output),
        };
        self.find(label).ok_or_else(|| Error::UnsupportedGrades {
            operator: format!("path product {path}"),
            signature: self.signature(),
            left,
            right,
            expected: EXPECTED,
        })
    }

    /// The program of a label; `None` if the operator has no such program.
    fn find(&self, label: Label) -> Option<&'static Known> {
        let mut named = self.entry.named.iter();
        if let Some((_, known)) = named.find(|(known, _)| *known == label) {
            return Some(known);
        }
        let Label {
            name,
            left,
            right,
            output,
        } = &label;
        let found = spec::find(self.cayley(), name, *left, *right, *output)?;
        let known = Known::of(found.program, self.is_compiled());
        Some(self.entry.named.add((label, known)).1)
    }
}

impl FromStr for Algebra {
    type Err = Error;

    /// Reads the name of an algebra, such as `cl301`, or a signature, such as `3,0,1`.
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::new(text.parse::<Signature>()?)
    }
}

impl TryFrom<Signature> for Algebra {
    type Error = Error;

    fn try_from(signature: Signature) -> Result<Self, Error> {
        Self::new(signature)
    }
}

impl Deref for Algebra {
    type Target = cayley::Algebra;

    fn deref(&self) -> &cayley::Algebra {
        &self.entry.cayley
    }
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
