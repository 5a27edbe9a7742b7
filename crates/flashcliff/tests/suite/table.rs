//! The table of operators against the operators: names, inputs, shapes, options.

use flashcliff::ops::table::{CHOICES, Kind, Operator as Row, Presence, Setting as Option_};
use flashcliff::ops::{self, Setting};
use flashcliff::{
    Algebra, Bias, Dim, Dims, Error, Gate, GradeSet, Invariant, Norm, Operator, ProductKind,
    Signature, WeightLayout,
};
use flashcliff_program::operators::{self, Settings, Value};
use flashcliff_program::reference::{Basis, evaluate};

fn algebras() -> impl Iterator<Item = Algebra> {
    let signatures = [(2, 0, 0), (3, 0, 0), (1, 1, 1), (0, 1, 0)];
    signatures
        .map(|(p, q, r)| Algebra::new(Signature::new(p, q, r).unwrap()).unwrap())
        .into_iter()
}

/// A setting in a test: a flag, a choice or grades.
type Given = Vec<(&'static str, Setting<'static>)>;

/// Settings that differ from the defaults: each choice, each flag both ways, some grades; one set for each.
fn variants(row: &'static Row, algebra: Algebra) -> Vec<Given> {
    let mut variants = vec![Vec::new()];
    for setting in row.options.settings() {
        match setting.kind {
            Kind::Choice(choices) => {
                let names = choices.values.iter().map(|choice| choice.name);
                variants.extend(names.map(|name| vec![(setting.name, Setting::Name(name))]));
            }
            Kind::Flag => {
                let both = [false, true].map(|flag| vec![(setting.name, Setting::Flag(flag))]);
                variants.extend(both);
            }
            Kind::Grades => {
                let some = GradeSet::even(algebra.signature().dim());
                variants.push(vec![(setting.name, Setting::Grades(Some(some)))]);
            }
            Kind::Number | Kind::Bytes => {}
        }
    }
    variants
}

fn flag(given: &Given, setting: &str) -> bool {
    !given.contains(&(setting, Setting::Flag(false)))
}

fn grades(given: &Given, algebra: Algebra, setting: &str) -> GradeSet {
    let found = given.iter().find_map(|(name, value)| match value {
        Setting::Grades(grades) if *name == setting => *grades,
        _ => None,
    });
    found.unwrap_or(GradeSet::full(algebra.signature().dim()))
}

/// The axes that a shape of the table stands for, found without the library's operators. `components` is the number of components that the
/// reference computes.
fn axes(shape: &str, given: &Given, algebra: Algebra, components: usize) -> Vec<Dim> {
    let cayley = algebra.cayley();
    let (left, right) = match given.iter().any(|(name, _)| *name == "grades") {
        true => [grades(given, algebra, "grades"); 2].into(),
        false => (
            grades(given, algebra, "left"),
            grades(given, algebra, "right"),
        ),
    };
    let blades = |set: GradeSet| {
        let all = 0..cayley.blade_count();
        all.filter(|&blade| set.contains(cayley.grade_of(blade)))
            .count()
    };
    let of_grades = |name: &str| blades(grades(given, algebra, name));
    let inner = shape.trim_matches(['[', ']']);
    let axes = inner.split(", ").map(|axis| match axis {
        "batch" => Dim::Batch,
        "C" | "in" => Dim::In,
        "out" => Dim::Out,
        "1" => Dim::Fixed(1),
        "blades" => Dim::Fixed(cayley.blade_count()),
        "blades of left" => Dim::Fixed(of_grades("left")),
        "blades of right" => Dim::Fixed(of_grades("right")),
        "blades of grades" => Dim::Fixed(of_grades("grades")),
        "paths" => Dim::Fixed(cayley.paths_between(left, right).len()),
        "grades" => Dim::Fixed(grades(given, algebra, "grades").iter().count()),
        "reachable blades" => Dim::Fixed(components),
        other => panic!("no axis `{other}`"),
    });
    axes.collect()
}

/// Settings that turn the shape of a weight around, which rows say in words.
fn reshapes(given: &Given) -> bool {
    given.contains(&("weight_layout", Setting::Name("grade_in_out")))
        || given.contains(&("per_grade", Setting::Flag(false)))
}

