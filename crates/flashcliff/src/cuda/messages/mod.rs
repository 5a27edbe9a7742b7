//! Messages on a GPU: an operator on each row of a relation, whose tensors are of rows or of what rows belong to, and
//! sums of its results. Nothing of the size of all rows is written but results of rows.
//!
//! ```text
//! o[:, i] = sum over the rows e of target i of operator(x[:, end of e], y[:, e], ...)
//! ```
//! The gradient of such a function is one too, of the operator's [gradient](crate::Operator::gradient): with tensors
//! and sums of the same rows and targets.
//!
//! Sums have the order of rows and no atomics, so results are the same bit for bit every time. Needs the feature
//! `jit`: kernels are compiled when they are first used.

mod kernels;

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use codegen::emit::cuda::{Ends, MOST_RELATIONS, channels_of_message};
use cudarc::driver::result;
use flashcliff_program::ir::{Argument, Returned};
use flashcliff_sys as sys;

use super::dtype::code;
use super::items::Target;
use super::launches;
use super::operator::StridedTensor;
use super::segments::Addresses;
use crate::cuda::Address;
use crate::operator::lane::cuda::gate_code;
use crate::programs::Known;
use crate::{Dtype, Error, Gate, Operator};
use kernels::Key;

pub use crate::messages::{End, MessageForm, MessageTensor};

/// The threads of a CTA, and the most that share an item.
const THREADS: usize = 128;
const WARP: usize = 32;
/// The threads of a launch that leave no multiprocessor idle.
const ENOUGH_THREADS: usize = 1 << 18;
/// The most neighbouring rows of a group.
const MOST_ITEMS: usize = 8;
/// The rows of a target, on average, that are worth a group of threads.
const ROWS_OF_GROUP: usize = 2;

/// An operator on the rows of relations.
#[derive(Debug)]
pub struct Messages {
    program: &'static Known,
    name: &'static str,
    gate: Gate,
    eps: f64,
    /// For each input of the operator its place.
    arguments: Vec<Argument>,
    ends: Arc<Ends>,
}

/// A launch of [`Messages`]. Channels are contiguous, and so are results and parameters.
#[derive(Clone, Copy, Debug)]
pub struct MessageCall<'a> {
    /// The inputs. The strides of parameters are not read.
    pub inputs: &'a [StridedTensor],
    /// The addresses of the results.
    pub outputs: &'a [Address],
    /// The relations, of the same rows.
    pub relations: &'a [Addresses],
    /// The channels of all tensors that have more than one.
    pub channels: usize,
    /// The type of all elements. 16 bits are computed in `f32`.
    pub dtype: Dtype,
}

/// A tensor as the kernel takes it.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawTensor {
    first: Address,
    component: i64,
    item: i64,
}

/// A call as the kernel takes it: `fc::Messages`.
#[repr(C)]
struct Raw {
    inputs: [RawTensor; sys::FC_MAX_TENSORS as usize],
    outputs: [RawTensor; sys::FC_MAX_TENSORS as usize],
    params: [Address; sys::FC_MAX_PARAMS as usize],
    targets: [Address; MOST_RELATIONS],
    starts: Address,
    order: Address,
    items: i64,
    channels: i64,
    eps: f64,
    inv_channels: f64,
    eps_f32: f32,
    inv_channels_f32: f32,
    gate: sys::fc_gate,
    dtype: sys::fc_dtype,
    threads_per_group: i32,
    groups_per_item: i32,
    items_per_group: i32,
    unused: i32,
}

impl Messages {
    /// The most relations.
    pub const MOST_RELATIONS: usize = MOST_RELATIONS;

