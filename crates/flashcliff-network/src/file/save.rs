//! Writes a network with its weights.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::Path;

use flashcliff::{Dtype, files};
use safetensors::View;

use super::graph::{Graph, InputRecord, NodeRecord, OutputRecord, ParameterRecord, RelationRecord};
use super::work::{Lists, WorkRecord};
use super::{Error, KEY, VERSION};
use crate::network::{Extent, Info, Maker, Node};
use crate::{Axis, Network, Number, Value};

/// Writes a network with its weights to a path: the nodes that some outputs need, each output under a name, and the
/// parameters that these read. `parameters` has the elements of every parameter of the network, in the order of
/// [`Network::parameters`]. A file that is there is replaced as a whole.
///
/// # Errors
/// [`Error::Path`]; the errors of [`write()`].
pub fn save<T: Number>(
    path: impl AsRef<Path>,
    network: &Network,
    outputs: &[(&str, Value)],
    parameters: &[&[T]],
) -> Result<(), Error> {
    let path = path.as_ref();
    let bytes = bytes(network, outputs, parameters)?;
    files::replace(path, &bytes).map_err(|source| Error::Path {
        path: path.to_owned(),
        source,
    })
}

/// Does the same as [`save`] with a writer.
///
/// # Errors
/// [`Error::Write`]; [`Error::NotStored`] for an output that is not a computed value, that needs a gradient, or an
/// operator that is a derivative, and for a value twice; [`Error::Name`] for a name twice; [`Error::Length`] for parameters that do not fit
/// the network; [`Error::Expression`] for a program whose graph was not made by its functions; [`Error::Graph`] for
/// numbers that are not finite.
pub fn write<T: Number>(
    to: &mut impl Write,
    network: &Network,
    outputs: &[(&str, Value)],
    parameters: &[&[T]],
) -> Result<(), Error> {
    Ok(to.write_all(&bytes(network, outputs, parameters)?)?)
}

/// A network without its weights, as JSON: the text that a file has in its metadata under [`KEY`], of which
/// [`network_from_json`](super::network_from_json) makes it again. It has what the outputs need, as a file has.
///
/// # Errors
/// The errors of [`write()`], except the errors of parameters and of the writer.
pub fn network_to_json(network: &Network, outputs: &[(&str, Value)]) -> Result<String, Error> {
    let graph = Needed::of(network, outputs)?.graph(network, outputs)?;
    Ok(serde_json::to_string(&graph)?)
}

/// The bytes of a file.
fn bytes<T: Number>(
    network: &Network,
    outputs: &[(&str, Value)],
    parameters: &[&[T]],
) -> Result<Vec<u8>, Error> {
    let needed = Needed::of(network, outputs)?;
    check_lengths(network, parameters)?;
    let graph = needed.graph(network, outputs)?;
    let text = serde_json::to_string(&graph)?;
    let stored = needed.parameters.iter().zip(&graph.parameters);
    let tensors = stored.map(|(&at, record)| {
        let tensor = Elements {
            shape: &record.shape,
            data: parameters[at],
        };
        (&*record.name, tensor)
    });
    let metadata = HashMap::from([(KEY.to_owned(), text)]);
    Ok(safetensors::serialize(tensors, Some(metadata))?)
}

/// A parameter as safetensors takes it.
struct Elements<'a, T> {
    shape: &'a [usize],
    data: &'a [T],
}

impl<T: Number> View for Elements<'_, T> {
    fn dtype(&self) -> safetensors::Dtype {
        match T::DTYPE {
            Dtype::F32 => safetensors::Dtype::F32,
            _ => safetensors::Dtype::F64,
        }
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let numbers = self.data.iter().map(|number| number.to_f64());
        match T::DTYPE {
            Dtype::F32 => numbers
                .flat_map(|number| (number as f32).to_le_bytes())
                .collect(),
            _ => numbers.flat_map(f64::to_le_bytes).collect(),
        }
    }

    fn data_len(&self) -> usize {
        size_of_val(self.data)
    }
}

/// Checks that there are the elements of each parameter.
fn check_lengths<T>(network: &Network, parameters: &[&[T]]) -> Result<(), Error> {
    let own = network.parameters();
    let check = |what: String, expected, got| match expected == got {
        true => Ok(()),
        false => Err(Error::Length {
            what,
            expected,
            got,
        }),
    };
    check("the parameters".to_owned(), own.len(), parameters.len())?;
    for (&value, data) in own.iter().zip(parameters) {
        let name = format!("the parameter `{}`", network.name(value));
        check(name, shape_of(network, value).iter().product(), data.len())?;
    }
    Ok(())
}

/// The sizes of a value without open axes.
fn shape_of(network: &Network, value: Value) -> Vec<usize> {
    let axes = network.shape(value).unwrap_or_default();
    axes.iter().map(|axis| axis.size(1)).collect()
}

/// What outputs need, by numbers, in the order of the network.
struct Needed {
    inputs: Vec<usize>,
    parameters: Vec<usize>,
    nodes: Vec<usize>,
}

