//! Products that are zero whatever their operands are, such as the commutator in one dimension.

use cayley::GradeSet;

use super::Cost;
use super::shape::{Dim, TensorSpec};
use crate::Algebra;

/// A product that reaches no blade of the algebra.
#[derive(Clone, Debug)]
pub(crate) struct Zero {
    /// The blades of `x`, of `y` and of the output.
    blades: [usize; 3],
}

impl Zero {
    /// The zero product of operands with these grades; its output has all blades.
    pub(crate) fn new(algebra: Algebra, left: GradeSet, right: GradeSet) -> Self {
        let blades = |grades: GradeSet| grades.blade_count(algebra.cayley());
        Self {
            blades: [blades(left), blades(right), algebra.blade_count()],
        }
    }

    pub(super) fn specs(&self) -> (Vec<TensorSpec>, TensorSpec) {
        let [x, y, o] = self
            .blades
            .map(|blades| [Dim::Fixed(blades), Dim::Batch, Dim::In]);
        let inputs = vec![TensorSpec::new("x", &x), TensorSpec::new("y", &y)];
        (inputs, TensorSpec::new("o", &o))
    }

    pub(super) fn cost() -> Cost {
        Cost {
            forward: 0,
            backward: 0,
        }
    }

    pub(super) fn backward<T: Default + Copy>(grads: &mut [Option<&mut [T]>]) {
        for grad in grads.iter_mut().flatten() {
            grad.fill(T::default());
        }
    }
}
