//! The work of layers and networks: the calls that reach kernels, with the bytes and operations of each.
//!
//! [`observed`] runs a function, and what it calls notes itself where it starts: operators as nodes of the graph, layers of transformers, plans of
//! an [`Objective`](crate::objective::Objective), linear maps of perceptrons, the optimiser. Bytes and operations come from shapes and from
//! [`flashcliff::Operator::cost`], so they are the same on the CPU and on a GPU. candle's own small operations are not counted.
//!
//! Notes belong to the thread that calls. Without an observer a call asks one flag of its thread.
//!
//! ```
//! use candle_core::{DType, Device, Module, Tensor};
//! use flashcliff::{Algebra, Signature};
//! use flashcliff_candle::init::Parameters;
//! use flashcliff_candle::layers::MVLayerNorm;
//! use flashcliff_candle::work::{self, Phase};
//!
//! let parameters = Parameters::seeded(1);
//! let builder = parameters.builder(DType::F32, &Device::Cpu);
//! let layer = MVLayerNorm::new(Algebra::new(Signature::new(3, 0, 0)?)?, 16, builder)?;
//! let x = Tensor::ones((8, 4, 16), DType::F32, &Device::Cpu)?;
//! let (_, calls) = work::observed(|| layer.forward(&x)?.sum_all()?.backward());
//! let phases: Vec<Phase> = calls.iter().map(|call| call.phase).collect();
//! assert_eq!(phases, [Phase::Forward, Phase::Backward]);
//! // The input, the parameter and the output, each once.
//! assert_eq!(calls[0].bytes, 4 * (512 + 16 + 512));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::cell::RefCell;

use flashcliff::{Dims, Operator, Pass, TensorSpec};

/// The part of a step that a call belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The forward pass.
    Forward,
    /// The backward pass. Layers of transformers on a GPU note theirs in the forward pass, since candle's own operations run it.
    Backward,
    /// The step of the optimiser.
    Update,
}

impl From<Pass> for Phase {
    fn from(pass: Pass) -> Self {
        match pass {
            Pass::Forward => Self::Forward,
            Pass::Backward => Self::Backward,
        }
    }
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The operator, or the function of the layer.
    pub name: &'static str,
    /// The part of the step.
    pub phase: Phase,
    /// The least number of bytes that the call moves: each tensor that it reads or writes, once.
    pub bytes: usize,
    /// The part of these bytes that are parameters, their gradients or the state of the optimiser.
    pub parameter_bytes: usize,
    /// The bytes that a forward pass makes and its backward pass reads: the output, and what is saved beside it.
    pub kept_bytes: usize,
    /// The floating-point operations.
    pub flops: usize,
    /// Whether most operations are those of matrix products.
    pub has_matrix_products: bool,
}

impl Call {
    /// A pass of an operator, with elements of so many bytes.
    pub(crate) fn of_operator(operator: &Operator, dims: &Dims, pass: Pass, size: usize) -> Self {
        let elements = |spec: &TensorSpec| spec.shape(dims).iter().product::<usize>();
        let parameters = operator.inputs().iter().filter(|spec| spec.is_parameter());
        let parameters: usize = parameters.map(elements).sum();
        let cost = operator.cost(dims);
        let kept = elements(operator.output()) + operator.saved_len(dims);
        let (flops, parameters, kept) = match pass {
            Pass::Forward => (cost.forward, parameters, kept),
            Pass::Backward => (cost.backward, 2 * parameters, 0),
        };
        Self {
            name: operator.name(),
            phase: pass.into(),
            bytes: size * operator.moved_elements(dims, pass),
            parameter_bytes: size * parameters,
            kept_bytes: size * kept,
            flops,
            has_matrix_products: operator.has_matrix_products(),
        }
    }

    /// A pass of a function without parameters: so many elements of its input and of its output, with an operation for each of the larger.
    pub(crate) fn simple(name: &'static str, pass: Pass, ends: [usize; 2], size: usize) -> Self {
        let [input, output] = ends;
        let (moved, kept) = match pass {
            Pass::Forward => (input + output, output),
            Pass::Backward => (2 * input + output, 0),
        };
        Self {
            name,
            phase: pass.into(),
            bytes: size * moved,
            parameter_bytes: 0,
            kept_bytes: size * kept,
            flops: input.max(output),
            has_matrix_products: false,
        }
    }
}

thread_local! {
    /// The calls so far, if there is an observer.
    static SEEN: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

/// Puts an earlier list back, whatever happens.
struct Restore(Option<Vec<Call>>);

impl Drop for Restore {
    fn drop(&mut self) {
        SEEN.set(self.0.take());
    }
}

/// Runs a function, and returns its result with the calls that it made on this thread, in order. An observer within another takes its calls
/// away from that one.
pub fn observed<R>(work: impl FnOnce() -> R) -> (R, Vec<Call>) {
    let _before = Restore(SEEN.replace(Some(Vec::new())));
    let result = work();
    let calls = SEEN.take().unwrap_or_default();
    (result, calls)
}

/// Runs a function whose calls are not noted, as they are parts of a call that is.
pub(crate) fn unseen<R>(work: impl FnOnce() -> R) -> R {
    let _before = Restore(SEEN.take());
    work()
}

/// Whether calls of this thread are noted.
pub(crate) fn is_observed() -> bool {
    SEEN.with_borrow(Option::is_some)
}

/// Notes a call, if there is an observer.
pub(crate) fn note(call: impl FnOnce() -> Call) {
    if is_observed() {
        let call = call();
        SEEN.with_borrow_mut(|seen| {
            if let Some(calls) = seen {
                calls.push(call);
            }
        });
    }
}
