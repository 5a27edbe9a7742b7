//! The plans of a described network.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flashcliff::Dtype;
use flashcliff_network::cache::Cache;
use flashcliff_network::{Error, Keep, Network, Number, Plan, Rows, Value, file};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::host;
use crate::convert::dtype_of;
use crate::error::{CudaError, detached};
use crate::host::slice;
use crate::segments::PyRelation;
use crate::threads;

/// The name of the result of a network that Python described, in files.
pub(super) const OUTPUT: &str = "output";

/// A network as a function of its inputs and then its parameters, with its plans.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct NetworkFunction {
    network: Network,
    output: Value,
    /// The name of the result in files.
    name: String,
    plans: Cache<Key, Planned>,
}

/// The number of a GPU, and whether matrix products may round to TF32.
pub(super) type PyGpu = (usize, bool);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) rows: Rows,
    /// The types of features between operators, and of all else.
    pub(crate) types: [Dtype; 2],
    /// For each input and parameter whether its gradient is computed.
    pub(crate) wanted: Vec<bool>,
    pub(crate) gpu: Option<PyGpu>,
    pub(crate) keep: Keep,
}

impl Key {
    pub(super) fn new(
        rows: &[usize],
        [features, dtype]: [&str; 2],
        wanted: Vec<bool>,
        gpu: Option<PyGpu>,
    ) -> PyResult<Self> {
        if gpu.is_some() && !cfg!(feature = "cuda") {
            return Err(CudaError::new_err(
                "networks: this build has no kernels for GPUs",
            ));
        }
        Ok(Self {
            rows: rows_of(rows)?,
            types: [dtype_of(features)?, dtype_of(dtype)?],
            wanted,
            gpu,
            keep: Keep::All,
        })
    }
}

/// Samples, items and context items; the edges and graphs of networks on graphs, whose nodes are samples of one item;
/// and the rows of further sets, if there are any.
pub(super) type PyRows = Vec<usize>;

/// The rows of a call.
fn rows_of(rows: &[usize]) -> PyResult<Rows> {
    let most = 5 + Rows::MOST_OTHERS;
    let [samples, items, context, edges, graphs, ref more @ ..] = *rows else {
        return Err(wrong_rows(most, rows.len()));
    };
    let mut others = [0; Rows::MOST_OTHERS];
    let own = others.get_mut(..more.len());
    own.ok_or_else(|| wrong_rows(most, rows.len()))?
        .copy_from_slice(more);
    Ok(Rows {
        edges,
        graphs,
        others,
        ..Rows::new(samples, items).with_context(context)
    })
}

fn wrong_rows(most: usize, got: usize) -> PyErr {
    PyValueError::new_err(format!("rows: expected 5 to {most} numbers, got {got}"))
}

/// A plan of two stages, the result and the gradients that are wanted.
pub(crate) struct Planned {
    pub(crate) on: On,
    /// The inputs of the function.
    pub(crate) input_count: usize,
    /// The shapes of inputs and parameters.
    pub(crate) shapes: Vec<Vec<usize>>,
    /// The shapes of the results of the first pass.
    pub(crate) results: Vec<Vec<usize>>,
}

/// The device of a plan.
pub(crate) enum On {
    Cpu(Box<Plan>),
    #[cfg(feature = "cuda")]
    Gpu(Box<super::gpu::OnGpu>),
}

impl NetworkFunction {
    pub(super) fn new(network: Network, output: Value, name: &str) -> Self {
        Self {
            network,
            output,
            name: name.to_owned(),
            plans: Cache::default(),
        }
    }

    pub(crate) fn planned(&self, key: &Key) -> Result<Planned, Error> {
        let (result, wanted) = (&[self.output], &key.wanted);
        let own = self
            .network
            .differentiated_keeping(result, wanted, key.keep)?;
        let (network, stages, types) = (own.network(), own.stages(), key.types);
        let sizes = |&value: &Value| -> Vec<usize> {
            let axes = self.network.shape(value).unwrap_or_default().iter();
            axes.map(|axis| axis.size(key.rows)).collect()
        };
        let ends = self
            .network
            .inputs()
            .iter()
            .chain(self.network.parameters());
        Ok(Planned {
            on: match key.gpu {
                None => On::Cpu(Box::new(network.plan_stages(&stages, key.rows, types)?)),
                #[cfg(feature = "cuda")]
                Some(gpu) => On::Gpu(Box::new(super::gpu::OnGpu::new(
                    network, &stages, key.rows, types, gpu,
                )?)),
                // Refused before.
                #[cfg(not(feature = "cuda"))]
                Some(_) => On::Cpu(Box::new(network.plan_stages(&stages, key.rows, types)?)),
            },
            input_count: self.network.inputs().len(),
            shapes: ends.map(sizes).collect(),
            results: vec![sizes(&self.output)],
        })
    }
}

