//! A plan with its memory, on tensors of the caller.

use std::ffi::c_void;
use std::slice;
use std::sync::Arc;

use flashcliff::host_memory::{Span, check_overlaps};
use flashcliff_network::file::Stored;
use flashcliff_network::{Cpu, Error, Number, Plan, Rows, Scales, Sources, Value};

use crate::status::Failure;

/// The name of a run in messages.
const CALL: &str = "fc_network_run";

/// The tensors of a call.
pub(super) struct Given<'a> {
    pub(super) inputs: &'a [*const c_void],
    pub(super) outputs: &'a [*mut c_void],
    /// Where the sequences of a ragged batch begin, and the number of rows.
    pub(super) offsets: Option<&'a [usize]>,
}

/// A plan with its memory.
pub(super) struct Runner<T> {
    plan: Plan,
    memory: Cpu<T>,
    parameters: Arc<Vec<Vec<T>>>,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    /// The places of outputs, whose list is kept so that runs allocate nothing.
    places: Vec<Place<T>>,
}

/// The name and the length of an input or of an output.
struct Tensor {
    name: String,
    len: usize,
}

impl Tensor {
    /// The memory of the tensor, with elements of a size.
    fn span(
        &self,
        address: usize,
        size: usize,
        written: bool,
    ) -> Result<Span<'_>, flashcliff::Error> {
        Span::new(CALL, &self.name, [address, self.len, size], written)
    }
}

/// The place of an output, which is one during a run alone.
struct Place<T> {
    start: *mut T,
    len: usize,
}

// SAFETY: nothing reads the address outside of the run that wrote it, which has the output for itself.
unsafe impl<T: Send> Send for Place<T> {}

impl<T> AsMut<[T]> for Place<T> {
    fn as_mut(&mut self) -> &mut [T] {
        match self.len {
            0 => &mut [],
            // SAFETY: the caller of the run promises the elements, which the run has for itself; the address was checked.
            len => unsafe { slice::from_raw_parts_mut(self.start, len) },
        }
    }
}

/// Inputs of the caller, and parameters of the network.
struct Lent<'a, T> {
    tensors: &'a [Tensor],
    inputs: &'a [*const c_void],
    parameters: &'a [Vec<T>],
}

impl<'s, T: Number> Sources<T> for Lent<'s, T> {
    type Guard<'a>
        = &'s [T]
    where
        Self: 'a;
    type Error = Error;

    fn input(&self, input: usize) -> Result<&'s [T], Error> {
        match (self.tensors.get(input), self.inputs.get(input)) {
            (Some(tensor), Some(start)) if tensor.len > 0 => {
                // SAFETY: the caller of the run promises the elements, which nobody writes; the address was checked.
                Ok(unsafe { slice::from_raw_parts(start.cast(), tensor.len) })
            }
            _ => Ok(&[]),
        }
    }

    fn parameter(&self, parameter: usize) -> Result<&'s [T], Error> {
        Ok(self.parameters.get(parameter).map_or(&[], Vec::as_slice))
    }
}

impl<T: Number> Runner<T> {
    pub(super) fn new(
        stored: &Stored,
        rows: Rows,
        parameters: Arc<Vec<Vec<T>>>,
    ) -> Result<Self, Failure> {
        let (network, outputs) = (stored.network(), stored.outputs());
        let values: Vec<Value> = outputs.iter().map(|&(_, value)| value).collect();
        let plan = network.plan(&values, rows, [T::DTYPE; 2]);
        let plan = plan.map_err(Failure::network)?;
        let tensor = |name: &str, value: Value| Tensor {
            name: name.to_owned(),
            len: plan
                .tensor(value)
                .map_or(0, |(shape, _)| shape.iter().product()),
        };
        let inputs = network.inputs().iter();
        let outputs = outputs.iter();
        Ok(Self {
            memory: Cpu::new(&plan).map_err(Failure::network)?,
            inputs: inputs
                .map(|&value| tensor(network.name(value), value))
                .collect(),
            outputs: outputs.map(|(name, value)| tensor(name, *value)).collect(),
            places: Vec::with_capacity(values.len()),
            parameters,
            plan,
        })
    }

    /// Runs the plan.
    ///
    /// # Safety
    /// At each input and output there are the elements of the plan, of the type `T`. Nobody writes to inputs, and nobody else uses outputs, during
    /// the call.
    pub(super) unsafe fn run(&mut self, given: &Given<'_>) -> Result<(), Failure> {
        check_count("inputs", self.inputs.len(), given.inputs.len())?;
        check_count("outputs", self.outputs.len(), given.outputs.len())?;
        self.check_memory(given)?;
        self.places.clear();
        let tensors = self.outputs.iter().zip(given.outputs);
        self.places.extend(tensors.map(|(tensor, start)| Place {
            start: start.cast(),
            len: tensor.len,
        }));
        let lent = Lent {
            tensors: &self.inputs,
            inputs: given.inputs,
            parameters: &self.parameters,
        };
        let scales = Scales {
            sequences: given.offsets.map(|items| [items, &[][..]]),
            ..Scales::default()
        };
        let done = self
            .memory
            .run(&self.plan, &lent, &mut self.places, scales, &mut |_| {});
        done.map_err(Failure::network)
    }

    /// Checks the addresses of tensors, and that outputs overlap nothing.
    fn check_memory(&self, given: &Given<'_>) -> Result<(), Failure> {
        let size = size_of::<T>();
        for (tensor, start) in self.inputs.iter().zip(given.inputs) {
            tensor.span(start.addr(), size, false)?;
        }
        for (tensor, start) in self.outputs.iter().zip(given.outputs) {
            tensor.span(start.addr(), size, true)?;
        }
        let inputs = self.inputs.iter().zip(given.inputs);
        let inputs = inputs.map(|(tensor, start)| tensor.span(start.addr(), size, false));
        let outputs = self.outputs.iter().zip(given.outputs);
        let outputs = outputs.map(|(tensor, start)| tensor.span(start.addr(), size, true));
        Ok(check_overlaps(CALL, inputs.chain(outputs).flatten())?)
    }
}

fn check_count(what: &str, expected: usize, got: usize) -> Result<(), Failure> {
    match expected == got {
        true => Ok(()),
        false => Err(Failure::Argument(format!(
            "{what}: expected {expected} tensors, got {got}"
        ))),
    }
}
