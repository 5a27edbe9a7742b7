//! The words of the table of flashcliff's operators: rows, options, symmetries.
//!
//! A row, [`Operator`], holds what a host must know of an operator: its name, inputs with shapes, options with
//! defaults, formula, source. Each stands in the file of its operator, with the program and the reference, in
//! the crate `flashcliff-program`. `cargo xtask gen` derives the functions of Rust, candle and Python, their
//! documentation, and the table of the README from it; the program derives its subcommands at run time.
//!
//! * [`options`] - options, each written once.
//! * [`row`] - what rows are made of.
//!
//! # Markup
//! Texts are plain sentences. Code stands between backticks, and `{sgp_norm}` refers to an operator: a link
//! where the host has links. Shapes are axes between brackets: a number, `batch`, a number of channels (`C`, or `in` and
//! `out`), `paths`, `grades`, `blades`, `blades of left` (the blades of the grades that an option names), or
//! `reachable blades` (the blades of all grades that the result can have).

#![forbid(unsafe_code)]

pub mod options;
pub mod row;
mod symmetry;

pub use options::{CHOICES, OPTION_SETS};
pub use symmetry::{Law, Symmetry};

/// An operator of the library.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    /// The name, in snake case, everywhere.
    pub name: &'static str,
    /// The part of the table to which it belongs.
    pub section: Section,
    /// One sentence: what it is.
    pub title: &'static str,
    /// The formula, in code; empty where the title says it.
    pub formula: &'static str,
    /// Further sentences for all hosts; empty, or paragraphs apart by empty lines.
    pub details: &'static str,
    /// The inputs in order.
    pub inputs: &'static [Input],
    /// The shape of the output `o`.
    pub output: &'static str,
    /// The options.
    pub options: Options,
    /// Settings that only Python has here. In Rust they belong to other types.
    pub python_settings: &'static [&'static Setting],
    /// Further sentences for Rust; empty, or paragraphs.
    pub rust_note: &'static str,
    /// The errors beside the errors of wrong shapes, as Rust names them; empty if there are none.
    pub errors: &'static str,
    /// Paper with equation, or the code that it follows; empty for textbook operations.
    pub source: &'static str,
    /// Facts about the gradient that hosts need.
    pub gradient: Gradient,
    /// Whether PyTorch's autocast casts its multivectors. Other operators keep the type of their tensors.
    pub autocast: bool,
}

impl Operator {
    /// The choices that have their own functions, each with its setting.
    pub fn functions(&self) -> impl Iterator<Item = (&'static Setting, &'static Choice)> + use<> {
        self.options.settings().into_iter().flat_map(|setting| {
            let own = setting.names().filter(|choice| !choice.function.is_empty());
            own.map(move |choice| (setting, choice))
        })
    }
}

/// A part of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Weighted products and linear maps, fused with gates and norms.
    Fused,
    /// The layers of CGENN.
    Cgenn,
    /// Products without weights.
    Product,
    /// Functions of one multivector.
    Unary,
}

/// An input.
#[derive(Debug)]
pub struct Input {
    /// The name in Rust, in files of tensors and in formulas.
    pub name: &'static str,
    /// The name of the argument in Python.
    pub python: &'static str,
    /// The shape.
    pub shape: &'static str,
    /// When the input is there.
    pub presence: Presence,
}

impl Input {
    /// Whether the input is a parameter: a tensor without a batch axis.
    pub fn is_parameter(&self) -> bool {
        !self.shape.contains("batch")
    }
}

/// When an input is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Always.
    Always,
    /// Unless the option `bias` is `none`.
    WithBias,
    /// If a flag is set.
    With(&'static str),
}

/// The options of an operator.
#[derive(Clone, Copy, Debug)]
pub enum Options {
    /// A struct of options, by reference.
    Set(&'static OptionSet),
    /// Arguments one by one.
    Each(&'static [&'static Setting]),
}

impl Options {
    /// All settings in the order of PyTorch's schema, the settings of nested structs first.
    pub fn settings(&self) -> Vec<&'static Setting> {
        match self {
            Options::Set(set) => set.settings(),
            Options::Each(settings) => settings.to_vec(),
        }
    }
}

