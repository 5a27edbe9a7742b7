//! The layer of versors on a GPU, as one matrix product; and on the CPU, where it is to have further derivatives.
//!
//! The sandwich of a versor with every blade gives its matrix. The sandwich takes all grades here, since every build has
//! its kernels: versors and blades are padded with zeros.

use std::sync::Arc;

use candle_core::Tensor;
use flashcliff::rotor::Parity;
use flashcliff::{GradeSet, ops};

use super::OnGpu;
use crate::Error;
use crate::op::function::{Array, Function};
use crate::op::node::{self, Argument};
use crate::op::rotor::Act;

impl OnGpu for Act {
    const IS_COMPOSED: bool = true;

    fn apply_on_gpu(self: &Arc<Self>, arguments: &[Argument]) -> Result<Tensor, Error> {
        let shapes = arguments.iter().map(Argument::shape);
        let arrays: Vec<Array<f32>> = shapes.map(|shape| Array { data: &[], shape }).collect();
        self.output_shape(&arrays)?;
        let [x, versors, weight] = [0, 1, 2].map(|at| arguments[at].seen());
        action(self, &x?, &versors?, &weight?)
    }
}

/// The layer of tensors with checked shapes.
fn action(act: &Act, x: &Tensor, versors: &Tensor, weight: &Tensor) -> Result<Tensor, Error> {
    let cayley = act.algebra.cayley();
    let (kept, batch, input) = x.dims3()?;
    let out = weight.dim(0)?;
    if batch * input * out * versors.dim(0)? == 0 {
        return Ok(Tensor::zeros((kept, batch, out), x.dtype(), x.device())?);
    }
    let dim = act.algebra.signature().dim();
    let own = match act.parity {
        Parity::Even => GradeSet::even(dim),
        Parity::Odd => GradeSet::odd(dim),
    };
    let all = cayley.blade_count();
    let pairs = out * input;
    let whole = padded(cayley, own, &versors.reshape((versors.dim(0)?, pairs))?)?;
    let whole = whole.unsqueeze(1)?.broadcast_as((all, kept, pairs))?;
    let basis = selected(cayley, act.grades, &identity(all, x)?)?.t()?;
    let basis = basis.unsqueeze(2)?.broadcast_as((all, kept, pairs))?;
    let sandwich = ops::sandwich(act.algebra, None, None)?;
    let (whole, basis) = (whole.contiguous()?, basis.contiguous()?);
    let arguments = [&whole, &basis].map(Argument::whole);
    let moved = node::apply(&Arc::new(sandwich), &arguments)?;
    // [outputs, blades of x, pairs], then [blades of x and in, outputs and out].
    let matrices = selected(cayley, act.grades, &moved)?;
    let matrices = matrices.broadcast_mul(&weight.reshape((1, 1, pairs))?)?;
    let matrices = matrices.reshape((kept, kept, out, input))?;
    let matrices = matrices.permute((1, 3, 0, 2))?.contiguous()?;
    let matrices = matrices.reshape((kept * input, kept * out))?;
    let rows = x.permute((1, 0, 2))?.contiguous()?;
    let result = rows.reshape((batch, kept * input))?.matmul(&matrices)?;
    let result = result.reshape((batch, kept, out))?.permute((1, 0, 2))?;
    Ok(result.contiguous()?)
}

/// The identity matrix, made on the device. Read in order, its elements are rows of a one and `size` zeros, up to the last one.
fn identity(size: usize, like: &Tensor) -> candle_core::Result<Tensor> {
    let (dtype, device) = (like.dtype(), like.device());
    let ones = Tensor::ones((size, 1), dtype, device)?;
    let zeros = Tensor::zeros((size, size), dtype, device)?;
    let rows = Tensor::cat(&[ones, zeros], 1)?.flatten_all()?;
    rows.narrow(0, 0, size * size)?.reshape((size, size))
}

/// The rows of some grades, from a matrix with a row for each blade.
fn selected(
    algebra: &flashcliff::cayley::Algebra,
    grades: GradeSet,
    x: &Tensor,
) -> candle_core::Result<Tensor> {
    let parts = grades.iter().map(|grade| {
        let range = algebra.grade_range(grade);
        x.narrow(0, range.start, range.len())
    });
    Tensor::cat(&parts.collect::<candle_core::Result<Vec<_>>>()?, 0)
}

/// A matrix with a row for each blade, from the rows of some grades; zeros for the other blades.
fn padded(
    algebra: &flashcliff::cayley::Algebra,
    grades: GradeSet,
    x: &Tensor,
) -> candle_core::Result<Tensor> {
    let columns = x.dim(1)?;
    let mut start = 0;
    let parts = (0..algebra.grade_count()).map(|grade| {
        let count = algebra.grade_range(grade).len();
        if !grades.contains(grade) {
            return Tensor::zeros((count, columns), x.dtype(), x.device());
        }
        let part = x.narrow(0, start, count);
        start += count;
        part
    });
    Tensor::cat(&parts.collect::<candle_core::Result<Vec<_>>>()?, 0)
}

#[cfg(test)]
mod tests;
