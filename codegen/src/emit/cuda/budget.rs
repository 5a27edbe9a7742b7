//! Decides how many channels a thread takes, and where parameters are kept, by the registers that a program needs.

use super::planned::Planned;

/// The number of registers for operands, results, parameters and sums over the batch. The others are for intermediate values and
/// addresses (a thread has 255).
const REGISTERS: usize = 184;

/// The choices for one program in one arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// The number of channels of a thread.
    pub(super) lanes: usize,
    /// The largest number of threads of a CTA.
    pub(super) threads: usize,
    /// Whether parameters are kept in shared memory instead of registers.
    pub(super) params_shared: bool,
}

impl Budget {
    pub(super) fn of(planned: &Planned<'_>, is_f64: bool) -> Self {
        let sum = |counts: Vec<usize>| counts.iter().sum::<usize>();
        let params = sum(planned.param_counts());
        let sums = sum(planned.sum_counts());
        let tensors = sum(planned.input_components()) + sum(planned.output_components());
        let registers = if is_f64 { 2 } else { 1 };
        let held = (tensors + params + sums) * registers;
        let widest = if is_f64 { 2 } else { 4 };
        let mut lanes = widest;
        while lanes > 1 && lanes * held > REGISTERS {
            lanes /= 2;
        }
        Self {
            lanes,
            threads: 256,
            params_shared: params > 0 && held > REGISTERS,
        }
    }
}
