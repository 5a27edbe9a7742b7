//! Channels of other tokens of the same items after the channels of each token: the input channels that projections to
//! queries and keys see again.

use super::Channels;
use super::chunk::Layout;
use super::step::{Given, Gradients};
use crate::Number;
use crate::scratch::Buffer;

/// Appends extra channels to the channels of tokens.
#[derive(Clone, Debug)]
pub struct Reinserted {
    pub(crate) blades: usize,
    pub(crate) channels: Channels,
    pub(crate) extra: Channels,
}

impl Reinserted {
    /// Extra channels after the channels of tokens over so many blades.
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
        let layout = self.layout(given.chunk.rows(), self.output());
        layout.join([given.x, given.other], [self.channels, self.extra], y);
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

impl Layout {
    /// The tokens of each of so many runs of equal channels, in separate layouts.
    pub(crate) fn runs_of_channels<T: Number>(self, x: &[T], count: usize) -> Vec<Buffer<T>> {
        let own = self.run(count);
        let (mv, s) = self.split(x);
        let widths = [own.channels.multivectors, own.channels.scalars];
        let run = |at: usize| {
            let mut to = Buffer::take(own.rows * own.channels.width_over(own.blades));
            let (to_mv, to_s) = own.split_mut(&mut to);
            for ((from, to), width) in [(mv, to_mv), (s, to_s)].into_iter().zip(widths) {
                let lines = from.chunks_exact((count * width).max(1));
                for (to, from) in to.chunks_exact_mut(width.max(1)).zip(lines) {
                    to.copy_from_slice(&from[at * width..][..width]);
                }
            }
            to
        };
        (0..count).map(run).collect()
    }

    /// Writes tokens of runs of equal channels side by side.
    pub(crate) fn join_runs<T: Number>(self, runs: &[Buffer<T>], to: &mut [T]) {
        let own = self.run(runs.len());
        let (to_mv, to_s) = self.split_mut(to);
        let widths = [own.channels.multivectors, own.channels.scalars];
        let [of_mv, of_s] = widths.map(|width| (width * runs.len()).max(1));
        for (at, run) in runs.iter().enumerate() {
            let (mv, s) = own.split(run);
            for ((from, to), width) in [
                (mv, to_mv.chunks_exact_mut(of_mv)),
                (s, to_s.chunks_exact_mut(of_s)),
            ]
            .into_iter()
            .zip(widths)
            {
                for (from, to) in from.chunks_exact(width.max(1)).zip(to) {
                    to[at * width..][..width].copy_from_slice(from);
                }
            }
        }
    }

    /// The layout of one of so many runs of equal channels.
    fn run(self, count: usize) -> Self {
        let channels = Channels::new(
            self.channels.multivectors / count,
            self.channels.scalars / count,
        );
        Self { channels, ..self }
    }

    /// Writes tokens of two kinds of channels side by side.
    pub(crate) fn join<T: Number>(self, parts: [&[T]; 2], channels: [Channels; 2], to: &mut [T]) {
        let of = |at: usize| {
            let layout = Self {
                channels: channels[at],
                ..self
            };
            layout.split(parts[at])
        };
        let ((mv, s), (more, more_s)) = (of(0), of(1));
        let (to, to_s) = self.split_mut(to);
        side_by_side([mv, more], channels.map(|own| own.multivectors), to);
        side_by_side([s, more_s], channels.map(|own| own.scalars), to_s);
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
