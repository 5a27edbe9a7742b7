//! Networks of files for Python: their ends, their gradients as networks, and their weights.

use std::collections::HashMap;

use flashcliff::Dtype;
use flashcliff_network::cache::Cache;
use flashcliff_network::file::{self, Conversion, Stored};
use flashcliff_network::messages::{BodyEnds, MessageLayers, MultivectorNeurons};
use flashcliff_network::tokens::Start;
use flashcliff_network::{Axis, Network, Rows, Value};
use pyo3::prelude::*;

use super::plan::{Key, NetworkFunction, NetworkPlan, OUTPUT, On, Planned, PyGpu, PyRows};
use crate::error::{UnsupportedError, caught, detached};

/// Samples, items, context items, edges, graphs, and the rows of further sets.
pub(crate) type Sizes = (
    usize,
    usize,
    usize,
    usize,
    usize,
    [usize; Rows::MOST_OTHERS],
);

/// A network as a function of its inputs, then its parameters, then gradients of results.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) network: Network,
    pub(crate) arguments: Vec<Value>,
    pub(crate) results: Vec<Value>,
    /// The names of the results; none of a gradient.
    names: Vec<String>,
}

impl Function {
    pub(crate) fn of_json(text: &str) -> Result<Self, file::Error> {
        let (network, outputs) = file::network_from_json(text)?;
        Ok(Self::new(network, outputs))
    }

    fn new(network: Network, outputs: Vec<(String, Value)>) -> Self {
        let ends = network.inputs().iter().chain(network.parameters());
        Self {
            arguments: ends.copied().collect(),
            results: outputs.iter().map(|&(_, value)| value).collect(),
            names: outputs.into_iter().map(|(name, _)| name).collect(),
            network,
        }
    }

    /// The gradients of some results by some arguments, in their order, and for each argument that is wanted whether
    /// there is one. The gradients of the results are arguments after the others.
    pub(crate) fn gradient(
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
                names: Vec::new(),
            },
            found,
        ))
    }

    pub(crate) fn shapes(&self, values: &[Value], rows: Rows) -> Vec<Vec<usize>> {
        let shape = |&value: &Value| {
            let axes = self.network.shape(value).unwrap_or_default().iter();
            axes.map(|axis| axis.size(rows)).collect()
        };
        values.iter().map(shape).collect()
    }

    fn axes(&self, value: Value) -> Vec<String> {
        let axes = self.network.shape(value).unwrap_or_default().iter();
        axes.map(|&axis| axis_name(axis)).collect()
    }

    /// The function of a network with one result, in two passes.
    pub(crate) fn in_two_passes(&self) -> Option<NetworkFunction> {
        match (&self.names[..], &self.results[..]) {
            ([name], &[output]) => Some(NetworkFunction::new(self.network.clone(), output, name)),
            _ => None,
        }
    }

    /// The plan of all results.
    pub(crate) fn planned(
        &self,
        rows: Rows,
        dtype: Dtype,
        gpu: Option<PyGpu>,
    ) -> Result<Planned, flashcliff_network::Error> {
        // A plan of one stage has memory on a GPU that stays from run to run; with a second one, of nothing, runs lend it.
        let (network, stages) = (&self.network, [&self.results[..], &[]]);
        let mut shapes = self.shapes(network.inputs(), rows);
        shapes.extend(self.shapes(network.parameters(), rows));
        Ok(Planned {
            on: match gpu {
                #[cfg(feature = "cuda")]
                Some(gpu) => On::Gpu(Box::new(super::gpu::OnGpu::new(
                    network, &stages, rows, [dtype; 2], gpu,
                )?)),
                _ => On::Cpu(Box::new(network.plan_stages(&stages, rows, [dtype; 2])?)),
            },
            input_count: network.inputs().len(),
            shapes,
            results: self.shapes(&self.results, rows),
        })
    }
}

pub(crate) fn rows((samples, items, context, edges, graphs, others): Sizes) -> Rows {
    Rows {
        edges,
        graphs,
        others,
        ..Rows::new(samples, items).with_context(context)
    }
}

/// A network, or a gradient of one, for Python.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct StoredNetwork {
    function: Function,
    plans: Cache<Key, Planned>,
    /// How parameters begin; nothing for a network of a file, which has them.
    starts: Vec<PyStart>,
}

