//! Dropout of grades by its kernel, for tokens of all types and algebras.

use candle_core::{Device, Result, Storage, Tensor};
use flashcliff::cuda::dropout::{Droppable, drop_grades};
use flashcliff::cuda::items::Target;

use crate::Error;
use crate::op::core_dtype;
use crate::op::gpu::library;
use crate::op::gpu::memory::{self, View, misplaced, with_views};
use crate::op::node;
use crate::op::transformer::draw::Draw;
use crate::op::transformer::dropout::Dropout;

/// The factors of tokens, for tokens of the shape and type of others.
pub(in crate::op::transformer) fn factors(
    dropout: &Dropout,
    like: &Tensor,
    draw: &Draw,
) -> Result<Tensor> {
    Ok(dropped(dropout, None, like, draw)?)
}

/// Contiguous tokens after dropout; without tokens the factors of dropout alone.
pub(super) fn dropped(
    dropout: &Dropout,
    x: Option<&Tensor>,
    like: &Tensor,
    draw: &Draw,
) -> std::result::Result<Tensor, Error> {
    const NAME: &str = "grade_dropout";
    let error = || misplaced(NAME);
    let (Device::Cuda(candle), Some(dtype)) = (like.device(), core_dtype(like.dtype())) else {
        return Err(error());
    };
    let (device, stream) = (library::device(candle)?, candle.cuda_stream());
    let len = like.elem_count();
    let storage = memory::allocate(candle, dtype, len)?;
    let to = View::of(&storage, 0..len).ok_or_else(error)?;
    let to = to.address(&stream);
    let (geometry, channels) = (dropout.geometry, dropout.channels);
    let step = memory::indices(draw.step(), &stream, NAME)?;
    let tensors: Vec<Tensor> = x.into_iter().cloned().collect();
    with_views(&tensors, |views| {
        if views.iter().any(|view| view.dtype() != dtype) {
            return Err(error());
        }
        let call = Droppable {
            dropout: dropout.of(draw.key()),
            step,
            x: views.first().map_or(0, |view| view.address(&stream)),
            to,
            rows: len / geometry.width(channels).max(1),
            channels: channels.multivectors,
            scalars: channels.scalars,
            dtype,
        };
        let target = Target {
            device: &device,
            stream: stream.cu_stream(),
        };
        #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
        // SAFETY: the items and the results have as many rows of this width as the call says, of this type on this device, the results are this
        // function's, and the step is one number that its tensor keeps. Work on the memory of candle's tensors is in the order of their device's
        // stream, also what frees it.
        Ok(unsafe { drop_grades(target, geometry.algebra, call) }?)
    })?;
    Ok(node::constant(Storage::Cuda(storage), like.dims()))
}
