//! The norm of queries, keys and values: for each head the invariant norm of its multivectors and the layer norm of
//! its scalars, or one norm of its vectors and scalars.

use std::ops::Range;

use flashcliff::attention::HeadScales;
use flashcliff::equivariant::{InvariantNorm, NormSizes};

use super::Channels;
use super::attention::passes::Side;
use super::attention::{Attention, Place};
use super::joint::Joint;
use super::norm::{self, SCALAR_EPS};
use super::number;
use crate::scratch::Buffer;
use crate::{Error, Number};

impl Attention {
    /// The input of a side with every head of every part normalised.
    pub(crate) fn normalised<T: Number>(&self, side: &Side<'_, T>) -> Result<Buffer<T>, Error> {
        let mut to = Buffer::take(side.x.len());
        if self.geometry.vectors {
            self.joint(side, &mut to);
            return Ok(to);
        }
        let (mv, s) = self.layout(side.rows(), side.channels).split(side.x);
        let (to_mv, to_s) = self.layout(side.rows(), side.channels).split_mut(&mut to);
        let core = InvariantNorm::new(self.geometry.algebra);
        let rows = side.rows();
        for place in self.places_of(side.index) {
            let first = place.first.multivectors;
            if let (Some(x), Some(y)) = (mv.get(first..), to_mv.get_mut(first..)) {
                core.forward(self.norm_sizes(side, &place), norm::EPS, x, y)?;
            }
            let mut statistics = Statistics::new(place.heads, self.head.scalars);
            for at in self.scalars_of_rows(&place, rows, side.channels) {
                statistics.standardise(&s[at.clone()], &mut to_s[at]);
            }
        }
        Ok(to)
    }

    /// The factors by which the norm multiplies the heads of a part of a side.
    pub(crate) fn scales<T: Number>(
        &self,
        side: &Side<'_, T>,
        place: &Place,
    ) -> Result<Scales<T>, Error> {
        let (mv, s) = self.layout(side.rows(), side.channels).split(side.x);
        let count = side.rows() * place.heads;
        let of_scalars = if self.head.scalars > 0 { count } else { 0 };
        let mut scales = Scales {
            multivectors: Buffer::take(count),
            means: Buffer::take(of_scalars),
            scalars: Buffer::take(of_scalars),
        };
        let x = mv.get(place.first.multivectors..).unwrap_or(&[]);
        let sizes = self.norm_sizes(side, place);
        let core = InvariantNorm::new(self.geometry.algebra);
        core.scales(sizes, norm::EPS, x, &mut scales.multivectors)?;
        let mut statistics = Statistics::new(place.heads, self.head.scalars);
        let rows = self.scalars_of_rows(place, side.rows(), side.channels);
        let heads = place.heads.max(1);
        let to = scales.means.chunks_exact_mut(heads);
        for (at, (means, scales)) in rows.zip(to.zip(scales.scalars.chunks_exact_mut(heads))) {
            statistics.take(&s[at]);
            means.copy_from_slice(&statistics.mean);
            scales.copy_from_slice(&statistics.scale);
        }
        Ok(scales)
    }

    /// The gradient of the input of a side, from that of what [`Self::normalised`] makes of it.
    pub(crate) fn normalised_gradient<T: Number>(
        &self,
        side: &Side<'_, T>,
        g: &[T],
        to: &mut [T],
    ) -> Result<(), Error> {
        if self.geometry.vectors {
            self.joint_gradient(side, g, to);
            return Ok(());
        }
        let (mv, s) = self.layout(side.rows(), side.channels).split(side.x);
        let (g_mv, g_s) = self.layout(side.rows(), side.channels).split(g);
        let (to_mv, to_s) = self.layout(side.rows(), side.channels).split_mut(to);
        let core = InvariantNorm::new(self.geometry.algebra);
        let rows = side.rows();
        for place in self.places_of(side.index) {
            let own = place.first.multivectors..;
            let given = (mv.get(own.clone()), g_mv.get(own.clone()));
            if let ((Some(x), Some(g)), Some(to)) = (given, to_mv.get_mut(own)) {
                core.backward(self.norm_sizes(side, &place), norm::EPS, x, g, to)?;
            }
            let mut statistics = Statistics::new(place.heads, self.head.scalars);
            for at in self.scalars_of_rows(&place, rows, side.channels) {
                statistics.gradient(&s[at.clone()], &g_s[at.clone()], &mut to_s[at]);
            }
        }
        Ok(())
    }

