//! Gradients of a network as nodes of candle's graph: each order of derivatives is a separate network.
//!
//! ```text
//! network 0:  inputs, parameters                                  -> the result
//! network 1:  inputs, the gradient of the result, parameters      -> the gradients that are wanted
//! network 2:  inputs of network 1, gradients of its results, ...  -> the gradients of those by all that network 1 reads
//! ```
//!
//! The first gradients are computed as always, by the second stage of the plan of network 0. They are recorded as
//! what network 1 computes, which itself never runs: where they are differentiated, network 2 runs, and computes
//! again what it needs. Each network is made when it is first asked for.
//!
//! A node of candle has one result. So the node of a network of gradients is a *token*, a tensor of one zero, and each
//! gradient is a node that reads the token. On the way back the gradients of gradients come first: they leave what they
//! get for the node of the token, which comes after all of them.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, ThreadId};

use candle_core::{CustomOp1, DType, Device, Result, Shape, Storage, Tensor};
use flashcliff_network::cache::Cache;
use flashcliff_network::{Rows, Value};

use super::{NetworkFunction, Shared};
use crate::Error;
use crate::op::node::{self, Backward};
use crate::op::once::{self, Gradient, Ready, forward_is_ready};

/// For each result whether it has a gradient, and for each input and parameter whether its own is wanted.
pub(super) type Asked = [Vec<bool>; 2];

/// The gradients of a network as a network.
#[derive(Debug)]
pub(super) struct Derivative {
    shared: Arc<Shared>,
    /// For each gradient that is wanted whether there is one. All others are zeros.
    found: Vec<bool>,
}

impl Shared {
    fn derivative(&self, asked: Asked) -> std::result::Result<Arc<Derivative>, Error> {
        self.derivatives.get(asked, |[has, wanted]| {
            let outputs = self.outputs.iter().zip(has);
            let outputs: Vec<_> = outputs
                .filter(|(_, has)| **has)
                .map(|(own, _)| *own)
                .collect();
            let made = self.network.differentiated_in_part(&outputs, wanted);
            let made = made.map_err(|error| self.explained(error))?;
            Ok(Derivative {
                found: made.found().to_vec(),
                shared: Arc::new(Self {
                    name: self.name,
                    outputs: made.stages()[1].to_vec(),
                    network: made.network().clone(),
                    is_gradient: true,
                    derivatives: Cache::default(),
                    on_cpu: Cache::default(),
                    #[cfg(feature = "cuda")]
                    on_gpu: Cache::default(),
                }),
            })
        })
    }

    /// The error of gradients, which says what has none.
    fn explained(&self, error: flashcliff_network::Error) -> Error {
        match error {
            flashcliff_network::Error::NoGradient { node } => Error::SecondDerivative {
                operator: format!("{}: {node}", self.name),
            },
            other => other.into(),
        }
    }
}

/// The gradients of a call of a network, as a call of another.
pub(in crate::op) struct Again {
    function: NetworkFunction,
    rows: Rows,
    /// The inputs, and then the parameters, of the network whose gradients these are.
    arguments: Vec<Tensor>,
    /// The tensors by which gradients are wanted, and whether each has one.
    by: Vec<(Tensor, bool)>,
}

impl NetworkFunction {
    /// The gradients of a call by its arguments that are `tracked`, from the gradients of its results.
    ///
    /// # Errors
    /// [`Error::SecondDerivative`] for a step without gradients; the errors of the core.
    pub(in crate::op) fn again(
        &self,
        rows: Rows,
        (arguments, tracked): (&[Tensor], &[usize]),
        seeds: &[Option<Tensor>],
    ) -> std::result::Result<Again, Error> {
        let has = seeds.iter().map(Option::is_some).collect();
        let wanted = (0..arguments.len()).map(|at| tracked.contains(&at));
        let derivative = self.shared.derivative([has, wanted.collect()])?;
        let by = tracked.iter().zip(&derivative.found);
        let by = by.map(|(&at, &found)| (arguments[at].clone(), found));
        let mut all = arguments[..self.input_count()].to_vec();
        for seed in seeds.iter().flatten() {
            all.push(seed.contiguous()?);
        }
        all.extend_from_slice(&arguments[self.input_count()..]);
        Ok(Again {
            function: Self {
                shared: derivative.shared.clone(),
                around: self.around.clone(),
            },
            rows,
            by: by.collect(),
            arguments: all,
        })
    }

    /// The stages of a plan of gradients alone. With a second one, which is empty, a plan holds no memory itself: a
    /// host lends it memory for each run.
    pub(in crate::op) fn alone(&self) -> [&[Value]; 2] {
        [&self.shared.outputs, &[]]
    }

    /// Computes the results for arguments on any device.
    fn results(
        &self,
        rows: Rows,
        arguments: &[Tensor],
    ) -> std::result::Result<Vec<Storage>, Error> {
        match (arguments[0].device(), arguments[0].dtype()) {
            _ if self.shared.outputs.is_empty() => Ok(Vec::new()),
            (Device::Cpu, DType::F32) => self.results_on_cpu::<f32>(rows, arguments),
            (Device::Cpu, _) => self.results_on_cpu::<f64>(rows, arguments),
            #[cfg(feature = "cuda")]
            (Device::Cuda(device), _) => self.results_on_gpu(rows, arguments, device),
            _ => Err(Error::BuiltWithoutCuda),
        }
    }
}

