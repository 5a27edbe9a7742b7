//! How operators are built: operators of lane programs from their entries, one function for all; operators with matrix products one by one.

use cayley::GradeSet;
use flashcliff_operators::Kind as Form;
use flashcliff_program::operators::{self, Entry, Lanes, Place, Settings, Value};

use super::{LinearOptions, LinearSgpOptions, ProductOptions, Recipe, Setting};
use crate::operator::{Kind, LaneOperator, Operator, Zero};
use crate::{Algebra, Error, UnknownOption};

impl ProductOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_number("eps", self.eps)
    }

    /// The steerable product of these options.
    pub(crate) fn lane(&self, algebra: Algebra) -> Result<LaneOperator, Error> {
        Chosen::new("sgp_norm", algebra, &self.settings())?.lane()
    }
}

/// Checks a setting that is a number.
pub(crate) fn check_number(option: &'static str, got: f64) -> Result<(), Error> {
    if got.is_finite() && got >= 0.0 {
        return Ok(());
    }
    Err(Error::InvalidOption {
        option,
        expected: "a finite number, at least 0",
        got,
    })
}

/// An operator of lane programs, with the program that its settings choose.
struct Chosen {
    entry: &'static Entry,
    lanes: &'static Lanes,
    algebra: Algebra,
    settings: Settings,
    program: &'static str,
}

impl Chosen {
    fn new(
        name: &str,
        algebra: Algebra,
        given: &[(&'static str, Setting<'static>)],
    ) -> Result<Self, Error> {
        let found = operators::find(name).and_then(|entry| Some((entry, entry.lanes.as_ref()?)));
        let (entry, lanes) = found.ok_or_else(|| unknown("operator", String::new(), name))?;
        let mut settings = Settings::of(&entry.row);
        for &(name, setting) in given {
            settings = settings.with(name, value(setting));
            if let Setting::Number(number) = setting {
                check_number(name, number)?;
            }
        }
        let program = lanes.program(entry, algebra.cayley(), &settings);
        let program = program.map_err(|setting| no_program(entry, algebra, &settings, setting))?;
        Ok(Self {
            entry,
            lanes,
            algebra,
            settings,
            program,
        })
    }

    /// The name of the operator: its function, or the function of a choice that has its own.
    fn name(&self) -> &'static str {
        let mut functions = self.entry.row.functions();
        let own =
            functions.find(|(setting, choice)| self.settings.name(setting.name) == choice.name);
        own.map_or(self.entry.row.name, |(_, choice)| choice.function)
    }

    fn operands(&self) -> [GradeSet; 2] {
        let operands = self.settings.operands();
        operands.map(|grades| grades.unwrap_or(self.algebra.full()))
    }

    fn lane(&self) -> Result<LaneOperator, Error> {
        let [left, right] = self.operands();
        let mut lane = LaneOperator::new(self.algebra, self.program, left, right)?;
        if let Ok(norm) = self.settings.name("norm").parse() {
            lane = lane.with_norm(norm);
        }
        if let Ok(gate) = self.settings.name("gate").parse() {
            lane = lane.with_gate(gate);
        }
        Ok(match self.settings.number("eps") {
            Some(eps) => lane.with_eps(eps),
            None => lane,
        })
    }

    /// Whether the operator is zero, because no grade can be reached between its operands. An operand without grades
    /// is a mistake rather than a zero.
    fn is_zero(&self) -> bool {
        let [left, right] = self.operands();
        let place = Place {
            name: self.program,
            algebra: self.algebra.cayley(),
            left,
            right,
        };
        self.lanes.is_zero_without_result
            && !left.is_empty()
            && !right.is_empty()
            && (self.lanes.output)(&place).is_empty()
    }
}

/// The operator of a name whose lane programs are in the list of operators. Settings that are not given have their defaults.
pub(super) fn lanes(
    name: &'static str,
    algebra: Algebra,
    settings: &[(&'static str, Setting<'static>)],
) -> Result<Operator, Error> {
    let chosen = Chosen::new(name, algebra, settings)?;
    let recipe = Recipe::new(name, settings);
    let name = chosen.name();
    let kind = match chosen.lane() {
        Ok(lane) => Kind::Lanes(lane),
        Err(Error::UnsupportedGrades { .. }) if chosen.is_zero() => {
            let [left, right] = chosen.operands();
            Kind::Zero(Zero::new(algebra, left, right))
        }
        Err(error) => return Err(error.of(name)),
    };
    Ok(Operator::new(name, algebra, kind).with_recipe(recipe))
}

fn value(setting: Setting<'static>) -> Value {
    match setting {
        Setting::Name(name) => Value::Name(name),
        Setting::Number(number) => Value::Number(number),
        Setting::Flag(flag) => Value::Flag(flag),
        Setting::Grades(grades) => Value::Grades(grades),
    }
}

fn unknown(what: &'static str, expected: String, got: &str) -> Error {
    Error::UnknownOption(UnknownOption {
        what,
        expected,
        got: got.to_owned(),
    })
}

/// The error of a choice that leaves nothing to do: it says the others.
fn no_program(
    entry: &'static Entry,
    algebra: Algebra,
    settings: &Settings,
    setting: &'static str,
) -> Error {
    let got = settings.name(setting);
    let all = entry.row.options.settings().into_iter();
    let mut choices = all.filter(|own| own.name == setting);
    let Some(Form::Choice(choices)) = choices.next().map(|own| own.kind) else {
        return unknown(setting, String::new(), got);
    };
    let names = choices.values.iter().map(|choice| choice.name);
    let has_program = |name: &&'static str| {
        let settings = settings.clone().with(setting, Value::Name(name));
        let lanes = entry.lanes.as_ref();
        lanes.is_some_and(|lanes| lanes.program(entry, algebra.cayley(), &settings).is_ok())
    };
    let expected: Vec<&str> = names.filter(has_program).collect();
    unknown(choices.what, expected.join(", "), got)
}

impl LinearSgpOptions {
    /// Options of the product.
    pub(crate) fn product(&self) -> ProductOptions {
        ProductOptions {
            gate: self.gate,
            norm: self.norm,
            eps: self.eps,
            left: self.linear.grades,
            right: self.linear.grades,
        }
    }
}

pub(super) fn fcgp_norm(algebra: Algebra, options: &ProductOptions) -> Result<Operator, Error> {
    options.check()?;
    let kind = crate::operator::FullyConnected::new(algebra, options);
    let kind = kind.map_err(|e| e.of("fcgp_norm"))?;
    let kind = Kind::FullyConnected(Box::new(kind));
    let recipe = Recipe::new("fcgp_norm", &options.settings());
    Ok(Operator::new("fcgp_norm", algebra, kind).with_recipe(recipe))
}

pub(super) fn mv_linear(algebra: Algebra, options: &LinearOptions) -> Result<Operator, Error> {
    let kind = crate::operator::Linear::new(algebra, options)?;
    let recipe = Recipe::new("mv_linear", &options.settings());
    Ok(Operator::new("mv_linear", algebra, Kind::Linear(kind)).with_recipe(recipe))
}

pub(super) fn mv_linear_sgp_norm(
    algebra: Algebra,
    options: &LinearSgpOptions,
) -> Result<Operator, Error> {
    let kind = crate::operator::LinearSgp::new(algebra, options);
    let kind = kind.map_err(|e| e.of("mv_linear_sgp_norm"))?;
    let kind = Kind::LinearSgp(Box::new(kind));
    let recipe = Recipe::new("mv_linear_sgp_norm", &options.settings());
    Ok(Operator::new("mv_linear_sgp_norm", algebra, kind).with_recipe(recipe))
}
