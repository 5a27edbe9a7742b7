//! Networks of files as foreign functions of XLA: a run of a network, or of a gradient of one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use flashcliff::Dtype;
use flashcliff_network::file::{self, Conversion, Stored};
use flashcliff_network::{Axis, Network, Rows, Value};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Deserialize;

use super::failure::Failure;
use super::frame::{ALIGNMENT, Call, List};
use crate::convert::{Gpu, Space};
use crate::error;
use crate::network::host;
use crate::network::plan::{Given, On, Planned};

/// The most plans that are kept.
const MOST: usize = 256;

/// Samples, items, context items, edges, graphs, and the rows of further sets.
type Sizes = (
    usize,
    usize,
    usize,
    usize,
    usize,
    [usize; Rows::MOST_OTHERS],
);

/// A network as a function of its inputs, then its parameters, then gradients of results.
#[derive(Clone)]
struct Function {
    network: Network,
    arguments: Vec<Value>,
    results: Vec<Value>,
}

impl Function {
    fn of_json(text: &str) -> Result<Self, file::Error> {
        let (network, outputs) = file::network_from_json(text)?;
        let ends = network.inputs().iter().chain(network.parameters());
        Ok(Self {
            arguments: ends.copied().collect(),
            results: outputs.into_iter().map(|(_, value)| value).collect(),
            network,
        })
    }

    /// The gradients of some results by some arguments, in their order, and for each argument that is wanted whether there is one. The gradients of the
    /// results are arguments behind the others.
    fn gradient(
        &self,
        there: &[bool],
        wanted: &[bool],
    ) -> Result<(Self, Vec<bool>), flashcliff_network::Error> {
        let chosen = |values: &[Value], choice: &[bool]| -> Vec<Value> {
            let pairs = values.iter().zip(choice).filter(|(_, own)| **own);
            pairs.map(|(&value, _)| value).collect()
        };
        let (results, by) = (
            chosen(&self.results, there),
            chosen(&self.arguments, wanted),
        );
        let ends = self
            .network
            .inputs()
            .iter()
            .chain(self.network.parameters());
        let ends: Vec<Value> = ends.copied().collect();
        let asked: Vec<bool> = ends.iter().map(|end| by.contains(end)).collect();
        let made = self.network.differentiated_in_part(&results, &asked)?;
        let asked = ends.iter().zip(&asked).filter(|(_, asked)| **asked);
        let there = asked.zip(made.found()).filter(|(_, found)| **found);
        let pairs = there.map(|((&end, _), _)| end).zip(made.stages()[1]);
        let gradients: HashMap<Value, Value> = pairs.map(|(end, &own)| (end, own)).collect();
        let seeds = made.network().inputs();
        let seeds = &seeds[self.network.inputs().len()..];
        let found = by.iter().map(|end| gradients.contains_key(end));
        let found = found.collect();
        let own = by.iter().filter_map(|end| gradients.get(end).copied());
        Ok((
            Self {
                network: made.network().clone(),
                arguments: self.arguments.iter().chain(seeds).copied().collect(),
                results: own.collect(),
            },
            found,
        ))
    }

    fn shapes(&self, values: &[Value], rows: Rows) -> Vec<Vec<usize>> {
        let shape = |&value: &Value| {
            let axes = self.network.shape(value).unwrap_or_default().iter();
            axes.map(|axis| axis.size(rows)).collect()
        };
        values.iter().map(shape).collect()
    }

    /// The plan of all results.
    fn planned(
        &self,
        rows: Rows,
        dtype: Dtype,
        gpu: Option<Gpu>,
    ) -> Result<Planned, flashcliff_network::Error> {
        // A plan of one stage has memory on a GPU that stays from run to run; with a second one, of nothing, runs lend it.
        let (network, stages) = (&self.network, [&self.results[..], &[]]);
        let mut shapes = self.shapes(network.inputs(), rows);
        shapes.extend(self.shapes(network.parameters(), rows));
        Ok(Planned {
            on: match gpu {
                #[cfg(feature = "cuda")]
                Some(gpu) => {
                    let place = (gpu.ordinal, gpu.tf32);
                    On::Gpu(Box::new(crate::network::gpu::OnGpu::new(
                        network, &stages, rows, dtype, place,
                    )?))
                }
                _ => On::Cpu(Box::new(network.plan_stages(&stages, rows, [dtype; 2])?)),
            },
            input_count: network.inputs().len(),
            shapes,
            result: Vec::new(),
        })
    }
}

