//! The checks and launches of a step.

use std::fmt;

use cudarc::driver::{CudaStream, SyncOnDrop};
use flashcliff_sys as sys;

use super::{Adam, AdamRule};
use crate::cuda::Address;
use crate::cuda::dtype::code;
use crate::cuda::queue::Queue;
use crate::cuda::tensor::{Acquired, Layout, Scratch, Tensor, TensorMut, pointer};
use crate::cuda::{launches, spans};
use crate::{Dtype, Error};

/// The name that errors have.
pub(super) const NAME: &str = "Adam";
const LOSS_SCALE: &str = "loss_scale";
const CHUNK: usize = sys::FC_ADAM_TENSORS as usize;

/// A parameter that takes part in a step. All its tensors have the same type, `F32` or `F64`, and the same number of elements.
#[derive(Debug)]
pub struct AdamParameter<'a> {
    /// The place of the parameter in the list that the optimiser was made for.
    pub slot: usize,
    /// The parameter, which is changed.
    pub parameter: TensorMut<'a>,
    /// The gradient of the parameter.
    pub gradient: Tensor<'a>,
    /// The mean of the gradients, which is changed.
    pub mean: TensorMut<'a>,
    /// The mean of the squared gradients, which is changed; `None` for Lion.
    pub square: Option<TensorMut<'a>>,
}

/// A range of memory of a step.
struct Span {
    start: Address,
    bytes: usize,
    written: bool,
    what: &'static str,
    slot: usize,
}

impl Span {
    fn label(&self) -> String {
        match self.what {
            "state" | "loss" | LOSS_SCALE => self.what.to_owned(),
            what => format!("{what} {}", self.slot),
        }
    }
}

/// The memory of a step, with the guards of cudarc, which are dropped after the launches.
struct Spans<'s> {
    spans: Vec<Span>,
    guards: Vec<Option<SyncOnDrop<'s>>>,
}