    /// Writes the input of a side with the vectors and scalars of every head normalised together.
    fn joint<T: Number>(&self, side: &Side<'_, T>, to: &mut [T]) {
        let layout = self.layout(side.rows(), side.channels);
        let ((mv, s), (to_mv, to_s)) = (layout.split(side.x), layout.split_mut(to));
        let norms = self.geometry.norms();
        for place in self.places_of(side.index) {
            let [columns, scalars] = self.both_columns(&place, side);
            let (mut y, mut y_s) = (Buffer::take(columns.len()), Buffer::take(scalars.len()));
            let given = [&*columns.take(mv), &*scalars.take(s)];
            self.joint_of(&norms, &place, side.rows())
                .forward(given, &mut y, &mut y_s);
            columns.put(&y, to_mv);
            scalars.put(&y_s, to_s);
        }
    }

    /// Writes the gradient of the input of a side, from that of what [`Self::joint`] makes of it.
    fn joint_gradient<T: Number>(&self, side: &Side<'_, T>, g: &[T], to: &mut [T]) {
        let layout = self.layout(side.rows(), side.channels);
        let ((mv, s), (g_mv, g_s)) = (layout.split(side.x), layout.split(g));
        let (to_mv, to_s) = layout.split_mut(to);
        let norms = self.geometry.norms();
        for place in self.places_of(side.index) {
            let [columns, scalars] = self.both_columns(&place, side);
            let (mut y, mut y_s) = (Buffer::take(columns.len()), Buffer::take(scalars.len()));
            let given = [&*columns.take(mv), &*scalars.take(s)];
            let gradients = [&*columns.take(g_mv), &*scalars.take(g_s)];
            self.joint_of(&norms, &place, side.rows())
                .backward(given, gradients, &mut y, &mut y_s);
            columns.put(&y, to_mv);
            scalars.put(&y_s, to_s);
        }
    }

    fn joint_of<'n>(&self, norms: &'n [i8], place: &Place, rows: usize) -> Joint<'n> {
        Joint {
            norms,
            rows,
            channels: self.head.multivectors,
            scalars: self.head.scalars,
            groups: place.heads,
        }
    }

    /// The vector channels of a part among the channels of a side, and its scalar channels.
    fn both_columns<T>(&self, place: &Place, side: &Side<'_, T>) -> [Columns; 2] {
        let of_scalars = Columns {
            first: place.first.scalars,
            channels: self.head.scalars,
            heads: place.heads,
            width: side.channels.scalars,
            lines: side.rows(),
        };
        let of_vectors = self.columns(place, side.channels.multivectors, side.rows());
        [of_vectors, of_scalars]
    }

    /// The multivector channels of a part among the channels of a side.
    fn columns(&self, place: &Place, width: usize, rows: usize) -> Columns {
        Columns {
            first: place.first.multivectors,
            channels: self.head.multivectors,
            heads: place.heads,
            width,
            lines: self.head.blades * rows,
        }
    }

    /// The sizes of the norm of the multivectors of a part of a side.
    fn norm_sizes<T>(&self, side: &Side<'_, T>, place: &Place) -> NormSizes {
        NormSizes {
            rows: side.rows(),
            channels: self.head.multivectors,
            groups: place.heads,
            row: side.channels.multivectors,
        }
    }

    /// For each row, the places of the scalars of a part: of all heads, channel by channel.
    fn scalars_of_rows(
        &self,
        place: &Place,
        rows: usize,
        channels: Channels,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let count = place.heads * self.head.scalars;
        let first = place.scalar(channels, 0, 0, 0);
        (0..if count > 0 { rows } else { 0 }).map(move |row| {
            let first = first + row * channels.scalars;
            first..first + count
        })
    }
}

/// The factors by which the norm multiplies heads, and the means of scalars, `[rows, heads]` each.
pub(crate) struct Scales<T: Number> {
    multivectors: Buffer<T>,
    means: Buffer<T>,
    scalars: Buffer<T>,
}

impl<T: Number> Scales<T> {
    /// The factors of some rows.
    pub(crate) fn of(&self, rows: Range<usize>, heads: usize) -> HeadScales<'_, T> {
        let own = rows.start * heads..rows.end * heads;
        HeadScales {
            multivectors: &self.multivectors[own.clone()],
            means: self.means.get(own.clone()).unwrap_or(&[]),
            scalars: self.scalars.get(own).unwrap_or(&[]),
        }
    }
}