fn rows((samples, items, context, edges, graphs, others): Sizes) -> Rows {
    Rows {
        edges,
        graphs,
        others,
        ..Rows::new(samples, items).with_context(context)
    }
}

/// A network, or a gradient of one, for Python.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct JaxNetwork(Function);

/// A name, and axes: sizes, and names of those that are open.
type PyEnd = (String, Vec<String>);

#[pymethods]
impl JaxNetwork {
    /// The network of the JSON that a file has.
    #[staticmethod]
    fn of_json(text: &str) -> PyResult<Self> {
        Ok(Self(error::caught(|| Function::of_json(text))?))
    }

    /// The names and axes of the inputs.
    #[getter]
    fn inputs(&self) -> Vec<PyEnd> {
        let Function { network, .. } = &self.0;
        let end = |&value: &Value| {
            let axes = network.shape(value).unwrap_or_default().iter();
            let name = network.name(value).to_owned();
            (name, axes.map(|&axis| axis_name(axis)).collect())
        };
        network.inputs().iter().map(end).collect()
    }

    /// The names of the parameters.
    #[getter]
    fn parameters(&self) -> Vec<String> {
        let Function { network, .. } = &self.0;
        let names = network.parameters().iter();
        names.map(|&value| network.name(value).to_owned()).collect()
    }

    /// The relations: a name, the axis of its rows, and that of its targets.
    #[getter]
    fn relations(&self) -> Vec<(String, String, String)> {
        let Function { network, .. } = &self.0;
        let own = network.relations();
        own.map(|own| {
            let name = network.relation_name(own).to_owned();
            (name, axis_name(own.from()), axis_name(own.to()))
        })
        .collect()
    }

    /// The shapes of arguments and of results, for samples, items, context items, edges, graphs, and rows of further sets.
    fn shapes(&self, sizes: Sizes) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
        let Function {
            arguments, results, ..
        } = &self.0;
        let rows = rows(sizes);
        (self.0.shapes(arguments, rows), self.0.shapes(results, rows))
    }

    /// The gradients of some results by some arguments, and for each of these whether there is one.
    fn gradient(
        &self,
        py: Python<'_>,
        there: Vec<bool>,
        wanted: Vec<bool>,
    ) -> PyResult<(Self, Vec<bool>)> {
        let made = error::detached(py, || self.0.gradient(&there, &wanted))?;
        Ok((Self(made.0), made.1))
    }
}

fn axis_name(axis: Axis) -> String {
    match axis {
        Axis::Rows => "rows".to_owned(),
        Axis::Samples => "samples".to_owned(),
        Axis::Items => "items".to_owned(),
        Axis::ContextRows => "context rows".to_owned(),
        Axis::ContextItems => "context items".to_owned(),
        Axis::Edges => "edges".to_owned(),
        Axis::Graphs => "graphs".to_owned(),
        Axis::Others(number) => format!("others {number}"),
        Axis::Fixed(_) | Axis::Token { .. } => axis.size(1).to_string(),
    }
}