    /// An operator on rows; `None` if there is no kernel for it: it is not one program, has scalar channels, or sums
    /// over a row or over the batch, or more tensors than a kernel has room for.
    pub fn new(operator: &Operator, form: &MessageForm) -> Option<Self> {
        let lanes = operator.lanes()?;
        let (program, options) = (lanes.program(), lanes.options());
        let source = program.source();
        let arguments = source.arguments.clone();
        let results = source.results.iter().enumerate();
        let mut outputs = results.map(|(at, result)| *result == Returned::Output(at));
        if arguments.len() != form.inputs.len() || !outputs.all(|own| own) {
            return None;
        }
        let mut ends = Ends {
            inputs: vec![0; source.inputs.len()],
            ones: vec![false; source.inputs.len()],
            to: form.to.number(),
            sums: form.sums.clone(),
        };
        for (argument, tensor) in arguments.iter().zip(&form.inputs) {
            if let Argument::Input(at) = *argument {
                ends.inputs[at] = tensor.end.number();
                ends.ones[at] = tensor.one;
            }
        }
        let has_room = source.inputs.len() <= sys::FC_MAX_TENSORS as usize
            && source.outputs.len() <= sys::FC_MAX_TENSORS as usize
            && source.params.len() <= sys::FC_MAX_PARAMS as usize;
        (has_room && ends.fit(source)).then(|| Self {
            program,
            name: operator.name(),
            gate: options.gate,
            eps: options.eps,
            arguments,
            ends: Arc::new(ends),
        })
    }

    /// Launches the computation of all results.
    ///
    /// Nothing waits, nothing is allocated, and the call can be captured into a CUDA graph once the kernel was
    /// compiled: by an earlier call of the same channels, type and alignment.
    ///
    /// # Errors
    /// [`Error::TensorCount`] for another number of tensors or relations; [`Error::CudaLibrary`] without NVRTC,
    /// [`Error::CudaCompilation`], [`Error::Cuda`].
    ///
    /// # Safety
    /// Addresses are of memory on the device of the target that holds what the sizes say, aligned to an element,
    /// until the work on the stream is done. The numbers of relations are in range and fit each other. What is
    /// written overlaps nothing else.
    pub unsafe fn run(&self, target: Target<'_>, call: &MessageCall<'_>) -> Result<(), Error> {
        self.check(call)?;
        let (raw, whole) = self.raw(call);
        if raw.items == 0 || raw.channels == 0 {
            return Ok(());
        }
        let (source, bytes) = (self.program.source(), call.dtype.bytes());
        let lanes = channels_of_message(source, &self.ends, whole, bytes);
        let threads = call.channels.div_ceil(lanes).next_power_of_two().min(WARP);
        let groups = self.groups(call, threads);
        let items = match self.ends.to {
            0 => (call.relations[0].rows * threads / ENOUGH_THREADS).clamp(1, MOST_ITEMS),
            _ => 1,
        };
        let mut raw = Raw {
            threads_per_group: threads as i32,
            groups_per_item: groups as i32,
            items_per_group: items as i32,
            ..raw
        };
        let key = Key {
            digest: self.program.digest(),
            ends: self.ends.clone(),
            lanes,
            bytes,
            device: target.device.ordinal(),
        };
        target.device.make_current()?;
        let function = kernels::get(key, self.name, source, target.device)?;
        let ctas = (raw.items as usize).div_ceil(items * (THREADS / (threads * groups)));
        if ctas > i32::MAX as usize {
            return Err(Error::Cuda {
                call: "messages",
                name: "FC_ERROR_TOO_LARGE".to_owned(),
                description: format!("expected fewer than 2^31 CTAs, got {ctas}"),
            });
        }
        let mut arguments = [ptr::from_mut(&mut raw).cast::<c_void>()];
        // SAFETY: the kernel takes this structure, which lives during the call; the caller promises the rest.
        let run = || unsafe {
            result::launch_kernel(
                function,
                (ctas as u32, 1, 1),
                (THREADS as u32, 1, 1),
                0,
                target.stream,
                &mut arguments,
            )
        };
        let name = || format!("messages_kernel<{}, {lanes}>", source.name);
        launches::driver(name, "cuLaunchKernel", run)
    }