fn check(row: &Row, given: &Given, operator: &Operator, algebra: Algebra) {
    let says = format!("{} {given:?} of {:?}", row.name, algebra.signature());
    assert_eq!(operator.name(), name_of(row, given), "{says}");
    let expected = row.inputs.iter().filter(|input| match input.presence {
        Presence::Always => true,
        Presence::WithBias => !given.contains(&("bias", Setting::Name("none"))),
        Presence::With(setting) => flag(given, setting),
    });
    let expected: Vec<_> = expected.collect();
    let names: Vec<&str> = operator.inputs().iter().map(|spec| spec.name).collect();
    let expected_names: Vec<&str> = expected.iter().map(|input| input.name).collect();
    assert_eq!(names, expected_names, "{says}");
    for (spec, input) in operator.inputs().iter().zip(expected) {
        if input.is_parameter() && reshapes(given) {
            continue;
        }
        let bare = |dims: &[Dim]| -> Vec<Dim> {
            // Where channels stay, one letter stands for both.
            let square = !row.output.contains("out");
            let one = |dim: &Dim| {
                if square && *dim == Dim::Out {
                    Dim::In
                } else {
                    *dim
                }
            };
            dims.iter().map(one).collect()
        };
        let expected = axes(input.shape, given, algebra, 0);
        assert_eq!(bare(&spec.dims), bare(&expected), "{says}: {}", input.name);
    }
    let expected = axes(
        row.output,
        given,
        algebra,
        reached(row, given, operator, algebra),
    );
    assert_eq!(operator.output().dims, expected, "{says}");
}

/// The number of components that the reference computes. An operator that is always zero has the components of a full multivector.
fn reached(row: &Row, given: &Given, operator: &Operator, algebra: Algebra) -> usize {
    let entry = operators::find(row.name).unwrap();
    let settings = given
        .iter()
        .fold(Settings::of(row), |all, &(name, setting)| {
            let value = match setting {
                Setting::Name(name) => Value::Name(name),
                Setting::Flag(flag) => Value::Flag(flag),
                Setting::Grades(grades) => Value::Grades(grades),
                other => panic!("no setting {other:?}"),
            };
            all.with(name, value)
        });
    let dims = Dims {
        batch: 1,
        in_channels: 1,
        out_channels: 1,
        scalar_channels: 0,
    };
    let inputs = operator.inputs().iter();
    let inputs: Vec<Vec<f64>> = inputs
        .map(|input| vec![1.0; input.shape(&dims).iter().product()])
        .collect();
    let basis = Basis::new(algebra.signature());
    match evaluate(entry, &settings, &basis, [1, 1, 1], &inputs).len() {
        0 => algebra.blade_count(),
        reached => reached,
    }
}

/// Products are called by their kinds.
fn name_of(row: &Row, given: &Given) -> &'static str {
    let setting = row
        .options
        .settings()
        .into_iter()
        .find(|setting| setting.name == "kind");
    let Some(Option_ {
        kind: Kind::Choice(choices),
        default,
        ..
    }) = setting
    else {
        return row.name;
    };
    let chosen = given.iter().find_map(|(name, value)| match value {
        Setting::Name(kind) if *name == "kind" => Some(*kind),
        _ => None,
    });
    let chosen = chosen.unwrap_or(default);
    choices
        .values
        .iter()
        .find(|choice| choice.name == chosen)
        .unwrap()
        .function
}

#[test]
fn every_row_describes_its_operator() {
    let mut count = 0;
    for algebra in algebras() {
        for row in ops::TABLE {
            for given in variants(row, algebra) {
                if row.name == "grade_rms" && given == [("norm", Setting::Name("none"))] {
                    assert!(ops::by_name(algebra, row.name, &given).is_err());
                    continue;
                }
                let made = ops::by_name(algebra, row.name, &given);
                check(row, &given, &made.unwrap(), algebra);
                count += 1;
            }
        }
    }
    assert!(count > 200, "{count}");
}

