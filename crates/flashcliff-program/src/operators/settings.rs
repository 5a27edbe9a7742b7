//! The values of the options in a call.

use cayley::GradeSet;
use flashcliff_operators::{Kind, Operator as Row, Presence, Setting};

/// The value of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// The name of a choice.
    Name(&'static str),
    /// A number.
    Number(f64),
    /// A flag.
    Flag(bool),
    /// Grades; `None` is all of them.
    Grades(Option<GradeSet>),
}

/// The values of all settings of an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings(Vec<(&'static str, Value)>);

impl Settings {
    /// The defaults of an operator.
    pub fn of(row: &Row) -> Self {
        let settings = row.options.settings().into_iter();
        Self(
            settings
                .map(|setting| (setting.name, default(setting)))
                .collect(),
        )
    }

    /// The settings with another value of one.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: Value) -> Self {
        match self.0.iter_mut().find(|(own, _)| *own == name) {
            Some((_, own)) => *own = value,
            None => self.0.push((name, value)),
        }
        self
    }

    /// All combinations of choices and flags of an operator. Numbers and grades have their defaults.
    pub fn choices(row: &Row) -> Vec<Self> {
        let mut all = vec![Self::of(row)];
        for setting in row.options.settings() {
            let values: Vec<Value> = match setting.kind {
                Kind::Choice(choices) => choices
                    .values
                    .iter()
                    .map(|choice| Value::Name(choice.name))
                    .collect(),
                Kind::Flag => [false, true].map(Value::Flag).into(),
                Kind::Number | Kind::Grades | Kind::Bytes => continue,
            };
            let of_value = |value| {
                all.iter()
                    .map(move |one: &Self| one.clone().with(setting.name, value))
            };
            all = values.into_iter().flat_map(of_value).collect();
        }
        all
    }

    fn value(&self, name: &str) -> Option<Value> {
        let found = self.0.iter().find(|(own, _)| *own == name);
        found.map(|&(_, value)| value)
    }

    /// The name that a choice has; empty if the operator has no such choice.
    pub fn name(&self, setting: &str) -> &'static str {
        match self.value(setting) {
            Some(Value::Name(name)) => name,
            _ => "",
        }
    }

    /// A number, if the operator has a setting of that name.
    pub fn number(&self, setting: &str) -> Option<f64> {
        match self.value(setting) {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        }
    }

    /// Whether a flag is set.
    pub fn flag(&self, setting: &str) -> bool {
        self.value(setting) == Some(Value::Flag(true))
    }

    /// The grades of a setting; `None` if they are all, or if the operator has no such setting.
    pub fn grades(&self, setting: &str) -> Option<GradeSet> {
        match self.value(setting) {
            Some(Value::Grades(grades)) => grades,
            _ => None,
        }
    }

    /// The grades of the operands: `left` and `right`, or `grades` for both.
    pub fn operands(&self) -> [Option<GradeSet>; 2] {
        ["left", "right"].map(|side| self.grades(side).or(self.grades("grades")))
    }

    /// The names of the inputs that are there.
    pub fn inputs(&self, row: &Row) -> Vec<&'static str> {
        let is_there = |presence| match presence {
            Presence::Always => true,
            Presence::WithBias => self.name("bias") != "none",
            Presence::With(flag) => self.flag(flag),
        };
        let inputs = row.inputs.iter().filter(|input| is_there(input.presence));
        inputs.map(|input| input.name).collect()
    }

    /// All values by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Value)> + '_ {
        self.0.iter().copied()
    }
}

fn default(setting: &Setting) -> Value {
    match setting.kind {
        Kind::Choice(_) => Value::Name(setting.default),
        Kind::Number => Value::Number(setting.default.parse().unwrap_or(f64::NAN)),
        Kind::Flag => Value::Flag(setting.default == "true"),
        Kind::Grades | Kind::Bytes => Value::Grades(None),
    }
}
