//! The symmetry of every operator, as the laws in its file say it.

use flashcliff::{GradeSet, Operator, ProductKind, Symmetry as Claim};
use flashcliff_program::reference::Basis;

use crate::cases::Spec;
use crate::versors::{Action, Group};

/// How an action on the inputs acts on the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Image {
    Along,
    AlongTimesDeterminant,
    Invariant,
}

pub(crate) struct Symmetry {
    pub(crate) group: Group,
    pub(crate) image: Image,
}

/// The symmetry that the file of the operator promises; `None` if it promises none.
pub(crate) fn symmetry(spec: &Spec) -> Option<Symmetry> {
    let (entry, settings) = (spec.entry(), spec.settings());
    let mut functions = entry.row.functions();
    let function = functions.find(|(setting, choice)| settings.name(setting.name) == choice.name);
    let function = function.map(|(_, choice)| choice.function);
    let is_own = |option: Option<(&str, &str)>| {
        option.is_none_or(|(setting, choice)| settings.name(setting) == choice)
    };
    // On scalars alone a bias breaks no symmetry.
    let is_scalar = settings.grades("grades") == Some(GradeSet::single(0));
    let mut laws = entry.symmetry.iter().filter(|law| {
        let is_of_function = law.function.is_none() || law.function == function;
        let is_lifted = is_scalar && law.option.is_some_and(|(setting, _)| setting == "bias");
        is_of_function && is_own(law.option) && !is_lifted
    });
    // Laws of options that break more symmetries come later.
    let (group, is_signed) = match laws.next_back().expect("a law").otherwise {
        Claim::Versors => (Group::Pin, false),
        Claim::EvenVersors => (Group::Pin, true),
        Claim::Orthogonal => (Group::Euclidean, false),
        Claim::Rotations => (Group::Euclidean, true),
        _ => return None,
    };
    let image = match (entry.row.output.contains("blades"), is_signed) {
        (false, _) => Image::Invariant,
        (true, true) => Image::AlongTimesDeterminant,
        (true, false) => Image::Along,
    };
    Some(Symmetry { group, image })
}

/// The grades of a multivector of an operator: an input by its name, or the output `o`.
pub(crate) fn grades(basis: &Basis, spec: &Spec, name: &str) -> GradeSet {
    let row = &spec.entry().row;
    let [left, right] = spec.operands(basis.dim);
    let mut inputs = row.inputs.iter();
    let shape = inputs
        .find(|input| input.name == name)
        .map_or(row.output, |input| input.shape);
    match shape.split(',').next().expect("an axis") {
        "[blades of left" | "[blades of grades" => left,
        "[blades of right" => right,
        "[reachable blades" => reached(basis, spec, left, right),
        _ => GradeSet::full(basis.dim),
    }
}

/// The grades of the output of an operator between some grades.
fn reached(basis: &Basis, spec: &Spec, left: GradeSet, right: GradeSet) -> GradeSet {
    spec.reached(basis).unwrap_or_else(|| {
        let blades = &basis.table(ProductKind::Geometric, left, right).outputs;
        let grades = blades.iter().map(|&b| GradeSet::single(basis.grade(b)));
        grades.fold(GradeSet::EMPTY, GradeSet::union)
    })
}

/// The inputs of an operator after an action on its multivectors.
pub(crate) fn moved_inputs(
    basis: &Basis,
    spec: &Spec,
    op: &Operator,
    action: &Action,
    inputs: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    let moved = op
        .inputs()
        .iter()
        .zip(inputs)
        .map(|(input, values)| match !input.is_parameter() {
            true => action.apply(basis, grades(basis, spec, input.name), values),
            false => values.clone(),
        });
    moved.collect()
}

/// The output after an action on the inputs.
pub(crate) fn moved_output(
    basis: &Basis,
    spec: &Spec,
    image: Image,
    action: &Action,
    output: &[f64],
) -> Vec<f64> {
    let along = || action.apply(basis, grades(basis, spec, "o"), output);
    match image {
        Image::Invariant => output.to_vec(),
        Image::Along => along(),
        Image::AlongTimesDeterminant => along().iter().map(|x| x * action.determinant).collect(),
    }
}
