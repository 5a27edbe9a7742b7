//! The symmetry that the library measures: that of the table for its own operators, and less for programs that single out a blade.

use cayley::{GradeSet, ProductKind};
use flashcliff::program::{Id, Multivector, Program, Uniform};
use flashcliff::{Algebra, Error, Operator, ProgramOptions, Symmetry, ops};
use flashcliff_program::reference::Basis;
use flashcliff_program::spec;

use crate::cases::{all_operators, main_operators};
use crate::equivariance::{breaking_operators, contains};

/// The algebras that can be shipped, whatever this build compiled, and others with few vectors that are not null.
fn algebras() -> impl Iterator<Item = Algebra> {
    let others = ["cl110", "cl101", "cl011", "cl102", "cl211"];
    let others = others.map(|name| name.parse().expect("a signature"));
    let signatures = spec::shipped().chain(others);
    signatures.map(|signature| Algebra::new(signature).expect("an algebra"))
}

#[test]
fn the_measured_symmetry_of_every_operator_is_that_of_the_table() -> Result<(), Error> {
    let mut found = Vec::new();
    for algebra in algebras() {
        for spec in main_operators().into_iter().chain(breaking_operators()) {
            let Ok(op) = spec.operator(algebra) else {
                continue;
            };
            let measured = op.measured_symmetry()?;
            assert_eq!(measured, op.symmetry(), "{spec:?} of {}", algebra.name());
            found.push(measured);
        }
    }
    assert!(Symmetry::ALL.iter().all(|law| found.contains(law)));
    Ok(())
}

/// Between fewer grades an operator may commute with more, as a product whose grades all have one parity.
#[test]
fn operators_between_any_grades_commute_with_what_the_table_says() -> Result<(), Error> {
    for algebra in algebras() {
        let is_definite = algebra.cayley().has_euclidean_norms();
        for spec in all_operators(&Basis::new(algebra.signature())) {
            let op = spec.operator(algebra)?;
            let (measured, law) = (op.measured_symmetry()?, op.symmetry());
            let holds = law == Symmetry::None || contains(measured, law, is_definite);
            assert!(holds, "{spec:?} of {}: {measured}", algebra.name());
        }
    }
    Ok(())
}

/// A change of the values of all blades.
type Change = fn(&mut Program, &Algebra, &mut [Id]);

/// The operator of one multivector that a change makes.
fn changed(algebra: Algebra, change: Change) -> Result<Operator, Error> {
    let mut p = Program::new("changed", "o = change(x)");
    let mut x = Multivector::input(&mut p, &algebra, "x", GradeSet::full(algebra.dim()));
    change(&mut p, &algebra, &mut x.components);
    x.output(&mut p, &algebra);
    Operator::of(algebra, &p, &ProgramOptions::default())
}

fn add_one(p: &mut Program, value: &mut Id) {
    let one = p.graph.constant(1.0);
    *value = p.graph.add(*value, one);
}

fn nothing(_: &mut Program, _: &Algebra, _: &mut [Id]) {}

fn a_scalar(p: &mut Program, _: &Algebra, x: &mut [Id]) {
    add_one(p, &mut x[0]);
}

fn the_first_vector(p: &mut Program, _: &Algebra, x: &mut [Id]) {
    add_one(p, &mut x[1]);
}

fn the_last_vector(p: &mut Program, algebra: &Algebra, x: &mut [Id]) {
    add_one(p, &mut x[algebra.dim()]);
}

fn the_pseudoscalar(p: &mut Program, _: &Algebra, x: &mut [Id]) {
    let last = x.len() - 1;
    add_one(p, &mut x[last]);
}

/// The share of the added number is small, but no rounding.
fn a_little_of_a_vector(p: &mut Program, algebra: &Algebra, x: &mut [Id]) {
    let (little, last) = (p.graph.constant(1e-6), algebra.dim());
    x[last] = p.graph.add(x[last], little);
}

fn exchanged_vectors(_: &mut Program, _: &Algebra, x: &mut [Id]) {
    x.swap(1, 2);
}

fn a_scalar_for_the_pseudoscalar(_: &mut Program, _: &Algebra, x: &mut [Id]) {
    let last = x.len() - 1;
    x[last] = x[0];
}

/// The multivector and its dual, which reflections change in different ways.
fn with_dual(p: &mut Program, algebra: &Algebra, x: &mut [Id]) {
    let given = x.to_vec();
    for (blade, &value) in given.iter().enumerate() {
        let (to, sign) = algebra.dual(blade);
        let value = if sign < 0 { p.graph.neg(value) } else { value };
        x[to] = p.graph.add(x[to], value);
    }
}

/// The multivector times the sum of the squares of its coefficients.
fn euclidean(p: &mut Program, _: &Algebra, x: &mut [Id]) {
    let mut sum = p.graph.constant(0.0);
    for &value in &*x {
        let square = p.graph.mul(value, value);
        sum = p.graph.add(sum, square);
    }
    for value in x {
        *value = p.graph.mul(*value, sum);
    }
}

/// A row sum of one blade, which breaks the symmetry between channels of other elements too.
fn one_blade_of_all_channels(p: &mut Program, _: &Algebra, x: &mut [Id]) {
    let sum = p.row_sum(x[1]);
    let share = p.graph.uniform(Uniform::InvChannels);
    let mean = p.graph.mul(sum, share);
    for value in x {
        *value = p.graph.mul(*value, mean);
    }
}

