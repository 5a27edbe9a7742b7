//! The gated product of `x` with a linear map of `x`. One call runs the map, then the product.
//!
//! `y`, the output of the map, lies in the saved values; with the option `recompute` each pass computes it in its
//! workspace. In the backward pass the product writes the gradient of `x`, and the map adds its part to it.
//!
//! It does not have its own CUDA code: `cuda` calls the map and the product.

#[cfg(feature = "cuda")]
mod cuda;

use cayley::{GradeSet, ProductKind};

use super::composed::{Composed, Graph, Side, ValueId};
use super::lane::LaneOperator;
use super::linear::Linear;
use super::shape::{Dim, Dims, TensorSpec};
use super::{Cost, Derivative, Given, Implementation, Kind, Pass, Specs};
use crate::Element;
use crate::ops::LinearSgpOptions;
use crate::tensor::Tensor;
use crate::{Algebra, Bias, Error, Norm, Tier, sizes};

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
        let (_, output) = linear.specs();
        Ok(Self {
            y: TensorSpec {
                name: "y",
                ..square(&output[0])
            },
            linear,
            product: options.product().lane(algebra)?,
            recompute: options.recompute,
        })
    }

    fn y_len(&self, dims: &Dims) -> usize {
        self.y.sizes(dims).product()
    }

    /// Computes `y` and returns the inputs of the product.
    fn apply<'t, T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        inputs: &[Tensor<'t, T>],
        y: &'t mut [T],
    ) -> Result<[Tensor<'t, T>; 3], Error> {
        let output = &mut [Some(&mut *y)];
        self.linear
            .run(tier, dims, inputs, output, &mut [], &mut [])?;
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

impl Implementation for LinearSgp {
    /// The inputs of the map, then the weights of the product.
    fn specs(&self) -> Specs {
        let (mut product, outputs) = self.product.specs();
        let (linear, _) = self.linear.specs();
        let mut inputs: Vec<TensorSpec> = linear.iter().map(square).collect();
        inputs.extend(product.pop());
        (inputs, outputs)
    }

    fn cost(&self, dims: &Dims) -> Cost {
        let (linear, product) = (self.linear.cost(dims), self.product.cost(dims));
        let again = if self.recompute { linear.forward } else { 0 };
        Cost {
            forward: sizes::sum([linear.forward, product.forward]),
            backward: sizes::sum([linear.backward, product.backward, again]),
        }
    }

    fn derivative(&self, algebra: Algebra, derivative: Derivative) -> Result<Kind, Error> {
        let state = |graph: &mut Graph, inputs: &[ValueId]| {
            let [x, of_map @ .., w] = inputs else {
                unreachable!("the layer has a weight of its map and one of its product");
            };
            let of_map = [&[*x], of_map].concat();
            // The output of the map has the channels of its input.
            let y = self.linear.state(graph, algebra, Side::In, &of_map)?;
            Ok(graph.lanes(self.product.clone(), Side::In, vec![*x, y, *w])[0])
        };
        Composed::derivative_of(self, algebra, state, derivative)
    }

    fn run<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        inputs: &[Tensor<'_, T>],
        outputs: &mut [Option<&mut [T]>],
        saved: &mut [T],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        if outputs[0].is_none() {
            return Ok(());
        }
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
        let of_product = self.apply(tier, dims, inputs, y)?;
        self.product
            .run(tier, dims, &of_product, outputs, sums, workspace)
    }

    fn backward<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        given: &Given<'_, T>,
        grads: &mut [Option<&mut [T]>],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        let (inputs, saved) = (given.inputs, given.saved);
        let len = self.y_len(dims);
        let (grad_y, workspace) = workspace.split_at_mut(len);
        let (of_product, sums, workspace) = match self.recompute {
            true => {
                let (y, workspace) = workspace.split_at_mut(len);
                (self.apply(tier, dims, inputs, y)?, saved, workspace)
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
        let product = Given {
            inputs: &of_product,
            saved: sums,
            ..*given
        };
        self.product
            .backward(tier, dims, &product, grads, workspace)?;
        if !passes_on {
            return Ok(());
        }
        let map = Given {
            output: of_product[1],
            grad_output: Tensor::new(grad_y, of_product[1].shape())?,
            adds: true,
            ..*given
        };
        self.linear.backward(tier, dims, &map, of_linear, &mut [])
    }

    fn workspace_len<T: Element>(&self, tier: Tier, dims: &Dims, pass: Pass) -> usize {
        let gradients = usize::from(pass == Pass::Backward);
        let like_y = gradients + usize::from(self.recompute);
        let product = self.product.workspace_len::<T>(tier, dims, pass);
        // The map itself needs no workspace.
        like_y * self.y_len(dims) + product
    }

    fn kept(&self) -> Option<TensorSpec> {
        (!self.recompute).then(|| self.y.clone())
    }

    fn row_sums(&self) -> usize {
        self.product.row_sums()
    }

    fn has_matrix_products(&self) -> bool {
        true
    }

    fn norm(&self) -> Norm {
        self.product.norm()
    }

    fn bias(&self) -> Bias {
        self.linear.bias()
    }

    fn tensor_grades(&self, algebra: Algebra) -> Option<(Vec<GradeSet>, GradeSet)> {
        let (operands, grades) = self.linear.tensor_grades(algebra)?;
        let output = algebra.reachable(ProductKind::Geometric, grades, grades);
        Some((operands, output))
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
