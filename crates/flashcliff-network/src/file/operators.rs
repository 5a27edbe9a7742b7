//! Operators as records, and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use flashcliff::ops::table::{self, Kind};
use flashcliff::ops::{self, Recipe, Setting};
use flashcliff::{Algebra, GradeSet, Operator};
use serde::{Deserialize, Serialize};

use super::Error;
use super::program::ProgramRecord;
use super::steps::{algebra, signature};

/// An operator.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperatorRecord {
    signature: [usize; 3],
    /// The digest of the program, if the operator is one.
    digest: Option<String>,
    form: Form,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Form {
    /// An operator of the table.
    Named {
        name: String,
        settings: BTreeMap<String, SettingRecord>,
    },
    /// An operator of a custom program.
    Program(Box<ProgramRecord>),
}

/// The value of a setting. Grades are a text such as `0,2`, or `all`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum SettingRecord {
    Flag(bool),
    Number(f64),
    Text(String),
}

/// The text of all grades.
const ALL: &str = "all";

/// An operator as JSON, as files have it: what it computes, without the process that made it.
///
/// ```
/// use flashcliff::{Algebra, ops};
/// use flashcliff_network::file::{operator_from_json, operator_to_json};
///
/// let operator = ops::by_name("cl300".parse::<Algebra>()?, "reverse", &[])?;
/// let again = operator_from_json(&operator_to_json(&operator)?)?;
/// assert_eq!(again.recipe(), operator.recipe());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::NotStored`] for a derivative that is not a program, or whose program is not an operator by itself; [`Error::Expression`] for a
/// program whose graph was not made by its functions.
pub fn operator_to_json(operator: &Operator) -> Result<String, Error> {
    Ok(serde_json::to_string(&OperatorRecord::new(operator)?)?)
}

/// The operator of a text that [`operator_to_json`] made, after a comparison of its digest.
///
/// # Errors
/// [`Error::Graph`] for a text that is damaged; the errors of loading an operator of a file.
pub fn operator_from_json(text: &str) -> Result<Arc<Operator>, Error> {
    serde_json::from_str::<OperatorRecord>(text)?.operator(0)
}

fn digest(operator: &Operator) -> Option<String> {
    let program = operator.program();
    program.map(|program| program.digest().to_string())
}

impl OperatorRecord {
    /// # Errors
    /// [`Error::NotStored`] for a derivative that could not be read again.
    pub(super) fn new(operator: &Operator) -> Result<Self, Error> {
        let form = match (
            operator.recipe(),
            operator.program(),
            operator.program_options(),
        ) {
            (Some(recipe), ..) => named(recipe)?,
            (None, Some(program), Some(options)) => {
                Form::Program(Box::new(ProgramRecord::new(program, options)?))
            }
            _ => {
                return Err(not_stored(
                    operator.name(),
                    "it is neither in the table of operators nor a program",
                ));
            }
        };
        let record = Self {
            signature: signature(operator.algebra()),
            digest: digest(operator),
            form,
        };
        // Programs of derivatives may call slopes of gates, which other programs do not, and kernels may have no room for their adjoints.
        match record.operator(0) {
            Ok(_) => Ok(record),
            Err(_) => Err(not_stored(
                operator.name(),
                "its program is a derivative, which is not an operator by itself",
            )),
        }
    }

    /// The operator with this number in the file, after a comparison of its digest.
    pub(super) fn operator(&self, index: usize) -> Result<Arc<Operator>, Error> {
        let algebra = algebra(self.signature).map_err(Error::of_part("operator", index))?;
        let made = match &self.form {
            Form::Named { name, settings } => {
                let made = by_name(algebra, name, settings);
                if let Ok(made) = &made {
                    self.check(index, name, digest(made))?;
                }
                made
            }
            Form::Program(record) => {
                let (program, options) = record.program()?;
                // A digest that differs is refused before anything is derived of the program.
                self.check(index, &record.name, Some(program.digest().to_string()))?;
                Operator::of(algebra, &program, &options)
            }
        };
        Ok(Arc::new(made.map_err(Error::of_part("operator", index))?))
    }

    fn check(&self, index: usize, name: &str, got: Option<String>) -> Result<(), Error> {
        if got == self.digest {
            return Ok(());
        }
        let text = |digest: Option<String>| digest.unwrap_or_else(|| "none".to_owned());
        Err(Error::Digest {
            index,
            name: name.to_owned(),
            expected: text(self.digest.clone()),
            got: text(got),
        })
    }
}

/// The operator of a name, with settings.
fn by_name(
    algebra: Algebra,
    name: &str,
    settings: &BTreeMap<String, SettingRecord>,
) -> Result<Operator, flashcliff::Error> {
    let given = settings.iter();
    let given = given.map(|(setting, value)| Ok((&**setting, value.read(name, setting)?)));
    let given = given.collect::<Result<Vec<_>, flashcliff::Error>>()?;
    ops::by_name(algebra, name, &given)
}

fn named(recipe: &Recipe) -> Result<Form, Error> {
    let settings = recipe.settings().iter();
    let settings =
        settings.map(|(name, setting)| Ok(((*name).to_owned(), SettingRecord::new(setting)?)));
    Ok(Form::Named {
        name: recipe.name().to_owned(),
        settings: settings.collect::<Result<_, Error>>()?,
    })
}

fn not_stored(operator: &str, reason: &'static str) -> Error {
    Error::NotStored {
        what: format!("the operator `{operator}`"),
        reason,
    }
}

impl SettingRecord {
    fn new(setting: &Setting<'_>) -> Result<Self, Error> {
        Ok(match *setting {
            Setting::Name(name) => Self::Text(name.to_owned()),
            Setting::Number(number) => Self::Number(number),
            Setting::Flag(flag) => Self::Flag(flag),
            Setting::Grades(None) => Self::Text(ALL.to_owned()),
            Setting::Grades(Some(grades)) => Self::Text(grades.to_string()),
            _ => {
                return Err(not_stored(
                    "of the table",
                    "a setting has a kind that files do not know",
                ));
            }
        })
    }

    /// The value of a setting of an operator. Names that the operator does not have are left to the library, which knows what it expects.
    fn read(&self, operator: &str, setting: &str) -> Result<Setting<'_>, flashcliff::Error> {
        let row = table::find(operator);
        let settings = row.map(|row| row.options.settings()).unwrap_or_default();
        let known = settings.iter().find(|known| known.name == setting);
        let is_grades = known.is_some_and(|known| matches!(known.kind, Kind::Grades));
        Ok(match self {
            Self::Flag(flag) => Setting::Flag(*flag),
            Self::Number(number) => Setting::Number(*number),
            Self::Text(text) if is_grades && text == ALL => Setting::Grades(None),
            Self::Text(text) if is_grades => Setting::Grades(Some(text.parse::<GradeSet>()?)),
            Self::Text(text) => Setting::Name(text),
        })
    }
}