/// A struct of options.
#[derive(Debug)]
pub struct OptionSet {
    /// The name of the struct in Rust.
    pub name: &'static str,
    /// One or two sentences.
    pub doc: &'static str,
    /// A struct within it: the name of the field, and the struct.
    pub nested: Option<(&'static str, &'static OptionSet, &'static str)>,
    /// The other fields.
    pub settings: &'static [&'static Setting],
}

impl OptionSet {
    /// All settings, the settings of the nested struct first.
    pub fn settings(&self) -> Vec<&'static Setting> {
        let nested = self.nested.iter().flat_map(|(_, set, _)| set.settings());
        nested.chain(self.settings.iter().copied()).collect()
    }
}

/// One option.
#[derive(Debug)]
pub struct Setting {
    /// The name in Rust and of the program's argument.
    pub name: &'static str,
    /// The name in Python.
    pub python: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// The default, as [`Kind`] spells it.
    pub default: &'static str,
    /// A sentence or more on its effect.
    pub doc: &'static str,
    /// The names that are an error in Python, where the tensors that are given say the same.
    pub refused_in_python: &'static [&'static str],
}

impl Setting {
    /// The names of the setting; none if it is not a choice.
    pub fn names(&self) -> impl Iterator<Item = &'static Choice> + use<> {
        let values: &'static [Choice] = match self.kind {
            Kind::Choice(choices) => choices.values,
            _ => &[],
        };
        values.iter()
    }

    /// The names that the setting has in Python.
    pub fn python_names(&self) -> impl Iterator<Item = &'static Choice> + use<'_> {
        self.names()
            .filter(|choice| !self.refused_in_python.contains(&choice.name))
    }
}

/// The kind of an option.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// One of some names. The default is one of them.
    Choice(&'static Choices),
    /// A number, finite and at least 0.
    Number,
    /// `true` or `false`.
    Flag,
    /// Grades; the default `all` is all of them.
    Grades,
    /// A number of bytes, at least 1; the default `auto` leaves it to the library.
    Bytes,
}

/// An option with names.
#[derive(Debug)]
pub struct Choices {
    /// The enum in Rust.
    pub rust: &'static str,
    /// The word for the option in messages.
    pub what: &'static str,
    /// The names.
    pub values: &'static [Choice],
}

/// One of the names of an option.
#[derive(Debug)]
pub struct Choice {
    /// The name, spelled so everywhere.
    pub name: &'static str,
    /// A clause that says what the name stands for.
    pub doc: &'static str,
    /// Earlier spellings, still read, with a warning.
    pub old: &'static [&'static str],
    /// The separate function that hosts have for this choice; empty if there is none.
    pub function: &'static str,
}

impl Choices {
    /// The present spelling of a name, and whether the one given is an earlier spelling.
    pub fn resolve(&self, name: &str) -> Option<(&'static str, bool)> {
        self.values.iter().find_map(|value| {
            if value.name == name {
                Some((value.name, false))
            } else {
                value.old.contains(&name).then_some((value.name, true))
            }
        })
    }

    /// All names, apart by commas.
    pub fn expected(&self) -> String {
        let names: Vec<&str> = self.values.iter().map(|value| value.name).collect();
        names.join(", ")
    }
}

/// Facts about a gradient that hosts need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gradient {
    /// Whether the forward pass may save sums, or a tensor, for the backward pass.
    pub saves: bool,
    /// Whether the gradient needs the gradient of the output alone.
    pub linear: bool,
    /// Whether the backward pass reads the output, unless the option `norm` is `none`.
    pub reads_output: bool,
}

impl Gradient {
    /// A gradient that needs the inputs.
    pub const PLAIN: Self = Self {
        saves: false,
        linear: false,
        reads_output: false,
    };
    /// A gradient that needs the inputs and what the forward pass saved.
    pub const SAVES: Self = Self {
        saves: true,
        ..Self::PLAIN
    };
    /// A gradient that needs nothing but the gradient of the output.
    pub const LINEAR: Self = Self {
        linear: true,
        ..Self::PLAIN
    };
}
