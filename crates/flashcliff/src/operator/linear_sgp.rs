//! The gated product of `x` with a linear map of `x`. One call runs the map, then the product.
//!
//! `y`, the output of the map, lies in the saved values; with the option `recompute` each pass computes it in its
//! workspace. In the backward pass the product writes the gradient of `x`, and the map adds its part to it.

use super::lane::LaneOperator;
use super::linear::Linear;
use super::shape::{Dim, Dims, TensorSpec};
use super::{Cost, Pass};
use crate::Element;
use crate::ops::LinearSgpOptions;
use crate::tensor::Tensor;
use crate::{Algebra, Error, Tier, sizes};

#[derive(Clone, Debug)]
pub(crate) struct LinearSgp {
    linear: Linear,
    product: LaneOperator,
    recompute: bool,
    /// The tensor `y`, the output of the map.
    y: TensorSpec,
}

impl LinearSgp {
    pub(crate) fn new(algebra: Algebra, options: &LinearSgpOptions) -> Result<Self, Error> {
        let linear = Linear::new(algebra, &options.linear)?;
        let (_, y) = linear.specs();
        Ok(Self {
            y: TensorSpec {
                name: "y",
                ..square(&y)
            },
            linear,
            product: options.product().lane(algebra)?,
            recompute: options.recompute,
        })
    }

    pub(crate) fn linear(&self) -> &Linear {
        &self.linear
    }

    pub(crate) fn product(&self) -> &LaneOperator {
        &self.product
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn recomputes(&self) -> bool {
        self.recompute
    }

    /// The inputs of the map, then the weights of the product.
    pub(super) fn specs(&self) -> (Vec<TensorSpec>, TensorSpec) {
        let (mut product, mut outputs) = self.product.specs();
        let (linear, _) = self.linear.specs();
        let mut inputs: Vec<TensorSpec> = linear.iter().map(square).collect();
        inputs.extend(product.pop());
        (inputs, outputs.remove(0))
    }

    pub(super) fn kept(&self) -> Option<TensorSpec> {
        (!self.recompute).then(|| self.y.clone())
    }

    pub(super) fn row_sums(&self) -> usize {
        self.product.row_sums()
    }

    pub(super) fn cost(&self, dims: &Dims) -> Cost {
        let (linear, product) = (self.linear.cost(dims), self.product.cost(dims));
        let again = if self.recompute { linear.forward } else { 0 };
        Cost {
            forward: sizes::sum([linear.forward, product.forward]),
            backward: sizes::sum([linear.backward, product.backward, again]),
        }
    }

    pub(super) fn workspace_len<T: Element>(&self, tier: Tier, dims: &Dims, pass: Pass) -> usize {
        let gradients = usize::from(pass == Pass::Backward);
        let like_y = gradients + usize::from(self.recompute);
        let product = self.product.workspace_len::<T>(tier, dims, pass);
        // The map itself needs no workspace.
        like_y * self.y_len(dims) + product
    }

    fn y_len(&self, dims: &Dims) -> usize {
        self.y.sizes(dims).product()
    }

    pub(super) fn forward<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        inputs: &[Tensor<'_, T>],
        output: &mut [T],
        saved: &mut [T],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        let len = self.y_len(dims);
        let (y, sums, workspace) = match self.recompute {
            true => {
                let (y, workspace) = workspace.split_at_mut(len);
                (y, saved, workspace)
            }
            false => {
                let (y, sums) = saved.split_at_mut(len);
                (y, sums, workspace)
            }
        };
        let of_product = self.apply(dims, inputs, y)?;
        self.product
            .forward(tier, dims, &of_product, output, sums, workspace);
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one backward pass")]
    pub(super) fn backward<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        inputs: &[Tensor<'_, T>],
        saved: &[T],
        grad_output: &[T],
        grads: &mut [Option<&mut [T]>],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        let len = self.y_len(dims);
        let (grad_y, workspace) = workspace.split_at_mut(len);
        let (of_product, sums, workspace) = match self.recompute {
            true => {
                let (y, workspace) = workspace.split_at_mut(len);
                (self.apply(dims, inputs, y)?, saved, workspace)
            }
            false => {
                let (y, sums) = saved.split_at(len);
                (self.operands(dims, inputs, y)?, sums, workspace)
            }
        };
        let [of_linear @ .., grad_w] = grads else {
            return Ok(());
        };
        let passes_on = of_linear.iter().any(Option::is_some);
        let grads = &mut [
            of_linear[0].as_deref_mut(),
            passes_on.then_some(&mut *grad_y),
            grad_w.as_deref_mut(),
        ];
        self.product
            .backward(tier, dims, &of_product, sums, grad_output, grads, workspace);
        if passes_on {
            self.linear.backward(dims, inputs, grad_y, of_linear, true);
        }
        Ok(())
    }

    /// Computes `y` and returns the inputs of the product.
    fn apply<'t, T: Element>(
        &self,
        dims: &Dims,
        inputs: &[Tensor<'t, T>],
        y: &'t mut [T],
    ) -> Result<[Tensor<'t, T>; 3], Error> {
        self.linear.forward(dims, inputs, y);
        self.operands(dims, inputs, y)
    }

    /// The inputs of the product.
    fn operands<'t, T: Element>(
        &self,
        dims: &Dims,
        inputs: &[Tensor<'t, T>],
        y: &'t [T],
    ) -> Result<[Tensor<'t, T>; 3], Error> {
        let shape = [self.linear.blades(), dims.batch, dims.in_channels];
        let y = Tensor::new(y, &shape)?;
        // `Operator` has checked the number of inputs.
        Ok([inputs[0], y, inputs[inputs.len() - 1]])
    }
}

/// A tensor of the map under the names it has here. The output of the map has the channels of its input.
fn square(spec: &TensorSpec) -> TensorSpec {
    let dims = spec.dims.iter().map(|dim| match dim {
        Dim::Out => Dim::In,
        other => *other,
    });
    TensorSpec {
        name: match spec.name {
            "weight" => "linear_weight",
            "bias" => "linear_bias",
            name => name,
        },
        dims: dims.collect(),
    }
}