    /// The groups of so many threads that share the rows of a target: more where there are few targets of many rows.
    fn groups(&self, call: &MessageCall<'_>, threads: usize) -> usize {
        let Some(relation) = self.ends.to.checked_sub(1).map(|at| call.relations[at]) else {
            return 1;
        };
        let rows = relation.rows / relation.targets.max(1);
        let mut groups = 1;
        while groups * threads < WARP
            && 2 * groups * ROWS_OF_GROUP <= rows
            && relation.targets * threads * groups < ENOUGH_THREADS
        {
            groups *= 2;
        }
        groups
    }

    fn check(&self, call: &MessageCall<'_>) -> Result<(), Error> {
        let ends = self.ends.inputs.iter().chain([&self.ends.to]);
        // The first relation tells the number of rows in any case.
        let relations = ends.copied().max().unwrap_or(0).max(1);
        let counts = [
            ("inputs", self.arguments.len(), call.inputs.len()),
            ("outputs", self.ends.sums.len(), call.outputs.len()),
            ("relations", relations, call.relations.len().min(relations)),
        ];
        let wrong = counts
            .into_iter()
            .find(|(_, expected, got)| expected != got);
        wrong.map_or(Ok(()), |(what, expected, got)| {
            Err(Error::TensorCount {
                operator: self.name.to_owned(),
                what,
                expected,
                names: String::new(),
                got,
            })
        })
    }

    /// The call, and the most neighbouring channels up to four of which channels, strides and addresses are multiples.
    fn raw(&self, call: &MessageCall<'_>) -> (Raw, usize) {
        let (source, channels) = (self.program.source(), call.channels);
        let items = |end: usize| match end {
            0 => call.relations[0].rows,
            end => call.relations[end - 1].targets,
        };
        let to = self.ends.to;
        let made = |address: Address, one: bool| {
            let item = if one { 1 } else { channels };
            StridedTensor {
                address,
                blade_stride: items(to) * item,
                row_stride: item,
            }
        };
        let nothing = RawTensor {
            first: 0,
            component: 0,
            item: 0,
        };
        let mut raw = Raw {
            inputs: [nothing; _],
            outputs: [nothing; _],
            params: [0; _],
            targets: std::array::from_fn(|at| call.relations.get(at).map_or(0, |own| own.target)),
            starts: 0,
            order: 0,
            items: items(to) as i64,
            channels: channels as i64,
            eps: self.eps,
            inv_channels: 1.0 / channels as f64,
            eps_f32: self.eps as f32,
            inv_channels_f32: (1.0 / channels as f64) as f32,
            gate: gate_code(self.gate),
            dtype: code(call.dtype),
            threads_per_group: 1,
            groups_per_item: 1,
            items_per_group: 1,
            unused: 0,
        };
        if to > 0 {
            let relation = call.relations[to - 1];
            (raw.starts, raw.order) = (relation.starts, relation.order);
        }
        let mut all = channels;
        let mut tensor = |own: StridedTensor, one: bool| {
            let bytes = call.dtype.bytes() as u64;
            if !one {
                all |= own.blade_stride | own.row_stride;
                all |= match own.address % bytes {
                    0 => (own.address / bytes) as usize,
                    _ => 1,
                };
            }
            RawTensor {
                first: own.address,
                component: own.blade_stride as i64,
                item: own.row_stride as i64,
            }
        };
        for (argument, &input) in self.arguments.iter().zip(call.inputs) {
            match *argument {
                Argument::Input(at) => raw.inputs[at] = tensor(input, self.ends.ones[at]),
                Argument::Param(at) => raw.params[at] = input.address,
                Argument::RowValue(_) => {}
            }
        }
        for (at, &address) in call.outputs.iter().enumerate().take(source.outputs.len()) {
            let one = self.ends.sums[at];
            raw.outputs[at] = tensor(made(address, one), one);
        }
        (raw, 1 << (all | 4).trailing_zeros())
    }
}
