//! Checkpoints: named tensors and text in one safetensors file, written atomically.
//!
//! Beside the tensors a file says what the weights of each layer belong to: `algebra`, `norm`, `invariant`. Loading
//! compares these choices with the choices of the layers; a file that does not say them is loaded like any other. A
//! file that also has the network of its weights ([`Model::description`](crate::models::Model::description)) is one of
//! [`flashcliff_network::file`], which all hosts run.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::safetensors::Load;
use candle_core::{DType, Device, Tensor};
pub use flashcliff_network::file::bytes_of;
use flashcliff_network::file::{KEY as NETWORK, same_elements};
use safetensors::SafeTensors;
use safetensors::tensor::Metadata;
use serde::Serialize;

use crate::choices::{self, Choices};
use crate::{Error, output_file};

/// The key of the text in the file's metadata.
const TEXT: &str = "flashcliff";
/// The bytes of the length of a header, of which headers are multiples.
const START: usize = 8;
/// The largest header that readers of safetensors accept.
const MOST_OF_HEADER: usize = 100_000_000;
/// The name of the text that has the choices of the layers, as JSON.
const LAYERS: &str = "layers";

/// The header of a file, with metadata in the order of their keys. That of `safetensors` changes from run to run.
#[derive(Serialize)]
struct Header<'a> {
    #[serde(rename = "__metadata__", skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<&'a str, String>,
    #[serde(flatten)]
    tensors: Metadata,
}

/// Named tensors and named texts, as read from or to be written to a file.
#[derive(Debug, Clone, Default)]
pub struct Checkpoint {
    tensors: BTreeMap<String, Tensor>,
    text: BTreeMap<String, String>,
    /// The choices of each layer.
    layers: BTreeMap<String, Choices>,
    network: Option<String>,
}

impl Checkpoint {
    /// An empty checkpoint.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor, replacing one of that name. The elements are shared, not copied: save before
    /// they change.
    pub fn insert(&mut self, name: impl Into<String>, tensor: &Tensor) {
        self.tensors.insert(name.into(), tensor.detach());
    }

    /// Adds a text, replacing one of that name. The name `layers` is taken by what [`Checkpoint::describe`] adds.
    pub fn insert_text(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.text.insert(name.into(), text.into());
    }

    /// Says what the weights of a layer belong to, such as `norm` `invariant`, replacing an earlier value.
    pub fn describe(
        &mut self,
        layer: impl Into<String>,
        choice: impl Into<String>,
        value: impl Into<String>,
    ) {
        let choices = self.layers.entry(layer.into()).or_default();
        choices.insert(choice.into(), value.into());
    }

    /// The value of a choice of a layer, if the checkpoint says it.
    pub fn described(&self, layer: &str, choice: &str) -> Option<&str> {
        let value = self.layers.get(layer)?.get(choice)?;
        Some(value)
    }

    /// Checks the choices of a layer against the choices in the checkpoint, if it has any.
    ///
    /// # Errors
    /// [`Error::StoredChoice`].
    pub(crate) fn check_choices(&self, layer: &str, own: &Choices) -> Result<(), Error> {
        match self.layers.get(layer) {
            Some(stored) => choices::check(layer, own, stored),
            None => Ok(()),
        }
    }

    /// Sets the network of the tensors, a [`Model::description`](crate::models::Model::description). Its parameters are tensors
    /// under their names.
    pub fn set_network(&mut self, description: String) {
        self.network = Some(description);
    }

    /// The network of the tensors, if the checkpoint has it.
    pub fn network(&self) -> Option<&str> {
        self.network.as_deref()
    }

    /// The tensor of that name in a shape, if its type is the expected one and its own shape differs by axes of one element at most.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::StoredType`].
    pub fn get(&self, name: &str, shape: &[usize], dtype: DType) -> Result<Tensor, Error> {
        let tensor = self.tensors.get(name).ok_or_else(|| Error::MissingTensor {
            tensor: name.to_owned(),
        })?;
        if !same_elements(tensor.dims(), shape) {
            return Err(Error::Shape {
                tensor: name.to_owned(),
                expected: format!("{shape:?}"),
                got: tensor.dims().to_vec(),
            });
        }
        if tensor.dtype() != dtype {
            return Err(Error::StoredType {
                tensor: name.to_owned(),
                expected: dtype,
                got: tensor.dtype(),
            });
        }
        Ok(tensor.reshape(shape)?)
    }

    /// All tensors, by name.
    pub fn tensors(&self) -> &BTreeMap<String, Tensor> {
        &self.tensors
    }

