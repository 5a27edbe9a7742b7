//! The errors of this crate.

use std::path::PathBuf;

use candle_core::DType;

/// The reason why a call of this crate failed.
///
/// Functions that take part in a candle graph return [`candle_core::Error`], into which this type
/// converts with its text kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the core: an unsupported algebra, a shape that does not fit, ...
    #[error(transparent)]
    Core(#[from] flashcliff::Error),

    /// An error of a network. Errors of its operators are [`Error::Core`].
    #[error(transparent)]
    Network(flashcliff_network::Error),

    /// A network that a file cannot have.
    #[error(transparent)]
    NetworkFile(#[from] flashcliff_network::file::Error),

    /// An error of candle.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),

    /// Ranks of a run on several GPUs cannot work together.
    #[error(transparent)]
    Distributed(#[from] crate::distributed::Fault),

    /// A step that is put together from windows has other marks than the others.
    #[error(
        "timeline: expected steps with {expected} marks each, got one with {got}; only equal steps can be put together"
    )]
    OtherStep {
        /// The marks of the step that was recorded first.
        expected: usize,
        /// The marks of this step.
        got: usize,
    },

    /// An operator got a wrong number of tensors.
    #[error("{operator}: expected {expected} input tensors, got {got}")]
    InputCount {
        /// The name of the operator.
        operator: String,
        /// The number of inputs that the operator takes.
        expected: usize,
        /// The number of inputs that were given.
        got: usize,
    },

    /// A tensor has an element type that the operator cannot use.
    #[error("{operator}: expected input {input} of type {expected}, got {got:?}")]
    InputType {
        /// The name of the operator.
        operator: String,
        /// The position of the input.
        input: usize,
        /// The types that the operator takes.
        expected: &'static str,
        /// The type that was given.
        got: DType,
    },

    /// A tensor lives on a device that the operator cannot reach.
    #[error("{operator}: expected input {input} on {expected}, got {got:?}")]
    InputDevice {
        /// The name of the operator.
        operator: String,
        /// The position of the input.
        input: usize,
        /// The devices that the operator takes.
        expected: &'static str,
        /// The device of the tensor.
        got: candle_core::DeviceLocation,
    },

    /// The program was asked for a GPU, but was built without CUDA.
    #[error(
        "this program was built without CUDA; build it with the feature `cuda` (cargo build --release --features cuda) to use a GPU"
    )]
    BuiltWithoutCuda,

    /// A shared library that candle needs on a GPU cannot be loaded.
    #[error("candle needs {library} on a GPU, which cannot be loaded: {tried}")]
    CudaLibrary {
        /// The library.
        library: &'static str,
        /// The places that were tried, with the messages of the loader.
        tried: String,
    },

    /// A tensor has the wrong shape.
    #[error("{tensor}: expected shape {expected}, got {got:?}")]
    Shape {
        /// A description of the tensor, or its name in a file.
        tensor: String,
        /// The shape that was expected.
        expected: String,
        /// The shape that was given.
        got: Vec<usize>,
    },

    /// A tensor has the wrong element type.
    #[error("{tensor}: expected type {expected}, got {got:?}")]
    TensorType {
        /// A description of the tensor.
        tensor: String,
        /// The types that were expected.
        expected: &'static str,
        /// The type that was given.
        got: DType,
    },

    /// Offsets do not cut the items of a ragged batch into sequences.
    #[error("offset {at} of sequences: expected {expected}, got {got}")]
    Offsets {
        /// The position among the offsets.
        at: usize,
        /// The number that was expected.
        expected: String,
        /// The number that was given.
        got: String,
    },

    /// Tokens attend in a way that a layer does not have.
    #[error("{layer}: expected a scope of {expected}, got {got}")]
    Scope {
        /// The name of the layer.
        layer: String,
        /// The scopes that the layer has.
        expected: &'static str,
        /// The scope that was given.
        got: &'static str,
    },

    /// An algebra lacks what a choice of a geometry needs.
    #[error("{choice}: expected {expected}, got {got}")]
    Geometry {
        /// The choice.
        choice: &'static str,
        /// The algebras that have it.
        expected: &'static str,
        /// The algebra that was given.
        got: String,
    },

    /// A stored tensor has the wrong element type.
    #[error("{tensor}: expected type {expected:?}, got {got:?}")]
    StoredType {
        /// Name in the file.
        tensor: String,
        /// Type of the parameter.
        expected: DType,
        /// Type in the file.
        got: DType,
    },

    /// The stored weights of a layer belong to another algebra or another norm.
    #[error(
        "{layer}: expected weights of {choice} {expected}, got weights of {choice} {got}; make the layer with \
         {choice} {got}"
    )]
    StoredChoice {
        /// Name of the layer in the file.
        layer: String,
        /// The name of the choice: `algebra`, `norm`, `invariant`.
        choice: String,
        /// Choice of the layer.
        expected: String,
        /// Choice in the file.
        got: String,
    },

    /// A checkpoint lacks a tensor.
    #[error("checkpoint has no tensor `{tensor}`")]
    MissingTensor {
        /// Name that was looked for.
        tensor: String,
    },

    /// A file is not a complete checkpoint.
    #[error("{}: expected a complete safetensors file, got {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The mistake in the file.
        reason: String,
    },

    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },

    /// A file could not be written. If there was an old file, it is untouched.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },

    /// A file may not be written. Its permission bits decide, also for root: see [`crate::output_file`].
    #[error(
        "cannot write {}: expected a file that this user may write, got one of mode {mode:03o} that belongs to user {owner}; \
         make it writable, remove it, or choose another",
        path.display()
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// The permission bits of the file.
        mode: u32,
        /// The number of the user who owns the file.
        owner: u32,
    },

    /// A path names a file that is there, and would be lost.
    #[error("{} exists: expected a name that no file has", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },

    /// A path names something that cannot be written to.
    #[error("cannot write {}: expected a file, a FIFO or a character device, got a {kind}", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// The thing that the path names.
        kind: &'static str,
    },

    /// The names and the texts of a checkpoint are longer than readers of safetensors accept.
    #[error(
        "cannot write {}: expected names of tensors and texts of at most {expected} bytes together, got {got}; keep long lists as tensors",
        path.display()
    )]
    Header {
        /// The file.
        path: PathBuf,
        /// The most bytes that a file may have of them.
        expected: usize,
        /// The bytes that there are.
        got: usize,
    },

    /// Training with features of 16 bits is not possible here.
    #[error("features of type {features}: expected {expected}, got {got}; {advice}")]
    Features {
        /// The type of the features.
        features: &'static str,
        /// What they need.
        expected: &'static str,
        /// What there is.
        got: String,
        /// The way out.
        advice: &'static str,
    },

    /// A function that runs again in the backward pass did not do the same as before.
    #[error(
        "recomputed: expected {expected}, got {got}; the function must do the same whenever it is called"
    )]
    Recomputed {
        /// The result of the first run.
        expected: String,
        /// The result of the second run.
        got: String,
    },

    /// A loss is made of a gradient whose own gradient does not exist.
    #[error(
        "{operator}: expected no loss on its gradient, since it has no second derivatives here; call detach() on a gradient that is a constant of \
         a loss; for a loss on forces let the network predict them as vectors, or take them by op::gradients, which says what has further derivatives"
    )]
    SecondDerivative {
        /// The name of the operator; of a network, with the step that ends its derivatives.
        operator: String,
    },

    /// candle takes gradients out of the graph, so they cannot be differentiated again.
    #[error(
        "gradients: expected candle to keep the graph of gradients, which it does where CANDLE_GRAD_DO_NOT_DETACH=1 is set before the program starts"
    )]
    DetachedGradients,

    /// No parameter of an optimiser has a gradient.
    #[error(
        "Adam: expected the gradient of at least one of its {parameters} parameters, got none; the loss must depend on them, and not through a \
         gradient, since there are no second derivatives"
    )]
    NoGradients {
        /// The number of parameters.
        parameters: usize,
    },

    /// A variable, or a name, stands twice in a list of variables.
    #[error("{owner}: expected {expected}, got {got}")]
    Repeated {
        /// What the list is for.
        owner: &'static str,
        /// What the list should have.
        expected: &'static str,
        /// The variable or the name that stands there twice.
        got: String,
    },

    /// An optimiser and an objective have different scales of the loss.
    #[error(
        "Adam: expected an objective with {expected} of the loss, got one with {got}; make the objective with the `loss_scale` of the \
         optimiser among its options"
    )]
    LossScale {
        /// The scale of the optimiser.
        expected: &'static str,
        /// The scale of the objective.
        got: &'static str,
    },

    /// An option is outside its range.
    #[error("{option}: expected {expected}, got {got}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// The range of the option.
        expected: &'static str,
        /// The value that was given.
        got: f64,
    },
}

/// Errors that a layer has too become the errors of the layer.
impl From<flashcliff_network::Error> for Error {
    fn from(error: flashcliff_network::Error) -> Self {
        use flashcliff_network::Error as Of;
        match error {
            Of::Core(error) => Self::Core(error),
            Of::Geometry {
                choice,
                expected,
                got,
            } => Self::Geometry {
                choice,
                expected,
                got,
            },
            Of::Option {
                option,
                expected,
                got,
            } => Self::Option {
                option,
                expected,
                got,
            },
            other => Self::Network(other),
        }
    }
}

impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Candle(error) => error,
            other => candle_core::Error::wrap(other),
        }
    }
}
