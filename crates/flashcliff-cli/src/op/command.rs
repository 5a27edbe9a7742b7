//! A subcommand for every operator of the table, with its settings as options, and for CGENN's whole layers.

use std::path::PathBuf;

use cayley::{GradeSet, Signature};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand, value_parser};
use flashcliff::Algebra;
use flashcliff::ops::table::{Choice, Choices, Kind, Operator, Presence, Setting};
use flashcliff::ops::{self, SteerableOptions};

use super::Work;
use super::layer::{Connection, Layer};
use crate::device::DeviceArgs;
use crate::error::Error;
use crate::messages::say;
use crate::output::Overwrite;

/// The algebra and the files.
#[derive(Args, Clone, Debug)]
pub(super) struct Files {
    /// Algebra, such as cl300 or 3,0,0; `flashcliff info` lists those with kernels.
    #[arg(long, value_name = "SIGNATURE")]
    pub(super) algebra: Signature,

    /// Safetensors file with the inputs.
    #[arg(long = "in", value_name = "FILE", required_unless_present = "shapes")]
    pub(super) input: Option<PathBuf>,

    /// Safetensors file to write, whole or not at all. A file that exists is refused without --overwrite.
    #[arg(long = "out", value_name = "FILE", required_unless_present = "shapes")]
    pub(super) output: Option<PathBuf>,

    #[command(flatten)]
    pub(super) overwrite: Overwrite,

    /// Also compute the gradients of all inputs, from `grad_o` in the input file (which is ignored without this).
    #[arg(long)]
    pub(super) grad: bool,

    /// Only print the names and shapes of the tensors.
    #[arg(long)]
    pub(super) shapes: bool,

    #[command(flatten)]
    pub(super) device: DeviceArgs,
}

/// A layer with named parameters, as the table of operators has none.
struct LayerCommand {
    name: &'static str,
    connection: Connection,
    about: &'static str,
    after_help: &'static str,
}

const LAYERS: [LayerCommand; 2] = [
    LayerCommand {
        name: "cgenn_sgp",
        connection: Connection::Channelwise,
        about: "CGENN's whole steerable geometric product layer, with its parameter names",
        after_help: "\
Tensors: x [blades, batch, C], weight [C, paths], linear_right.weight [C, C, grades], normalization.a [C, grades] (unless --no-normalize),
linear_left.weight [C, C, grades] and linear_left.bias [1, C, 1] (unless --no-first-order) -> o [blades, batch, C]
o = (linear_left(x) + sum over paths p of weight[c, p] <<x>_a <normalization(linear_right(x))>_b>_p) / sqrt 2.",
    },
    LayerCommand {
        name: "cgenn_fcgp",
        connection: Connection::Full,
        about: "CGENN's whole fully connected steerable geometric product layer, with its parameter names",
        after_help: "\
Tensors: x [blades, batch, in], weight [out, in, paths], linear_right.weight [in, in, grades], normalization.a [in, grades]
(unless --no-normalize), linear_left.weight [out, in, grades] and linear_left.bias [1, out, 1] (unless --no-first-order)
-> o [blades, batch, out]
o[m] = (linear_left(x)[m] + sum over n and paths p of weight[m, n, p] <<x[n]>_a <normalization(linear_right(x))[n]>_b>_p) / sqrt 2.",
    },
];

/// The operator or layer that the command line names, with its settings.
#[derive(Debug)]
pub(super) struct OperatorCommand {
    files: Files,
    what: What,
}

#[derive(Debug)]
enum What {
    /// An operator of the table with its settings.
    Operator(&'static str, Vec<(&'static str, Value)>),
    /// A layer with named parameters.
    Layer(Connection, SteerableOptions),
}

/// The value of a setting.
#[derive(Debug)]
enum Value {
    Name(String),
    Number(f64),
    Flag(bool),
    Grades(Option<GradeSet>),
}

impl Value {
    fn borrowed(&self) -> ops::Setting<'_> {
        match self {
            Value::Name(name) => ops::Setting::Name(name),
            Value::Number(number) => ops::Setting::Number(*number),
            Value::Flag(flag) => ops::Setting::Flag(*flag),
            Value::Grades(grades) => ops::Setting::Grades(*grades),
        }
    }
}

