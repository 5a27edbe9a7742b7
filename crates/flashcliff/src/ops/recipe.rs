//! What an operator of the table was made of.

use super::Setting;

/// The name of an operator in [`TABLE`](super::TABLE), and the settings that it was made with:
/// [`by_name`](super::by_name) makes the same operator of both and its algebra.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    name: &'static str,
    settings: Vec<(&'static str, Setting<'static>)>,
}

impl Recipe {
    pub(super) fn new(name: &'static str, settings: &[(&'static str, Setting<'static>)]) -> Self {
        Self {
            name,
            settings: settings.to_vec(),
        }
    }

    /// The name in the table. The [name of the operator](crate::Operator::name) may be that of one of its choices.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The settings by name, which are all that the operator has.
    pub fn settings(&self) -> &[(&'static str, Setting<'static>)] {
        &self.settings
    }
}