/// Some neighbouring channels of all lines of multivectors, or of scalars.
struct Columns {
    first: usize,
    /// The channels of a head.
    channels: usize,
    heads: usize,
    /// The channels of a line.
    width: usize,
    lines: usize,
}

impl Columns {
    fn of_line(&self) -> usize {
        self.channels * self.heads
    }

    fn len(&self) -> usize {
        self.lines * self.of_line()
    }

    fn take<T: Number>(&self, lines: &[T]) -> Buffer<T> {
        let mut taken = Buffer::take(self.len());
        if taken.is_empty() {
            return taken;
        }
        let lines = lines.chunks_exact(self.width);
        for (to, line) in taken.chunks_exact_mut(self.of_line()).zip(lines) {
            to.copy_from_slice(&line[self.first..][..self.of_line()]);
        }
        taken
    }

    fn put<T: Number>(&self, taken: &[T], lines: &mut [T]) {
        if taken.is_empty() {
            return;
        }
        let lines = lines.chunks_exact_mut(self.width);
        for (from, line) in taken.chunks_exact(self.of_line()).zip(lines) {
            line[self.first..][..self.of_line()].copy_from_slice(from);
        }
    }
}

/// The layer norm of scalars `[channels, heads]` over the channels of each head. Heads are neighbours, so that one
/// instruction serves several.
struct Statistics<T> {
    count: T,
    mean: Vec<T>,
    /// One over the standard deviation.
    scale: Vec<T>,
    /// Means of the gradient, and of its product with the result.
    of_gradient: [Vec<T>; 2],
}

impl<T: Number> Statistics<T> {
    fn new(heads: usize, channels: usize) -> Self {
        let zeros = || vec![T::default(); heads];
        Self {
            count: number(channels as f64),
            mean: zeros(),
            scale: zeros(),
            of_gradient: [zeros(), zeros()],
        }
    }

    /// Takes the statistics of some scalars.
    fn take(&mut self, s: &[T]) {
        let Self {
            count, mean, scale, ..
        } = self;
        mean.fill(T::default());
        scale.fill(T::default());
        for line in s.chunks_exact(mean.len()) {
            for (sum, &s) in mean.iter_mut().zip(line) {
                *sum += s;
            }
        }
        for sum in &mut *mean {
            *sum = *sum / *count;
        }
        for line in s.chunks_exact(mean.len()) {
            for ((sum, &mean), &s) in scale.iter_mut().zip(&*mean).zip(line) {
                *sum += (s - mean) * (s - mean);
            }
        }
        for sum in scale {
            let deviation = (*sum / *count + number(SCALAR_EPS)).root();
            *sum = number::<T>(1.0) / deviation;
        }
    }

    /// Writes the norm of some scalars.
    fn standardise(&mut self, s: &[T], to: &mut [T]) {
        self.take(s);
        let heads = self.mean.len();
        for (to, s) in to.chunks_exact_mut(heads).zip(s.chunks_exact(heads)) {
            for (((to, &s), &mean), &scale) in to.iter_mut().zip(s).zip(&self.mean).zip(&self.scale)
            {
                *to = (s - mean) * scale;
            }
        }
    }

    /// Writes the gradient of some scalars from that of their norm.
    fn gradient(&mut self, s: &[T], g: &[T], to: &mut [T]) {
        self.take(s);
        let heads = self.mean.len();
        let Self {
            count,
            mean,
            scale,
            of_gradient: [of_g, of_product],
        } = self;
        of_g.fill(T::default());
        of_product.fill(T::default());
        for (s, g) in s.chunks_exact(heads).zip(g.chunks_exact(heads)) {
            for head in 0..heads {
                of_g[head] += g[head];
                of_product[head] += g[head] * (s[head] - mean[head]) * scale[head];
            }
        }
        for sum in of_g.iter_mut().chain(&mut *of_product) {
            *sum = *sum / *count;
        }
        let lines = s.chunks_exact(heads).zip(g.chunks_exact(heads));
        for (to, (s, g)) in to.chunks_exact_mut(heads).zip(lines) {
            for head in 0..heads {
                let own = (s[head] - mean[head]) * scale[head];
                to[head] = (g[head] - of_g[head] - own * of_product[head]) * scale[head];
            }
        }
    }
}
