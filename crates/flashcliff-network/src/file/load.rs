//! Reads a network with its weights.

use std::ops::Range;
use std::path::Path;

use flashcliff::Dtype;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use super::bytes::bytes_of;
use super::graph::{Graph, ParameterRecord, Versioned, check_elements, find};
use super::work::Lists;
use super::{Error, KEY, VERSION};
use crate::{Network, Number, Value};

/// Whether parameters become numbers of another type than the file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conversion {
    /// Another type is an error.
    #[default]
    None,
    /// `f32` becomes `f64`, which changes no number; `f64` is rounded to the nearest `f32`.
    Rounded,
}

/// The type of a parameter, and where its elements are in the file.
type Elements = (Dtype, Range<usize>);

/// A network with its weights, as a file has them.
#[derive(Clone, Debug)]
pub struct Stored {
    network: Network,
    outputs: Vec<(String, Value)>,
    bytes: Vec<u8>,
    tensors: Vec<Elements>,
}

/// Reads a file of [`save`](super::save).
///
/// # Errors
/// [`Error::Path`]; the errors of [`read`].
pub fn load(path: impl AsRef<Path>) -> Result<Stored, Error> {
    let path = path.as_ref();
    let bytes = bytes_of(path).map_err(|source| Error::Path {
        path: path.to_owned(),
        source,
    })?;
    read(bytes)
}

/// Reads the bytes of a file. Other tensors than parameters are left alone. The shape of a tensor may have other axes of one element than
/// that of its parameter ([`same_elements`]).
///
/// # Errors
/// [`Error::Container`], [`Error::NoNetwork`], [`Error::Version`], [`Error::Graph`] for what is not a network of this
/// format; [`Error::Reference`], [`Error::Size`], [`Error::Empty`], [`Error::Name`] for one whose parts do not belong
/// together; [`Error::Part`] and [`Error::Expression`] for nodes and operators that cannot be made; [`Error::Digest`]
/// for operators whose formulas have changed; [`Error::NoTensor`], [`Error::Shape`], [`Error::Type`] for parameters.
pub fn read(bytes: Vec<u8>) -> Result<Stored, Error> {
    let (graph, tensors) = parts(&bytes)?;
    let (network, outputs) = graph.network()?;
    Ok(Stored {
        network,
        outputs,
        tensors,
        bytes,
    })
}

/// A network of the JSON that a file has in its metadata ([`Stored::json`], [`network_to_json`](super::network_to_json)), and its outputs
/// with their names.
///
/// ```
/// use flashcliff_network::file::{network_from_json, network_to_json};
/// use flashcliff_network::{Activation, Axis, Network};
///
/// let mut network = Network::new();
/// let x = network.features("x", &[Axis::Fixed(1), Axis::Rows, Axis::Fixed(3)]);
/// let y = network.activation(x, Activation::Silu)?;
/// let (again, outputs) = network_from_json(&network_to_json(&network, &[("y", y)])?)?;
/// assert_eq!(again.to_string(), network.to_string());
/// assert_eq!(outputs[0].0, "y");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of [`read`], except the errors of parameters.
pub fn network_from_json(text: &str) -> Result<(Network, Vec<(String, Value)>), Error> {
    let graph = graph(text)?;
    for parameter in &graph.parameters {
        check_elements(parameter.shape.iter().copied())?;
    }
    graph.network()
}

/// Whether two shapes differ by axes of one element at most, which change neither elements nor their order.
///
/// ```
/// use flashcliff_network::file::same_elements;
///
/// assert!(same_elements(&[5, 1, 3], &[5, 3]) && same_elements(&[1], &[]));
/// assert!(!same_elements(&[5, 3], &[3, 5]) && !same_elements(&[15], &[5, 3]));
/// ```
pub fn same_elements(a: &[usize], b: &[usize]) -> bool {
    let others = |shape: &[usize]| -> Vec<usize> {
        let sizes = shape.iter().copied();
        sizes.filter(|&size| size != 1).collect()
    };
    others(a) == others(b)
}

/// The JSON of a network in a file.
fn text(bytes: &[u8]) -> Result<String, Error> {
    let (_, metadata) = SafeTensors::read_metadata(bytes)?;
    let text = metadata.metadata().as_ref().and_then(|own| own.get(KEY));
    Ok(text.ok_or(Error::NoNetwork)?.clone())
}

/// The network as data.
fn graph(text: &str) -> Result<Graph, Error> {
    let Versioned { version } = serde_json::from_str(text)?;
    if version != u64::from(VERSION) {
        return Err(Error::Version {
            expected: VERSION,
            got: version,
        });
    }
    let graph: Graph = serde_json::from_str(text)?;
    graph.check_names()?;
    Ok(graph)
}

/// The network as data, and the places of its parameters.
fn parts(bytes: &[u8]) -> Result<(Graph, Vec<Elements>), Error> {
    let graph = graph(&text(bytes)?)?;
    // Parameters are compared with the file before anything is made of their sizes.
    let file = SafeTensors::deserialize(bytes)?;
    let places = graph.parameters.iter();
    let places = places.map(|parameter| parameter.place(bytes, &file));
    let places = places.collect::<Result<_, Error>>()?;
    Ok((graph, places))
}

