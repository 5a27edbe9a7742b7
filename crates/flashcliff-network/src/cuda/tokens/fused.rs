//! Attention by kernels that keep no scores, of `f32`.
//!
//! Features stay where the kernels of heads write them, `[rows, heads, width]`, with zeros up to the width that the
//! kernels of attention want. The sequences of a ragged batch are found by their bounds on the device. Where a
//! multiprocessor has room for a sequence, kernels read and write the result as tokens, and the backward pass needs
//! no result.

use flashcliff::cuda::MatmulPrecision;
use flashcliff::cuda::attention::{Attention as Kernel, HeadTensor, SequenceRows};
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::rows::Rows;
use flashcliff::{Device, Dtype};

use super::attention::{Heads, elements, features};
use super::{Given, Site, Sizes, not_served};
use crate::Error;
use crate::cuda::room::Room;
use crate::tokens::Attention;

/// Heads that share keys are computed in one place, unless there are fewer keys than this: one place for all heads
/// would leave a GPU idle then.
const FEW_KEYS: usize = 1 << 15;
/// Sequences of at most so many keys are computed in one place in any case, since a tile has all their heads.
const SHORT: usize = 64;
/// The largest product of the queries of one head and the queries of all heads in one place. The kernels divide the one
/// number by the other in 32 bits.
const LARGEST: usize = i32::MAX as usize;

#[derive(Debug)]
pub(super) struct Fused {
    /// The sums of gradients of heads that read the same keys.
    sums: Option<Rows>,
}

/// Sequences of a run, and how the kernels take heads.
struct Within {
    sequences: usize,
    /// The rows of queries, and the rows of keys.
    rows: [SequenceRows; 2],
    /// The heads of the gradients of keys and values: 1, or as many as queries have, which may read the same keys.
    key_heads: usize,
}

/// Contiguous features of so many heads.
#[derive(Clone, Copy)]
struct Of {
    heads: usize,
    width: usize,
}

impl Of {
    /// Features of sequences that are so long at most, for kernels of so many heads.
    fn at(self, address: CUdeviceptr, longest: usize, readers: usize) -> HeadTensor {
        let row_stride = self.heads * self.width;
        HeadTensor {
            features: address,
            sequence_stride: longest * row_stride,
            row_stride,
            // Several heads may read one.
            head_stride: if self.heads < readers { 0 } else { self.width },
        }
    }
}

impl Fused {
    /// The widths of features for the kernels; `None` if they do not serve them.
    pub(super) fn widths(step: &Attention, sizes: &Sizes) -> Option<[usize; 2]> {
        let widths = features(step).map(|count| count.next_multiple_of(Kernel::ALIGNED));
        let fits = |width: usize| (1..=Kernel::WIDTH).contains(&width);
        let is_served = sizes.dtype == Dtype::F32 && !step.masked;
        (is_served && widths.into_iter().all(fits)).then_some(widths)
    }

    pub(super) fn new(step: &Attention, device: &Device, sizes: &Sizes) -> Result<Self, Error> {
        let sums = step.shared.then(|| Rows::new(device, sizes.dtype));
        Ok(Self {
            sums: sums.transpose()?,
        })
    }

    /// Queries, keys, values, what queries attend to, and the logarithms of the sums of exponentials `[heads, queries]`.
    pub(super) fn kept(step: &Attention, sizes: &Sizes, widths: [usize; 2]) -> Room<5> {
        let [query, key, value] = elements(step, sizes, widths);
        let sums = sizes.rows() * step.heads;
        Room::new([query, key, value, sums * widths[1], sums].map(|count| sizes.bytes(count)))
    }

    /// The gradients of what queries attend to, of queries, keys and values of each head, and of keys and values that heads share;
    /// and a number for each query of a head.
    pub(super) fn backward_room(&self, heads: &Heads, sizes: &Sizes) -> Room<7> {
        let (step, [width, of_values]) = (&heads.step, heads.widths);
        let [queries, keys] = rows(step, sizes);
        let shared = if step.shared { keys } else { 0 };
        let counts = [
            queries * step.heads * of_values,
            queries * step.heads * width,
            keys * step.heads * width,
            keys * step.heads * of_values,
            shared * width,
            shared * of_values,
            queries * step.heads,
        ];
        Room::new(counts.map(|count| sizes.bytes(count)))
    }

    /// # Safety
    /// The contract of [`Ready::forward`](super::Ready::forward) holds.
    pub(super) unsafe fn forward(
        &self,
        heads: &Heads,
        site: &Site<'_>,
        given: Given,
        y: CUdeviceptr,
    ) -> Result<(), Error> {
        let kept = Self::kept(&heads.step, &site.sizes, heads.widths).at(given.kept);
        let [query, key, value, out, _] = kept;
        let kernel = kernel(heads, site, &within(&heads.step, site)?, kept);
        let whole = heads.whole(site, &kernel)?;
        // SAFETY: what is kept has the elements of all; bounds ascend to the rows. The caller promises the rest.
        unsafe {
            heads.write(site, given, [query, key, value])?;
            if let Some(whole) = whole {
                return Ok(whole.forward(site.target(), heads.merged(&site.sizes, y))?);
            }
            kernel.forward(site.target())?;
            heads.merge(site, out, site.sizes.rows(), true, (y, false))
        }
    }