/// The shape of a parameter in a state dict, a distribution, and a number of it.
type PyStart = (Vec<usize>, &'static str, f64);

/// A name, and axes: sizes, and names of those that are open.
type PyEnd = (String, Vec<String>);

impl StoredNetwork {
    fn new(function: Function) -> Self {
        Self {
            function,
            plans: Cache::default(),
            starts: Vec::new(),
        }
    }

    /// A network of messages whose parameters begin somewhere.
    fn of_layers(layers: MessageLayers, output: Value) -> PyResult<Self> {
        let shapes = layers.stored_shapes().iter().cloned();
        let starts = shapes.zip(layers.starts()).map(|(shape, start)| {
            let (name, number) = match *start {
                Start::Normal(deviation) => ("normal", deviation),
                Start::Uniform { mean: 0.0, bound } => ("uniform", bound),
                Start::Constant(number) => ("constant", number),
                ref other => {
                    let message = format!("start: expected one around 0, got {other:?}");
                    return Err(UnsupportedError::new_err(message));
                }
            };
            Ok((shape, name, number))
        });
        let starts = starts.collect::<PyResult<_>>()?;
        let outputs = vec![(OUTPUT.to_owned(), output)];
        Ok(Self {
            starts,
            ..Self::new(Function::new(layers.network, outputs))
        })
    }
}

#[pymethods]
impl StoredNetwork {
    /// The network of the JSON that a file has.
    #[staticmethod]
    fn of_json(text: &str) -> PyResult<Self> {
        Ok(Self::new(caught(|| Function::of_json(text))?))
    }

    /// MVN's network of charged bodies.
    #[staticmethod]
    fn multivector_neurons(scalars: usize, channels: usize, layers: usize) -> PyResult<Self> {
        let sizes = MultivectorNeurons {
            scalars,
            channels,
            layers,
        };
        let (layers, BodyEnds { positions, .. }) = caught(|| sizes.layers())?;
        Self::of_layers(layers, positions)
    }

    /// For each parameter its shape in a state dict, `normal`, `uniform` around 0 or `constant`, and the standard
    /// deviation, the bound or the number.
    #[getter]
    fn starts(&self) -> Vec<PyStart> {
        self.starts.clone()
    }

    /// The names and axes of the inputs.
    #[getter]
    fn inputs(&self) -> Vec<PyEnd> {
        let Function { network, .. } = &self.function;
        let end = |&value: &Value| (network.name(value).to_owned(), self.function.axes(value));
        network.inputs().iter().map(end).collect()
    }

    /// The names of the parameters.
    #[getter]
    fn parameters(&self) -> Vec<String> {
        let Function { network, .. } = &self.function;
        let names = network.parameters().iter();
        names.map(|&value| network.name(value).to_owned()).collect()
    }

    /// The relations: a name, the axis of its rows, and that of its targets.
    #[getter]
    fn relations(&self) -> Vec<(String, String, String)> {
        let Function { network, .. } = &self.function;
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
        } = &self.function;
        let rows = rows(sizes);
        (
            self.function.shapes(arguments, rows),
            self.function.shapes(results, rows),
        )
    }

    /// The names and axes of the results; none of a gradient.
    #[getter]
    fn outputs(&self) -> Vec<PyEnd> {
        let own = self.function.names.iter().zip(&self.function.results);
        own.map(|(name, &value)| (name.clone(), self.function.axes(value)))
            .collect()
    }

    /// The function of a network with one result, in two passes.
    fn function(&self) -> PyResult<NetworkFunction> {
        let function = self.function.in_two_passes();
        function.ok_or_else(|| {
            let got = self.function.results.len();
            UnsupportedError::new_err(format!("networks: expected one output, got {got}"))
        })
    }

    /// The plan of all results at once, of one pass, in which no gradient is wanted. Its tensors are the inputs,
    /// including inputs that come after the parameters, and then the parameters.
    fn plan(
        &self,
        py: Python<'_>,
        rows: PyRows,
        dtype: &str,
        wanted: Vec<bool>,
        gpu: Option<PyGpu>,
    ) -> PyResult<NetworkPlan> {
        let key = Key::new(&rows, [dtype; 2], wanted, gpu)?;
        let make = |key: &Key| self.function.planned(key.rows, key.types[1], key.gpu);
        let planned = detached(py, || self.plans.get(key, make))?;
        Ok(NetworkPlan(planned))
    }

    /// The gradients of some results by some arguments, and for each of these whether there is one.
    fn gradient(
        &self,
        py: Python<'_>,
        there: Vec<bool>,
        wanted: Vec<bool>,
    ) -> PyResult<(Self, Vec<bool>)> {
        let made = detached(py, || self.function.gradient(&there, &wanted))?;
        Ok((Self::new(made.0), made.1))
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
pub(crate) fn network_file(
    py: Python<'_>,
    path: std::path::PathBuf,
) -> PyResult<(String, Vec<PyParameter>)> {
    detached(py, || {
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
