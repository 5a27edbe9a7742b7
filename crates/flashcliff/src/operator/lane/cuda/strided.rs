//! The kernels of a program for rows of tensors with their own strides, with scalar channels and numbers of rows. Each
//! is compiled when a call first needs it.

use std::sync::{Mutex, OnceLock, PoisonError};

use codegen::emit::cuda::{FIRST_OUTPUT, Walker, Walkers};
use flashcliff_sys as sys;

use super::kernels::{Found, Kernel, Origin, is_f64};
use crate::Error;
use crate::cuda::jit;
use crate::programs::Known;

/// Generated kernels and the library number tensors alike.
const _: () = assert!(FIRST_OUTPUT == sys::FC_FIRST_OUTPUT as usize);

#[derive(Debug, Default)]
pub(super) struct Strided {
    /// What chooses a kernel, in `f32` and `f64`.
    walkers: [OnceLock<Walkers>; 2],
    made: Mutex<Vec<(Walker, Kernel)>>,
}

impl Strided {
    /// The kernel of a call, if it was compiled.
    pub(super) fn find(&self, program: &Known, call: &sys::fc_call) -> Option<Found> {
        let walkers = self.walkers[usize::from(is_f64(call))].get()?;
        let wanted = chosen(walkers, program, call);
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let mut made = made.iter();
        made.find(|(walker, _)| *walker == wanted)
            .map(|&(walker, kernel)| Found::walking(walker, kernel))
    }

    /// Compiles the kernel of a call. Threads that ask for the same at once both do; the kernels are one.
    pub(super) fn compile(
        &self,
        origin: &Origin,
        program: &Known,
        call: &sys::fc_call,
    ) -> Result<Found, Error> {
        let is_f64 = is_f64(call);
        let known = &self.walkers[usize::from(is_f64)];
        let walkers = match known.get() {
            Some(walkers) => walkers,
            None => {
                let own = Walkers::of(program.source(), is_f64);
                let own = own.map_err(jit::too_large(&origin.title))?;
                known.get_or_init(|| own)
            }
        };
        let walker = chosen(walkers, program, call);
        let Origin {
            title, capability, ..
        } = origin;
        let made = Kernel(jit::kernels(
            title,
            program,
            is_f64,
            Some(walker),
            *capability,
        )?);
        let mut list = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        list.push((walker, made));
        Ok(Found::walking(walker, made))
    }
}

/// The kernel that takes a call.
fn chosen(walkers: &Walkers, program: &Known, call: &sys::fc_call) -> Walker {
    let bytes = match call.lane_dtype {
        sys::fc_dtype::FC_F64 => 8,
        sys::fc_dtype::FC_F32 => 4,
        _ => 2,
    };
    // Sizes are not negative.
    let channels = [call.channels, call.scalars].map(|count| count as usize);
    walkers.choose(channels, whole(program, call, bytes), (bytes, call.wide))
}

/// The most neighbouring channels, up to four, of which channels, strides and addresses of all lane tensors are multiples.
fn whole(program: &Known, call: &sys::fc_call, bytes: usize) -> usize {
    let source = program.source();
    let inputs = call.inputs[..source.inputs.len()].iter();
    let inputs = inputs.enumerate().map(|(at, own)| (at, own.addr()));
    let outputs = call.outputs[..source.outputs.len()].iter().enumerate();
    let outputs = outputs.map(|(at, own)| (FIRST_OUTPUT + at, own.addr()));
    let elements = inputs.chain(outputs).map(|(bit, address)| {
        let is_wide = call.wide >> bit & 1 != 0;
        let bytes = if is_wide { bytes.max(4) } else { bytes };
        // An address between elements is a multiple of none.
        match address % bytes {
            0 => address / bytes,
            _ => 1,
        }
    });
    let read = &call.input_strides[..source.inputs.len()];
    let written = &call.output_strides[..source.outputs.len()];
    let strides = read.iter().chain(written);
    let strides = strides.flat_map(|strides| [strides.component, strides.batch]);
    let sizes = strides.chain([call.channels, call.scalars]);
    let all = sizes.map(|size| size as usize).chain(elements);
    1 << all.fold(4, |all, size| all | size).trailing_zeros()
}