    /// Writes the gradients of features, and returns where they are.
    ///
    /// # Safety
    /// The contract of [`Ready::forward`](super::Ready::forward) holds.
    pub(super) unsafe fn backward(
        &self,
        heads: &Heads,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
    ) -> Result<[CUdeviceptr; 3], Error> {
        let (step, sizes) = (&heads.step, &site.sizes);
        let ([width, of_values], [queries, keys]) = (heads.widths, rows(step, sizes));
        let within = within(step, site)?;
        let kept = Self::kept(step, sizes, heads.widths).at(given.kept);
        let room = self.backward_room(heads, sizes).at(given.workspace);
        let [
            of_out,
            of_query,
            of_key,
            of_value,
            shared_key,
            shared_value,
            means,
        ] = room;
        let kernel = kernel(heads, site, &within, kept);
        let gradient = HeadTensor {
            features: of_out,
            ..kernel.out
        };
        let place = |side: usize, heads: usize, width: usize, address| {
            Of { heads, width }.at(address, within.rows[side].longest, heads)
        };
        let places = [
            place(0, step.heads, width, of_query),
            place(1, within.key_heads, width, of_key),
            place(1, within.key_heads, of_values, of_value),
        ];
        let target = site.target();
        // SAFETY: the room has the elements of all, and the caller promises the rest.
        unsafe {
            if let Some(whole) = heads.whole(site, &kernel)? {
                whole.backward(target, heads.merged(sizes, g), places)?;
            } else {
                if of_values > features(step)[1] {
                    // The kernel of heads writes no more than the features.
                    site.clear(of_out, queries * step.heads * of_values)?;
                }
                heads.merge(site, of_out, queries, true, (g, true))?;
                kernel.backward(target, gradient, places, means)?;
            }
            let Some(sums) = self.sums.filter(|_| within.key_heads > 1) else {
                return Ok([of_query, of_key, of_value]);
            };
            let sizes = |width| [keys, within.key_heads, width];
            sums.head_sums(target, sizes(width), of_key, shared_key)?;
            sums.head_sums(target, sizes(of_values), of_value, shared_value)?;
            Ok([of_query, shared_key, shared_value])
        }
    }
}

/// The rows of queries and of keys.
fn rows(step: &Attention, sizes: &Sizes) -> [usize; 2] {
    let [query, key, _] = step.places().map(|place| place.side);
    [query, key].map(|side| sizes.rows_of(side))
}

fn within(step: &Attention, site: &Site<'_>) -> Result<Within, Error> {
    let (sizes, sides) = (&site.sizes, step.places().map(|place| place.side));
    let batch = sizes.batch;
    let of = |side: usize| {
        let (longest, bounds) = match &site.sequences {
            None => ([batch.items, batch.context][side], 0),
            Some(own) => (own[side].longest(), own[side].address),
        };
        SequenceRows {
            count: sizes.rows_of(side),
            longest,
            bounds,
        }
    };
    let sequences = site.sequences.map_or(batch.samples, |[own, _]| own.count());
    let rows = [of(sides[0]), of(sides[1])];
    let [queries, keys] = rows.map(|rows| rows.longest);
    let squared = queries.saturating_mul(queries);
    if squared > LARGEST {
        let expected = format!(
            "sequences of at most {} items, got {queries}",
            LARGEST.isqrt()
        );
        return Err(not_served("attention", &expected));
    }
    let is_few = keys > SHORT && sequences.saturating_mul(keys) < FEW_KEYS;
    let together = step.shared && !is_few && squared.saturating_mul(step.heads) <= LARGEST;
    Ok(Within {
        sequences,
        rows,
        key_heads: if together { 1 } else { step.heads },
    })
}

/// The call for queries, keys, values, the result and the logarithms at these addresses.
fn kernel(
    heads: &Heads,
    site: &Site<'_>,
    within: &Within,
    [query, key, value, out, log_sums]: [CUdeviceptr; 5],
) -> Kernel {
    let (step, [width, of_values]) = (&heads.step, heads.widths);
    let [_, key_heads, _] = step.places().map(|place| place.heads);
    let of = |heads, width| Of { heads, width };
    let [queries, keys] = within.rows;
    Kernel {
        query: of(step.heads, width).at(query, queries.longest, step.heads),
        key: of(key_heads, width).at(key, keys.longest, within.key_heads),
        value: of(key_heads, of_values).at(value, keys.longest, within.key_heads),
        out: of(step.heads, of_values).at(out, queries.longest, step.heads),
        log_sums,
        queries,
        keys,
        sequences: within.sequences,
        heads: step.heads,
        key_heads: within.key_heads,
        width,
        value_width: of_values,
        scale: step.scale() as f32,
        dtype: site.sizes.dtype,
        tf32: site.sizes.precision == MatmulPrecision::Tf32,
    }
}
