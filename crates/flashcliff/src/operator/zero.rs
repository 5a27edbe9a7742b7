//! Products that are zero whatever their operands are, such as the commutator in one dimension.

use cayley::GradeSet;

use super::Cost;
use super::shape::{Dim, TensorSpec};
use crate::Algebra;

/// A product that reaches no blade of the algebra, or a derivative of one.
#[derive(Clone, Debug)]
pub(crate) struct Zero {
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
}

impl Zero {
    /// The zero product of operands with these grades; its output has all blades.
    pub(crate) fn new(algebra: Algebra, left: GradeSet, right: GradeSet) -> Self {
        let blades = |grades: GradeSet| grades.blade_count(algebra.cayley());
        let spec = |name, blades| TensorSpec::new(name, &[Dim::Fixed(blades), Dim::Batch, Dim::In]);
        Self {
            inputs: vec![spec("x", blades(left)), spec("y", blades(right))],
            outputs: vec![spec("o", algebra.blade_count())],
        }
    }

    /// The gradient, which reads the gradients of the outputs too.
    pub(super) fn gradient(&self) -> Self {
        Self {
            inputs: [&self.inputs[..], &named("grad", &self.outputs)].concat(),
            outputs: named("grad", &self.inputs),
        }
    }

    /// The directional derivative.
    pub(super) fn tangent(&self) -> Self {
        Self {
            inputs: [&self.inputs[..], &named("tangent", &self.inputs)].concat(),
            outputs: named("tangent", &self.outputs),
        }
    }

    /// The operator with some of its outputs.
    pub(super) fn selecting(&self, wanted: &[bool]) -> Self {
        let outputs = self.outputs.iter().zip(wanted);
        let kept = outputs.filter(|(_, wanted)| **wanted);
        Self {
            inputs: self.inputs.clone(),
            outputs: kept.map(|(output, _)| output.clone()).collect(),
        }
    }

    pub(super) fn specs(&self) -> (Vec<TensorSpec>, Vec<TensorSpec>) {
        (self.inputs.clone(), self.outputs.clone())
    }

    pub(super) fn cost() -> Cost {
        Cost {
            forward: 0,
            backward: 0,
        }
    }

    pub(super) fn fill<T: Default + Copy>(outputs: &mut [Option<&mut [T]>]) {
        for output in outputs.iter_mut().flatten() {
            output.fill(T::default());
        }
    }
}

/// Tensors of the same shapes with a word before their names.
fn named(word: &str, specs: &[TensorSpec]) -> Vec<TensorSpec> {
    let specs = specs.iter();
    let name = |spec: &TensorSpec| crate::kept::text(format!("{word}_{}", spec.name));
    specs
        .map(|spec| TensorSpec {
            name: name(spec),
            ..spec.clone()
        })
        .collect()
}
