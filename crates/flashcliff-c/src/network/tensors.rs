//! Tensors of a caller: checked before they are borrowed, and lent to a run.

use std::ffi::c_void;
use std::slice;

use flashcliff::host_memory::{Span, check_overlaps, check_overlaps_of_many};
use flashcliff_network::file::Stored;
use flashcliff_network::{Error, Number, Plan, Sources, Value};

use super::relation::Relation;
use crate::status::Failure;

/// The tensors of a call.
pub(super) struct Given<'a> {
    pub(super) inputs: &'a [*const c_void],
    pub(super) outputs: &'a [*mut c_void],
    /// Parameters that replace the parameters of the file; empty to keep the parameters of the file.
    pub(super) parameters: &'a [*const c_void],
    /// The relations between rows; `None` for a null pointer, which is an error.
    pub(super) relations: &'a [Option<&'a Relation>],
    /// Where the sequences of a ragged batch begin, and the number of rows; the same of the context.
    pub(super) offsets: Option<[&'a [usize]; 2]>,
}

/// The gradients of a call: the gradients of its outputs, and the gradients of inputs and parameters, null where they are not wanted.
pub(super) struct Gradients<'a> {
    pub(super) outputs: &'a [*const c_void],
    pub(super) grads: &'a [*mut c_void],
}

/// The name and the length of a tensor.
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) len: usize,
}

impl Tensor {
    pub(super) fn new(plan: &Plan, name: &str, value: Value) -> Self {
        let shape = plan.tensor(value).map(|(shape, _)| shape);
        Self {
            name: name.to_owned(),
            len: shape.map_or(0, |shape| shape.iter().product()),
        }
    }
}

/// The tensors of a network.
pub(super) struct Tensors {
    pub(super) inputs: Vec<Tensor>,
    pub(super) parameters: Vec<Tensor>,
    pub(super) outputs: Vec<Tensor>,
}

impl Tensors {
    pub(super) fn new(stored: &Stored, plan: &Plan) -> Self {
        let network = stored.network();
        let own = |values: &[Value]| -> Vec<Tensor> {
            let tensor = |&value: &Value| Tensor::new(plan, network.name(value), value);
            values.iter().map(tensor).collect()
        };
        let outputs = stored.outputs().iter();
        Self {
            inputs: own(network.inputs()),
            parameters: own(network.parameters()),
            outputs: outputs
                .map(|(name, value)| Tensor::new(plan, name, *value))
                .collect(),
        }
    }

    /// Checks how many tensors there are.
    pub(super) fn check(&self, given: &Given<'_>) -> Result<(), Failure> {
        check_count("inputs", self.inputs.len(), given.inputs.len())?;
        check_count("outputs", self.outputs.len(), given.outputs.len())?;
        match given.parameters {
            [] => Ok(()),
            own => check_count("parameters", self.parameters.len(), own.len()),
        }
    }

    /// The memory of a call, with elements of a size, and whether outputs are written.
    pub(super) fn spans<'a>(
        &'a self,
        call: &'a str,
        given: &'a Given<'_>,
        (size, written): (usize, bool),
    ) -> impl Iterator<Item = Result<Span<'a>, flashcliff::Error>> + Clone {
        let inputs = given.inputs.iter().map(|start| start.addr());
        let parameters = given.parameters.iter().map(|start| start.addr());
        let outputs = given.outputs.iter().map(|start| start.addr());
        spans(call, &self.inputs, inputs, (size, false))
            .chain(spans(call, &self.parameters, parameters, (size, false)))
            .chain(spans(call, &self.outputs, outputs, (size, written)))
    }

    /// The tensors that a run reads: the tensors of the call, and the parameters of the file where the call has none.
    pub(super) fn lent<'a, T>(
        &'a self,
        given: &Given<'a>,
        parameters: &'a [Vec<T>],
    ) -> Lent<'a, T> {
        Lent {
            inputs: [Read(&self.inputs, given.inputs), Read(&[], &[])],
            given: Read(&self.parameters, given.parameters),
            parameters,
            outputs: Read(&[], &[]),
        }
    }
}

