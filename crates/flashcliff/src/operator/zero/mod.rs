//! Products that are zero whatever their operands are, such as the commutator in one dimension.

#[cfg(feature = "cuda")]
mod cuda;

use cayley::GradeSet;

use super::shape::{Dim, Dims, TensorSpec};
use super::{Cost, Derivative, Given, Implementation, Kind, Specs};
use crate::tensor::Tensor;
use crate::{Algebra, Element, Error, Tier};

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

    pub(super) fn fill<T: Default + Copy>(outputs: &mut [Option<&mut [T]>]) {
        for output in outputs.iter_mut().flatten() {
            output.fill(T::default());
        }
    }
}

impl Implementation for Zero {
    fn specs(&self) -> Specs {
        (self.inputs.clone(), self.outputs.clone())
    }

    fn cost(&self, _: &Dims) -> Cost {
        Cost {
            forward: 0,
            backward: 0,
        }
    }

    fn derivative(&self, _: Algebra, derivative: Derivative) -> Result<Kind, Error> {
        let Self { inputs, outputs } = self;
        Ok(Kind::Zero(match derivative {
            // It reads the gradients of the outputs too.
            Derivative::Gradient => Self {
                inputs: [&inputs[..], &named("grad", outputs)].concat(),
                outputs: named("grad", inputs),
            },
            Derivative::Tangent => Self {
                inputs: [&inputs[..], &named("tangent", inputs)].concat(),
                outputs: named("tangent", outputs),
            },
        }))
    }

    fn run<T: Element>(
        &self,
        _: Tier,
        _: &Dims,
        _: &[Tensor<'_, T>],
        outputs: &mut [Option<&mut [T]>],
        _: &mut [T],
        _: &mut [T],
    ) -> Result<(), Error> {
        Self::fill(outputs);
        Ok(())
    }

    fn backward<T: Element>(
        &self,
        _: Tier,
        _: &Dims,
        _: &Given<'_, T>,
        grads: &mut [Option<&mut [T]>],
        _: &mut [T],
    ) -> Result<(), Error> {
        Self::fill(grads);
        Ok(())
    }

    fn selecting(&self, wanted: &[bool]) -> Option<Kind> {
        let outputs = self.outputs.iter().zip(wanted);
        let kept = outputs.filter(|(_, wanted)| **wanted);
        Some(Kind::Zero(Self {
            inputs: self.inputs.clone(),
            outputs: kept.map(|(output, _)| output.clone()).collect(),
        }))
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