impl OperatorCommand {
    /// The algebra and the files.
    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    /// The work in an algebra.
    pub(super) fn bind(&self, algebra: Algebra) -> Result<Work, Error> {
        Ok(match &self.what {
            What::Operator(name, settings) => {
                let settings = settings
                    .iter()
                    .map(|(name, value)| (*name, value.borrowed()));
                let settings: Vec<_> = settings.collect();
                Work::Core(ops::by_name(algebra, name, &settings)?)
            }
            What::Layer(connection, options) => {
                Work::Layer(Layer::new(algebra, *connection, options))
            }
        })
    }
}

impl Subcommand for OperatorCommand {
    fn augment_subcommands(command: Command) -> Command {
        let mut command = command;
        for operator in ops::TABLE {
            command = command.subcommand(subcommand(operator, operator.name, None));
            for (_, choice) in operator.functions() {
                let of_its_own = subcommand(operator, choice.function, Some(choice));
                command = command.subcommand(match choice.name == choice.function {
                    true => of_its_own,
                    false => of_its_own.visible_alias(choice.name),
                });
            }
        }
        let steerable = find("steerable_product");
        for layer in LAYERS {
            let subcommand = Command::new(layer.name);
            let subcommand = with_settings(subcommand, steerable.options.settings());
            let subcommand = Files::augment_args(subcommand)
                .about(layer.about)
                .after_help(layer.after_help);
            command = command.subcommand(subcommand);
        }
        command
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        let named = |operator: &Operator| {
            operator.name == name
                || operator
                    .functions()
                    .any(|(_, choice)| choice.function == name)
        };
        ops::TABLE.iter().any(named) || LAYERS.iter().any(|layer| layer.name == name)
    }
}

impl FromArgMatches for OperatorCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let files = Files::from_arg_matches(matches)?;
        if let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) {
            let options = SteerableOptions::default()
                .with_first_order(flag(matches, "first_order"))
                .with_normalize(flag(matches, "normalize"));
            let what = What::Layer(layer.connection, options);
            return Ok(Self { files, what });
        }
        let operators = ops::TABLE.iter();
        let found = operators.clone().find(|operator| operator.name == name);
        let (operator, chosen) = match found {
            Some(operator) => (operator, None),
            None => operators
                .flat_map(|operator| {
                    operator
                        .functions()
                        .map(move |chosen| (operator, Some(chosen)))
                })
                .find(|(_, chosen)| chosen.is_some_and(|(_, choice)| choice.function == name))
                .ok_or_else(missing)?,
        };
        let settings = operator
            .options
            .settings()
            .into_iter()
            .map(|setting| match chosen {
                Some((own, choice)) if own.name == setting.name => {
                    (setting.name, Value::Name(choice.name.to_owned()))
                }
                _ => (setting.name, value(matches, setting)),
            });
        let what = What::Operator(operator.name, settings.collect());
        Ok(Self { files, what })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// An operator that the table has for certain.
fn find(name: &str) -> &'static Operator {
    let found = ops::table::find(name);
    found.unwrap_or_else(|| unreachable!("the table has {name}"))
}

/// The subcommand of an operator, or of one of its choices.
fn subcommand(operator: &Operator, name: &'static str, choice: Option<&Choice>) -> Command {
    let about = match choice {
        None => plain(operator.title),
        Some(choice) => format!("The {}: {}", name.replace('_', " "), plain(choice.doc)),
    };
    let settings =
        operator
            .options
            .settings()
            .into_iter()
            .filter(|setting| match (choice, setting.kind) {
                (Some(_), Kind::Choice(choices)) => {
                    choices.values.iter().all(|c| c.function.is_empty())
                }
                _ => true,
            });
    let command = with_settings(Command::new(name), settings);
    // The text comes last, because arguments that are added bring their own.
    Files::augment_args(command)
        .about(about)
        .after_help(tensors(operator))
}

fn with_settings(
    command: Command,
    settings: impl IntoIterator<Item = &'static Setting>,
) -> Command {
    settings
        .into_iter()
        .fold(command, |command, setting| command.args(arguments(setting)))
}

