//! Tensors from and to safetensors files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flashcliff::Element;
use flashcliff_candle::checkpoint::bytes_of;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::error::Error;
use crate::memory::room_for;

/// Name of the gradient of the output in an input file.
pub(super) const GRAD_OUTPUT: &str = "grad_o";

/// How often a result is in memory at most: as numbers, as bytes, and in the file.
pub(super) const COPIES: u128 = 3;

/// An element type of a file: little-endian bytes.
pub(crate) trait Stored: Element + candle_core::WithDType {
    /// Its name in safetensors.
    const TYPE: Dtype;

    /// The elements of a tensor's bytes, which need not be aligned.
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;

    /// The bytes of some elements.
    fn to_bytes(elements: &[Self]) -> Vec<u8>;
}

macro_rules! stored {
    ($type:ident, $dtype:ident) => {
        impl Stored for $type {
            const TYPE: Dtype = Dtype::$dtype;

            fn from_bytes(bytes: &[u8]) -> Vec<Self> {
                let (elements, _) = bytes.as_chunks();
                elements
                    .iter()
                    .map(|&bytes| Self::from_le_bytes(bytes))
                    .collect()
            }

            fn to_bytes(elements: &[Self]) -> Vec<u8> {
                elements
                    .iter()
                    .flat_map(|element| element.to_le_bytes())
                    .collect()
            }
        }
    };
}

stored!(f32, F32);
stored!(f64, F64);

/// An array with its shape.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Array<T> {
    pub(super) shape: Vec<usize>,
    pub(super) data: Vec<T>,
}

/// A safetensors file in memory.
#[derive(Debug)]
pub(super) struct TensorFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl TensorFile {
    /// Reads a file and checks that it is complete.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::NotSafetensors`], [`flashcliff::Error::OutOfMemory`].
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let bytes = bytes_of(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        // The numbers are copied from the bytes.
        let what = format!("{}: reading its tensors", path.display());
        room_for(what, bytes.len() as u128)?;
        let file = Self {
            path: path.to_owned(),
            bytes,
        };
        file.view()?;
        Ok(file)
    }

    /// Checks names and element types: exactly the tensors of an operator, all f32 or all f64. A `grad_o` is required
    /// if `grad`, and allowed else.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::UnexpectedTensor`], [`Error::TensorType`].
    pub(super) fn check(&self, names: &[String], grad: bool) -> Result<flashcliff::Dtype, Error> {
        let file = self.view()?;
        let mut required: Vec<&str> = names.iter().map(String::as_str).collect();
        if grad {
            required.push(GRAD_OUTPUT);
        }
        let expected = required.join(", ");
        for &name in &required {
            if file.tensor(name).is_err() {
                return Err(Error::MissingTensor {
                    path: self.path.clone(),
                    tensor: name.to_owned(),
                    expected,
                });
            }
        }
        let mut found: Vec<&str> = file.names();
        found.sort_unstable();
        if let Some(name) = found
            .iter()
            .find(|name| !required.contains(name) && **name != GRAD_OUTPUT)
        {
            return Err(Error::UnexpectedTensor {
                path: self.path.clone(),
                tensor: (*name).to_owned(),
                expected,
            });
        }
        let mut dtype: Option<(Dtype, &str)> = None;
        for name in required {
            let got = self.tensor(&file, name)?.dtype();
            let expected = match dtype {
                None if matches!(got, Dtype::F32 | Dtype::F64) => {
                    dtype = Some((got, name));
                    continue;
                }
                None => "F32 or F64".to_owned(),
                Some((first, _)) if first == got => continue,
                Some((first, of)) => format!("{first}, the type of `{of}`"),
            };
            return Err(Error::TensorType {
                path: self.path.clone(),
                tensor: name.to_owned(),
                expected,
                got: got.to_string(),
            });
        }
        Ok(match dtype {
            Some((Dtype::F64, _)) => flashcliff::Dtype::F64,
            _ => flashcliff::Dtype::F32,
        })
    }

    /// One tensor.
    ///
    /// # Errors
    /// None after [`Self::check`].
    pub(super) fn array<T: Stored>(&self, name: &str) -> Result<Array<T>, Error> {
        let file = self.view()?;
        let tensor = self.tensor(&file, name)?;
        Ok(Array {
            shape: tensor.shape().to_vec(),
            data: T::from_bytes(tensor.data()),
        })
    }

    fn view(&self) -> Result<SafeTensors<'_>, Error> {
        SafeTensors::deserialize(&self.bytes).map_err(|source| self.not_safetensors(source))
    }

    fn tensor<'a>(&self, file: &SafeTensors<'a>, name: &str) -> Result<TensorView<'a>, Error> {
        file.tensor(name)
            .map_err(|source| self.not_safetensors(source))
    }

    fn not_safetensors(&self, source: SafeTensorError) -> Error {
        Error::NotSafetensors {
            path: self.path.clone(),
            source,
        }
    }
}

/// Results on their way to a file, by name.
#[derive(Debug, Default)]
pub(crate) struct Results {
    tensors: BTreeMap<String, Raw>,
}

#[derive(Debug)]
struct Raw {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Results {
    /// Adds a tensor.
    pub(crate) fn insert<T: Stored>(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        data: &[T],
    ) {
        let raw = Raw {
            dtype: T::TYPE,
            shape: shape.to_vec(),
            bytes: T::to_bytes(data),
        };
        self.tensors.insert(name.into(), raw);
    }

    /// The bytes of a safetensors file; they depend on the contents only.
    ///
    /// # Errors
    /// Sizes that the format cannot hold.
    pub(crate) fn serialize(&self) -> Result<Vec<u8>, Error> {
        safetensors::serialize(&self.tensors, None).map_err(|source| Error::NotSafetensors {
            path: PathBuf::from("output"),
            source,
        })
    }
}

impl safetensors::View for &Raw {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}
