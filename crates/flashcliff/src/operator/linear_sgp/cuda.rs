//! The gated product of `x` with a linear map of `x`: products of cuBLASLt, then one launch.
//!
//! `y`, the output of the map, lies at the start of the saved values, or in the workspace if it is computed again in
//! the backward pass. In the backward pass the product writes the gradient of `x`, and the products of the map add to
//! it. The gradient of the bias is a sum over rows of the gradient of `y`. The product adds them up while it has them in
//! registers.
//!
//! In the forward pass the output is written last. Until then its memory holds what the map needs: its packed weights,
//! and the workspace of its products if there is room for both. So the layer takes no memory for them.

use std::sync::Arc;

use crate::cuda::OnCuda;
use crate::cuda::call::{Call, Gradients, Kept, MAX_INPUTS, NO_GRADIENTS, only};
use crate::cuda::device::Device;
use crate::cuda::dtype::Dtypes;
use crate::cuda::matmul::MatmulPrecision;
use crate::cuda::spans::WORKSPACE_ALIGNMENT;
use crate::operator::lane::cuda::{ColumnSums, Lanes};
use crate::operator::linear::cuda::Linear;
use crate::operator::{self, Dims, Implementation, Operator, Pass, TensorSpec};
use crate::{Bias, Error};

/// The map and the product on a device.
#[derive(Clone, Debug)]
pub(crate) struct LinearSgp {
    linear: Linear,
    product: Arc<Lanes>,
    /// The number of stored blades of `x` and `y`.
    blades: usize,
    output: TensorSpec,
    /// The number of inputs of the map, which come first. The input after them is the weight of the product.
    of_linear: usize,
    bias: Bias,
    recomputes: bool,
}

/// The parts of a workspace and its size. Parts are offsets in bytes from its start, or addresses.
#[derive(Clone, Copy, Debug, Default)]
struct Space {
    /// The map's output `y`, unless it is saved.
    y: u64,
    grad_y: u64,
    /// The memory in which the map works.
    of_map: OfMap,
    /// The workspace of the map and of the product, which take turns.
    rest: u64,
    rest_bytes: usize,
    bytes: usize,
}

/// The memory in which the map of a forward pass works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OfMap {
    /// The workspace.
    #[default]
    Workspace,
    /// The output for packed weights, and the workspace for its products.
    Weights,
    /// The output, from its first aligned address on: so many bytes.
    Output(usize),
}

impl operator::LinearSgp {
    pub(crate) fn on_cuda(&self, operator: &Operator, device: &Device) -> Result<LinearSgp, Error> {
        let (linear, product) = (&self.linear, &self.product);
        Ok(LinearSgp {
            linear: linear.on_cuda(operator, device)?,
            product: Arc::new(product.on_cuda(operator, device)?),
            blades: linear.blades(),
            output: product.specs().1.remove(0),
            of_linear: linear.specs().0.len(),
            bias: linear.bias(),
            recomputes: self.recompute,
        })
    }
}

impl LinearSgp {
    /// The forward pass of the map.
    fn map_call(&self, call: &Call, y: u64, space: &Space) -> Call {
        let mut inputs = [0; MAX_INPUTS];
        inputs[..self.of_linear].copy_from_slice(&call.inputs[..self.of_linear]);
        Call {
            inputs,
            output: y,
            result: y,
            saved: 0,
            grads: NO_GRADIENTS,
            workspace: space.rest,
            workspace_bytes: space.rest_bytes,
            ..*call
        }
    }

    /// The map of a forward pass, whose output is not written yet.
    fn map_in_output(&self, call: &Call, y: u64, space: &Space) -> Call {
        let map = self.map_call(call, y, space);
        match space.of_map {
            OfMap::Workspace => map,
            OfMap::Weights => Call {
                kept: Kept {
                    room: Some(call.output),
                    ..map.kept
                },
                ..map
            },
            OfMap::Output(bytes) => Call {
                workspace: call.output.next_multiple_of(WORKSPACE_ALIGNMENT as u64),
                workspace_bytes: bytes,
                ..map
            },
        }
    }

    /// A call for a pass of the product, without gradients so far.
    fn product_call(&self, call: &Call, y: u64, sums: u64, space: &Space) -> Call {
        let mut inputs = [0; MAX_INPUTS];
        inputs[..3].copy_from_slice(&[call.inputs[0], y, call.inputs[self.of_linear]]);
        Call {
            inputs,
            saved: sums,
            grads: NO_GRADIENTS,
            workspace: space.rest,
            workspace_bytes: space.rest_bytes,
            ..*call
        }
    }

    /// The gradients of the inputs of the map that the map computes.
    fn map_gradients(&self, grads: &Gradients) -> Gradients {
        let mut of_map = NO_GRADIENTS;
        of_map[..self.of_linear].copy_from_slice(&grads[..self.of_linear]);
        if let Some(bias) = self.bias_input() {
            of_map[bias] = None;
        }
        of_map
    }

    /// The gradient of the bias that the product computes.
    fn bias_gradient(&self, grads: &Gradients) -> Option<ColumnSums> {
        let to = grads[self.bias_input()?]?;
        let of_all_components = self.bias == Bias::EveryBlade;
        Some(ColumnSums {
            to,
            of_all_components,
        })
    }

    /// The bias is the last input of the map.
    fn bias_input(&self) -> Option<usize> {
        (self.bias != Bias::None).then(|| self.of_linear - 1)
    }

    /// Whether the gradient of `y` is wanted.
    fn passes_on(&self, grads: &Gradients) -> bool {
        grads[..self.of_linear].iter().any(Option::is_some)
    }

