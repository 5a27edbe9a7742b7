//! Parts of rows of the table, shared by operators.

use crate::{Gradient, Input, Operator, Options, Presence, Section};

/// An input that is always there, with the same name in all hosts.
pub const fn input(name: &'static str, shape: &'static str) -> Input {
    Input {
        name,
        python: name,
        shape,
        presence: Presence::Always,
    }
}

/// The path weights: `w` in formulas and in Rust, `weight` in Python.
pub const fn weight(shape: &'static str) -> Input {
    Input {
        python: "weight",
        ..input("w", shape)
    }
}

/// A multivector of all grades.
pub const X: Input = input("x", "[blades, batch, C]");

/// A row of one multivector without options, errors and sentences for one host. The others start from it.
pub const PLAIN: Operator = Operator {
    name: "",
    section: Section::Unary,
    title: "",
    formula: "",
    details: "",
    inputs: &[X],
    output: "[blades, batch, C]",
    options: Options::Each(&[]),
    python_settings: &[],
    rust_note: "",
    errors: "",
    source: "",
    gradient: Gradient::PLAIN,
    autocast: false,
};
