//! The norm of queries, keys and values: for each head the invariant norm of its multivectors and the layer norm of its scalars, or one norm of
//! its vectors and scalars.

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
            let columns = self.columns(&place, side.channels.multivectors, rows);
            let (x, mut y) = (columns.take(mv), Buffer::take(columns.len()));
            core.forward(columns.sizes(rows), norm::EPS, &x, &mut y)?;
            columns.put(&y, to_mv);
            let mut values = Vec::with_capacity(self.head.scalars);
            self.for_each_scalar_head(&place, (rows, side.channels), |at| {
                at.gather(s, &mut values);
                standardise(&mut values);
                at.scatter(&values, to_s);
            });
        }
        Ok(to)
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
            let columns = self.columns(&place, side.channels.multivectors, rows);
            let (x, g) = (columns.take(mv), columns.take(g_mv));
            let mut gradient = Buffer::take(columns.len());
            core.backward(columns.sizes(rows), norm::EPS, &x, &g, &mut gradient)?;
            columns.put(&gradient, to_mv);
            let [mut values, mut grads] = [(); 2].map(|()| Vec::with_capacity(self.head.scalars));
            self.for_each_scalar_head(&place, (rows, side.channels), |at| {
                at.gather(s, &mut values);
                at.gather(g_s, &mut grads);
                standardise_gradient(&values, &mut grads);
                at.scatter(&grads, to_s);
            });
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

    /// The vector channels of a part among those of a side, and the scalar channels.
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

    /// The multivector channels of a part among those of a side.
    fn columns(&self, place: &Place, width: usize, rows: usize) -> Columns {
        Columns {
            first: place.first.multivectors,
            channels: self.head.multivectors,
            heads: place.heads,
            width,
            lines: self.head.blades * rows,
        }
    }

    /// Calls a function with the scalars of each row and head of a part.
    fn for_each_scalar_head(
        &self,
        place: &Place,
        (rows, channels): (usize, Channels),
        mut work: impl FnMut(Spread),
    ) {
        if self.head.scalars == 0 {
            return;
        }
        for row in 0..rows {
            for head in 0..place.heads {
                work(Spread {
                    first: place.scalar(channels, row, head, 0),
                    step: place.heads,
                    count: self.head.scalars,
                });
            }
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

    fn sizes(&self, rows: usize) -> NormSizes {
        NormSizes {
            rows,
            channels: self.channels,
            groups: self.heads,
        }
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

/// Elements that are a step apart.
struct Spread {
    first: usize,
    step: usize,
    count: usize,
}

impl Spread {
    fn gather<T: Copy>(&self, data: &[T], values: &mut Vec<T>) {
        let places = (0..self.count).map(|at| self.first + at * self.step);
        values.clear();
        values.extend(places.map(|at| data[at]));
    }

    fn scatter<T: Copy>(&self, values: &[T], data: &mut [T]) {
        for (at, &value) in values.iter().enumerate() {
            data[self.first + at * self.step] = value;
        }
    }
}
/// The layer norm of some scalars.
fn standardise<T: Number>(s: &mut [T]) {
    let (mean, scale) = statistics(s);
    s.iter_mut().for_each(|s| *s = (*s - mean) * scale);
}

/// Turns the gradient of the result of [`standardise`] into that of its input `s`.
fn standardise_gradient<T: Number>(s: &[T], g: &mut [T]) {
    let (mean, scale) = statistics(s);
    let count: T = number(s.len() as f64);
    let mut sums = (T::default(), T::default());
    for (&s, &g) in s.iter().zip(&*g) {
        sums.0 += g;
        sums.1 += g * (s - mean) * scale;
    }
    let (of_g, of_product) = (sums.0 / count, sums.1 / count);
    for (&s, g) in s.iter().zip(g) {
        *g = (*g - of_g - (s - mean) * scale * of_product) * scale;
    }
}

/// The mean, and one over the standard deviation.
fn statistics<T: Number>(s: &[T]) -> (T, T) {
    let count: T = number(s.len() as f64);
    let mut sum = T::default();
    s.iter().for_each(|&s| sum += s);
    let mean = sum / count;
    let mut squares = T::default();
    s.iter().for_each(|&s| squares += (s - mean) * (s - mean));
    let deviation = (squares / count + number(SCALAR_EPS)).root();
    (mean, number::<T>(1.0) / deviation)
}