/// The arguments of a setting: one, or two for a flag that is on by default.
fn arguments(setting: &'static Setting) -> Vec<Arg> {
    let long = setting.name.replace('_', "-");
    let argument = Arg::new(setting.name)
        .long(long.clone())
        .help(help(setting));
    match setting.kind {
        Kind::Choice(choices) => vec![
            argument
                .value_name(setting.name.to_uppercase())
                .default_value(setting.default)
                .value_parser(move |text: &str| resolve(choices, text)),
        ],
        Kind::Number | Kind::Bytes => vec![
            argument
                .value_name("NUMBER")
                .default_value(setting.default)
                .allow_negative_numbers(true)
                .value_parser(value_parser!(f64)),
        ],
        Kind::Grades => vec![
            argument
                .value_name("GRADES")
                .value_parser(value_parser!(GradeSet)),
        ],
        Kind::Flag if setting.default == "true" => {
            let negative = format!("no-{long}");
            let off = Arg::new(negative.clone())
                .long(negative.clone())
                .action(ArgAction::SetTrue)
                .overrides_with(setting.name)
                .help(format!("Not --{long}."));
            let off = match setting.name {
                "per_grade" => off.visible_alias("shared"),
                _ => off,
            };
            let on = argument.action(ArgAction::SetTrue).overrides_with(negative);
            vec![on, off]
        }
        Kind::Flag => vec![argument.action(ArgAction::SetTrue)],
    }
}

/// The present spelling of a choice. Says so if an earlier one was given.
fn resolve(choices: &Choices, text: &str) -> Result<String, String> {
    let (name, is_old) = choices.resolve(text).ok_or_else(|| {
        let (what, expected) = (choices.what, choices.expected());
        format!("unknown {what} `{text}`: expected one of {expected}")
    })?;
    if is_old {
        say(&format!(
            "note: `{text}` is an earlier spelling of the {} `{name}`\n",
            choices.what
        ));
    }
    Ok(name.to_owned())
}

fn help(setting: &Setting) -> String {
    let doc = plain(setting.doc);
    match setting.kind {
        Kind::Choice(choices) => {
            let values = choices.values.iter();
            let values = values.map(|choice| format!("{} - {}", choice.name, plain(choice.doc)));
            format!("{doc}\n{}", values.collect::<Vec<_>>().join(";\n"))
        }
        Kind::Grades => format!("{doc} Written as 1 or 0,2; all if absent."),
        Kind::Flag if setting.default == "true" => format!("{doc} This is the default."),
        _ => doc,
    }
}

/// The tensors, the formula, and where it comes from.
fn tensors(operator: &Operator) -> String {
    let inputs = operator.inputs.iter().map(|input| {
        let presence = match input.presence {
            Presence::Always => String::new(),
            Presence::WithBias => " (unless --bias none)".to_owned(),
            Presence::With(flag) => format!(" (unless --no-{})", flag.replace('_', "-")),
        };
        format!("{} {}{presence}", input.name, input.shape)
    });
    let inputs: Vec<String> = inputs.collect();
    let mut text = format!("Tensors: {} -> o {}", inputs.join(", "), operator.output);
    let source = match operator.source {
        "" => String::new(),
        source => format!("Source: {source}"),
    };
    for part in [operator.formula, operator.details, &source] {
        if !part.is_empty() {
            text += &format!("\n{}", plain(part));
        }
    }
    text
}

/// A text of the table without references to operators.
fn plain(text: &str) -> String {
    text.replace(['{', '}'], "")
}

fn value(matches: &ArgMatches, setting: &Setting) -> Value {
    let name = setting.name;
    match setting.kind {
        Kind::Choice(_) => {
            let given = matches.get_one::<String>(name).cloned();
            Value::Name(given.unwrap_or_else(|| setting.default.to_owned()))
        }
        Kind::Number | Kind::Bytes => {
            Value::Number(matches.get_one(name).copied().unwrap_or_default())
        }
        Kind::Flag if setting.default == "true" => Value::Flag(flag(matches, name)),
        Kind::Flag => Value::Flag(matches.get_flag(name)),
        Kind::Grades => Value::Grades(matches.get_one(name).copied()),
    }
}

/// A flag that is on unless it is switched off.
fn flag(matches: &ArgMatches, name: &str) -> bool {
    matches.get_flag(name) || !matches.get_flag(&format!("no-{}", name.replace('_', "-")))
}
