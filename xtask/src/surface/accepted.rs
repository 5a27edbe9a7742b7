//! The values that an operator takes of an option.

use cayley::{Algebra, Signature};
use flashcliff_operators::{Choice, Kind, Operator, Setting};
use flashcliff_program::operators::{Settings, find};

/// The names that an operator takes of a setting: those for which it has a program. None if the setting has no names.
pub(super) fn choices(operator: &Operator, setting: &Setting) -> Vec<&'static Choice> {
    let Kind::Choice(choices) = setting.kind else {
        return Vec::new();
    };
    let Some((entry, lanes)) =
        find(operator.name).and_then(|entry| Some((entry, entry.lanes.as_ref()?)))
    else {
        return choices.values.iter().collect();
    };
    let Ok(plane) = Signature::new(2, 0, 0) else {
        return Vec::new();
    };
    let algebra = Algebra::new(plane);
    let all = Settings::choices(operator);
    let accepts = |choice: &&Choice| {
        let mut with = all
            .iter()
            .filter(|settings| settings.name(setting.name) == choice.name);
        with.any(|settings| lanes.program(entry, &algebra, settings).is_ok())
    };
    choices.values.iter().filter(accepts).collect()
}
