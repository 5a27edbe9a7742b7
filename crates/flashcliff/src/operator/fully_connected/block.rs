//! A block of batch elements: forms the left operands of the matrix products, and takes their gradients back.

use std::ops::Range;

use super::layout::Layout;
use super::scratch::Scratch;
use super::{FullyConnected, PathProduct};
use crate::kernel::lanes::{self, Call, Operand};
use crate::operator::shape::Dims;
use crate::programs::Known;
use crate::tensor::Tensor;
use crate::{Element, Tier};

/// A block of batch elements, with the tensors of the call.
pub(super) struct Block<'a, T> {
    op: &'a FullyConnected,
    tier: Tier,
    dims: &'a Dims,
    x: *mut T,
    y: *mut T,
    rows: Range<usize>,
}

impl<'a, T: Element> Block<'a, T> {
    pub(super) fn new(
        op: &'a FullyConnected,
        tier: Tier,
        dims: &'a Dims,
        inputs: &[Tensor<'_, T>],
        rows: Range<usize>,
    ) -> Self {
        Self {
            op,
            tier,
            dims,
            x: inputs[0].data().as_ptr().cast_mut(),
            y: inputs[1].data().as_ptr().cast_mut(),
            rows,
        }
    }

    fn run(
        &self,
        program: &'static Known,
        inputs: &[Operand<T>],
        outputs: &[Operand<T>],
        lanes: &mut [T],
    ) {
        let call = Call {
            channels: [self.dims.in_channels, 0],
            ..self
                .op
                .call(self.tier, program, inputs, outputs, self.rows.len())
        };
        // SAFETY: rows of checked tensors, and scratch parts of the sizes that the plan writes;
        // each block and each task has its own.
        unsafe { lanes::run(&call, lanes) };
    }

    /// The blades of an input tensor, at the rows of the block.
    fn input(&self, ptr: *mut T, blades: Range<usize>) -> Operand<T> {
        let (batch, channels) = (self.dims.batch, self.dims.in_channels);
        let start = (blades.start * batch + self.rows.start) * channels;
        Operand::contiguous(ptr.wrapping_add(start), blades.len(), batch, channels)
    }

    /// A part of the scratch memory with the rows of the block.
    fn part(&self, ptr: *mut T, blades: Range<usize>) -> Operand<T> {
        let (count, channels) = (self.rows.len(), self.dims.in_channels);
        let start = blades.start * count * channels;
        Operand::contiguous(ptr.wrapping_add(start), blades.len(), count, channels)
    }

    /// The scalar blades of both operands; zeros where there are none.
    fn scalars(&self, zeros: *mut T) -> [Operand<T>; 2] {
        let scalar = |ptr: *mut T, layout: &Layout| match layout.has_scalar() {
            true => self.input(ptr, 0..1),
            false => Operand {
                row_stride: 0,
                ..self.part(zeros, 0..1)
            },
        };
        [
            scalar(self.x, &self.op.left),
            scalar(self.y, &self.op.right),
        ]
    }

    pub(super) fn form_gates(&self, scratch: &mut Scratch<'_, T>) {
        let inputs = self.scalars(scratch.zeros.as_mut_ptr());
        let gates = self.part(scratch.gates.as_mut_ptr(), 0..1);
        self.run(self.op.gates, &inputs, &[gates], scratch.lanes);
    }

    fn operands(&self, product: &PathProduct, gates: *mut T) -> [Operand<T>; 3] {
        let path = product.path;
        [
            self.input(self.x, self.op.left.grade(path.left)),
            self.input(self.y, self.op.right.grade(path.right)),
            self.part(gates, 0..1),
        ]
    }

    pub(super) fn form_path(&self, product: &PathProduct, scratch: &mut Scratch<'_, T>) {
        let inputs = self.operands(product, scratch.gates.as_mut_ptr());
        let width = product.width();
        let formed = self.part(scratch.formed.as_mut_ptr(), 0..width);
        self.run(product.program, &inputs, &[formed], scratch.lanes);
    }

    /// Takes the gradient of `A_p` to the gradients of the operands, which are added up over paths.
    pub(super) fn pull_back_path(&self, product: &PathProduct, scratch: &mut Scratch<'_, T>) {
        let path = product.path;
        let width = product.width();
        let [x, y, gates] = self.operands(product, scratch.gates.as_mut_ptr());
        let grad_formed = self.part(scratch.formed.as_mut_ptr(), 0..width);
        let outputs = [
            self.part(scratch.path_x.as_mut_ptr(), 0..x.components),
            self.part(scratch.path_y.as_mut_ptr(), 0..y.components),
            self.part(scratch.path_gates.as_mut_ptr(), 0..1),
        ];
        let inputs = [x, y, gates, grad_formed];
        self.run(product.program.adjoint(), &inputs, &outputs, scratch.lanes);
        let lane = self.rows.len() * self.dims.in_channels;
        let add = |to: &mut [T], at: usize, from: &[T], blades: usize| {
            let to = &mut to[at * lane..(at + blades) * lane];
            for (to, &from) in to.iter_mut().zip(from) {
                *to += from;
            }
        };
        let (at_x, at_y) = (
            self.op.left.grade(path.left),
            self.op.right.grade(path.right),
        );
        add(scratch.grad_x, at_x.start, scratch.path_x, x.components);
        add(scratch.grad_y, at_y.start, scratch.path_y, y.components);
        add(scratch.grad_gates, 0, scratch.path_gates, 1);
    }

    /// Copies the rows of the block out of a tensor with the shape of the output, blade by blade.
    pub(super) fn gather(&self, tensor: &[T], scratch: &mut Scratch<'_, T>) {
        let (count, channels) = (self.rows.len(), self.dims.out_channels);
        for blade in 0..self.op.output.blades {
            let from = (blade * self.dims.batch + self.rows.start) * channels;
            let to = blade * count * channels;
            scratch.product[to..to + count * channels]
                .copy_from_slice(&tensor[from..from + count * channels]);
        }
    }

    /// Normalises the product and writes it out.
    ///
    /// # Safety
    /// `output` and `saved` are the tensors of the call, and nothing else writes these rows.
    pub(super) unsafe fn finish(
        &self,
        scratch: &mut Scratch<'_, T>,
        output: *mut T,
        saved: *mut T,
    ) {
        let (count, channels) = (self.rows.len(), self.dims.out_channels);
        let blades = self.op.output.blades;
        let product = scratch.product.as_mut_ptr();
        let target = output.wrapping_add(self.rows.start * channels);
        if self.op.norms.is_empty() {
            for blade in 0..blades {
                let from = product.wrapping_add(blade * count * channels);
                let to = target.wrapping_add(blade * self.dims.batch * channels);
                // SAFETY: the caller promises it.
                unsafe { from.copy_to_nonoverlapping(to, count * channels) };
            }
            return;
        }
        for (index, norm) in self.op.norms.iter().enumerate() {
            let Range { start, end } = norm.blades;
            let from = product.wrapping_add(start * count * channels);
            let to = target.wrapping_add(start * self.dims.batch * channels);
            let inputs = [Operand::contiguous(from, end - start, count, channels)];
            let outputs = [Operand::contiguous(
                to,
                end - start,
                self.dims.batch,
                channels,
            )];
            let call = Call {
                saved: saved.wrapping_add(index * self.dims.batch + self.rows.start),
                saved_stride: self.dims.batch,
                channels: [channels, 0],
                ..self
                    .op
                    .call(self.tier, norm.program, &inputs, &outputs, count)
            };
            // SAFETY: the caller promises it.
            unsafe { lanes::run(&call, &mut *scratch.lanes) };
        }
    }

    /// Adds the gradient through the gates and writes the gradients out.
    ///
    /// # Safety
    /// `grad_x` and `grad_y` are null or the tensors of the call, and nothing else writes these rows.
    pub(super) unsafe fn finish_gradients(
        &self,
        scratch: &mut Scratch<'_, T>,
        grad_x: *mut T,
        grad_y: *mut T,
    ) {
        let lane = self.rows.len() * self.dims.in_channels;
        let [x, y] = self.scalars(scratch.zeros.as_mut_ptr());
        let inputs = [x, y, self.part(scratch.grad_gates.as_mut_ptr(), 0..1)];
        let outputs = [
            self.part(scratch.path_x.as_mut_ptr(), 0..1),
            self.part(scratch.path_y.as_mut_ptr(), 0..1),
        ];
        self.run(self.op.gates.adjoint(), &inputs, &outputs, scratch.lanes);
        let sides = [
            (
                &self.op.left,
                &mut *scratch.grad_x,
                &*scratch.path_x,
                grad_x,
            ),
            (
                &self.op.right,
                &mut *scratch.grad_y,
                &*scratch.path_y,
                grad_y,
            ),
        ];
        for (layout, grad, through_gate, target) in sides {
            if target.is_null() {
                continue;
            }
            if layout.has_scalar() {
                for (to, &from) in grad[..lane].iter_mut().zip(through_gate) {
                    *to += from;
                }
            }
            for blade in 0..layout.blades {
                let to = (blade * self.dims.batch + self.rows.start) * self.dims.in_channels;
                let from = &grad[blade * lane..(blade + 1) * lane];
                // SAFETY: the caller promises it.
                unsafe { from.as_ptr().copy_to_nonoverlapping(target.add(to), lane) };
            }
        }
    }
}
