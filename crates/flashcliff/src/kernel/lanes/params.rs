//! Packs parameters for the lanes, and adds up sums over the batch.
//!
//! A packed parameter has the values of one group of channels one after the other, each a vector. Interpreted stages
//! take parameters that are not packed: [`Rows::parameter`](super::layout::Rows::parameter) knows the difference.

use super::layout::Layout;
use super::{Call, Totals};
use crate::Element;
use crate::kernel::tasks;

/// How many sums a thread takes at a time.
const SUM_LEN: usize = 2048;
/// The smallest number of summands that is worth more than one thread.
const PARALLEL_LEN: usize = 1 << 16;

/// Packs the parameters, `[channels, count]` each.
///
/// # Safety
/// The parameters are valid for the shape of the call.
pub(super) unsafe fn pack<T: Element>(call: &Call<'_, T>, layout: &Layout, to: &mut [T]) {
    let lanes = T::lanes(call.tier);
    let mut rest = to;
    for param in call.params {
        let rows = layout.rows(param.width);
        let (values, next) = rest.split_at_mut(rows.private_len(param.count));
        rest = next;
        let own = rows.channels / layout.beside;
        for group in 0..rows.padded / lanes {
            for lane in 0..lanes {
                let channel = group * lanes + lane;
                for k in 0..param.count {
                    let index = rows.parameter(param.count, k, [group, lane, lanes]);
                    values[index] = if channel < rows.channels {
                        // SAFETY: the caller promises it.
                        unsafe { *param.ptr.add(channel % own * param.count + k) }
                    } else {
                        T::default()
                    };
                }
            }
        }
    }
}

/// Adds the chunks in order, and then the rows that are side by side, and writes the sums as `[channels, count]`.
///
/// # Safety
/// The sums over the batch are valid for the shape of the call.
pub(super) unsafe fn sum_partials<T: Element>(
    call: &Call<'_, T>,
    layout: &Layout,
    partials: &mut [T],
    totals: Totals,
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
    for sum in call.sums {
        let rows = layout.rows(sum.width);
        let own = rows.channels / layout.beside;
        for channel in (0..rows.channels).take_while(|_| !sum.ptr.is_null()) {
            let (group, lane) = (channel / lanes, channel % lanes);
            let adds = channel >= own || totals == Totals::Added;
            for k in 0..sum.count {
                let index = start + rows.parameter(sum.count, k, [group, lane, lanes]);
                // No chunk at all: an empty batch, whose sums are zero.
                let value = first.get(index).copied().unwrap_or_default();
                // SAFETY: the caller promises it.
                unsafe {
                    let total = sum.ptr.add(channel % own * sum.count + k);
                    if !adds {
                        *total = T::default();
                    }
                    *total += value;
                }
            }
        }
        start += rows.private_len(sum.count);
    }
}
