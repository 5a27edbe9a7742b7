//! Programs by name: how each is made between some grades, and between which grades it is compiled.
//!
//! [`operators`] lists what is compiled, [`find`] makes one program between any grades. The programs of lanes are the programs of
//! [`ENTRIES`]; the programs around matrix products stand here.

use cayley::{Algebra, GradeSet};

use super::norms::{Measure, norm_of_grades, undo_norm};
use super::{Group, Operator, parts};
use crate::operators::{ENTRIES, Lanes, Place};

/// All programs of an algebra that are compiled, in the order in which they are generated.
pub fn operators(algebra: &Algebra) -> Vec<Operator> {
    operators_in(algebra, &Group::ALL)
}

/// The compiled programs of an algebra in some groups, in the order in which they are generated.
pub fn operators_in(algebra: &Algebra, groups: &[Group]) -> Vec<Operator> {
    let mut all = lanes_in(algebra, groups);
    if groups.contains(&Group::FullyConnected) {
        all.extend(parts_of_fully_connected(algebra));
    }
    all
}

/// The compiled operators that consist of one lane program.
pub fn lane_operators(algebra: &Algebra) -> Vec<Operator> {
    lanes_in(algebra, &Group::ALL)
}

fn lanes_in(algebra: &Algebra, groups: &[Group]) -> Vec<Operator> {
    let lanes = ENTRIES.iter().filter_map(|entry| entry.lanes.as_ref());
    let lanes = lanes.filter(|lanes| groups.contains(&lanes.group));
    lanes.flat_map(|lanes| compiled(algebra, lanes)).collect()
}

/// The compiled programs of an operator: family by family, and for each of its grades in order every name in order.
fn compiled(algebra: &Algebra, lanes: &Lanes) -> Vec<Operator> {
    let mut found = Vec::new();
    for family in lanes.families {
        for [left, right] in (lanes.compiled)(algebra) {
            for &name in *family {
                let place = Place {
                    name,
                    algebra,
                    left,
                    right,
                };
                if (lanes.is_compiled)(&place) {
                    found.push(made(lanes, &place));
                }
            }
        }
    }
    found
}

fn made(lanes: &Lanes, place: &Place<'_>) -> Operator {
    Operator {
        left: place.left,
        right: place.right,
        output: (lanes.output)(place),
        program: (lanes.program)(place),
    }
}

/// The program of a name between some grades, compiled or not. `None` if there is no such program, if its result has
/// no grade, or if the algebra lacks a grade.
///
/// `output` distinguishes path products with the same operands, and is read for these only.
pub fn find(
    algebra: &Algebra,
    name: &str,
    left: GradeSet,
    right: GradeSet,
    output: Option<GradeSet>,
) -> Option<Operator> {
    let mut given = [Some(left), Some(right), output].into_iter().flatten();
    if given.any(|grades| algebra.check_grades(grades).is_err()) {
        return None;
    }
    let place = Place {
        name,
        algebra,
        left,
        right,
    };
    let mut lanes = ENTRIES.iter().filter_map(|entry| entry.lanes.as_ref());
    let operator = match lanes.find(|lanes| lanes.names().any(|own| own == name)) {
        Some(lanes) if lanes.takes(&place) => made(lanes, &place),
        Some(_) => return None,
        None => part_of_fully_connected(&place, output)?,
    };
    let mut outputs = operator.program.outputs.iter();
    let is_empty = operator.output.is_empty() || outputs.all(|o| o.values.is_empty());
    (!is_empty).then_some(operator)
}

/// The names of the programs that undo a norm.
const UNDO: [(&str, Measure); 2] = [
    ("undo_grade_rms", Measure::Euclidean),
    ("undo_grade_invariant", Measure::Invariant),
];

/// The programs of the fully connected product, around its matrix products.
fn parts_of_fully_connected(algebra: &Algebra) -> Vec<Operator> {
    let place = |name, left, right| Place {
        name,
        algebra,
        left,
        right,
    };
    let full = GradeSet::full(algebra.dim());
    let mut found: Vec<Operator> =
        part_of_fully_connected(&place(parts::GATE_PAIR, full, full), None)
            .into_iter()
            .collect();
    for path in algebra.paths() {
        let [left, output, right] = [path.left, path.output, path.right].map(GradeSet::single);
        let place = place(parts::PATH_PRODUCT, left, right);
        found.extend(part_of_fully_connected(&place, Some(output)));
    }
    // These programs go grade by grade, because the product takes any grade sets.
    for grade in 0..algebra.grade_count() {
        let own = GradeSet::single(grade);
        let is_euclidean = algebra.invariant_form(grade).is_euclidean();
        for (name, measure) in UNDO {
            if measure == Measure::Invariant && is_euclidean {
                continue;
            }
            found.push(Operator {
                left: own,
                right: own,
                output: own,
                program: norm_of_grades(algebra, own, measure),
            });
            found.extend(part_of_fully_connected(&place(name, own, own), None));
        }
    }
    found
}

fn part_of_fully_connected(place: &Place<'_>, output: Option<GradeSet>) -> Option<Operator> {
    let Place {
        name,
        algebra,
        left,
        right,
    } = *place;
    let (output, program) = match name {
        parts::GATE_PAIR => (GradeSet::single(0), parts::gate_pair()),
        parts::PATH_PRODUCT => {
            let output = output?;
            let first = |set: GradeSet| set.iter().next();
            let ends = (first(left)?, first(output)?, first(right)?);
            let mut paths = algebra.paths().into_iter();
            let path = paths.find(|path| (path.left, path.output, path.right) == ends)?;
            (output, parts::path_product(algebra, path))
        }
        _ => {
            let (_, measure) = UNDO.into_iter().find(|(own, _)| *own == name)?;
            (left, undo_norm(name, algebra, left, measure))
        }
    };
    Some(Operator {
        left,
        right,
        output,
        program,
    })
}
