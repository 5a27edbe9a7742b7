//! The tensors of a network's inputs, outputs and parameters: names and shapes.

use std::ffi::{CString, c_char};

use flashcliff_network::file::Stored;
use flashcliff_network::{Axis, Rows, Value};

use crate::operator::MAX_AXES;
use crate::status::Failure;

/// `fc_network_end`: the name and the shape of an input, an output or a parameter.
#[repr(C)]
pub struct NetworkEnd {
    name: *const c_char,
    shape: [usize; MAX_AXES],
    axes: usize,
    len: usize,
}

#[cfg(test)]
impl NetworkEnd {
    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// An input, an output or a parameter.
pub(super) struct End {
    name: CString,
    axes: Vec<Axis>,
}

/// The inputs, outputs and parameters of a network.
pub(super) struct Ends {
    pub(super) inputs: Vec<End>,
    pub(super) outputs: Vec<End>,
    pub(super) parameters: Vec<End>,
}

impl Ends {
    /// # Errors
    /// A name that C cannot have, and more axes than an end has room for.
    pub(super) fn new(stored: &Stored) -> Result<Self, Failure> {
        let network = stored.network();
        let end = |name: &str, value: Value| End::new(name, network.shape(value));
        let own = |values: &[Value]| {
            let ends = values.iter();
            ends.map(|&value| end(network.name(value), value))
                .collect::<Result<_, Failure>>()
        };
        let outputs = stored.outputs().iter();
        let outputs = outputs.map(|(name, value)| end(name, *value));
        Ok(Self {
            inputs: own(network.inputs())?,
            outputs: outputs.collect::<Result<_, Failure>>()?,
            parameters: own(network.parameters())?,
        })
    }

    pub(super) fn input(&self, index: usize, rows: Rows) -> Result<NetworkEnd, Failure> {
        find("input", &self.inputs, index)?.sized(rows)
    }

    pub(super) fn output(&self, index: usize, rows: Rows) -> Result<NetworkEnd, Failure> {
        find("output", &self.outputs, index)?.sized(rows)
    }

    pub(super) fn parameter(&self, index: usize) -> Result<NetworkEnd, Failure> {
        find("parameter", &self.parameters, index)?.sized(Rows::new(1, 1))
    }
}

fn find<'a>(what: &str, ends: &'a [End], index: usize) -> Result<&'a End, Failure> {
    ends.get(index).ok_or_else(|| {
        Failure::Argument(format!(
            "{what}: expected a number below {}, got {index}",
            ends.len()
        ))
    })
}

impl End {
    fn new(name: &str, axes: Option<&[Axis]>) -> Result<Self, Failure> {
        let axes = axes.unwrap_or_default().to_vec();
        if axes.len() > MAX_AXES {
            return Err(Failure::File(format!(
                "`{name}`: expected at most {MAX_AXES} axes, got {}",
                axes.len()
            )));
        }
        let name = CString::new(name).map_err(|_| {
            Failure::File(format!("expected names without zero bytes, got {name:?}"))
        })?;
        Ok(Self { name, axes })
    }

    /// The tensor for a batch.
    fn sized(&self, rows: Rows) -> Result<NetworkEnd, Failure> {
        let mut shape = [1; MAX_AXES];
        for (size, axis) in shape.iter_mut().zip(&self.axes) {
            *size = axis.size(rows);
        }
        let len = shape
            .iter()
            .try_fold(1_usize, |len, &size| len.checked_mul(size));
        let len = len.ok_or_else(|| {
            Failure::Argument(format!(
                "{:?}: expected as many elements as memory can have addresses, got the shape {shape:?}",
                self.name
            ))
        })?;
        Ok(NetworkEnd {
            name: self.name.as_ptr(),
            shape,
            axes: self.axes.len(),
            len,
        })
    }
}

/// Writes an end for the caller.
///
/// # Safety
/// An end can be written to `to`, or it is null.
pub(super) unsafe fn write(end: NetworkEnd, to: *mut NetworkEnd) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::null("end"));
    }
    // SAFETY: the caller promises it, and it is not null.
    unsafe { to.write(end) };
    Ok(())
}