    /// The text of that name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.text.get(name).map(String::as_str)
    }

    /// Writes the checkpoint in the way of [`output_file`]. For a new name or an ordinary file, a reader sees the old
    /// file or the whole new one, never a part, even after a crash.
    ///
    /// The bytes depend on the contents only.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::ReadOnly`], [`Error::NotAFile`], [`Error::Header`] for more texts than a file may have, and
    /// [`Error::Candle`] if a tensor cannot be copied from its GPU. The old file is then untouched.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        output_file::write(path, &self.bytes(path)?)
    }

    /// The bytes of the file that [`Checkpoint::save`] writes. The path is that of errors.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::save`], except errors of files.
    pub fn bytes(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
        let failed = |source| Error::Write {
            path: path.as_ref().to_owned(),
            source,
        };
        let mut text = self.text.clone();
        if !self.layers.is_empty() {
            let layers = serde_json::to_string(&self.layers).map_err(|e| failed(e.into()))?;
            text.insert(LAYERS.to_owned(), layers);
        }
        let mut tensors = BTreeMap::new();
        for (name, tensor) in &self.tensors {
            // Only tensors on a GPU are copied.
            tensors.insert(name, tensor.to_device(&Device::Cpu)?);
        }
        let mut metadata = BTreeMap::new();
        if !text.is_empty() {
            let text = serde_json::to_string(&text).map_err(|e| failed(e.into()))?;
            metadata.insert(TEXT, text);
        }
        metadata.extend(self.network.clone().map(|network| (NETWORK, network)));
        let other = |e| failed(std::io::Error::other(e));
        let mut bytes = safetensors::serialize(&tensors, None).map_err(other)?;
        let (length, tensors) = SafeTensors::read_metadata(&bytes).map_err(other)?;
        let header = Header { metadata, tensors };
        let mut header = serde_json::to_vec(&header).map_err(|e| failed(e.into()))?;
        header.resize(header.len().next_multiple_of(START), b' ');
        if header.len() > MOST_OF_HEADER {
            return Err(Error::Header {
                path: path.as_ref().to_owned(),
                expected: MOST_OF_HEADER,
                got: header.len(),
            });
        }
        let start = (header.len() as u64).to_le_bytes();
        bytes.splice(..START + length, start.into_iter().chain(header));
        Ok(bytes)
    }

    /// A checkpoint of the same contents on the CPU, which later steps on a GPU do not change.
    ///
    /// # Errors
    /// [`Error::Candle`] if a tensor cannot be copied from its GPU.
    pub fn on_cpu(&self) -> Result<Self, Error> {
        let mut copy = self.clone();
        for tensor in copy.tensors.values_mut() {
            *tensor = tensor.to_device(&Device::Cpu)?;
        }
        Ok(copy)
    }

    /// Reads a checkpoint. Its tensors are on the CPU.
    ///
    /// # Errors
    /// [`Error::Read`], or [`Error::Corrupt`] if the file is not a complete safetensors file of
    /// types that candle knows.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let bytes = bytes_of(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::from_bytes(&bytes, path)
    }

    /// Reads a checkpoint from the bytes of a file. The path is that of errors.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn from_bytes(bytes: &[u8], path: impl AsRef<Path>) -> Result<Self, Error> {
        let corrupt = |reason: String| Error::Corrupt {
            path: path.as_ref().to_owned(),
            reason,
        };
        let (_, metadata) =
            SafeTensors::read_metadata(bytes).map_err(|e| corrupt(e.to_string()))?;
        let file = SafeTensors::deserialize(bytes).map_err(|e| corrupt(e.to_string()))?;
        let mut checkpoint = Self::new();
        for (name, view) in file.tensors() {
            let tensor = view
                .load(&Device::Cpu)
                .map_err(|e| corrupt(format!("tensor `{name}`: {e}")))?;
            checkpoint.tensors.insert(name, tensor);
        }
        let of_key = |key| metadata.metadata().as_ref().and_then(|map| map.get(key));
        checkpoint.network = of_key(NETWORK).cloned();
        if let Some(text) = of_key(TEXT) {
            checkpoint.text =
                serde_json::from_str(text).map_err(|e| corrupt(format!("text: {e}")))?;
        }
        if let Some(layers) = checkpoint.text.remove(LAYERS) {
            checkpoint.layers =
                serde_json::from_str(&layers).map_err(|e| corrupt(format!("{LAYERS}: {e}")))?;
        }
        Ok(checkpoint)
    }
}
