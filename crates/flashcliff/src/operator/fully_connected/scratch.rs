//! The scratch memory of a task.

use crate::Element;

/// The parts of the scratch memory of a task, in elements.
#[derive(Clone, Copy, Default)]
pub(super) struct Sizes {
    /// The product of the gates: `[block, in]`.
    pub(super) gates: usize,
    /// A row of zeros, for operands without scalars.
    pub(super) zeros: usize,
    /// `A_p` or its gradient: `[blades of the output grade, block, in]`.
    pub(super) formed: usize,
    /// The product or its gradient: `[output blades, block, out]`.
    pub(super) product: usize,
    pub(super) grad_x: usize,
    pub(super) grad_y: usize,
    pub(super) grad_gates: usize,
    /// Gradients through one path.
    pub(super) path_x: usize,
    pub(super) path_y: usize,
    pub(super) path_gates: usize,
    /// The workspace of lane programs.
    pub(super) lanes: usize,
}

pub(super) struct Scratch<'a, T> {
    pub(super) gates: &'a mut [T],
    pub(super) zeros: &'a mut [T],
    pub(super) formed: &'a mut [T],
    pub(super) product: &'a mut [T],
    pub(super) grad_x: &'a mut [T],
    pub(super) grad_y: &'a mut [T],
    pub(super) grad_gates: &'a mut [T],
    pub(super) path_x: &'a mut [T],
    pub(super) path_y: &'a mut [T],
    pub(super) path_gates: &'a mut [T],
    pub(super) lanes: &'a mut [T],
}

impl Sizes {
    pub(super) fn total(&self) -> usize {
        self.gates
            + self.zeros
            + self.formed
            + self.product
            + self.grad_x
            + self.grad_y
            + self.grad_gates
            + self.path_x
            + self.path_y
            + self.path_gates
            + self.lanes
    }

    pub(super) fn split<'a, T: Element>(&self, scratch: &'a mut [T]) -> Scratch<'a, T> {
        let mut rest = scratch;
        let mut take = |len: usize| {
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(len);
            rest = tail;
            part
        };
        let scratch = Scratch {
            gates: take(self.gates),
            zeros: take(self.zeros),
            formed: take(self.formed),
            product: take(self.product),
            grad_x: take(self.grad_x),
            grad_y: take(self.grad_y),
            grad_gates: take(self.grad_gates),
            path_x: take(self.path_x),
            path_y: take(self.path_y),
            path_gates: take(self.path_gates),
            lanes: take(self.lanes),
        };
        scratch.zeros.fill(T::default());
        scratch
    }
}
