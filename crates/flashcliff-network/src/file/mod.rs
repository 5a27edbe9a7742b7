//! A network with its weights in one file.
//!
//! The file is a [safetensors](https://huggingface.co/docs/safetensors) file. Its tensors are the parameters under
//! their names, of `f32` or `f64`, so other programs can read and write them. Their shapes may have other axes of one
//! element than the shapes in the network. The metadata has the network under the key [`KEY`], as JSON with the number
//! of its format, [`VERSION`]:
//!
//! | key | what it has |
//! |---|---|
//! | `version` | the number of the format |
//! | `geometries` | the [geometries](crate::tokens::Geometry) of steps |
//! | `operators` | table operators by algebra, name and settings, custom operators by all expressions, both with the program's digest |
//! | `inputs` | names and axes |
//! | `parameters` | names and shapes |
//! | `nodes` | what each computes, the values that it reads, and whether it begins a block |
//! | `outputs` | names, and their values |
//!
//! Values are counted through: inputs, then parameters, then the results of each node, with what it saves for its gradient.
//!
//! A file has what its outputs need: inputs, parameters and nodes that nothing stored reads are left out, and so are
//! the nodes of gradients. A network that is trained can be stored as it is, with its prediction as the output.
//! Loading runs all checks of the functions that make networks again, and compares digests, so that a file never runs
//! another formula than was stored. Operators with matrix products, and those that are zero, are no programs; their
//! names and settings say what they compute. A file that is damaged is an [`Error`], never a panic.
//!
//! * `bytes` - the bytes of a file.
//! * `graph` - the JSON as data.
//! * `operators`, `program`, `steps`, `work` - the parts of a graph, from the network and back.
//! * `save`, `load` - whole networks and their weights.
//!
//! ```
//! use flashcliff_network::file::{self, Conversion};
//! use flashcliff_network::tokens::{Channels, Geometry, Transformer};
//!
//! let (ends, hidden) = (Channels::new(1, 1), Channels::new(8, 8));
//! let options = Transformer { blocks: 1, ..Transformer::new(Geometry::gatr()?, ends, ends, hidden) };
//! let (network, ends) = options.network()?;
//! let zeros = |value| vec![0.0_f32; network.shape(value).unwrap_or_default().iter().map(|axis| axis.size(1)).product()];
//! let parameters: Vec<Vec<f32>> = network.parameters().iter().map(|&value| zeros(value)).collect();
//! let slices: Vec<&[f32]> = parameters.iter().map(Vec::as_slice).collect();
//!
//! let mut bytes = Vec::new();
//! file::write(&mut bytes, &network, &[("y", ends.output)], &slices)?;
//! let stored = file::read(bytes)?;
//! assert_eq!(stored.outputs()[0].0, "y");
//! assert_eq!(stored.parameters::<f32>(Conversion::None)?, parameters);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bytes;
mod error;
mod graph;
mod load;
mod operators;
mod program;
mod save;
mod steps;
mod work;

pub use bytes::bytes_of;
pub use error::Error;
pub use load::{Conversion, Stored, load, network_from_json, read, same_elements};
pub use operators::{operator_from_json, operator_to_json};
pub use save::{network_to_json, save, write};

/// The number of the format that this version of the library writes and reads.
pub const VERSION: u32 = 1;

/// The key of the network in the metadata of a file.
pub const KEY: &str = "flashcliff_network";
