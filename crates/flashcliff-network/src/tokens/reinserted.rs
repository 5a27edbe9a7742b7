//! Channels of other tokens of the same items behind those of each token: the input channels that projections to queries and keys see again.

use super::Channels;
use super::chunk::Layout;
use super::step::{Given, Gradients};
use crate::Number;

/// Appends extra channels to the channels of tokens.
#[derive(Clone, Debug)]
pub struct Reinserted {
    pub(crate) blades: usize,
    pub(crate) channels: Channels,
    pub(crate) extra: Channels,
}

impl Reinserted {
    /// Extra channels behind those of tokens over so many blades.
    pub fn new(blades: usize, channels: Channels, extra: Channels) -> Self {
        Self {
            blades,
            channels,
            extra,
        }
    }

    pub(crate) fn output(&self) -> Channels {
        self.channels.and(self.extra)
    }

    fn layout(&self, rows: usize, channels: Channels) -> Layout {
        Layout {
            blades: self.blades,
            rows,
            channels,
        }
    }

    pub(crate) fn forward<T: Number>(&self, given: &Given<'_, T>, y: &mut [T]) {
        let (own, extra, rows) = (self.channels, self.extra, given.chunk.rows());
        let (mv, s) = self.layout(rows, own).split(given.x);
        let (more, more_s) = self.layout(rows, extra).split(given.other);
        let (to, to_s) = self.layout(rows, self.output()).split_mut(y);
        side_by_side([mv, more], [own.multivectors, extra.multivectors], to);
        side_by_side([s, more_s], [own.scalars, extra.scalars], to_s);
    }

    pub(crate) fn backward<T: Number>(&self, rows: usize, g: &[T], to: Gradients<'_, T>) {
        let (own, extra) = (self.channels, self.extra);
        let (mv, s) = self.layout(rows, self.output()).split(g);
        let widths = [own.multivectors, extra.multivectors];
        let of_scalars = [own.scalars, extra.scalars];
        for (at, to) in [to.x, to.other].into_iter().enumerate() {
            let Some(to) = to else { continue };
            let channels = [own, extra][at];
            let (to, to_s) = self.layout(rows, channels).split_mut(to);
            part(mv, widths, at, to);
            part(s, of_scalars, at, to_s);
        }
    }
}

/// Lines of two widths side by side.
fn side_by_side<T: Number>(from: [&[T]; 2], widths: [usize; 2], to: &mut [T]) {
    let [first, second] = widths;
    for (at, to) in to.chunks_exact_mut((first + second).max(1)).enumerate() {
        to[..first].copy_from_slice(&from[0][at * first..][..first]);
        to[first..].copy_from_slice(&from[1][at * second..][..second]);
    }
}

/// Copies one of two parts of lines.
fn part<T: Number>(from: &[T], widths: [usize; 2], at: usize, to: &mut [T]) {
    let [first, second] = widths;
    let (start, width) = ([0, first][at], widths[at].max(1));
    let lines = from.chunks_exact((first + second).max(1));
    for (to, from) in to.chunks_exact_mut(width).zip(lines) {
        to.copy_from_slice(&from[start..][..width]);
    }
}
