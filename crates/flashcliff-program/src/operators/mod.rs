//! The operators of the library, a file each: row of the table, symmetry, program, reference.
//!
//! An operator is added with its file and its name in the list below. `docs/add-an-operator.md` shows it on an example. All else follows:
//! kernels from the program, functions and documentation of all hosts from the row, tests from the reference.
//!
//! * `entry` - what a file says of its operator.
//! * `settings` - the values of the options in a call.

mod entry;
mod settings;

use cayley::GradeSet;
use flashcliff_operators::Operator as Row;

pub use entry::{Choose, Entry, Lanes, Place, WHOLE, pairs};
pub use settings::{Settings, Value};

use crate::reference::{Call, Number};

/// Declares the modules of operators, and what loops over them.
macro_rules! operators {
    ($($name:ident,)*) => {
        $(mod $name;)*

        /// All operators.
        pub const ENTRIES: &[Entry] = &[$($name::ENTRY),*];

        /// The table of operators: the rows of all entries.
        pub const OPERATORS: &[Row] = &[$($name::ENTRY.row),*];

        /// The output of an operator by its reference, in plain loops from its formula; `None` for names that no operator has.
        pub fn reference<N: Number>(name: &str, call: &Call<'_, N>) -> Option<Vec<N>> {
            $(if name == stringify!($name) {
                return Some($name::reference(call));
            })*
            None
        }
    };
}

// The order is that of generated kernels, so a new operator stands at the end.
operators![
    sgp_norm,
    fcgp_norm,
    mv_linear,
    mv_linear_sgp_norm,
    steerable_product,
    product,
    sandwich,
    reverse,
    grade_involution,
    clifford_conjugate,
    dual,
    undual,
    grade_rms,
    gate,
    grade_norm,
    mv_silu,
    mv_layer_norm,
    norm,
    grade_norms,
];

/// The operator of a name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.row.name == name)
}

/// The operator that has a program of a name, and the settings that choose it. Settings that choose nothing have their defaults.
pub fn of_program(algebra: &cayley::Algebra, program: &str) -> Option<(&'static Entry, Settings)> {
    ENTRIES.iter().find_map(|entry| {
        let lanes = entry.lanes.as_ref()?;
        let all = Settings::choices(&entry.row).into_iter();
        let mut chosen =
            all.filter(|settings| lanes.program(entry, algebra, settings) == Ok(program));
        Some((entry, chosen.next()?))
    })
}

/// The full grades of an algebra, which most operators take.
fn full(algebra: &cayley::Algebra) -> GradeSet {
    GradeSet::full(algebra.dim())
}