impl NetworkFunction {
    /// # Safety
    /// The addresses belong to contiguous parameters of type `T` on the CPU, which nobody writes.
    unsafe fn write<T: Number>(&self, path: &Path, addresses: &[usize]) -> Result<(), file::Error> {
        let own = self.network.parameters().iter().zip(addresses);
        let parameters: Vec<&[T]> = own
            .map(|(&value, &address)| {
                let axes = self.network.shape(value).unwrap_or_default().iter();
                // SAFETY: the caller promises it.
                unsafe { slice(address, axes.map(|axis| axis.size(1)).product()) }
            })
            .collect();
        file::save(
            path,
            &self.network,
            &[(&self.name, self.output)],
            &parameters,
        )
    }
}

#[pymethods]
impl NetworkFunction {
    /// The plan for so many rows; for each input and then each parameter whether its gradient is wanted. On a GPU
    /// features between operators may have another type. Blocks may be computed again in the backward pass.
    #[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
    #[pyo3(signature = (rows, dtype, wanted, gpu, features=None, again=false))]
    fn plan(
        &self,
        py: Python<'_>,
        rows: PyRows,
        dtype: &str,
        wanted: Vec<bool>,
        gpu: Option<PyGpu>,
        features: Option<&str>,
        again: bool,
    ) -> PyResult<NetworkPlan> {
        let mut key = Key::new(&rows, [features.unwrap_or(dtype), dtype], wanted, gpu)?;
        if again {
            key.keep = Keep::BetweenBlocks;
        }
        let planned = detached(py, || self.plans.get(key, |key| self.planned(key)))?;
        Ok(NetworkPlan(planned))
    }

    /// Writes the network with its weights to a file.
    ///
    /// Not for users: memory is not checked. The addresses belong to contiguous parameters on the CPU, of the type, in order.
    fn save(
        &self,
        py: Python<'_>,
        path: PathBuf,
        dtype: &str,
        parameters: Vec<usize>,
    ) -> PyResult<()> {
        let dtype = dtype_of(dtype)?;
        // SAFETY: the caller's, who is the Python package itself.
        detached(py, || unsafe {
            match dtype {
                Dtype::F64 => self.write::<f64>(&path, &parameters),
                _ => self.write::<f32>(&path, &parameters),
            }
        })
    }

    fn __str__(&self) -> String {
        self.network.to_string()
    }
}

/// A plan of the result of a network, and of its gradients.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct NetworkPlan(pub(super) Arc<Planned>);

/// Where sequences begin, and the address of these numbers on a GPU.
pub(crate) type PySequences = (Vec<usize>, usize);

/// A relation: its lists, and its numbers of rows and of targets.
pub(crate) type PySegments = (PyRelation, usize, usize);

/// The tensors of a pass. All are addresses, of contiguous tensors.
pub(crate) struct Given {
    /// Inputs, the gradient of the result for the second stage, and parameters.
    pub(crate) inputs: Vec<usize>,
    pub(crate) parameters: Vec<usize>,
    /// The result, and the gradients.
    pub(crate) outputs: Vec<usize>,
    pub(crate) kept: usize,
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "read on GPUs only"))]
    pub(crate) space: usize,
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "read on GPUs only"))]
    pub(crate) stream: usize,
    /// The sequences of items, and the sequences of their context.
    pub(crate) sequences: Option<[PySequences; 2]>,
    /// The random numbers of dropout: the number of the pass, on a GPU the address of an `u32` there.
    pub(crate) draw: Option<u64>,
    /// The segments of each relation of the network, in order.
    pub(crate) relations: Vec<PySegments>,
}

/// The key of dropout: passes differ by their numbers, which PyTorch draws.
pub(super) const KEY: u64 = 0;

#[pymethods]
impl NetworkPlan {
    /// The shapes of the results.
    #[getter]
    fn shapes(&self) -> Vec<Vec<usize>> {
        self.0.results.clone()
    }

    /// The bytes that the second pass needs of the first.
    #[getter]
    fn kept(&self) -> usize {
        self.0.plan().kept_bytes()
    }

    /// The bytes that the calls of a pass move, and their floating-point operations.
    fn size(&self, backward: bool) -> (usize, usize) {
        let plan = self.0.plan();
        let sizes = || plan.calls(backward.into()).map(|call| plan.size(call));
        let bytes = sizes().map(|size| size.bytes).sum();
        (bytes, sizes().map(|size| size.flops).sum())
    }

    /// The bytes of memory on a GPU that each pass needs while it runs.
    #[getter]
    fn spaces(&self) -> [usize; 2] {
        self.0.spaces()
    }