#[test]
fn programs_that_single_out_a_blade_commute_with_less() -> Result<(), Error> {
    use Symmetry::{EvenVersors, None, Orthogonal, Rotations, Versors};
    // In space, in spacetime, and in the plane with a null vector, which comes first and which every versor leaves alone.
    let cases: [(&str, Change, [Symmetry; 3]); 10] = [
        ("nothing", nothing, [Versors; 3]),
        ("a scalar", a_scalar, [Versors; 3]),
        ("the first vector", the_first_vector, [None, None, Versors]),
        ("the last vector", the_last_vector, [None; 3]),
        ("a little", a_little_of_a_vector, [None; 3]),
        ("the pseudoscalar", the_pseudoscalar, [EvenVersors; 3]),
        ("exchanged", exchanged_vectors, [None; 3]),
        ("scalar", a_scalar_for_the_pseudoscalar, [EvenVersors; 3]),
        ("with dual", with_dual, [EvenVersors, Rotations, Rotations]),
        ("euclidean", euclidean, [Versors, Orthogonal, Orthogonal]),
    ];
    for (name, change, expected) in cases {
        for (algebra, expected) in ["cl300", "cl130", "cl201"].into_iter().zip(expected) {
            let measured = changed(algebra.parse()?, change)?.measured_symmetry()?;
            assert_eq!(measured, expected, "{name} in {algebra}");
        }
    }
    let row = changed("cl300".parse()?, one_blade_of_all_channels)?;
    assert_eq!(row.measured_symmetry()?, None);
    Ok(())
}

/// In one dimension the identity is the only even versor, and every change would commute with it.
#[test]
fn one_vector_has_no_even_versor_to_try() -> Result<(), Error> {
    for name in ["cl100", "cl010"] {
        let algebra: Algebra = name.parse()?;
        let of = |change| changed(algebra, change)?.measured_symmetry();
        assert_eq!(of(a_scalar)?, Symmetry::Versors);
        assert_eq!(of(the_last_vector)?, Symmetry::None);
        assert_eq!(of(exchanged_scalar)?, Symmetry::EvenVersors);
        assert_eq!(of(with_dual)?, Symmetry::None);
    }
    // With a null vector translations are even, and reflections along the other vector have no turns.
    let of = |change| changed("cl101".parse()?, change)?.measured_symmetry();
    assert_eq!(of(with_dual)?, Symmetry::None);
    assert_eq!(of(the_pseudoscalar)?, Symmetry::EvenVersors);
    Ok(())
}

fn exchanged_scalar(_: &mut Program, _: &Algebra, x: &mut [Id]) {
    x.swap(0, 1);
}

#[test]
fn derivatives_are_measured_where_they_name_their_blades() -> Result<(), Error> {
    let product = |name: &str| -> Result<Operator, Error> {
        ops::product(name.parse()?, ProductKind::Geometric, None, None)
    };
    let gradient = product("cl300")?.gradient()?;
    assert_eq!(gradient.outputs().len(), 2);
    assert_eq!(gradient.measured_symmetry()?, Symmetry::Versors);
    assert_eq!(gradient.tangent()?.measured_symmetry()?, Symmetry::Versors);
    // A gradient of multivectors transforms as one only where boosts do not stretch it.
    let boosted = product("cl130")?.gradient()?;
    assert_eq!(boosted.measured_symmetry()?, Symmetry::Orthogonal);
    assert_eq!(
        product("cl130")?.tangent()?.measured_symmetry()?,
        Symmetry::Versors
    );
    Ok(())
}

#[test]
fn components_that_count_from_0_are_numbers() -> Result<(), Error> {
    let algebra: Algebra = "cl300".parse()?;
    let mut p = Program::new("scaled", "o = n1 x");
    let mut x = Multivector::input(&mut p, &algebra, "x", GradeSet::full(3));
    // The scalar blade is named `1`, too.
    let numbers = p.input("n", vec!["0".to_owned(), "1".to_owned()]);
    for value in &mut x.components {
        *value = p.graph.mul(numbers[1], *value);
    }
    x.output(&mut p, &algebra);
    let op = Operator::of(algebra, &p, &ProgramOptions::default())?;
    assert_eq!(op.measured_symmetry()?, Symmetry::Versors);
    Ok(())
}

fn refusal(op: &Operator) -> String {
    let error = op.measured_symmetry().unwrap_err();
    assert!(matches!(error, Error::NotMeasured { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn what_cannot_be_measured_says_why() -> Result<(), Error> {
    let null = refusal(&changed("cl002".parse()?, nothing)?);
    assert_eq!(
        null,
        "changed: its symmetry cannot be measured: expected an algebra with a vector that is not null, got Cl(0,0,2)"
    );
    let root = |p: &mut Program, _: &Algebra, x: &mut [Id]| {
        let zero = p.graph.constant(0.0);
        x[0] = p.graph.div(x[0], zero);
    };
    let infinite = refusal(&changed("cl200".parse()?, root)?);
    assert!(infinite.contains("expected finite results"), "{infinite}");

    let algebra: Algebra = "cl300".parse()?;
    for labels in [["e1", "e2"], ["e2", "1"], ["e1", "other"]] {
        let mut p = Program::new("some", "o = x");
        let x = p.input("x", labels.map(str::to_owned).to_vec());
        p.output("o", vec!["a".to_owned(), "b".to_owned()], x);
        let op = Operator::of(algebra, &p, &ProgramOptions::default())?;
        let text = refusal(&op);
        let words = format!(
            "components of `x` that are named as all blades of some grades, in order, or as none, got {}",
            labels.join(", ")
        );
        assert!(text.contains(&words), "{text}");
    }
    let linear = ops::mv_linear(algebra, &ops::LinearOptions::default())?;
    let text = refusal(&linear.gradient()?);
    assert!(
        text.contains("a derivative of an operator with matrix products"),
        "{text}"
    );
    Ok(())
}
