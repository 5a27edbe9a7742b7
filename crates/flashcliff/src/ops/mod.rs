//! The operators. Each function binds one to an algebra and its options; [`by_name`] finds it by its name.
//!
//! An operator reads its inputs in the order given and writes one output `o`. Its backward pass gives
//! the gradients of all inputs, parameters included. In shapes, `C` is the number of channels, `grades` the number of
//! grades, `paths` the number of paths of the geometric product between the grades of the operands, in lexicographic
//! (left, output, right) order, and `blades` the number of blades that a tensor carries.
//!
//! Sums are accumulated in the element type. Products are accurate to `(terms + 2) u sum |w x y|`,
//! `u` the unit roundoff; gates to about two units in the last place of 1, on CUDA three (the left tail
//! of GELU is a difference of near-equal numbers), the slopes and norms to a few units in the last place.
//!
//! * `functions`, `options`, `by_name` - written by `cargo xtask gen` from [`TABLE`].
//! * `make` - how operators are built.
//! * `given` - settings by name.
//! * `recipe` - what an operator was made of.

#[rustfmt::skip]
mod by_name;
#[rustfmt::skip]
mod functions;
mod given;
pub(crate) mod make;
#[rustfmt::skip]
mod options;
mod recipe;

use flashcliff_kernels::UnknownOption;

use crate::{Algebra, Error, Operator};

pub use flashcliff_program::operators::OPERATORS as TABLE;
pub use functions::*;
pub use given::Setting;
pub use options::{LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};
pub use recipe::Recipe;

/// The table of operators, and what its rows are made of.
pub mod table {
    pub use flashcliff_operators::{
        CHOICES, Choice, Choices, Gradient, Input, Kind, OPTION_SETS, Operator, OptionSet, Options,
        Presence, Section, Setting,
    };
    pub use flashcliff_program::operators::OPERATORS;

    /// The operator of a name.
    pub fn find(name: &str) -> Option<&'static Operator> {
        OPERATORS.iter().find(|operator| operator.name == name)
    }
}

/// The operator of a name in [`TABLE`], with settings by name; those that are not given have their defaults.
///
/// Hosts that learn both at run time call this, such as the program and the Python package.
///
/// ```
/// use flashcliff::ops::{self, Setting};
///
/// let algebra = "cl300".parse()?;
/// let operator = ops::by_name(algebra, "sgp_norm", &[("gate", Setting::Name("silu"))])?;
/// assert_eq!(operator.inputs().len(), 3);
/// # Ok::<(), flashcliff::Error>(())
/// ```
///
/// # Errors
/// [`Error::UnknownOption`] for names of operators and values that do not exist, [`Error::UnknownSetting`] for names of
/// settings, [`Error::RepeatedSetting`] for a setting that is given twice, [`Error::SettingKind`] for values of another kind; the errors
/// of the operator's function.
pub fn by_name(
    algebra: Algebra,
    name: &str,
    settings: &[(&str, Setting<'_>)],
) -> Result<Operator, Error> {
    let mut given = given::Given::new(settings);
    by_name::by_name(algebra, name, &mut given).unwrap_or_else(|| {
        let names: Vec<&str> = TABLE.iter().map(|operator| operator.name).collect();
        Err(Error::UnknownOption(UnknownOption {
            what: "operator",
            expected: names.join(", "),
            got: name.to_owned(),
        }))
    })
}
