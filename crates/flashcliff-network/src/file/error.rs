//! The errors of files.

use std::path::PathBuf;

use flashcliff::Dtype;

/// The reason why a network could not be stored or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that cannot be read or written.
    #[error("{}: {source}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },

    /// A writer that cannot be written to.
    #[error("the file: {0}")]
    Write(#[from] std::io::Error),

    /// Bytes that are not a complete safetensors file.
    #[error("expected a complete safetensors file, got {0}")]
    Container(#[from] safetensors::SafeTensorError),

    /// A safetensors file of something else.
    #[error(
        "expected metadata with the key `flashcliff_network`, got none: the file has tensors and no network"
    )]
    NoNetwork,

    /// A format of another version of the library.
    #[error(
        "expected a network of format {expected}, got format {got}: use the version of flashcliff that wrote it, or store the network again"
    )]
    Version {
        /// The format that this version has.
        expected: u32,
        /// The format of the file.
        got: u64,
    },

    /// JSON that is not a network: an unknown node, a number in the place of a list, ...
    #[error("the network: {0}")]
    Graph(#[from] serde_json::Error),

    /// A number of something that the file does not have, or has further on.
    #[error("{what}: expected a number below {count}, got {got}")]
    Reference {
        /// What the number is of.
        what: &'static str,
        /// How many there are before.
        count: usize,
        /// The number.
        got: usize,
    },

    /// A size beyond what files may have.
    #[error("{what}: expected at most {most}, got {got}")]
    Size {
        /// The size.
        what: &'static str,
        /// The largest one.
        most: usize,
        /// The size of the file.
        got: usize,
    },

    /// A size of 0 where something must be.
    #[error("{what}: expected at least 1, got 0")]
    Empty {
        /// The size.
        what: &'static str,
    },

    /// A geometry, an operator or a node that cannot be made.
    #[error("{what} {index}: {source}")]
    Part {
        /// A geometry, an operator, or a node.
        what: &'static str,
        /// Its number in the file.
        index: usize,
        /// Why.
        source: Box<crate::Error>,
    },

    /// An operator that computes something else than the one that was stored.
    #[error(
        "operator {index}, `{name}`: expected a program of digest {expected}, got {got}: the formula has changed since the network was stored"
    )]
    Digest {
        /// Its number in the file.
        index: usize,
        /// Its name.
        name: String,
        /// The digest in the file.
        expected: String,
        /// The digest of the operator here.
        got: String,
    },

    /// Expressions that are not in the form that programs have.
    #[error(
        "the program `{program}`: expression {expression} is not in the form that a program has: operands come first, each expression once"
    )]
    Expression {
        /// The program.
        program: String,
        /// The number of the expression.
        expression: usize,
    },

    /// A name twice, or one that tensors cannot have.
    #[error("{what}: expected names that are there once, got `{name}`")]
    Name {
        /// Inputs, parameters or outputs.
        what: &'static str,
        /// The name.
        name: String,
    },

    /// A parameter that the file does not have.
    #[error("expected the tensor `{name}`, got none of this name")]
    NoTensor {
        /// The parameter.
        name: String,
    },

    /// A parameter of another shape.
    #[error("the tensor `{name}`: expected the shape {expected:?}, got {got:?}")]
    Shape {
        /// The parameter.
        name: String,
        /// The shape that the network has.
        expected: Vec<usize>,
        /// The shape of the tensor.
        got: Vec<usize>,
    },

    /// A tensor of a type that parameters cannot have.
    #[error("the tensor `{name}`: expected F32 or F64, got {got}")]
    Type {
        /// The parameter.
        name: String,
        /// The type, as safetensors names it.
        got: String,
    },

    /// A parameter of another type than was asked for, without leave to convert it.
    #[error(
        "the tensor `{name}`: expected {expected}, got {got}: ask for that type, or for a conversion"
    )]
    Conversion {
        /// The parameter.
        name: String,
        /// The type that was asked for.
        expected: Dtype,
        /// The type of the tensor.
        got: Dtype,
    },

    /// Data whose length does not fit the parameters of the network.
    #[error("{what}: expected {expected} elements, got {got}")]
    Length {
        /// A parameter, or the list of them.
        what: String,
        /// The elements of the network's.
        expected: usize,
        /// The elements of the caller's.
        got: usize,
    },

    /// An output that files cannot have, or that needs something that they cannot have.
    #[error("{what} cannot be stored: {reason}")]
    NotStored {
        /// The value, the node or the operator.
        what: String,
        /// Why.
        reason: &'static str,
    },
}

impl Error {
    /// Why a part of a file cannot be made.
    pub(super) fn of_part<E: Into<crate::Error>>(
        what: &'static str,
        index: usize,
    ) -> impl Fn(E) -> Self {
        move |source| Self::Part {
            what,
            index,
            source: Box::new(source.into()),
        }
    }
}
