//! The entry of an operator: what its file holds.

use cayley::{Algebra, GradeSet};
use flashcliff_operators::{Law, Operator as Row};

use super::{Settings, full};
use crate::ir::Program;
use crate::spec::Group;

/// An operator.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its row of the table.
    pub row: Row,
    /// The transformations that it commutes with: a law for all options, then laws for options that break it.
    pub symmetry: &'static [Law],
    /// The lane programs that compute it. `None` for operators with matrix products, which are code of the library.
    pub lanes: Option<Lanes>,
}

/// The lane programs of an operator: one for all options, or one for each choice.
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    /// The group that a build compiles or leaves out.
    pub group: Group,
    /// The names of the programs, in families. The programs of a family are generated together, for each pair of grades.
    pub families: &'static [&'static [&'static str]],
    /// The program of a name between some grades.
    pub program: fn(&Place<'_>) -> Program,
    /// The grades of the output; the grades of the operand if the components of the output are not blades.
    pub output: fn(&Place<'_>) -> GradeSet,
    /// The grades between which a build compiles.
    pub compiled: fn(&Algebra) -> Vec<[GradeSet; 2]>,
    /// Whether a program is compiled there, where its family is.
    pub is_compiled: fn(&Place<'_>) -> bool,
    /// Whether the operands may have any grades. If not, they are full multivectors.
    pub takes_grades: bool,
    /// Whether the operator is zero, and not an error, where no grade can be reached.
    pub is_zero_without_result: bool,
    /// The program that settings choose, if there are several, or the setting that makes no sense.
    pub choose: Option<Choose>,
}

/// From settings to the name of a program, or to the name of the setting whose choice has no program.
pub type Choose = fn(&Algebra, &Settings) -> Result<&'static str, &'static str>;

/// One program of full multivectors. Files of such operators say their program and its name.
pub const WHOLE: Lanes = Lanes {
    group: Group::Layers,
    families: &[],
    program: |place| Program::new(place.name, ""),
    output: |place| place.left,
    compiled: |algebra| vec![[full(algebra); 2]],
    is_compiled: |_| true,
    takes_grades: false,
    is_zero_without_result: false,
    choose: None,
};

/// Full multivectors and vectors, on both sides: the grades between which builds compile products.
pub fn pairs(algebra: &Algebra) -> Vec<[GradeSet; 2]> {
    let (full, vectors) = (full(algebra), GradeSet::single(1));
    vec![
        [full, full],
        [vectors, full],
        [full, vectors],
        [vectors, vectors],
    ]
}

/// A program to make: its name, and the grades of its operands.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The name.
    pub name: &'a str,
    /// The algebra.
    pub algebra: &'a Algebra,
    /// The grades of the left (or only) operand.
    pub left: GradeSet,
    /// The grades of the right operand; the grades of the left operand if there is no right one.
    pub right: GradeSet,
}

impl Lanes {
    /// The name of the program that settings choose.
    ///
    /// # Errors
    /// The name of a setting whose choice has no program.
    pub fn program(
        &self,
        entry: &Entry,
        algebra: &Algebra,
        settings: &Settings,
    ) -> Result<&'static str, &'static str> {
        match self.choose {
            Some(choose) => choose(algebra, settings),
            None => Ok(self.names().next().unwrap_or(entry.row.name)),
        }
    }

    /// The names of all programs.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.families
            .iter()
            .flat_map(|family| family.iter().copied())
    }

    /// Whether there is a program between these grades.
    pub fn takes(&self, place: &Place<'_>) -> bool {
        let full = full(place.algebra);
        self.takes_grades || (place.left, place.right) == (full, full)
    }
}
