//! Options of operators from a text such as `gate=silu norm=none left=0,2`.

use flashcliff::GradeSet;
use flashcliff::ops::table::Kind;
use flashcliff::ops::{Setting, TABLE};

use crate::status::Failure;

/// The settings of an operator in a text. Names that the operator does not have are left to the library, which knows what it
/// expects.
pub(crate) fn read<'a>(
    operator: &str,
    text: &'a str,
) -> Result<Vec<(&'a str, Setting<'a>)>, Failure> {
    text.split_whitespace()
        .map(|word| {
            let (name, value) = word.split_once('=').ok_or_else(|| {
                Failure::Argument(format!(
                    "settings: expected name=value pairs apart by spaces, got `{word}`"
                ))
            })?;
            Ok((name, setting(operator, name, value)?))
        })
        .collect()
}

fn setting<'a>(operator: &str, name: &str, value: &'a str) -> Result<Setting<'a>, Failure> {
    let row = TABLE.iter().find(|row| row.name == operator);
    let settings = row.map(|row| row.options.settings()).unwrap_or_default();
    let kind = settings.iter().find(|setting| setting.name == name);
    let wrong = |expected: &str| {
        Failure::Argument(format!(
            "setting {name}: expected {expected}, got `{value}`"
        ))
    };
    Ok(match kind.map(|setting| setting.kind) {
        Some(Kind::Number) => Setting::Number(value.parse().map_err(|_| wrong("a number"))?),
        Some(Kind::Flag) => Setting::Flag(value.parse().map_err(|_| wrong("true or false"))?),
        Some(Kind::Grades) if value == "all" => Setting::Grades(None),
        Some(Kind::Grades) => Setting::Grades(Some(value.parse::<GradeSet>()?)),
        _ => Setting::Name(value),
    })
}
