//! Gradients that cannot be differentiated again.
//!
//! candle takes gradients out of the graph before it hands them from one operation to the next, unless the variable
//! `CANDLE_GRAD_DO_NOT_DETACH` of the environment says otherwise. Where it keeps them, gradients of operators are
//! operators, and gradients of networks are networks ([`super::gradients`]). All other gradients end here.
//!
//! A gradient that leaves a node for a variable is then itself the result of a node, whose backward pass is an error:
//! candle goes there from every loss that is made of the gradient. Without that node the gradient would be a constant,
//! and a loss on it would have no gradients, or only the gradients of candle's part, without a word. Gradients of
//! tensors that are not variables need such a node only where candle keeps the graph.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp1, Result, Shape, Storage, Tensor};

use super::node::constant;
use crate::Error;

thread_local! {
    /// Whether gradients stay inside of this crate, where nothing differentiates them.
    static INSIDE: Cell<bool> = const { Cell::new(false) };

    /// Whether candle keeps the graph of gradients. It asks once in each thread, too.
    static KEEPS_GRAPH: bool = {
        let value = std::env::var("CANDLE_GRAD_DO_NOT_DETACH");
        value.is_ok_and(|value| !value.is_empty() && value != "0")
    };
}

/// Runs work whose gradients stay inside of this crate: they are plain tensors.
pub(crate) fn inside<R>(work: impl FnOnce() -> R) -> R {
    struct Restore(bool);

    impl Drop for Restore {
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }

    let _restore = Restore(INSIDE.replace(true));
    work()
}

/// Whether candle keeps the graph of gradients, and they do not stay inside of this crate.
pub(crate) fn keeps_graph() -> bool {
    !INSIDE.get() && KEEPS_GRAPH.with(|keeps| *keeps)
}

/// Whether the gradient of a tensor may be differentiated by the user of this crate.
fn is_exposed(tensor: &Tensor) -> bool {
    !INSIDE.get() && (tensor.is_variable() || KEEPS_GRAPH.with(|keeps| *keeps))
}

/// The gradient of an input of a node.
pub(crate) enum Gradient {
    /// Elements in order, in memory that belongs to nothing else.
    Made(Storage),
    /// A tensor that may share its memory.
    Found(Tensor),
    /// A tensor that can be differentiated again.
    Kept(Tensor),
}

impl Gradient {
    /// The gradients by tensors, of which some are found, in order. A result does not depend on the others: their
    /// gradients, and all gradients of these, are zeros.
    pub(crate) fn among<'a>(
        found: impl IntoIterator<Item = Self>,
        by: impl IntoIterator<Item = (&'a Tensor, bool)>,
    ) -> Result<Vec<Option<Self>>> {
        let mut found = found.into_iter();
        let each = by.into_iter().map(|(tensor, is_found)| match is_found {
            true => Ok(found.next()),
            false => Ok(Some(Self::Kept(tensor.zeros_like()?.detach()))),
        });
        each.collect()
    }

    /// The gradient as candle gets it: if it may be differentiated, that is an error that names the operator.
    pub(crate) fn of(self, input: &Tensor, operator: &str) -> Result<Tensor> {
        match (is_exposed(input), self) {
            (_, Self::Kept(tensor)) => Ok(tensor),
            (false, Self::Made(storage)) => Ok(constant(storage, input.dims())),
            (false, Self::Found(tensor)) => Ok(tensor),
            (true, gradient) => {
                let storage = match gradient {
                    Self::Made(storage) => storage,
                    Self::Found(tensor) | Self::Kept(tensor) => owned(&tensor)?,
                };
                // The input makes candle come here: the gradient depends on it. It is in the graph of the node anyway.
                input.apply_op1(Once {
                    operator: operator.to_owned(),
                    result: Ready::new(storage, input.shape().clone()),
                })
            }
        }
    }
}

/// The elements of a tensor without a graph, in order, in memory that belongs to nothing else.
pub(super) fn owned(tensor: &Tensor) -> Result<Storage> {
    let starts = matches!(
        tensor.layout().contiguous_offsets(),
        Some((0, end)) if end == tensor.elem_count()
    );
    let ordered = match starts {
        true => tensor.detach(),
        false => tensor.detach().force_contiguous()?,
    };
    let (storage, layout) = ordered.storage_and_layout();
    storage.try_clone(layout)
}