impl ParameterRecord {
    /// The type of the parameter, and the place of its elements.
    fn place(&self, bytes: &[u8], file: &SafeTensors<'_>) -> Result<Elements, Error> {
        let tensor = file.tensor(&self.name).map_err(|_| Error::NoTensor {
            name: self.name.clone(),
        })?;
        if !same_elements(tensor.shape(), &self.shape) {
            return Err(Error::Shape {
                name: self.name.clone(),
                expected: self.shape.clone(),
                got: tensor.shape().to_vec(),
            });
        }
        check_elements(self.shape.iter().copied())?;
        let start = tensor.data().as_ptr().addr() - bytes.as_ptr().addr();
        Ok((self.dtype(&tensor)?, start..start + tensor.data().len()))
    }

    fn dtype(&self, tensor: &TensorView<'_>) -> Result<Dtype, Error> {
        match tensor.dtype() {
            safetensors::Dtype::F32 => Ok(Dtype::F32),
            safetensors::Dtype::F64 => Ok(Dtype::F64),
            other => Err(Error::Type {
                name: self.name.clone(),
                got: format!("{other:?}"),
            }),
        }
    }
}

impl Graph {
    /// The network, made anew, and its outputs.
    fn network(&self) -> Result<(Network, Vec<(String, Value)>), Error> {
        let lists = self.lists()?;
        let mut network = Network::new();
        for (at, relation) in self.relations.iter().enumerate() {
            let [from, to] = relation.axes()?;
            let made = network.relation(&relation.name, from, to);
            made.map_err(Error::of_part("relation", at))?;
        }
        for input in &self.inputs {
            match input.features {
                true => network.features(&input.name, &input.axes()?),
                false => network.input(&input.name, &input.axes()?),
            };
        }
        for parameter in &self.parameters {
            network.parameter(&parameter.name, &parameter.shape);
        }
        for (at, node) in self.nodes.iter().enumerate() {
            if node.begins_block {
                network.block();
            }
            let inputs = node.inputs.iter().map(|&input| value(&network, input));
            let inputs = inputs.collect::<Result<Vec<Value>, Error>>()?;
            node.work.add(at, &mut network, &inputs, &lists)?;
        }
        let outputs = self.outputs.iter();
        let outputs =
            outputs.map(|output| Ok((output.name.clone(), value(&network, output.value)?)));
        let outputs = outputs.collect::<Result<_, Error>>()?;
        Ok((network, outputs))
    }

    /// The operators and geometries.
    fn lists(&self) -> Result<Lists, Error> {
        let operators = self.operators.iter().enumerate();
        let geometries = self.geometries.iter().enumerate();
        let geometries = geometries.map(|(at, own)| {
            let geometry = own.geometry();
            geometry.map_err(Error::of_part("geometry", at))
        });
        Ok(Lists {
            operators: operators
                .map(|(at, own)| own.operator(at))
                .collect::<Result<_, Error>>()?,
            geometries: geometries.collect::<Result<_, Error>>()?,
        })
    }
}

/// A value that is there already: nodes read what is made before them.
fn value(network: &Network, at: usize) -> Result<Value, Error> {
    find("values", &network.values, at)?;
    Ok(Value(at))
}

impl Stored {
    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The network without its weights, as JSON, of which [`network_from_json`] makes it again.
    ///
    /// # Errors
    /// None, for bytes that were read.
    pub fn json(&self) -> Result<String, Error> {
        text(&self.bytes)
    }

    /// The outputs, with their names.
    pub fn outputs(&self) -> &[(String, Value)] {
        &self.outputs
    }

    /// The type of each parameter, `f32` or `f64`, in the order of [`Network::parameters`].
    pub fn types(&self) -> impl ExactSizeIterator<Item = Dtype> {
        self.tensors.iter().map(|&(dtype, _)| dtype)
    }

    /// The elements of each parameter, in the order of [`Network::parameters`].
    ///
    /// # Errors
    /// [`Error::Conversion`] for a parameter of another type than `T`, unless it may be converted.
    pub fn parameters<T: Number>(&self, conversion: Conversion) -> Result<Vec<Vec<T>>, Error> {
        let names = self.network.parameters().iter();
        let names = names.map(|&value| self.network.name(value));
        let all = names.zip(&self.tensors).map(|(name, (dtype, place))| {
            if *dtype != T::DTYPE && conversion == Conversion::None {
                return Err(Error::Conversion {
                    name: name.to_owned(),
                    expected: T::DTYPE,
                    got: *dtype,
                });
            }
            Ok(elements(*dtype, &self.bytes[place.clone()]))
        });
        all.collect()
    }
}

/// Numbers of a type.
fn elements<T: Number>(dtype: Dtype, bytes: &[u8]) -> Vec<T> {
    match dtype {
        Dtype::F32 => {
            let numbers = bytes.as_chunks().0.iter();
            numbers
                .map(|&number| T::from_f64(f32::from_le_bytes(number).into()))
                .collect()
        }
        _ => {
            let numbers = bytes.as_chunks().0.iter();
            numbers
                .map(|&number| T::from_f64(f64::from_le_bytes(number)))
                .collect()
        }
    }
}