/// The memory of tensors at addresses, with elements of a size.
pub(super) fn spans<'a>(
    call: &'a str,
    tensors: &'a [Tensor],
    addresses: impl Iterator<Item = usize> + Clone,
    (size, written): (usize, bool),
) -> impl Iterator<Item = Result<Span<'a>, flashcliff::Error>> + Clone {
    let pairs = tensors.iter().zip(addresses);
    pairs.map(move |(tensor, address)| {
        Span::new(call, &tensor.name, [address, tensor.len, size], written)
    })
}

/// Checks the addresses of tensors, and that what is written overlaps nothing.
pub(super) fn check_memory<'a>(
    call: &str,
    spans: impl Iterator<Item = Result<Span<'a>, flashcliff::Error>> + Clone,
) -> Result<(), Failure> {
    for span in spans.clone() {
        span?;
    }
    Ok(check_overlaps(call, spans.flatten())?)
}

/// Does the same for many tensors, of which it makes a list.
pub(super) fn check_memory_of_many<'a>(
    call: &str,
    spans: impl Iterator<Item = Result<Span<'a>, flashcliff::Error>>,
) -> Result<(), Failure> {
    let mut spans = spans.collect::<Result<Vec<_>, _>>()?;
    Ok(check_overlaps_of_many(call, &mut spans)?)
}

/// Checks how many tensors there are of a kind.
pub(super) fn check_count(what: &str, expected: usize, got: usize) -> Result<(), Failure> {
    match expected == got {
        true => Ok(()),
        false => Err(Failure::Argument(format!(
            "{what}: expected {expected} tensors, got {got}"
        ))),
    }
}

/// The place of a result, which is one during a run alone.
pub(super) struct Place<T> {
    pub(super) start: *mut T,
    pub(super) len: usize,
}

// SAFETY: nothing reads the address outside of the run that wrote it, which has the result for itself.
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

/// Tensors that a run reads, by their addresses.
#[derive(Clone, Copy)]
pub(super) struct Read<'a>(pub(super) &'a [Tensor], pub(super) &'a [*const c_void]);

impl<'a> Read<'a> {
    fn get<T>(self, at: usize) -> Option<&'a [T]> {
        let (tensor, start) = (self.0.get(at)?, self.1.get(at)?);
        match tensor.len {
            0 => Some(&[]),
            // SAFETY: the caller of the run promises the elements, which nobody writes; the address was checked.
            len => Some(unsafe { slice::from_raw_parts(start.cast(), len) }),
        }
    }
}

/// The tensors that a run reads: inputs of the caller, and after them the gradients of outputs; parameters of the
/// caller, or else of the network; and outputs of the run before.
pub(super) struct Lent<'a, T> {
    pub(super) inputs: [Read<'a>; 2],
    pub(super) given: Read<'a>,
    pub(super) parameters: &'a [Vec<T>],
    pub(super) outputs: Read<'a>,
}

impl<'s, T: Number> Sources<T> for Lent<'s, T> {
    type Guard<'a>
        = &'s [T]
    where
        Self: 'a;
    type Error = Error;

    fn input(&self, input: usize) -> Result<&'s [T], Error> {
        let [own, behind] = self.inputs;
        let found = match input.checked_sub(own.0.len()) {
            None => own.get(input),
            Some(at) => behind.get(at),
        };
        Ok(found.unwrap_or(&[]))
    }

    fn parameter(&self, parameter: usize) -> Result<&'s [T], Error> {
        let own = self.parameters.get(parameter).map(Vec::as_slice);
        Ok(self.given.get(parameter).or(own).unwrap_or(&[]))
    }

    fn output(&self, output: usize) -> Result<&'s [T], Error> {
        Ok(self.outputs.get(output).unwrap_or(&[]))
    }
}