impl Again {
    /// The gradients that are not zeros for all inputs, out of one for each tensor by which one is wanted.
    pub(in crate::op) fn there(&self, made: Vec<Storage>) -> Vec<Storage> {
        let pairs = self.by.iter().zip(made);
        let found = pairs.filter(|((_, found), _)| *found);
        found.map(|(_, own)| own).collect()
    }

    /// The gradients that there are, computed, as candle gets them.
    pub(in crate::op) fn handed(self, made: Vec<Storage>) -> Result<Vec<Option<Gradient>>> {
        let by = self.by.clone();
        let made: Vec<Gradient> = match once::keeps_graph() && !made.is_empty() {
            true => self.recorded(made)?,
            false => made.into_iter().map(Gradient::Made).collect(),
        };
        Gradient::among(made, by.iter().map(|(tensor, found)| (tensor, *found)))
    }

    /// The gradients that there are as nodes.
    fn recorded(self, made: Vec<Storage>) -> Result<Vec<Gradient>> {
        let found = self.by.iter().filter(|(_, found)| *found);
        let shapes: Vec<Shape> = found.map(|(tensor, _)| tensor.shape().clone()).collect();
        let name = self.function.shared.name;
        let seeds = Arc::new(Seeds::default());
        let first = &self.arguments[0];
        let zero = Tensor::zeros(1, first.dtype(), first.device())?;
        let backward = OfGradients {
            function: self.function,
            rows: self.rows,
            seeds: seeds.clone(),
        };
        let token = node::record(self.arguments, once::owned(&zero)?, vec![1], backward)?;
        let results = made.into_iter().zip(shapes).enumerate();
        let nodes = results.map(|(result, (storage, shape))| {
            let own = OfToken {
                name,
                result,
                seeds: seeds.clone(),
                ready: Ready::new(storage, shape),
            };
            Ok(Gradient::Kept(token.apply_op1(own)?))
        });
        nodes.collect()
    }
}

/// The backward pass of a network of gradients.
struct OfGradients {
    function: NetworkFunction,
    rows: Rows,
    seeds: Arc<Seeds>,
}

impl Backward for OfGradients {
    fn name(&self) -> &str {
        self.function.shared.name
    }

    fn gradients(
        &self,
        inputs: &[Tensor],
        tracked: &[usize],
        _: &Tensor,
        _: &Tensor,
    ) -> Result<Vec<Option<Gradient>>> {
        let seeds = self.seeds.take(self.function.shared.outputs.len());
        let again = self.function.again(self.rows, (inputs, tracked), &seeds)?;
        let made = again.function.results(again.rows, &again.arguments)?;
        again.handed(made)
    }
}

/// The gradients of gradients on their way to the node of their network, for each thread that runs a backward pass.
/// They belong to that pass, and are gone if it fails.
#[derive(Default)]
struct Seeds(Mutex<Vec<Seed>>);

struct Seed {
    thread: ThreadId,
    result: usize,
    gradient: Weak<Tensor>,
}

impl Seeds {
    /// Leaves the gradient of a result. It stays as long as the gradient of the token does, which is returned.
    fn put(&self, result: usize, gradient: &Tensor, token: &Tensor) -> Result<Tensor> {
        let gradient = Arc::new(gradient.clone());
        let seed = Seed {
            thread: thread::current().id(),
            result,
            gradient: Arc::downgrade(&gradient),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|own| own.gradient.strong_count() > 0);
        all.push(seed);
        drop(all);
        let zero = once::owned(&token.zeros_like()?)?;
        token.apply_op1(OfSeed {
            ready: Ready::new(zero, token.shape().clone()),
            _gradient: gradient,
        })
    }

    /// The gradient of each result, if this thread's backward pass has one.
    fn take(&self, count: usize) -> Vec<Option<Tensor>> {
        let me = thread::current().id();
        let mut found = vec![None; count];
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|own| {
            let is_own = own.thread == me;
            if let Some(gradient) = own.gradient.upgrade().filter(|_| is_own) {
                found[own.result] = Some(Tensor::clone(&gradient));
            }
            !is_own
        });
        found
    }
}

/// A gradient, read from the token of its network.
struct OfToken {
    name: &'static str,
    result: usize,
    seeds: Arc<Seeds>,
    ready: Ready,
}

impl CustomOp1 for OfToken {
    fn name(&self) -> &'static str {
        "flashcliff gradient"
    }

    forward_is_ready!(self, self.ready, self.name; _own);

    fn bwd(&self, token: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        self.seeds.put(self.result, gradient, token).map(Some)
    }
}

/// The gradient of a token, which is zero. It holds the gradient that its node left.
struct OfSeed {
    ready: Ready,
    _gradient: Arc<Tensor>,
}

impl CustomOp1 for OfSeed {
    fn name(&self) -> &'static str {
        "flashcliff seed of a gradient"
    }

    forward_is_ready!(self, self.ready, CustomOp1::name(self); _own);
}

#[cfg(test)]
mod tests;