#[test]
fn the_names_of_choices_are_those_of_the_types() {
    let names = |what: &str| -> Vec<&str> {
        let found = CHOICES.iter().find(|choices| choices.rust == what).unwrap();
        found.values.iter().map(|choice| choice.name).collect()
    };
    assert_eq!(names("Gate"), Gate::ALL.map(Gate::name));
    assert_eq!(names("Norm"), Norm::ALL.map(Norm::name));
    assert_eq!(names("Invariant"), Invariant::ALL.map(Invariant::name));
    assert_eq!(names("Bias"), Bias::ALL.map(Bias::name));
    assert_eq!(
        names("WeightLayout"),
        WeightLayout::ALL.map(WeightLayout::name)
    );
    assert_eq!(
        names("ProductKind"),
        ProductKind::ALL.map(ProductKind::name)
    );
    assert_eq!(CHOICES.len(), 6);
}

#[test]
fn names_and_earlier_spellings_are_read() {
    for choices in CHOICES {
        for choice in choices.values {
            for old in choice.old {
                assert_eq!(choices.resolve(old), Some((choice.name, true)));
            }
            for own in choice.old.iter().chain([&choice.name]) {
                let read = match choices.rust {
                    "Gate" => own.parse().map(Gate::name).ok(),
                    "Norm" => own.parse().map(Norm::name).ok(),
                    "Invariant" => own.parse().map(Invariant::name).ok(),
                    "Bias" => own.parse().map(Bias::name).ok(),
                    "WeightLayout" => own.parse().map(WeightLayout::name).ok(),
                    "ProductKind" => own.parse().map(ProductKind::name).ok(),
                    other => panic!("unknown choices {other}"),
                };
                assert_eq!(read, Some(choice.name), "{own}");
            }
        }
    }
    assert_eq!("gelu_fast".parse::<Gate>(), Ok(Gate::GeluFast));
    assert!("gelutanh".parse::<Gate>().is_err() && "".parse::<Gate>().is_err());
}

#[test]
fn defaults_by_name_are_those_of_the_functions() {
    let algebra = Algebra::new(Signature::new(1, 1, 0).unwrap()).unwrap();
    let same = |name: &str, operator: Result<Operator, Error>| {
        let by_name = ops::by_name(algebra, name, &[]).unwrap();
        assert_eq!(format!("{by_name:?}"), format!("{:?}", operator.unwrap()));
    };
    same(
        "sgp_norm",
        ops::sgp_norm(algebra, &ops::ProductOptions::default()),
    );
    same(
        "fcgp_norm",
        ops::fcgp_norm(algebra, &ops::ProductOptions::default()),
    );
    same(
        "mv_linear",
        ops::mv_linear(algebra, &ops::LinearOptions::default()),
    );
    same(
        "mv_linear_sgp_norm",
        ops::mv_linear_sgp_norm(algebra, &ops::LinearSgpOptions::default()),
    );
    same(
        "steerable_product",
        ops::steerable_product(algebra, &ops::SteerableOptions::default()),
    );
    same("mv_silu", ops::mv_silu(algebra, Invariant::default()));
    same("gate", ops::gate(algebra, Gate::default()));
    same("grade_rms", ops::grade_rms(algebra, Norm::default(), 1e-6));
    same(
        "product",
        ops::product(algebra, ProductKind::Geometric, None, None),
    );
    same("sandwich", ops::sandwich(algebra, None, None));
}

#[test]
fn settings_by_name_are_checked() {
    let algebra = "cl200".parse::<Algebra>().unwrap();
    let error = |name: &str, settings: &[(&str, Setting<'_>)]| {
        ops::by_name(algebra, name, settings)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error("sgp_norm", &[("gat", Setting::Name("gelu"))]),
        "sgp_norm has no setting `gat`: expected one of gate, norm, eps, left, right"
    );
    assert_eq!(
        error("dual", &[("gate", Setting::Name("gelu"))]),
        "dual has no setting `gate`: expected none"
    );
    assert_eq!(
        error("sgp_norm", &[("eps", Setting::Name("small"))]),
        "the setting eps must be a number, got small"
    );
    assert_eq!(
        error("gate", &[("gate", Setting::Name("relu"))]),
        "unknown gate `relu`: expected one of none, gelu, gelu_tanh, silu, gelu_fast"
    );
    assert!(error("sgp", &[]).starts_with("unknown operator `sgp`: expected one of sgp_norm, "));
}