/// A parameter of a file: its name, its shape, its type, and its elements.
type PyParameter = (String, Vec<usize>, &'static str, Vec<u8>);

/// The network of a file as JSON, and its parameters.
#[pyfunction]
pub(crate) fn jax_network_file(
    py: Python<'_>,
    path: std::path::PathBuf,
) -> PyResult<(String, Vec<PyParameter>)> {
    error::detached(py, || {
        let stored = file::load(&path)?;
        Ok::<_, file::Error>((stored.json()?, parameters(&stored)?))
    })
}

fn parameters(stored: &Stored) -> Result<Vec<PyParameter>, file::Error> {
    let network = stored.network();
    let values = stored.parameters::<f64>(Conversion::Rounded)?;
    let own = network.parameters().iter().zip(stored.types()).zip(values);
    let own = own.map(|((&value, dtype), numbers)| {
        let axes = network.shape(value).unwrap_or_default().iter();
        let shape = axes.map(|axis| axis.size(1)).collect();
        let name = network.name(value).to_owned();
        let numbers = numbers.into_iter();
        match dtype {
            Dtype::F64 => (
                name,
                shape,
                "float64",
                numbers.flat_map(f64::to_le_bytes).collect(),
            ),
            // Each of these was a number of that type.
            _ => {
                let numbers = numbers.flat_map(|number| (number as f32).to_le_bytes());
                (name, shape, "float32", numbers.collect())
            }
        }
    });
    Ok(own.collect())
}

/// What a call computes, as text.
#[derive(Debug, Deserialize)]
struct Description {
    network: String,
    /// The steps to a gradient: which results have gradients, and which arguments are wanted.
    steps: Vec<(Vec<bool>, Vec<bool>)>,
    sizes: Sizes,
    float64: bool,
    tf32: bool,
}

impl Description {
    fn read(text: &str) -> Result<Self, Failure> {
        let read = serde_json::from_str::<Self>(text);
        read.map_err(|error| Failure::refused(format!("the attribute `target`: {error}")))
    }

    fn dtype(&self) -> Dtype {
        match self.float64 {
            true => Dtype::F64,
            false => Dtype::F32,
        }
    }
}

/// A function, planned.
struct Target {
    function: Function,
    planned: Planned,
    rows: Rows,
    /// The shapes of arguments and of results.
    shapes: [Vec<Vec<usize>>; 2],
    dtype: Dtype,
    tf32: bool,
}

type Key = (String, Option<usize>);

static TARGETS: LazyLock<Mutex<HashMap<Key, Arc<Target>>>> = LazyLock::new(Mutex::default);

impl Target {
    /// The target of a text, whose digest is `digest`, on the GPU of a number, or on the CPU.
    fn of(digest: &str, text: &str, ordinal: Option<usize>) -> Result<Arc<Self>, Failure> {
        let key = (digest.to_owned(), ordinal);
        let lock = || TARGETS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().get(&key) {
            return Ok(Arc::clone(found));
        }
        let made = Arc::new(Self::read(text, ordinal)?);
        let mut targets = lock();
        if targets.len() >= MOST {
            targets.clear();
        }
        targets.insert(key, Arc::clone(&made));
        Ok(made)
    }

    fn read(text: &str, ordinal: Option<usize>) -> Result<Self, Failure> {
        let described = Description::read(text)?;
        let mut function = Function::of_json(&described.network)?;
        for (there, wanted) in &described.steps {
            function = function.gradient(there, wanted)?.0;
        }
        let (rows, dtype, tf32) = (rows(described.sizes), described.dtype(), described.tf32);
        let gpu = ordinal.map(|ordinal| Gpu {
            ordinal,
            stream: 0,
            tf32,
        });
        Ok(Self {
            planned: function.planned(rows, dtype, gpu)?,
            shapes: [&function.arguments, &function.results]
                .map(|values| function.shapes(values, rows)),
            function,
            rows,
            dtype,
            tf32,
        })
    }

    /// The bytes of memory on a GPU that a call needs.
    fn space(&self) -> usize {
        match &self.planned.on {
            On::Cpu(_) => 0,
            #[cfg(feature = "cuda")]
            On::Gpu(own) => own.space(0),
        }
    }
}

/// Plans a target on a GPU, and gives the bytes of workspace that a call needs there.
#[pyfunction]
pub(crate) fn jax_prepare_network(
    py: Python<'_>,
    digest: &str,
    target: &str,
    ordinal: usize,
) -> PyResult<usize> {
    let found = error::detached(py, || {
        Ok::<_, flashcliff::Error>(Target::of(digest, target, Some(ordinal)))
    })?;
    let found = found.map_err(|failure| PyValueError::new_err(failure.into_message()))?;
    Ok(match found.space() {
        0 => 0,
        bytes => bytes + ALIGNMENT,
    })
}

/// A run: the lists of each relation, then the arguments, to all results.
///
/// # Safety
/// The contract of [`super::passes::Compute`] holds.
pub(super) unsafe fn run(call: &Call<'_>, on_gpu: bool) -> Result<(), Failure> {
    let (digest, text) = (call.text("digest")?, call.text("target")?);
    let gpu = on_gpu.then(|| call.gpu(false)).transpose()?;
    let target = Target::of(digest, text, gpu.map(|gpu| gpu.ordinal))?;
    let gpu = gpu.map(|gpu| Gpu {
        tf32: target.tf32,
        ..gpu
    });
    let given = target.given(call, gpu)?;
    let planned = &target.planned;
    // SAFETY: the caller promises it, and all tensors have the sizes of the plan.
    unsafe {
        match &planned.on {
            On::Cpu(plan) => match target.dtype {
                Dtype::F64 => host::run::<f64>(planned, plan, 0, &given)?,
                _ => host::run::<f32>(planned, plan, 0, &given)?,
            },
            #[cfg(feature = "cuda")]
            On::Gpu(own) => own.run(planned, 0, &given)?,
        }
    }
    Ok(())
}

impl Target {
    /// The tensors of a call, after a comparison with the plan.
    fn given(&self, call: &Call<'_>, gpu: Option<Gpu>) -> Result<Given, Failure> {
        let Function {
            network, arguments, ..
        } = &self.function;
        let relations = network.relations();
        let relations: Vec<_> = relations
            .map(|own| [own.from(), own.to()].map(|axis| axis.size(self.rows)))
            .collect();
        let (lists, views) = call.lists_and_inputs(3 * relations.len())?;
        let (outputs, lent) = call.outputs()?;
        self.check("arguments", &views, &self.shapes[0])?;
        self.check("results", &outputs, &self.shapes[1])?;
        let places: HashMap<Value, usize> = arguments
            .iter()
            .zip(&views)
            .map(|(&value, view)| (value, view.address))
            .collect();
        let addresses = |values: &[Value]| values.iter().map(|own| places[own]).collect();
        let segments = relations.iter().zip(lists.chunks_exact(3));
        let segments = segments.map(|(&[rows, targets], own)| {
            check_lists(own, rows, targets)?;
            let [target, starts, order] = [0, 1, 2].map(|at| own[at].0);
            Ok(((target, starts, order), rows, targets))
        });
        Ok(Given {
            inputs: addresses(network.inputs()),
            parameters: addresses(network.parameters()),
            outputs: outputs.iter().map(|own| own.address).collect(),
            kept: 0,
            space: self.lent(lent)?,
            stream: gpu.map_or(0, |gpu| gpu.stream),
            sequences: None,
            draw: None,
            relations: segments.collect::<Result<_, Failure>>()?,
        })
    }

    fn check(
        &self,
        what: &str,
        got: &[crate::convert::View],
        shapes: &[Vec<usize>],
    ) -> Result<(), Failure> {
        if got.len() != shapes.len() {
            let (expected, got) = (shapes.len(), got.len());
            return Err(Failure::refused(format!(
                "expected {expected} {what}, got {got}"
            )));
        }
        let mut pairs = got.iter().zip(shapes);
        match pairs.find(|(own, shape)| own.shape != **shape || own.dtype != self.dtype) {
            None => Ok(()),
            Some((own, shape)) => Err(Failure::refused(format!(
                "{what} of a network: expected {} {shape:?}, got {} {:?}",
                self.dtype, own.dtype, own.shape
            ))),
        }
    }

    /// The address of a workspace that is large enough.
    fn lent(&self, lent: Space) -> Result<usize, Failure> {
        let needed = self.space();
        match lent.bytes >= needed {
            true => Ok(lent.address),
            false => Err(Failure::refused(format!(
                "expected {needed} bytes of workspace, got {}: compile the program on this GPU",
                lent.bytes
            ))),
        }
    }
}

/// The lists of a relation: targets and order of as many numbers as it has rows, starts of one more than it has targets.
fn check_lists(lists: &[List], rows: usize, targets: usize) -> Result<(), Failure> {
    let expected = [rows, targets + 1, rows];
    let got = [0, 1, 2].map(|at| lists[at].1);
    match got == expected {
        true => Ok(()),
        false => Err(Failure::refused(format!(
            "the lists of a relation: expected {expected:?} numbers, got {got:?}"
        ))),
    }
}
