//! Copies rows out of the scratch memory of a task. Large outputs are written past the caches.

use flashcliff_kernels::stage;
use flashcliff_kernels::stage::{Stage, StageArgs};

use crate::{Element, Tier};
use flashcliff_kernels::simd::Math;

/// The size in bytes above which an output is written past the caches, since it could not stay in them.
const STREAM_BYTES: usize = 16 << 20;

/// Writes a row with stores that bypass the caches. `args.inputs[0]` is the source,
/// `args.outputs[0]` the destination, aligned to a vector; `args.groups` vectors are copied.
///
/// # Safety
/// The contract of [`StageArgs`] holds, and the CPU has the tier of `V`.
#[inline(always)]
unsafe fn stream_groups<V: Math>(args: &mut StageArgs<'_, V::Elem>) {
    // SAFETY: the caller keeps the contract of `StageArgs`; the tier runs on this CPU.
    unsafe {
        let (from, to) = (args.inputs[0], args.outputs[0]);
        for group in 0..args.groups {
            let c = group * V::LANES;
            V::load(from.at(0, c)).stream(to.at(0, c));
        }
    }
}

/// Waits until streamed rows are visible to other threads.
///
/// # Safety
/// The CPU has the tier of `V`.
#[inline(always)]
unsafe fn fence<V: Math>(_: &mut StageArgs<'_, V::Elem>) {
    // SAFETY: the tier runs on this CPU.
    unsafe { V::stream_fence() }
}

/// The bytes of a cache line, the unit in which memory is written.
const LINE_BYTES: usize = 64;

static STREAM: Stage = stage!(stream_groups);
static FENCE: Stage = stage!(fence);

/// Copies rows on one tier, by streaming stores if the output is large.
#[derive(Clone, Copy)]
pub(crate) struct RowWriter {
    tier: Tier,
    stream: bool,
}

impl RowWriter {
    /// A writer for outputs of `bytes` bytes each.
    pub(crate) fn new(tier: Tier, bytes: usize) -> Self {
        Self {
            tier,
            stream: bytes >= STREAM_BYTES,
        }
    }

    pub(crate) fn streams(self) -> bool {
        self.stream
    }

    /// Copies `len` elements.
    ///
    /// # Safety
    /// Both ranges are valid and do not overlap.
    pub(crate) unsafe fn copy<T: Element>(self, from: *const T, to: *mut T, len: usize) {
        let line = LINE_BYTES / size_of::<T>();
        // The elements before the first whole line, and those in whole lines. Half-written lines must not pass the
        // caches.
        let head = (to.addr().wrapping_neg() % LINE_BYTES / size_of::<T>()).min(len);
        let body = (len - head) / line * line;
        if !self.stream || body == 0 {
            // SAFETY: the caller promises it.
            unsafe { from.copy_to_nonoverlapping(to, len) };
            return;
        }
        let (tail, groups) = (head + body, body / T::lanes(self.tier));
        // SAFETY: the three parts lie in the ranges of the caller; the middle one is aligned.
        unsafe {
            from.copy_to_nonoverlapping(to, head);
            call::<T>(
                &STREAM,
                self.tier,
                from.add(head).cast_mut(),
                to.add(head),
                groups,
            );
            from.add(tail)
                .copy_to_nonoverlapping(to.add(tail), len - tail);
        }
    }

    /// Makes streamed rows visible to other threads; call it once a task is done.
    pub(crate) fn finish<T: Element>(self) {
        if self.stream {
            // SAFETY: no element is accessed.
            unsafe {
                call::<T>(
                    &FENCE,
                    self.tier,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    0,
                );
            }
        }
    }
}

/// # Safety
/// `groups` vectors are valid at both addresses.
unsafe fn call<T: Element>(
    stage: &'static Stage,
    tier: Tier,
    from: *mut T,
    to: *mut T,
    groups: usize,
) {
    use flashcliff_kernels::stage::Lanes;
    let row = |ptr| Lanes { ptr, ..Lanes::NONE };
    let mut args = StageArgs {
        inputs: &[row(from)],
        outputs: &[row(to)],
        params: &[],
        sums: &[],
        rows: &[],
        row_sums: &mut [],
        groups,
        channels: 0,
        gate: crate::Gate::None,
        eps: T::default(),
        inv_channels: T::default(),
        counts: [T::default(); 2],
        code: None,
    };
    // Every tier has these stages.
    if let Some(function) = T::tiers(stage).get(tier) {
        // SAFETY: the caller promises it; the tier was checked when the operator was made.
        unsafe { function(&mut args) }
    }
}