impl Needed {
    fn of(network: &Network, outputs: &[(&str, Value)]) -> Result<Self, Error> {
        let mut open = Vec::with_capacity(outputs.len());
        for (at, &(name, value)) in outputs.iter().enumerate() {
            check_output(network, name, value)?;
            // Names that are there twice are told later.
            let is_known = |&(other, own): &(&str, Value)| own == value && other != name;
            if outputs[..at].iter().any(is_known) {
                return Err(Error::NotStored {
                    what: format!("the output `{name}`"),
                    reason: "another output is the same value, which has one name",
                });
            }
            open.push(value);
        }
        let mut found = vec![false; network.values.len()];
        while let Some(value) = open.pop() {
            if std::mem::replace(&mut found[value.0], true) {
                continue;
            }
            if let Maker::Node(node) = network.values[value.0].maker {
                open.extend(&network.nodes[node].inputs);
            }
        }
        let of = |values: &[Value]| {
            (0..values.len())
                .filter(|&at| found[values[at].0])
                .collect()
        };
        let is_needed = |node: &Node| node.outputs.iter().any(|output| found[output.0]);
        let nodes = 0..network.nodes.len();
        Ok(Self {
            inputs: of(&network.inputs),
            parameters: of(&network.parameters),
            nodes: nodes.filter(|&at| is_needed(&network.nodes[at])).collect(),
        })
    }

    /// The record of the network.
    fn graph(&self, network: &Network, outputs: &[(&str, Value)]) -> Result<Graph, Error> {
        let mut lists = Lists::default();
        let numbers = self.numbers(network);
        let mut block = self.nodes.first().map(|&node| network.nodes[node].block);
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for node in self.nodes.iter().map(|&node| &network.nodes[node]) {
            nodes.push(NodeRecord {
                work: WorkRecord::new(&node.work, &mut lists)?,
                inputs: node.inputs.iter().map(|input| numbers[input]).collect(),
                begins_block: block.replace(node.block) != Some(node.block),
            });
        }
        let inputs = self.inputs.iter().map(|&at| network.inputs[at]);
        let parameters = self.parameters.iter().map(|&at| network.parameters[at]);
        let relations = network.relations.iter();
        let relations = relations.map(|(name, own)| RelationRecord::new(name, *own));
        let graph = Graph {
            version: VERSION,
            operators: lists.records()?,
            geometries: lists.geometries.iter().map(|&own| own.into()).collect(),
            relations: relations.collect(),
            inputs: inputs.map(|value| input(network, value)).collect(),
            parameters: parameters.map(|value| parameter(network, value)).collect(),
            nodes,
            outputs: outputs
                .iter()
                .map(|&(name, value)| OutputRecord {
                    name: name.to_owned(),
                    value: numbers[&value],
                })
                .collect(),
        };
        graph.check_names()?;
        Ok(graph)
    }

    /// The number of each value in the file.
    fn numbers(&self, network: &Network) -> HashMap<Value, usize> {
        let inputs = self.inputs.iter().map(|&at| network.inputs[at]);
        let parameters = self.parameters.iter().map(|&at| network.parameters[at]);
        let nodes = self.nodes.iter();
        let results = nodes.flat_map(|&node| network.nodes[node].outputs.iter().copied());
        let values = inputs.chain(parameters).chain(results);
        values.enumerate().map(|(at, value)| (value, at)).collect()
    }
}

/// Checks that a node computes an output, and that the output has axes.
fn check_output(network: &Network, name: &str, value: Value) -> Result<(), Error> {
    let reason = match network.values.get(value.0) {
        Some(Info {
            maker: Maker::Node(_),
            extent: Extent::Shape(_),
            ..
        }) => return Ok(()),
        Some(_) => "an output is a value with axes that a node computes",
        None => "it is a value of another network",
    };
    Err(Error::NotStored {
        what: format!("the output `{name}`"),
        reason,
    })
}

fn input(network: &Network, value: Value) -> InputRecord {
    let axes = network.shape(value).unwrap_or_default();
    InputRecord {
        name: network.name(value).to_owned(),
        axes: axes.iter().map(|&axis: &Axis| axis.into()).collect(),
        features: network.features.contains(&value),
    }
}

fn parameter(network: &Network, value: Value) -> ParameterRecord {
    ParameterRecord {
        name: network.name(value).to_owned(),
        shape: shape_of(network, value),
    }
}

/// Checks that names are there once.
fn check_names<'a>(
    what: &'static str,
    mut names: impl Iterator<Item = &'a str>,
) -> Result<(), Error> {
    let mut known = HashSet::new();
    match names.find(|&name| !known.insert(name)) {
        None => Ok(()),
        Some(name) => Err(Error::Name {
            what,
            name: name.to_owned(),
        }),
    }
}

/// The name that safetensors keeps for text.
const RESERVED: &str = "__metadata__";

impl Graph {
    /// Checks that inputs, parameters and outputs have distinct names, and that parameters can be tensors.
    pub(super) fn check_names(&self) -> Result<(), Error> {
        check_names("inputs", self.inputs.iter().map(|input| &*input.name))?;
        let parameters = self.parameters.iter().map(|parameter| &*parameter.name);
        check_names("parameters", [RESERVED].into_iter().chain(parameters))?;
        check_names("outputs", self.outputs.iter().map(|output| &*output.name))
    }
}
