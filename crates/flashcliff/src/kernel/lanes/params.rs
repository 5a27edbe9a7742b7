//! Parameters on their way to the lanes, and their gradients on the way back.
//!
//! Packed, a parameter has its values of one group of channels one behind the other, each a vector.

use super::Call;
use super::layout::Layout;
use crate::Element;
use crate::kernel::tasks;

/// The sums that a thread takes at a time.
const SUM_LEN: usize = 2048;
/// The fewest summands worth more than one thread.
const PARALLEL_LEN: usize = 1 << 16;

/// Packs the parameters, `[channels, count]` each.
///
/// # Safety
/// The parameters are valid for the shape of the call.
pub(super) unsafe fn pack<T: Element>(call: &Call<'_, T>, layout: &Layout, to: &mut [T]) {
    let lanes = T::lanes(call.tier);
    let mut rest = to;
    for param in call.params {
        let (packed, next) = rest.split_at_mut(param.count * layout.padded);
        rest = next;
        if param.count == 0 {
            continue;
        }
        for (group, vectors) in packed.chunks_exact_mut(param.count * lanes).enumerate() {
            for lane in 0..lanes {
                let channel = group * lanes + lane;
                for (k, vector) in vectors.chunks_exact_mut(lanes).enumerate() {
                    vector[lane] = if channel < call.channels {
                        // SAFETY: the caller's.
                        unsafe { *param.ptr.add(channel * param.count + k) }
                    } else {
                        T::default()
                    };
                }
            }
        }
    }
}

/// Adds the chunks in order and writes the gradients as `[channels, count]`.
///
/// # Safety
/// The parameter gradients are valid for the shape of the call.
pub(super) unsafe fn sum_partials<T: Element>(
    call: &Call<'_, T>,
    layout: &Layout,
    partials: &mut [T],
) {
    if layout.partial == 0 {
        return;
    }
    let lanes = T::lanes(call.tier);
    let summands = partials.len();
    let (first, rest) = partials.split_at_mut(layout.partial.min(summands));
    let rest = &*rest;
    let add = |start: usize, totals: &mut [T]| {
        for partial in rest.chunks_exact(layout.partial) {
            for (total, &value) in totals.iter_mut().zip(&partial[start..]) {
                *total += value;
            }
        }
    };
    if summands < PARALLEL_LEN {
        add(0, first);
    } else {
        tasks::run_parts(first, SUM_LEN, |part, totals| {
            add(part * SUM_LEN, totals);
        });
    }
    let mut start = 0;
    for grad in call.param_grads {
        for channel in (0..call.channels).take_while(|_| !grad.ptr.is_null()) {
            let (group, lane) = (channel / lanes, channel % lanes);
            for k in 0..grad.count {
                let index = start + (group * grad.count + k) * lanes + lane;
                // No chunk at all: an empty batch, whose sums are zero.
                let value = first.get(index).copied().unwrap_or_default();
                // SAFETY: the caller's.
                unsafe { *grad.ptr.add(channel * grad.count + k) = value };
            }
        }
        start += grad.count * layout.padded;
    }
}