    /// Writes the result, or each result of a plan of one pass.
    ///
    /// Not for users: memory is not checked. All addresses hold what the package says.
    #[pyo3(signature = (tensors, outputs, kept, space, stream, sequences=None, draw=None, relations=Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "addresses of one call")]
    fn forward(
        &self,
        py: Python<'_>,
        tensors: Vec<usize>,
        outputs: Vec<usize>,
        kept: usize,
        space: usize,
        stream: usize,
        sequences: Option<[PySequences; 2]>,
        draw: Option<u64>,
        relations: Vec<PySegments>,
    ) -> PyResult<()> {
        let (inputs, parameters) = self.0.split(tensors, None)?;
        let given = Given {
            inputs,
            parameters,
            outputs,
            kept,
            space,
            stream,
            sequences,
            draw,
            relations,
        };
        self.run(py, 0, &given)
    }

    /// Writes the gradients that are wanted, in order. Not for users, as `forward`.
    #[pyo3(signature = (tensors, output, grad_output, gradients, kept, space, stream, sequences=None, draw=None, relations=Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "addresses of one call")]
    fn backward(
        &self,
        py: Python<'_>,
        tensors: Vec<usize>,
        output: usize,
        grad_output: usize,
        gradients: Vec<usize>,
        kept: usize,
        space: usize,
        stream: usize,
        sequences: Option<[PySequences; 2]>,
        draw: Option<u64>,
        relations: Vec<PySegments>,
    ) -> PyResult<()> {
        let (inputs, parameters) = self.0.split(tensors, Some(grad_output))?;
        let mut outputs = gradients;
        outputs.insert(0, output);
        let given = Given {
            inputs,
            parameters,
            outputs,
            kept,
            space,
            stream,
            sequences,
            draw,
            relations,
        };
        self.run(py, 1, &given)
    }

    /// The calls, one a line, with bytes and operations; on a GPU with the names of kernels, for each sample as one sequence.
    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, || self.0.explain())
    }
}

impl NetworkPlan {
    fn run(&self, py: Python<'_>, stage: usize, given: &Given) -> PyResult<()> {
        let planned = &*self.0;
        // SAFETY: the caller's, who is the Python package itself.
        let run = || unsafe { planned.run(stage, given) };
        match &planned.on {
            On::Cpu(_) => threads::detached(py, run),
            #[cfg(feature = "cuda")]
            On::Gpu(_) => detached(py, run),
        }
    }
}

impl Planned {
    pub(crate) fn plan(&self) -> &Plan {
        match &self.on {
            On::Cpu(plan) => plan,
            #[cfg(feature = "cuda")]
            On::Gpu(own) => own.plan(),
        }
    }

    fn explain(&self) -> Result<String, Error> {
        match &self.on {
            On::Cpu(plan) => Ok(plan.explain()),
            #[cfg(feature = "cuda")]
            On::Gpu(own) => own.explain(),
        }
    }

    /// The bytes of memory on a GPU that each pass needs while it runs.
    pub(crate) fn spaces(&self) -> [usize; 2] {
        match &self.on {
            On::Cpu(_) => [0; 2],
            #[cfg(feature = "cuda")]
            On::Gpu(own) => own.spaces(),
        }
    }

    /// Runs a pass before it returns.
    ///
    /// # Safety
    /// The contract of the run on the device of the plan holds.
    pub(crate) unsafe fn run(&self, stage: usize, given: &Given) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe {
            match &self.on {
                On::Cpu(plan) => flashcliff::threads::together(|| match plan.types()[0] {
                    Dtype::F64 => host::run::<f64>(self, plan, stage, given),
                    _ => host::run::<f32>(self, plan, stage, given),
                }),
                #[cfg(feature = "cuda")]
                On::Gpu(own) => own.run(self, stage, given),
            }
        }
    }

    /// The addresses of inputs and of parameters. The gradient of the result is the last input.
    fn split(
        &self,
        mut tensors: Vec<usize>,
        seed: Option<usize>,
    ) -> PyResult<(Vec<usize>, Vec<usize>)> {
        if tensors.len() != self.shapes.len() {
            let (expected, got) = (self.shapes.len(), tensors.len());
            return Err(PyValueError::new_err(format!(
                "networks: expected {expected} tensors, got {got}"
            )));
        }
        let parameters = tensors.split_off(self.input_count);
        tensors.extend(seed);
        Ok((tensors, parameters))
    }

    /// The shape of an input. Inputs after the inputs of the function have the shapes of the results.
    pub(super) fn input_shape(&self, at: usize) -> &[usize] {
        match at < self.input_count {
            true => &self.shapes[at],
            false => &self.results[at - self.input_count],
        }
    }

    pub(super) fn parameter_shape(&self, at: usize) -> &[usize] {
        &self.shapes[self.input_count + at]
    }
}