/// The forward passes of a node whose result is [`Ready`], with a name for each argument.
macro_rules! forward_is_ready {
    ($self:ident, $ready:expr, $name:expr; $($argument:ident),+) => {
        fn cpu_fwd(
            &$self,
            $($argument: &candle_core::CpuStorage, _: &candle_core::Layout),+
        ) -> candle_core::Result<(candle_core::CpuStorage, candle_core::Shape)> {
            $ready.on_cpu($name)
        }

        #[cfg(feature = "cuda")]
        fn cuda_fwd(
            &$self,
            $($argument: &candle_core::CudaStorage, _: &candle_core::Layout),+
        ) -> candle_core::Result<(candle_core::CudaStorage, candle_core::Shape)> {
            $ready.on_cuda($name)
        }
    };
}

pub(super) use forward_is_ready;

/// The result of a node that is computed before the node is made. It is taken when candle calls the forward pass of the node.
pub(super) struct Ready(Mutex<Option<(Storage, Shape)>>);

impl Ready {
    pub(super) fn new(storage: Storage, shape: Shape) -> Self {
        Self(Mutex::new(Some((storage, shape))))
    }

    fn take(&self, name: &str) -> Result<(Storage, Shape)> {
        let mut result = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = result.take();
        taken.ok_or_else(|| candle_core::Error::Msg(format!("{name}: forward pass ran twice")))
    }

    pub(super) fn on_cpu(&self, name: &str) -> Result<(CpuStorage, Shape)> {
        match self.take(name)? {
            (Storage::Cpu(storage), shape) => Ok((storage, shape)),
            _ => Err(misplaced(name)),
        }
    }

    #[cfg(feature = "cuda")]
    pub(super) fn on_cuda(&self, name: &str) -> Result<(CudaStorage, Shape)> {
        match self.take(name)? {
            (Storage::Cuda(storage), shape) => Ok((storage, shape)),
            _ => Err(misplaced(name)),
        }
    }
}

/// The error that a result is not on the device of the node's arguments.
fn misplaced(name: &str) -> candle_core::Error {
    candle_core::Error::Msg(format!("{name}: expected output and inputs on one device"))
}

/// A gradient, whose derivative is an error.
struct Once {
    operator: String,
    result: Ready,
}

impl CustomOp1 for Once {
    fn name(&self) -> &'static str {
        "flashcliff gradient"
    }

    forward_is_ready!(self, self.result, &self.operator; _own);

    fn bwd(&self, _: &Tensor, _: &Tensor, _: &Tensor) -> Result<Option<Tensor>> {
        let operator = self.operator.clone();
        Err(Error::SecondDerivative { operator }.into())
    }
}

/// Marks a variable whose gradient must not be differentiated, such as positions whose gradient is a force: a loss on
/// that gradient is then an error.
///
/// Where candle keeps the graph of gradients the mark changes nothing: [`gradients`](super::gradients()) can be differentiated.
///
/// The result has the numbers of the tensor, in its own memory. Operators and layers of this crate need no mark. It is
/// for variables that operations of candle read first: candle takes the gradient out of the graph on its way through
/// these, so a loss on it would have gradients of candle's last operation at most, or none, without an error.
///
/// # Errors
/// The errors of candle.
///
/// ```
/// use candle_core::{DType, Device, Tensor, Var};
/// use flashcliff::{Algebra, Signature};
/// use flashcliff_candle::{functional, op};
///
/// let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
/// let positions = Var::ones((8, 2, 1), DType::F32, &Device::Cpu)?;
/// let x = op::first_order(&positions)?;
/// let energy = functional::norm(algebra, &(x * 2.0)?)?.sum_all()?;
/// let forces = energy.backward()?.remove(&positions).expect("forces");
/// let error = forces.sqr()?.sum_all()?.backward().unwrap_err();
/// assert!(error.to_string().contains("second derivative"));
/// // As a constant, a gradient may be in a loss.
/// forces.detach().sqr()?.sum_all()?.backward()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn first_order(tensor: &Tensor) -> Result<Tensor> {
    if !tensor.track_op() {
        return Ok(tensor.clone());
    }
    tensor.apply_op1(Mark(Ready::new(owned(tensor)?, tensor.shape().clone())))
}

/// A tensor on its way to operations of candle inside of this crate: variables are marked.
pub(crate) fn entering(tensor: &Tensor) -> Result<Tensor> {
    match tensor.is_variable() && !INSIDE.get() {
        true => first_order(tensor),
        false => Ok(tensor.clone()),
    }
}

/// The identity.
struct Mark(Ready);

impl CustomOp1 for Mark {
    fn name(&self) -> &'static str {
        "first_order"
    }

    forward_is_ready!(self, self.0, CustomOp1::name(self); _own);

    fn bwd(&self, input: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        if keeps_graph() {
            return Ok(Some(gradient.clone()));
        }
        let gradient = Gradient::Found(gradient.clone());
        gradient.of(input, CustomOp1::name(self)).map(Some)
    }
}
