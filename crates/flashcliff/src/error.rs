//! The errors of this crate.

use cayley::{GradeSet, Signature};

use crate::{Dtype, Tier, UnknownOption};

/// An error of this crate. Every check happens before any tensor is written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operator has no result for these operand grades, or takes all grades only.
    #[error(
        "{operator} of {signature}: no such operator between grades ({left}) and ({right}), expected {expected}"
    )]
    UnsupportedGrades {
        /// The operator.
        operator: String,
        /// The algebra.
        signature: Signature,
        /// The grades asked for.
        left: GradeSet,
        /// The grades asked for.
        right: GradeSet,
        /// The grades that the operator takes.
        expected: &'static str,
    },
    /// A program that cannot be an operator.
    #[error("{reason}")]
    UnsupportedProgram {
        /// The program, what was expected, and what came.
        reason: String,
    },
    /// An algebra with more dimensions than the operator has formulas for.
    #[error("{operator}: expected an algebra of at most {expected} dimensions, got {signature}")]
    TooManyDimensions {
        /// The operator.
        operator: &'static str,
        /// The algebra.
        signature: Signature,
        /// The most dimensions.
        expected: usize,
    },
    /// A grade set that does not belong to the algebra.
    #[error(transparent)]
    Algebra(#[from] cayley::Error),
    /// The data of a tensor does not fill its shape.
    #[error("a tensor of shape {shape:?} holds {expected} elements, got {got}")]
    LengthMismatch {
        /// The shape.
        shape: Vec<usize>,
        /// The elements of the shape.
        expected: usize,
        /// The elements given.
        got: usize,
    },
    /// A shape whose number of elements does not fit the address space, or of more than 4 axes.
    #[error(
        "shape {shape:?} is too large: expected at most 4 axes, and as many elements as memory can have addresses"
    )]
    ShapeTooLarge {
        /// The shape.
        shape: Vec<usize>,
    },
    /// An array of ndarray whose elements do not lie one after the other in row-major order.
    #[cfg(feature = "ndarray")]
    #[error(
        "an array must be contiguous in row-major order, got shape {shape:?} with strides {strides:?}; \
         `as_standard_layout` copies it where needed"
    )]
    NotStandardLayout {
        /// The shape.
        shape: Vec<usize>,
        /// The strides, in elements.
        strides: Vec<isize>,
    },
    /// A tensor has the wrong shape.
    #[error("{operator}: tensor `{tensor}` must be {expected}, got {got:?}")]
    ShapeMismatch {
        /// The operator.
        operator: String,
        /// The name of the tensor.
        tensor: String,
        /// The shape wanted.
        expected: String,
        /// The shape given.
        got: Vec<usize>,
    },
    /// The wrong number of tensors.
    #[error("{operator}: expected {expected} {what} ({names}), got {got}")]
    TensorCount {
        /// The operator.
        operator: String,
        /// `inputs` or `gradients`.
        what: &'static str,
        /// How many tensors the operator takes.
        expected: usize,
        /// The names of these tensors.
        names: String,
        /// How many were given.
        got: usize,
    },
    /// A saved-statistics or workspace buffer of the wrong length.
    #[error("{operator}: the {buffer} buffer must hold at least {expected} elements, got {got}")]
    BufferTooSmall {
        /// The operator.
        operator: String,
        /// `saved` or `workspace`.
        buffer: &'static str,
        /// The elements needed.
        expected: usize,
        /// The elements given.
        got: usize,
    },
    /// A workspace on a device that is too small.
    #[error("{operator}: the workspace must hold at least {expected} bytes, got {got}")]
    WorkspaceTooSmall {
        /// The operator.
        operator: String,
        /// The bytes needed.
        expected: usize,
        /// The bytes given.
        got: usize,
    },
    /// A call needs more memory than there is. Nothing was computed.
    #[error(
        "{what} needs {} of memory: expected that much to be available, got {}; {remedy}",
        crate::memory::in_words(u128::from(*wanted)),
        available.map_or_else(
            || "less by a limit of this process".to_owned(),
            |bytes| crate::memory::in_words(u128::from(bytes))
        )
    )]
    OutOfMemory {
        /// The call.
        what: String,
        /// The bytes that the call takes, or the largest number if there are more.
        wanted: u64,
        /// The bytes that are available, if the system tells.
        available: Option<u64>,
        /// The advice to the caller.
        remedy: String,
    },
    /// An operator cannot add to the gradient of its first input.
    #[error(
        "expected mv_linear, the only operator that adds to a gradient, got {operator}; let the others write, and add the results"
    )]
    NotAdded {
        /// The name of the operator.
        operator: String,
    },
    /// An operator without a derivative that is an operator.
    #[error("{operator}: no {what} as an operator: {reason}")]
    NotDifferentiable {
        /// The name of the operator.
        operator: String,
        /// The derivative: `gradient` or `tangent`.
        what: String,
        /// The reason.
        reason: String,
    },
    /// A derivative without a backward pass.
    #[error("{operator}: no backward pass: {reason}")]
    NoBackwardPass {
        /// The name of the operator.
        operator: String,
        /// The reason.
        reason: String,
    },
    /// An operator whose symmetry cannot be measured.
    #[error("{operator}: its symmetry cannot be measured: {reason}")]
    NotMeasured {
        /// The name of the operator.
        operator: String,
        /// What was expected of the operator, and what came.
        reason: String,
    },
    /// A call of other sizes or types than those that weights were packed for.
    #[error(
        "{operator}: expected the sizes and types that weights were packed for, {expected}, got {got}"
    )]
    NotPacked {
        /// The operator.
        operator: String,
        /// The sizes and types that weights were packed for.
        expected: String,
        /// The sizes and types of the call.
        got: String,
    },
    /// An option that is not a number the operator can use.
    #[error("{option} must be {expected}, got {got}")]
    InvalidOption {
        /// The option.
        option: &'static str,
        /// The values that the option takes.
        expected: &'static str,
        /// The value that was given.
        got: f64,
    },
    /// A name that no option has.
    #[error(transparent)]
    UnknownOption(#[from] UnknownOption),
    /// A setting by a name that the operator does not have.
    #[error("{operator} has no setting `{got}`: expected {expected}")]
    UnknownSetting {
        /// The operator.
        operator: String,
        /// The settings that it has.
        expected: String,
        /// The name given.
        got: String,
    },
    /// A setting by name that is given twice.
    #[error("{operator}: expected the setting `{setting}` once, got {got}: leave one out")]
    RepeatedSetting {
        /// The operator.
        operator: String,
        /// The setting.
        setting: String,
        /// The first two values given.
        got: String,
    },
    /// A setting by name with a value of another kind.
    #[error("the setting {setting} must be {expected}, got {got}")]
    SettingKind {
        /// The setting.
        setting: &'static str,
        /// The kind of value that the setting takes.
        expected: &'static str,
        /// The value given.
        got: String,
    },
    /// An environment variable with an invalid value.
    #[error("the environment variable {variable} must be {expected}, got `{got}`")]
    Environment {
        /// The variable.
        variable: &'static str,
        /// The values that the variable takes.
        expected: String,
        /// The value that was found.
        got: String,
    },
    /// The system refuses to start threads.
    #[error(
        "cannot start {threads} threads: {reason}; ask for fewer, by RAYON_NUM_THREADS or OMP_NUM_THREADS for example"
    )]
    Threads {
        /// How many threads were to be started.
        threads: usize,
        /// The message of the system.
        reason: String,
    },
    /// A SIMD tier that this CPU does not have.
    #[error("the CPU does not support the {tier:?} tier; available: {available}")]
    TierUnavailable {
        /// The tier.
        tier: Tier,
        /// The tiers that the CPU has.
        available: String,
    },
    /// There is no CUDA driver on this machine.
    #[error("no CUDA driver: {reason}; install the NVIDIA driver, or use the CPU")]
    NoCudaDriver {
        /// Why the driver could not be loaded.
        reason: String,
    },
    /// The CUDA driver finds no GPU.
    #[error("the CUDA driver finds no GPU that it can use: {reason}")]
    NoCudaDevice {
        /// The message of the driver.
        reason: String,
    },
    /// The CUDA driver is older than what the kernels were built with.
    #[error(
        "the CUDA driver supports CUDA {}.{}, but the kernels were built with CUDA {}.{}: update the \
         driver, or build with an older CUDA toolkit",
        driver / 1000, driver % 1000 / 10, needed / 1000, needed % 1000 / 10
    )]
    CudaDriverTooOld {
        /// The version that the driver supports, 1000 major + 10 minor.
        driver: i32,
        /// The version of the kernels.
        needed: i32,
    },
    /// A GPU number that does not exist.
    #[error("no CUDA device {ordinal}: expected a number below {count}, the number of GPUs")]
    CudaOrdinal {
        /// The number asked for.
        ordinal: usize,
        /// How many GPUs there are.
        count: usize,
    },
    /// The kernels hold no code for the GPU.
    #[error(
        "{device} has compute capability {}.{}, but the kernels were built for {built_for}",
        capability.0, capability.1
    )]
    CudaArchitecture {
        /// The name of the GPU.
        device: String,
        /// The compute capability of the GPU.
        capability: (i32, i32),
        /// The architectures there is code for.
        built_for: String,
    },
    /// A CUDA context that is not the primary one of its device.
    #[error("the CUDA context is not the primary context of device {ordinal}")]
    CudaContext {
        /// The device of the context.
        ordinal: usize,
    },
    /// A CUDA library that is loaded at run time was not found.
    #[error("{library} could not be loaded; tried {tried}")]
    CudaLibrary {
        /// The library.
        library: &'static str,
        /// The places where the library was looked for, and the messages of the loader.
        tried: String,
    },
    /// A kernel that was to be compiled when it was first used (feature `jit`) does not compile.
    #[error("{kernel} could not be compiled for the GPU: {reason}")]
    CudaCompilation {
        /// The kernel.
        kernel: String,
        /// The messages of the compiler.
        reason: String,
    },
    /// A call of CUDA failed.
    #[error("{call} failed: {name} ({description})")]
    Cuda {
        /// The function that was called.
        call: &'static str,
        /// The name of the error code.
        name: String,
        /// The description that CUDA gives of the error.
        description: String,
    },
    /// An operator, or an element type of it, that has no CUDA implementation.
    #[error("{operator} is not available on CUDA: {reason}")]
    UnsupportedOnCuda {
        /// The operator.
        operator: String,
        /// Why there is no implementation.
        reason: String,
    },
    /// A tensor has the wrong element type.
    #[error("{operator}: tensor `{tensor}` must be {expected}, got {got}")]
    DtypeMismatch {
        /// The operator.
        operator: String,
        /// The name of the tensor.
        tensor: String,
        /// The element types it may have.
        expected: String,
        /// The element type that the tensor has.
        got: Dtype,
    },
    /// A tensor or stream of another device.
    #[error("{operator}: `{tensor}` must be on CUDA device {expected}, got device {got}")]
    DeviceMismatch {
        /// The operator.
        operator: String,
        /// The name of the tensor, or `stream`.
        tensor: String,
        /// The device of the operator.
        expected: usize,
        /// The device of the tensor.
        got: usize,
    },
    /// An address that is null, or not a multiple of the alignment that the kernels need.
    #[error(
        "{operator}: the address of `{tensor}` must be a multiple of {expected} and not null, got {got:#x}"
    )]
    BadAddress {
        /// The operator.
        operator: String,
        /// The name of the tensor or buffer.
        tensor: String,
        /// The alignment needed, in bytes.
        expected: usize,
        /// The address.
        got: u64,
    },
    /// Memory that is written overlaps other memory of the same call.
    #[error("{operator}: the memory of `{first}` and `{second}` must not overlap")]
    Aliased {
        /// The operator.
        operator: String,
        /// The name of the tensor or buffer that is written.
        first: String,
        /// The name of the tensor or buffer that it overlaps.
        second: String,
    },
    /// The file of a tuning table cannot be read, written or used.
    #[cfg(feature = "cuda")]
    #[error("tuning table: {0}")]
    TuningFile(#[from] crate::tuning_table::FileError),
}

impl Error {
    /// Renames the error of an operator, or of a program, that is a part of another operator: the error names the
    /// operator that was called. Text after the name, "with a scalar bias" for example, stays.
    #[must_use]
    pub(crate) fn of(mut self, called: &str) -> Self {
        if let Self::UnsupportedGrades { operator, .. } | Self::UnsupportedOnCuda { operator, .. } =
            &mut self
        {
            let rest = operator.find(' ').unwrap_or(operator.len());
            operator.replace_range(..rest, called);
        }
        self
    }
}
