//! What the tensors of an operator carry, which says how transformations act on them.

use cayley::{Algebra, GradeSet};
use flashcliff_program::ir::{Argument, LaneTensor, Program, Returned};

use crate::operator::{Implementation, Operator, each};

/// What a tensor carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    /// Multivectors: the index of each blade that is stored.
    Blades(Vec<usize>),
    /// Numbers, which transformations leave alone: parameters, norms, sums over the batch.
    Numbers,
}

impl Carried {
    fn of_grades(algebra: &Algebra, grades: GradeSet) -> Self {
        Self::Blades(algebra.blades_in(grades))
    }

    /// The kind of a tensor by the labels of its components: multivectors if they name all blades of some grades, in order. Labels
    /// that count from 0 are labels of numbers, though the scalar blade is named `1`, too.
    fn of_labels(algebra: &Algebra, tensor: &LaneTensor) -> Result<Self, String> {
        let mut counted = tensor.components.iter().enumerate();
        if counted.all(|(at, label)| *label == at.to_string()) {
            return Ok(Self::Numbers);
        }
        let names: Vec<String> = (0..algebra.blade_count())
            .map(|blade| algebra.blade_name(blade))
            .collect();
        let blade = |label: &String| names.iter().position(|name| name == label);
        let blades: Vec<usize> = tensor.components.iter().filter_map(blade).collect();
        let grades = blades.iter().map(|&blade| algebra.grade_of(blade));
        let grades = grades.map(GradeSet::single);
        let grades = grades.fold(GradeSet::EMPTY, GradeSet::union);
        match blades.len() {
            0 => Ok(Self::Numbers),
            count if count == tensor.components.len() && blades == algebra.blades_in(grades) => {
                Ok(Self::Blades(blades))
            }
            _ => Err(format!(
                "expected components of `{}` that are named as all blades of some grades, in order, or as none, got {}",
                tensor.name,
                tensor.components.join(", ")
            )),
        }
    }
}

/// What the inputs and the outputs of an operator carry.
pub(super) struct Tensors {
    pub(super) inputs: Vec<Carried>,
    pub(super) outputs: Vec<Carried>,
}

impl Tensors {
    /// # Errors
    /// The reason why an operator does not say it.
    pub(super) fn of(operator: &Operator) -> Result<Self, String> {
        let algebra = operator.algebra();
        if let Some((operands, output)) = each!(operator.kind(), of => of.tensor_grades(algebra)) {
            return Ok(Self::of_grades(operator, &operands, output));
        }
        let program = operator.program().ok_or(
            "expected an operator that names its blades, got a derivative of an operator with matrix products",
        )?;
        Self::of_program(&algebra, program)
    }

    /// The tensors of an operator whose inputs that are no parameters have these grades.
    fn of_grades(operator: &Operator, operands: &[GradeSet], output: GradeSet) -> Self {
        let algebra = operator.algebra();
        let mut operands = operands.iter();
        let inputs = operator.inputs().iter().map(|input| {
            let operand = operands.next().filter(|_| !input.is_parameter());
            operand.map_or(Carried::Numbers, |&grades| {
                Carried::of_grades(&algebra, grades)
            })
        });
        Self {
            inputs: inputs.collect(),
            outputs: vec![Carried::of_grades(&algebra, output)],
        }
    }

    fn of_program(algebra: &Algebra, program: &Program) -> Result<Self, String> {
        let lanes = |tensor: &LaneTensor| Carried::of_labels(algebra, tensor);
        let inputs = program.arguments.iter().map(|argument| match *argument {
            Argument::Input(at) => lanes(&program.inputs[at]),
            Argument::Param(_) | Argument::RowValue(_) => Ok(Carried::Numbers),
        });
        let outputs = program.results.iter().map(|result| match *result {
            Returned::Output(at) => lanes(&program.outputs[at].tensor),
            Returned::Sum(_) | Returned::Total(_) => Ok(Carried::Numbers),
        });
        Ok(Self {
            inputs: inputs.collect::<Result<_, String>>()?,
            outputs: outputs.collect::<Result<_, String>>()?,
        })
    }
}
