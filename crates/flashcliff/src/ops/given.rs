//! Settings by name.

use std::str::FromStr;

use cayley::GradeSet;

use crate::Error;

/// The value of a setting for [`by_name`](super::by_name).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Setting<'a> {
    /// The name of a choice, such as `gelu` for the gate.
    Name(&'a str),
    /// A number.
    Number(f64),
    /// A choice of two.
    Flag(bool),
    /// The grades that an operand carries; `None` is all of them.
    Grades(Option<GradeSet>),
}

impl Setting<'_> {
    fn describe(self) -> String {
        match self {
            Setting::Name(name) => name.to_owned(),
            Setting::Number(number) => number.to_string(),
            Setting::Flag(flag) => flag.to_string(),
            Setting::Grades(Some(grades)) => format!("grades {grades}"),
            Setting::Grades(None) => "all grades".to_owned(),
        }
    }
}

/// The settings that a caller gave, and the names that the operator asked for.
pub(super) struct Given<'a> {
    settings: &'a [(&'a str, Setting<'a>)],
    known: Vec<&'static str>,
}

impl<'a> Given<'a> {
    pub(super) fn new(settings: &'a [(&'a str, Setting<'a>)]) -> Self {
        Self {
            settings,
            known: Vec::new(),
        }
    }

    /// The value of a setting. [`finish`](Self::finish) refuses settings that are given twice.
    fn value(&mut self, name: &'static str) -> Option<Setting<'a>> {
        self.known.push(name);
        let found = self.settings.iter().find(|(given, _)| *given == name);
        found.map(|&(_, setting)| setting)
    }

    pub(super) fn choice<T>(&mut self, name: &'static str, default: T) -> Result<T, Error>
    where
        T: FromStr,
        Error: From<T::Err>,
    {
        match self.value(name) {
            None => Ok(default),
            Some(Setting::Name(text)) => Ok(text.parse()?),
            Some(other) => Err(unlike(name, "a name", other)),
        }
    }

    pub(super) fn number(&mut self, name: &'static str, default: f64) -> Result<f64, Error> {
        match self.value(name) {
            None => Ok(default),
            Some(Setting::Number(number)) => Ok(number),
            Some(other) => Err(unlike(name, "a number", other)),
        }
    }

    pub(super) fn flag(&mut self, name: &'static str, default: bool) -> Result<bool, Error> {
        match self.value(name) {
            None => Ok(default),
            Some(Setting::Flag(flag)) => Ok(flag),
            Some(other) => Err(unlike(name, "true or false", other)),
        }
    }

    pub(super) fn grades(&mut self, name: &'static str) -> Result<Option<GradeSet>, Error> {
        match self.value(name) {
            None => Ok(None),
            Some(Setting::Grades(grades)) => Ok(grades),
            Some(other) => Err(unlike(name, "grades", other)),
        }
    }

    /// Refuses settings that the operator did not ask for, and those that are given twice.
    pub(super) fn finish(&self, operator: &str) -> Result<(), Error> {
        for (at, &(name, second)) in self.settings.iter().enumerate() {
            if !self.known.contains(&name) {
                return Err(Error::UnknownSetting {
                    operator: operator.to_owned(),
                    expected: match self.known.is_empty() {
                        true => "none".to_owned(),
                        false => format!("one of {}", self.known.join(", ")),
                    },
                    got: name.to_owned(),
                });
            }
            let mut before = self.settings[..at].iter();
            if let Some(&(_, first)) = before.find(|(given, _)| *given == name) {
                return Err(Error::RepeatedSetting {
                    operator: operator.to_owned(),
                    setting: name.to_owned(),
                    got: format!("`{}` and `{}`", first.describe(), second.describe()),
                });
            }
        }
        Ok(())
    }
}

fn unlike(setting: &'static str, expected: &'static str, got: Setting<'_>) -> Error {
    Error::SettingKind {
        setting,
        expected,
        got: got.describe(),
    }
}
