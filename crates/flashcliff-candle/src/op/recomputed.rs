//! Functions that run again in the backward pass, in place of keeping their inner values.
//!
//! ```text
//! forward:   run the function on inputs apart from the graph
//!            find the variables that its graph leads to; free the graph and the values in it
//!            record a node whose arguments are the inputs and these variables
//! backward:  run the function again, on copies of the inputs that are variables
//!            run candle's backward pass through that graph alone, from the gradient of the node's output
//!            give the node the gradients of the copies and of the variables
//! ```
//!
//! The variables are arguments of the node, so that candle adds their gradients to the gradients of their other uses,
//! and knows which nodes come first. Nobody lists them: the graph of the first run knows them.

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, Var};
#[cfg(feature = "cuda")]
use candle_core::{CudaStorage, DType, backend::BackendDevice};

use super::node::{self, Backward};
use super::once::{self, Gradient, owned};
use crate::Error;

/// The name of the node.
const NAME: &str = "recomputed";

/// Applies a function to tensors and keeps none of its inner values: the backward pass runs it again.
///
/// A network of blocks then holds the values of one block at a time besides the inputs of all blocks, for the time of
/// a second forward pass. The variables that the function reads are found in its graph, and get their gradients as
/// without this call. Where each variable is read by one block, gradients are the same bit for bit as without it, if
/// all operations in the function are deterministic.
///
/// The function must compute the same from the same inputs whenever it is called, and variables must keep their
/// values until the backward pass has run. It gets its inputs contiguous and apart from the graph. A tensor that
/// leads to variables should be an input: if the function holds it instead, they get their gradients too, but candle
/// goes the way to them once more for this node. A call may be inside the function of another. If nothing leads to a
/// variable, this is a plain call. It works on the CPU, on CUDA devices, and in captured steps.
///
/// A function that draws random numbers must draw the same ones in both runs, as the layers of this crate do with the
/// numbers of a [`Draw`](crate::layers::transformer::Draw).
///
/// # Errors
/// The errors of the function. In the backward pass [`Error::Recomputed`], if the second run gives another shape or reads other variables.
///
/// ```
/// use candle_core::{DType, Device, Tensor, Var};
/// use candle_nn::{Module, linear};
/// use flashcliff_candle::init::Parameters;
/// use flashcliff_candle::op;
///
/// let parameters = Parameters::seeded(1);
/// let vb = parameters.builder(DType::F32, &Device::Cpu);
/// let mut x = Tensor::ones((64, 8), DType::F32, &Device::Cpu)?;
/// for at in 0..12 {
///     let (wide, narrow) = (linear(8, 512, vb.pp(at).pp("wide"))?, linear(512, 8, vb.pp(at).pp("narrow"))?);
///     x = op::recomputed(&[&x], move |x| &x[0] + narrow.forward(&wide.forward(&x[0])?.gelu()?)?)?;
/// }
/// let gradients = x.sqr()?.mean_all()?.backward()?;
/// assert!(parameters.variables().iter().all(|(_, var)| gradients.get(var).is_some()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn recomputed(
    inputs: &[&Tensor],
    function: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    let mut inputs = inputs
        .iter()
        .map(|input| input.contiguous())
        .collect::<Result<Vec<_>>>()?;
    let given = inputs.len();
    let apart: Vec<Tensor> = inputs.iter().map(Tensor::detach).collect();
    let output = function(&apart)?;
    inputs.extend(variables(&output));
    if !inputs.iter().any(Tensor::track_op) {
        return Ok(output.detach());
    }
    let shape = output.dims().to_vec();
    let storage = owned(&output)?;
    let backward = Again { function, given };
    Ok(node::record(inputs, storage, shape, backward)?)
}

/// The variables that the graph of a tensor leads to, in an order that depends on the graph alone.
fn variables(output: &Tensor) -> Vec<Tensor> {
    let nodes = output.sorted_nodes().into_iter();
    nodes.filter(|node| node.is_variable()).cloned().collect()
}

/// The backward pass of a function that runs again.
struct Again<F> {
    function: F,
    /// The inputs of the function. In the inputs of the node, the variables that the function reads follow them.
    given: usize,
}

impl<F> Backward for Again<F>
where
    F: Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        NAME
    }

    fn gradients(
        &self,
        inputs: &[Tensor],
        tracked: &[usize],
        _: &Tensor,
        grad_output: &Tensor,
    ) -> Result<Vec<Option<Gradient>>> {
        let (given, read) = inputs.split_at(self.given);
        let mut leaves = given
            .iter()
            .map(|input| match input.track_op() {
                // A copy, since only a separate variable ends candle's way through the graph here.
                true => Ok(Var::from_tensor(&input.detach())?.as_tensor().clone()),
                false => Ok(input.clone()),
            })
            .collect::<Result<Vec<_>>>()?;
        let mut gradients = once::inside(|| {
            let output = (self.function)(&leaves)?;
            leaves.extend_from_slice(read);
            check(&output, grad_output, &leaves)?;
            backward_from(&output, grad_output)
        })?;
        let taken = tracked.iter().map(|&at| {
            let gradient = match gradients.remove(&leaves[at]) {
                // Gradients may lead to values of the graph, which would live as long as they do.
                Some(gradient) => gradient.detach(),
                // The output does not depend on this input.
                None => inputs[at].zeros_like()?.detach(),
            };
            Ok(Some(Gradient::Found(gradient)))
        });
        taken.collect()
    }
}

/// Checks that a second run is like the first: it leads to no variables but leaves.
fn check(
    output: &Tensor,
    grad_output: &Tensor,
    leaves: &[Tensor],
) -> std::result::Result<(), Error> {
    if output.dims() != grad_output.dims() {
        return Err(Error::Recomputed {
            expected: format!("an output of shape {:?}", grad_output.dims()),
            got: format!("{:?}", output.dims()),
        });
    }
    let is_known = |variable: &Tensor| leaves.iter().any(|leaf| leaf.id() == variable.id());
    match variables(output).iter().find(|var| !is_known(var)) {
        None => Ok(()),
        Some(other) => Err(Error::Recomputed {
            expected: "the variables of the first run".to_owned(),
            got: format!("another one, of shape {:?}", other.dims()),
        }),
    }
}

/// candle's backward pass from a tensor whose gradient is known.
fn backward_from(output: &Tensor, gradient: &Tensor) -> Result<GradStore> {
    let seed = Seed {
        gradient: gradient.clone(),
    };
    output.apply_op1(seed)?.backward()
}

/// A function of one number, zero, with a known gradient: candle's backward pass begins at numbers whose gradient is 1.
struct Seed {
    gradient: Tensor,
}

impl CustomOp1 for Seed {
    fn name(&self) -> &'static str {
        "flashcliff seed"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(vec![0.0]), Shape::from(1)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, storage: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        let shape = Shape::from(1);
        Ok((storage.device.zeros_impl(&shape, DType::F32)?, shape))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, _: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(self.gradient.clone()))
    }
}