    /// The gradients of the inputs of the product.
    fn product_gradients(&self, grads: &Gradients, grad_y: u64) -> Gradients {
        let mut of_product = NO_GRADIENTS;
        of_product[0] = grads[0];
        of_product[1] = self.passes_on(grads).then_some(grad_y);
        of_product[2] = grads[self.of_linear];
        of_product
    }

    /// The addresses of `y` and of the row sums.
    fn saved(&self, call: &Call, space: &Space) -> (u64, u64) {
        if self.recomputes {
            return (space.y, call.saved);
        }
        let elements = call.dtypes.kept_len(self.y_len(&call.dims));
        let sums = call.saved + (elements * call.dtypes.arithmetic().bytes()) as u64;
        (call.saved, sums)
    }

    fn y_len(&self, dims: &Dims) -> usize {
        self.blades * dims.batch * dims.in_channels
    }

    fn space(
        &self,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        grads: &Gradients,
    ) -> Result<Space, Error> {
        let of_map = self.map_gradients(grads);
        let map_with =
            |pass, grads, kept: &Kept| self.linear.workspace_bytes(dims, pass, dtypes, grads, kept);
        // Nothing of a layer is packed ahead.
        let map = |pass, grads| map_with(pass, grads, &Kept::default());
        let like_y = self.y_len(dims) * dtypes.lanes.bytes();
        let mut space = Space::default();
        if self.recomputes {
            space.y = space.add(like_y);
        }
        let mut most = 0;
        if pass == Pass::Forward || self.recomputes {
            most = map(Pass::Forward, &NO_GRADIENTS)?;
        }
        if pass == Pass::Forward {
            let output = self.output.sizes(dims).product::<usize>() * dtypes.lanes.bytes();
            let packed = self.linear.packed_bytes(dims, dtypes, pass);
            if most > 0 && most + WORKSPACE_ALIGNMENT <= output {
                space.of_map = OfMap::Output(most);
                most = 0;
            } else if packed > 0 && packed <= output {
                let kept = Kept {
                    room: Some(0),
                    ..Kept::default()
                };
                space.of_map = OfMap::Weights;
                most = map_with(pass, &NO_GRADIENTS, &kept)?;
            }
        }
        if pass == Pass::Backward && self.passes_on(grads) {
            space.grad_y = space.add(like_y);
            most = map(Pass::Backward, &of_map)?.max(most);
        }
        // Addresses do not matter here.
        let of_product = self.product_gradients(grads, 0);
        let of_bias = self.bias_gradient(grads);
        let product = self
            .product
            .workspace_bytes_with(dims, pass, dtypes, &of_product, of_bias);
        space.rest_bytes = most.max(product?);
        space.rest = space.add(space.rest_bytes);
        Ok(space)
    }
}

impl OnCuda for LinearSgp {
    /// Loads the kernels of both passes on the current device, and chooses the algorithms of their products.
    fn prepare(&self, dims: &Dims, dtypes: Dtypes) -> Result<(), Error> {
        self.linear.prepare(dims, dtypes)?;
        self.product.prepare(dims, dtypes)
    }

    fn workspace_bytes(
        &self,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        grads: &Gradients,
        _: &Kept,
    ) -> Result<usize, Error> {
        Ok(self.space(dims, pass, dtypes, grads)?.bytes)
    }

    unsafe fn run(&self, call: &Call, results: &Gradients) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = *call;
        if results[0].is_none() {
            return Ok(());
        }
        let space = self.space(&dims, Pass::Forward, dtypes, &NO_GRADIENTS)?;
        let space = space.at(call.workspace);
        let (y, sums) = self.saved(call, &space);
        // SAFETY: the caller promises it; `y` and the rest are inside of the saved values and of the workspace.
        unsafe {
            let map = self.map_in_output(call, y, &space);
            self.linear.run(&map, &only(y))?;
            let product = self.product_call(call, y, sums, &space);
            self.product.run(&product, results)
        }
    }

    unsafe fn backward(&self, call: &Call) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = *call;
        if call.grads.iter().all(Option::is_none) {
            return Ok(());
        }
        let space = self.space(&dims, Pass::Backward, dtypes, &call.grads)?;
        let space = space.at(call.workspace);
        let (y, sums) = self.saved(call, &space);
        let of_map = self.map_gradients(&call.grads);
        let of_bias = self.bias_gradient(&call.grads);
        // SAFETY: the same holds as in `run`.
        unsafe {
            if self.recomputes {
                self.linear.run(&self.map_call(call, y, &space), &only(y))?;
            }
            let product = Call {
                grads: self.product_gradients(&call.grads, space.grad_y),
                ..self.product_call(call, y, sums, &space)
            };
            self.product.backward_with(&product, of_bias)?;
            if of_map.iter().all(Option::is_none) {
                return Ok(());
            }
            let map = Call {
                output: space.grad_y,
                result: y,
                grads: of_map,
                adds: true,
                ..self.map_call(call, y, &space)
            };
            self.linear.backward(&map)
        }
    }

    fn with_precision(&self, precision: MatmulPrecision) -> Option<Arc<dyn OnCuda>> {
        let mut own = self.clone();
        own.linear.precision = precision;
        Some(Arc::new(own))
    }
}

impl Space {
    /// Adds a part to the workspace and returns its offset.
    fn add(&mut self, bytes: usize) -> u64 {
        let offset = self.bytes;
        self.bytes += bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
        offset as u64
    }

    /// The addresses of the parts, in a workspace at `base`.
    fn at(self, base: u64) -> Self {
        Self {
            y: base + self.y,
            grad_y: base + self.grad_y,
            rest: base + self.rest,
            ..self
        }
    }
}