impl<'s> Spans<'s> {
    fn push(
        &mut self,
        (what, slot): (&'static str, usize),
        (start, guard): Acquired<'s>,
        bytes: usize,
        written: bool,
    ) -> Address {
        self.guards.push(guard);
        self.spans.push(Span {
            start,
            bytes,
            written,
            what,
            slot,
        });
        start
    }

    /// Checks that memory that is written overlaps nothing else, and that addresses are usable.
    fn check(&mut self, alignment: impl Fn(&str) -> usize) -> Result<(), Error> {
        for span in &self.spans {
            let expected = alignment(span.what);
            if span.bytes > 0 && (span.start == 0 || span.start % expected as u64 != 0) {
                return Err(Error::BadAddress {
                    operator: NAME.to_owned(),
                    tensor: span.label(),
                    expected,
                    got: span.start,
                });
            }
        }
        self.spans.retain(|span| span.bytes > 0);
        self.spans.sort_unstable_by_key(|span| span.start);
        // The span that reaches furthest, and the written one that does.
        let (mut last, mut written): (Option<&Span>, Option<&Span>) = (None, None);
        let end = |span: &Span| span.start.saturating_add(span.bytes as u64);
        for span in &self.spans {
            let before = if span.written { last } else { written };
            if let Some(before) = before
                && span.start < end(before)
            {
                return Err(Error::Aliased {
                    operator: NAME.to_owned(),
                    first: before.label(),
                    second: span.label(),
                });
            }
            let further = |other: Option<&Span>| other.is_none_or(|other| end(span) > end(other));
            if further(last) {
                last = Some(span);
            }
            if span.written && further(written) {
                written = Some(span);
            }
        }
        Ok(())
    }
}

impl Adam {
    /// One step of the parameters that have gradients, in the order of their slots. `loss` is a tensor of one element, `F32` or `F64`;
    /// if it is not finite, or the norm of all gradients is not, the step is refused.
    ///
    /// Nothing waits, and nothing is allocated on the device; the call can be captured into a graph.
    ///
    /// # Errors
    /// A slot that does not exist or comes out of order, tensors of the wrong length, type or device, a state that is too small, memory
    /// that overlaps; [`Error::Cuda`]. Nothing is changed then.
    pub fn step(
        &self,
        stream: &CudaStream,
        parameters: &mut [AdamParameter<'_>],
        loss: Option<Tensor<'_>>,
        state: Scratch<'_>,
    ) -> Result<(), Error> {
        self.run(stream, parameters, loss, None, state)
    }

    /// Does the same as [`Self::step`] with gradients that were multiplied by the scale of the loss, and changes the scale.
    ///
    /// `loss_scale` is `F64`, with [`LossScaling::NUMBERS`](super::LossScaling::NUMBERS) elements: the scale, the
    /// steps since it changed, the steps that were skipped. If the norm is not finite, the loss is, and the scale is
    /// not the least, the step is skipped: no parameter, no moment and no step count changes, no refused step is
    /// counted, and the scale of the next step is smaller.
    ///
    /// # Errors
    /// The errors of [`Self::step`]; an optimiser without [`loss_scaling`](super::AdamSettings::loss_scaling).
    pub fn scaled_step(
        &self,
        stream: &CudaStream,
        parameters: &mut [AdamParameter<'_>],
        loss: Option<Tensor<'_>>,
        loss_scale: TensorMut<'_>,
        state: Scratch<'_>,
    ) -> Result<(), Error> {
        self.check_scale(&loss_scale)?;
        self.run(stream, parameters, loss, Some(loss_scale), state)
    }

    fn run(
        &self,
        stream: &CudaStream,
        parameters: &mut [AdamParameter<'_>],
        loss: Option<Tensor<'_>>,
        mut loss_scale: Option<TensorMut<'_>>,
        mut state: Scratch<'_>,
    ) -> Result<(), Error> {
        self.check(stream, parameters, loss.as_ref(), &state)?;
        if parameters.is_empty() {
            return Ok(());
        }
        self.device.make_current()?;
        let queue = Queue::of(stream);
        let mut spans = Spans {
            spans: Vec::with_capacity(4 * parameters.len() + 2),
            guards: Vec::with_capacity(4 * parameters.len() + 2),
        };
        let mut tensors = Vec::with_capacity(parameters.len());
        for parameter in parameters.iter_mut() {
            let slot = parameter.slot;
            let layout = *parameter.parameter.layout();
            let bytes = layout.bytes();
            let mut add =
                |what, acquired, written| spans.push((what, slot), acquired, bytes, written);
            let own = sys::fc_adam_tensor {
                parameter: pointer(add("parameter", parameter.parameter.acquire(&queue), true)),
                gradient: pointer(add("gradient", parameter.gradient.acquire(&queue), false)),
                mean: pointer(add("mean", parameter.mean.acquire(&queue), true)),
                square: match &mut parameter.square {
                    Some(square) => pointer(add("square", square.acquire(&queue), true)),
                    None => std::ptr::null_mut(),
                },
                count: layout.len as i64,
                slot: slot as i64,
            };
            tensors.push((layout.dtype, own));
        }
        let loss = loss.as_ref().map(|loss| {
            let bytes = loss.layout().bytes();
            let start = spans.push(("loss", 0), loss.acquire(&queue), bytes, false);
            (start, loss.dtype())
        });
        let scale = loss_scale.as_mut().map(|scale| {
            let bytes = scale.layout().bytes();
            spans.push((LOSS_SCALE, 0), scale.acquire(&queue), bytes, true)
        });
        let base = spans.push(("state", 0), state.acquire(&queue), self.layout.bytes, true);
        spans.check(|what| match what {
            "state" => spans::WORKSPACE_ALIGNMENT,
            LOSS_SCALE => size_of::<f64>(),
            _ => size_of::<f32>(),
        })?;
        // SAFETY: every address is that of memory of the checked length and type on this device, which no other memory of the call
        // overlaps; the guards order other uses of it.
        unsafe { self.launch(&queue, &tensors, loss, scale.unwrap_or(0), base) }
    }

    /// # Safety
    /// The addresses come from a checked call.
    unsafe fn launch(
        &self,
        queue: &Queue<'_>,
        tensors: &[(Dtype, sys::fc_adam_tensor)],
        loss: Option<(Address, Dtype)>,
        loss_scale: Address,
        base: Address,
    ) -> Result<(), Error> {
        let stream = queue.raw().cast();
        let state = pointer::<sys::fc_adam_state>(base);
        let steps = pointer::<u32>(base + self.layout.steps as u64);
        let coefficients = pointer(base + self.layout.coefficients as u64);
        let sums = pointer::<f64>(base + self.layout.sums as u64);
        let chunks = || {
            let of_one_type = tensors.chunk_by(|a, b| a.0 == b.0);
            of_one_type
                .flat_map(|tensors| tensors.chunks(CHUNK))
                .map(chunk)
        };
        let mut count = 0;
        for chunk in chunks() {
            // SAFETY: there is room for the sums of all parameters.
            let launch = || unsafe { sys::fc_adam_norm(&raw const chunk, sums.add(count), stream) };
            launches::kernel("fc_adam_norm", launch)?;
            // SAFETY: the function reads the chunk only.
            count += unsafe { sys::fc_adam_sums(&raw const chunk) } as usize;
        }
        let (loss, loss_dtype) = loss.unwrap_or((0, Dtype::F32));
        for (index, chunk) in chunks().enumerate() {
            // SAFETY: all addresses lie in the state, or are the addresses of the loss and its scale; slots are below their number.
            let launch = || unsafe {
                sys::fc_adam_prepare(
                    &raw const chunk,
                    &raw const self.options,
                    state,
                    sums,
                    count as i64,
                    pointer(loss),
                    code(loss_dtype),
                    pointer(loss_scale),
                    steps,
                    self.counts.len() as i64,
                    coefficients,
                    (index == 0).into(),
                    stream,
                )
            };
            launches::kernel("fc_adam_prepare", launch)?;
        }
        for chunk in chunks() {
            // SAFETY: the same holds as above.
            let launch = || unsafe {
                let options = &raw const self.options;
                sys::fc_adam_update(&raw const chunk, options, state, coefficients, stream)
            };
            launches::kernel("fc_adam_update", launch)?;
        }
        Ok(())
    }

    fn check_scale(&self, scale: &TensorMut<'_>) -> Result<(), Error> {
        if !self.has_scaling {
            return Err(Error::InvalidOption {
                option: "loss_scaling",
                expected: "changes of the scale, since the step has one",
                got: 0.0,
            });
        }
        let layout = scale.layout();
        if layout.dtype != Dtype::F64 {
            return Err(Error::DtypeMismatch {
                operator: NAME.to_owned(),
                tensor: LOSS_SCALE.to_owned(),
                expected: "f64".to_owned(),
                got: layout.dtype,
            });
        }
        self.check_tensor(
            format_args!("{LOSS_SCALE}"),
            layout,
            super::LossScaling::NUMBERS,
        )
    }

    fn check(
        &self,
        stream: &CudaStream,
        parameters: &[AdamParameter<'_>],
        loss: Option<&Tensor<'_>>,
        state: &Scratch<'_>,
    ) -> Result<(), Error> {
        if stream.context().cu_ctx() != self.device.context().cu_ctx() {
            return Err(Error::CudaContext {
                ordinal: stream.context().ordinal(),
            });
        }
        let mut next = 0;
        for parameter in parameters {
            let slot = parameter.slot;
            if slot < next || slot >= self.counts.len() {
                return Err(Error::InvalidOption {
                    option: "slot",
                    expected: "the place of a parameter, in rising order",
                    got: slot as f64,
                });
            }
            next = slot + 1;
            let dtype = parameter.parameter.dtype();
            self.check_square(parameter)?;
            let square = parameter.square.as_ref();
            for (what, layout) in [
                ("parameter", parameter.parameter.layout()),
                ("gradient", parameter.gradient.layout()),
                ("mean", parameter.mean.layout()),
            ]
            .into_iter()
            .chain(square.map(|square| ("square", square.layout())))
            {
                self.check_tensor(format_args!("{what} {slot}"), layout, self.counts[slot])?;
                if layout.dtype != dtype {
                    return Err(Error::DtypeMismatch {
                        operator: NAME.to_owned(),
                        tensor: format!("{what} {slot}"),
                        expected: dtype.to_string(),
                        got: layout.dtype,
                    });
                }
            }
        }
        if let Some(loss) = loss {
            self.check_tensor(format_args!("loss"), loss.layout(), 1)?;
        }
        if state.bytes() < self.layout.bytes {
            return Err(Error::WorkspaceTooSmall {
                operator: NAME.to_owned(),
                expected: self.layout.bytes,
                got: state.bytes(),
            });
        }
        self.check_device(format_args!("state"), state.ordinal())
    }

    /// Checks that there is a mean of squares if, and only if, the rule has one.
    fn check_square(&self, parameter: &AdamParameter<'_>) -> Result<(), Error> {
        let expected = match (self.rule, parameter.square.is_some()) {
            (AdamRule::Adam, true) | (AdamRule::Lion, false) => return Ok(()),
            (AdamRule::Adam, false) => "a mean of squares",
            (AdamRule::Lion, true) => "no mean of squares",
        };
        Err(Error::InvalidOption {
            option: "square",
            expected,
            got: parameter.slot as f64,
        })
    }

    fn check_tensor(
        &self,
        name: fmt::Arguments<'_>,
        layout: &Layout,
        len: usize,
    ) -> Result<(), Error> {
        if !matches!(layout.dtype, Dtype::F32 | Dtype::F64) {
            return Err(Error::DtypeMismatch {
                operator: NAME.to_owned(),
                tensor: name.to_string(),
                expected: "f32 or f64".to_owned(),
                got: layout.dtype,
            });
        }
        if layout.len != len {
            return Err(Error::ShapeMismatch {
                operator: NAME.to_owned(),
                tensor: name.to_string(),
                expected: format!("of {len} elements"),
                got: layout.shape.as_slice().to_vec(),
            });
        }
        self.check_device(name, layout.ordinal)
    }

    fn check_device(&self, name: fmt::Arguments<'_>, got: usize) -> Result<(), Error> {
        if got == self.device.ordinal() {
            return Ok(());
        }
        Err(Error::DeviceMismatch {
            operator: NAME.to_owned(),
            tensor: name.to_string(),
            expected: self.device.ordinal(),
            got,
        })
    }
}

/// Tensors of one type as a chunk.
fn chunk(tensors: &[(Dtype, sys::fc_adam_tensor)]) -> sys::fc_adam_chunk {
    let mut chunk = sys::fc_adam_chunk {
        count: tensors.len() as i32,
        dtype: code(tensors[0].0),
        ..sys::fc_adam_chunk::default()
    };
    for (own, (_, tensor)) in chunk.tensors.iter_mut().zip(tensors) {
        *own = *tensor;
    }
    chunk
}
