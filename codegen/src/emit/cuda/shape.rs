//! The fixed facts of a kernel, which the host needs to launch it.

/// The facts of a program in one arithmetic: the fields of `fc_shape` in `flashcliff-sys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The channels that a thread computes together.
    pub lanes: usize,
    /// The largest number of threads of a CTA.
    pub threads: usize,
    /// Whether parameters are kept in shared memory, not in registers.
    pub params_shared: bool,
    /// The components of each lane tensor that is read; 0 for one that no stage reads.
    pub inputs: Vec<usize>,
    /// The components of each lane tensor that is written.
    pub outputs: Vec<usize>,
    /// The elements of each parameter, for one channel.
    pub params: Vec<usize>,
    /// The row sums that are read.
    pub saved_row_sums: usize,
    /// The row sums that are computed.
    pub row_sums: usize,
    /// The stages that compute row sums, each of which needs the row sums before it.
    pub reductions: usize,
    /// The sums over the batch of each result that is one, for one channel.
    pub sums: Vec<usize>,
    /// The inputs, outputs, parameters and sums of the scalar channels, as sets of bits.
    pub scalars: [u32; 4],
    /// The row values. Their places come after the places of the lane tensors that are read.
    pub row_values: usize,
    /// The totals of rows. Their places come after the places of the lane tensors that are written.
    pub totals: usize,
    /// Whether lanes depend on neither each other nor their channel.
    pub is_pointwise: bool,
}
