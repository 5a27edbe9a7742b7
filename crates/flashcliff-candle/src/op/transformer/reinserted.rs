//! Channels of other tokens of the same items behind those of each token: the input channels that projections to queries and keys see again.

use candle_core::{D, Result, Tensor};

use super::Channels;
use super::chunk::Chunk;
use super::constants::indices;
use super::stage::add;
use crate::op::Scalar;
use crate::op::scratch::Buffer;

/// Appends extra channels to the channels of tokens.
#[derive(Debug)]
pub(crate) struct Reinserted {
    pub(super) blades: usize,
    pub(super) channels: Channels,
    pub(super) extra: Channels,
}

impl Reinserted {
    pub(crate) fn new(blades: usize, channels: Channels, extra: Channels) -> Self {
        Self {
            blades,
            channels,
            extra,
        }
    }

    pub(super) fn output(&self) -> Channels {
        self.channels.and(self.extra)
    }

    pub(super) fn forward<T: Scalar>(&self, chunk: &Chunk<'_, T>, x: &[T], y: &mut [T]) {
        let (own, extra) = (self.channels, self.extra);
        let mut others = Buffer::take(chunk.len(extra));
        chunk.unpack(extra, chunk.extra, &mut others);
        let (mv, s) = chunk.split(own, x);
        let (more, more_s) = chunk.split(extra, &others);
        let (to, to_s) = chunk.split_mut(self.output(), y);
        side_by_side([mv, more], [own.multivectors, extra.multivectors], to);
        side_by_side([s, more_s], [own.scalars, extra.scalars], to_s);
    }

    /// Writes the gradient of the input, and adds that of the extra tokens to `of_extra` unless it is empty.
    pub(super) fn backward<T: Scalar>(
        &self,
        chunk: &Chunk<'_, T>,
        g: &[T],
        to: &mut [T],
        of_extra: &mut [T],
    ) {
        let (own, extra) = (self.channels, self.extra);
        let mut others = Buffer::take(chunk.len(extra));
        let (g, g_s) = chunk.split(self.output(), g);
        let (mv, s) = chunk.split_mut(own, to);
        let (more, more_s) = chunk.split_mut(extra, &mut others);
        apart(g, [own.multivectors, extra.multivectors], [mv, more]);
        apart(g_s, [own.scalars, extra.scalars], [s, more_s]);
        if !of_extra.is_empty() {
            let mut packed = Buffer::take(of_extra.len());
            chunk.pack(extra, &others, &mut packed);
            add(of_extra, &packed);
        }
    }

    /// Packed tokens by candle's operations: both side by side, then their columns in order.
    pub(super) fn compose(&self, x: &Tensor, extra: &Tensor) -> Result<Tensor> {
        let both = Tensor::cat(&[&x.contiguous()?, &extra.contiguous()?], D::Minus1)?;
        let order = || self.order();
        let order = indices(&format!("{}, in order", self.name()), order, x)?;
        both.index_select(&order, x.rank() - 1)
    }

    /// The inverse of [`Self::compose`], on a tensor without a graph.
    #[cfg(any(feature = "cuda", test))]
    pub(super) fn apart(&self, g: &Tensor) -> Result<[Tensor; 2]> {
        let inverse = || {
            let order = self.order()?;
            let mut inverse = vec![0; order.len()];
            for (at, &column) in (0..).zip(&order) {
                inverse[column as usize] = at;
            }
            Ok(inverse)
        };
        let inverse = indices(&format!("{}, apart", self.name()), inverse, g)?;
        let both = g.index_select(&inverse, g.rank() - 1)?;
        let [own, extra] = [self.channels, self.extra].map(|c| c.width_over(self.blades));
        let part = |first, width| both.narrow(D::Minus1, first, width)?.contiguous();
        Ok([part(0, own)?, part(own, extra)?])
    }

    fn name(&self) -> String {
        let (blades, own, extra) = (self.blades, self.channels, self.extra);
        format!("columns of {own:?} and {extra:?} over {blades} blades")
    }

    /// For each column of the output the column among those of both inputs.
    fn order(&self) -> Result<Vec<u32>> {
        let (own, extra) = (self.channels, self.extra);
        let behind = own.width_over(self.blades);
        let (mv, more) = (own.multivectors, extra.multivectors);
        let of_blade = |blade: usize| {
            let first = behind + blade * more;
            (blade * mv..(blade + 1) * mv).chain(first..first + more)
        };
        let first = behind + self.blades * more;
        let scalars = (self.blades * mv..behind).chain(first..first + extra.scalars);
        let columns = (0..self.blades).flat_map(of_blade).chain(scalars);
        columns
            .map(|column| u32::try_from(column).map_err(candle_core::Error::wrap))
            .collect()
    }
}

/// Lines of two widths side by side.
fn side_by_side<T: Scalar>(from: [&[T]; 2], widths: [usize; 2], to: &mut [T]) {
    let [first, second] = widths;
    for (at, to) in to.chunks_exact_mut((first + second).max(1)).enumerate() {
        to[..first].copy_from_slice(&from[0][at * first..][..first]);
        to[first..].copy_from_slice(&from[1][at * second..][..second]);
    }
}

/// The inverse of [`side_by_side`].
fn apart<T: Scalar>(from: &[T], widths: [usize; 2], to: [&mut [T]; 2]) {
    let [first, second] = widths;
    let [to, others] = to;
    for (at, from) in from.chunks_exact((first + second).max(1)).enumerate() {
        to[at * first..][..first].copy_from_slice(&from[..first]);
        others[at * second..][..second].copy_from_slice(&from[first..]);
    }
}
