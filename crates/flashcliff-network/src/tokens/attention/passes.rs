//! The passes of attention over a chunk: features, runs of queries and keys through the core, merging of heads, and
//! the gradients of all that.

use std::ops::Range;

use flashcliff::attention::{
    self as core, AttentionGradients, AttentionInputs, AttentionMask, HeadItems, HeadItemsMut,
    HeadSizes, HeadStrides,
};

use super::{Attention, Given, Gradients, Place};
use crate::scratch::Buffer;
use crate::tokens::chunk::{Chunk, Run, Samples};
use crate::tokens::features::Part;
use crate::tokens::step::ParametersMut;
use crate::tokens::{Channels, add, number};
use crate::{Error, Number};

/// An input: it has all parts, the queries, or the keys and values.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a, T> {
    pub(crate) index: usize,
    pub(crate) samples: Samples<'a>,
    pub(crate) channels: Channels,
    pub(crate) x: &'a [T],
}

impl<T> Side<'_, T> {
    pub(crate) fn rows(&self) -> usize {
        self.samples.rows()
    }
}

/// The gradients of queries, keys and values.
type Parts<T> = [Buffer<T>; 3];

impl Attention {
    /// The inputs.
    pub(crate) fn sides_of<'a, T>(&self, given: &Given<'a, T>) -> Vec<Side<'a, T>> {
        let sources = [
            (given.chunk.samples, given.x),
            (given.chunk.context, given.other),
        ];
        let sides = self.sides().into_iter().zip(sources).enumerate();
        let side = |(index, (channels, (samples, x)))| Side {
            index,
            samples,
            channels,
            x,
        };
        sides.map(side).collect()
    }

    /// The rows of queries and of keys.
    fn rows<T>(&self, given: &Given<'_, T>) -> [usize; 2] {
        self.samples(given).map(Samples::rows)
    }

    /// The samples of queries and of keys.
    fn samples<'a, T>(&self, given: &Given<'a, T>) -> [Samples<'a>; 2] {
        let Chunk {
            samples, context, ..
        } = given.chunk;
        [samples, if self.crossing { context } else { samples }]
    }

    /// Runs of queries, each with its keys.
    pub(crate) fn runs<'a, T>(
        &self,
        given: &Given<'a, T>,
    ) -> impl Iterator<Item = [Run; 2]> + use<'a, T> {
        let [queries, keys] = self.samples(given);
        let mut of_keys = keys.runs();
        // A context without rows may come without boundaries: then no sequence has keys.
        queries.runs().map(move |query| {
            let none = Run {
                first: 0,
                items: 0,
                ..query
            };
            [query, of_keys.next().unwrap_or(none)]
        })
    }

    /// Writes the attended values. `kept` gets what the backward pass needs.
    pub(crate) fn forward<T: Number>(
        &self,
        given: &Given<'_, T>,
        y: &mut [T],
        kept: &mut [T],
    ) -> Result<(), Error> {
        let sections = self.sections(self.rows(given));
        let [query, key, value, out, normaliser] = sections.split_mut(kept);
        let mut parts = [query, key, value];
        for side in self.sides_of(given) {
            self.write_features(&side, given.parameters.joined(), &mut parts)?;
        }
        let [query, key, value] = parts.map(|part| &*part);
        for run in self.runs(given) {
            let of_query = self.mask_rows(given, run[0]);
            let places = self.places_of_run(run);
            let inputs = self.inputs([query, key, value], &places, given, &of_query);
            core::forward(
                self.sizes(run),
                self.scale(),
                inputs,
                &mut out[places[3].clone()],
                &mut normaliser[places[4].clone()],
            )?;
        }
        self.merge(&given.chunk, out, y);
        Ok(())
    }

    /// The features of queries, keys and values.
    pub(crate) fn features<T: Number>(
        &self,
        given: &Given<'_, T>,
    ) -> Result<[Buffer<T>; 3], Error> {
        let [query, key, value, ..] = self.sections(self.rows(given)).lens;
        let mut parts = [query, key, value].map(Buffer::take);
        let mut to = parts.each_mut().map(|part| &mut **part);
        for side in self.sides_of(given) {
            self.write_features(&side, given.parameters.joined(), &mut to)?;
        }
        Ok(parts)
    }

    /// The numbers of the attended values of all heads.
    pub(crate) fn out_len<T>(&self, given: &Given<'_, T>) -> usize {
        self.sections(self.rows(given)).lens[3]
    }

    /// Writes the features of the parts of an input.
    fn write_features<T: Number>(
        &self,
        side: &Side<'_, T>,
        log_weights: &[T],
        parts: &mut [&mut [T]; 3],
    ) -> Result<(), Error> {
        let (channels, rows) = (side.channels, side.rows());
        // Features of points are no multiples of what heads are.
        let is_scaled =
            self.geometry.head_norm && !self.geometry.vectors && self.head.points.is_none();
        let normed = if is_scaled { None } else { self.seen(side)? };
        let layout = self.layout(rows, channels);
        let (mv, s) = layout.split(normed.as_deref().unwrap_or(side.x));
        let weights = self.weights(log_weights);
        for place in self.places_of(side.index) {
            let features = &mut *parts[place.part as usize];
            let packed = self.head.packed(place.part);
            let scales = match is_scaled {
                true => Some(self.scales(side, &place)?),
                false => None,
            };
            for run in side.samples.runs() {
                let (sizes, own) = self.of_run(&place, run);
                let items = self.items(&place, channels, rows, (mv, s)).from(run.first);
                let features = &mut features[own];
                match &scales {
                    Some(scales) => {
                        let scales = scales.of(run.rows(), place.heads);
                        packed.forward_scaled(sizes, items, scales, features)?;
                    }
                    None => packed.forward(sizes, items, &weights, features)?,
                }
            }
        }
        Ok(())
    }

    /// The sizes of the heads of a run, and where their features are.
    fn of_run(&self, place: &Place, run: Run) -> (HeadSizes, Range<usize>) {
        let width = self.head.features(place.part);
        let rows = run.rows();
        let sizes = HeadSizes {
            rows: rows.len(),
            channels: self.head.multivectors,
            scalars: self.head.scalars,
            heads: place.heads,
            width,
            items: if self.shared { 1 } else { run.items.max(1) },
        };
        let of_row = place.heads * width;
        (sizes, rows.start * of_row..rows.end * of_row)
    }

    /// The weights of distances `[channels, heads]`, from their logarithms `[heads, channels]`.
    fn weights<T: Number>(&self, log_weights: &[T]) -> Vec<T> {
        let count = log_weights.len() / self.heads;
        let places =
            (0..count).flat_map(|channel| (0..self.heads).map(move |h| h * count + channel));
        let exponential = |at: usize| number(log_weights[at].to_f64().exp());
        places.map(exponential).collect()
    }

    /// The heads of a part of an input.
    fn items<'x, T>(
        &self,
        place: &Place,
        channels: Channels,
        rows: usize,
        (mv, s): (&'x [T], &'x [T]),
    ) -> HeadItems<'x, T> {
        HeadItems {
            multivectors: mv.get(place.first.multivectors..).unwrap_or(&[]),
            scalars: s.get(place.first.scalars..).unwrap_or(&[]),
            strides: strides(channels, rows),
        }
    }

    /// Writes the attended values of heads as tokens.
    pub(crate) fn merge<T: Number>(&self, chunk: &Chunk<'_>, out: &[T], y: &mut [T]) {
        let (rows, width) = (chunk.rows(), self.head.features(Part::Value));
        let (to, to_s) = self.layout(rows, self.output()).split_mut(y);
        let (blades, channels) = (self.head.blades, self.head.multivectors);
        let of_row = self.heads * channels;
        for run in chunk.samples.runs().filter(|run| !run.rows().is_empty()) {
            let places: Vec<usize> = (0..self.heads)
                .map(|head| self.index(run, self.heads, run.first, head) * width)
                .collect();
            for row in run.rows() {
                let of_row_s = self.heads * self.head.scalars;
                let first = self.index(run, self.heads, row, 0) * width - places[0];
                for blade in 0..blades {
                    let to = &mut to[(blade * rows + row) * of_row..][..of_row];
                    for (&head, to) in places.iter().zip(to.chunks_exact_mut(channels.max(1))) {
                        copy_few(&out[first + head + blade * channels..][..channels], to);
                    }
                }
                let to = &mut to_s[row * of_row_s..][..of_row_s];
                let own = to.chunks_exact_mut(self.head.scalars.max(1));
                for (&head, to) in places.iter().zip(own) {
                    copy_few(&out[first + head + blades * channels..][..to.len()], to);
                }
            }
        }
    }

    /// Writes the gradients of the inputs, of the mask and of the logarithms of weights.
    pub(crate) fn backward<T: Number>(
        &self,
        given: &Given<'_, T>,
        kept: &[T],
        g: &[T],
        to: Gradients<'_, T>,
    ) -> Result<(), Error> {
        let sections = self.sections(self.rows(given));
        let [query, key, value, out, normaliser] = sections.split(kept);
        let of_out = self.unmerged(&given.chunk, g);
        let mut parts: Parts<T> = std::array::from_fn(|part| Buffer::take(sections.lens[part]));
        let [of_query, of_key, of_value] = &mut parts;
        let mut of_mask = to.mask;
        for run in self.runs(given) {
            let rows = self.mask_rows(given, run[0]);
            let mut of_rows = of_mask
                .as_deref_mut()
                .map(|to| Shared::new(&rows, self.sizes(run).keys, to));
            let places = self.places_of_run(run);
            core::backward(
                self.sizes(run),
                self.scale(),
                self.inputs([query, key, value], &places, given, &rows),
                &out[places[3].clone()],
                &normaliser[places[4].clone()],
                &of_out[places[3].clone()],
                AttentionGradients {
                    query: &mut of_query[places[0].clone()],
                    key: &mut of_key[places[1].clone()],
                    value: &mut of_value[places[2].clone()],
                    scores: of_rows.as_mut().map(Shared::scores),
                },
            )?;
            if let Some(own) = of_rows {
                own.add_up();
            }
        }
        let mut none: [T; 0] = [];
        let of_weights = to.parameters.map_or(&mut none[..], ParametersMut::joined);
        of_weights.fill(T::default());
        let wanted = [to.x, to.other];
        for (side, to) in self.sides_of(given).iter().zip(wanted) {
            if to.is_none() && of_weights.is_empty() {
                continue;
            }
            let mut unwanted = Buffer::take(if to.is_some() { 0 } else { side.x.len() });
            let to = to.unwrap_or(&mut unwanted);
            self.input_gradient(side, given.parameters.joined(), &parts, to, of_weights)?;
        }
        Ok(())
    }

    /// Writes the gradient of an input from the gradients of the features of its parts, and adds the gradients of
    /// weights.
    fn input_gradient<T: Number>(
        &self,
        side: &Side<'_, T>,
        log_weights: &[T],
        features: &Parts<T>,
        to: &mut [T],
        of_weights: &mut [T],
    ) -> Result<(), Error> {
        // Only the gradients of features of points depend on the input.
        let normed = match self.head.points {
            Some(_) => self.seen(side)?,
            None => None,
        };
        let seen = Side {
            x: normed.as_deref().unwrap_or(side.x),
            ..*side
        };
        if !self.geometry.head_norm {
            return self.read_features(&seen, log_weights, features, to, of_weights);
        }
        let mut of_normed = Buffer::take(side.x.len());
        self.read_features(&seen, log_weights, features, &mut of_normed, of_weights)?;
        self.normalised_gradient(side, &of_normed, to)
    }

    /// Writes the gradient of the input that features are of, and adds the gradients of weights.
    pub(crate) fn read_features<T: Number>(
        &self,
        side: &Side<'_, T>,
        log_weights: &[T],
        features: &Parts<T>,
        to: &mut [T],
        of_weights: &mut [T],
    ) -> Result<(), Error> {
        let (channels, rows) = (side.channels, side.rows());
        let layout = self.layout(rows, channels);
        let (mv, s) = layout.split(side.x);
        let (to_mv, to_s) = layout.split_mut(to);
        let weights = self.weights(log_weights);
        for place in self.places_of(side.index) {
            let gradient = &features[place.part as usize];
            let is_weighed = place.part == Part::Query && !of_weights.is_empty();
            let mut of_own = vec![T::default(); if is_weighed { weights.len() } else { 0 }];
            for run in side.samples.runs() {
                let (sizes, own) = self.of_run(&place, run);
                let Channels {
                    multivectors,
                    scalars,
                } = place.first;
                let strides = strides(channels, rows);
                let first = run.first * strides.row + multivectors;
                let first_s = run.first * strides.scalars + scalars;
                let items = HeadItemsMut {
                    multivectors: to_mv.get_mut(first..).unwrap_or(&mut []),
                    scalars: to_s.get_mut(first_s..).unwrap_or(&mut []),
                    strides,
                };
                self.head.packed(place.part).backward(
                    sizes,
                    self.items(&place, channels, rows, (mv, s)).from(run.first),
                    &weights,
                    &gradient[own],
                    items,
                    &mut of_own,
                )?;
                for (at, (&of_own, &weight)) in of_own.iter().zip(&weights).enumerate() {
                    let (channel, head) = (at / self.heads, at % self.heads);
                    of_weights[head * self.head.multivectors + channel] += of_own * weight;
                }
            }
        }
        Ok(())
    }

    /// The input with normalised heads; `None` if the geometry does not normalise heads.
    fn seen<T: Number>(&self, side: &Side<'_, T>) -> Result<Option<Buffer<T>>, Error> {
        let normed = self.geometry.head_norm.then(|| self.normalised(side));
        normed.transpose()
    }

    /// The gradient of the attended values of heads, from that of the output.
    pub(crate) fn unmerged<T: Number>(&self, chunk: &Chunk<'_>, g: &[T]) -> Buffer<T> {
        let (rows, width) = (chunk.rows(), self.head.features(Part::Value));
        let (blades, channels) = (self.head.blades, self.head.multivectors);
        let mut of_out = Buffer::take(rows * self.heads * width);
        let (g, g_s) = self.layout(rows, self.output()).split(g);
        self.for_each(chunk.samples, self.heads, |row, head, at| {
            let of_out = &mut of_out[at * width..][..width];
            let (of_mv, of_s) = of_out.split_at_mut(blades * channels);
            for (blade, of_mv) in of_mv.chunks_exact_mut(channels.max(1)).enumerate() {
                copy_few(&g[self.merged(rows, row, head, blade)..][..channels], of_mv);
            }
            let first = (row * self.heads + head) * self.head.scalars;
            copy_few(&g_s[first..][..self.head.scalars], of_s);
        });
        of_out
    }

    /// Where queries, keys, values, the output and the normalisers of a run are.
    pub(crate) fn places_of_run(&self, run: [Run; 2]) -> [Range<usize>; 5] {
        let begin = self.sections(run.map(|own| own.first)).lens;
        let end = self.sections(run.map(|own| own.rows().end)).lens;
        std::array::from_fn(|at| begin[at]..end[at])
    }

    pub(crate) fn inputs<'x, T>(
        &self,
        [query, key, value]: [&'x [T]; 3],
        places: &[Range<usize>; 5],
        given: &Given<'x, T>,
        of_query: &'x [usize],
    ) -> AttentionInputs<'x, T> {
        AttentionInputs {
            query: &query[places[0].clone()],
            key: &key[places[1].clone()],
            value: &value[places[2].clone()],
            mask: self.masked.then_some(AttentionMask {
                rows: given.mask.0,
                of_query,
            }),
        }
    }

    /// The row of the mask for each query of a run, if there is one. Ragged batches have none, so a run is a whole chunk.
    pub(crate) fn mask_rows<T>(&self, given: &Given<'_, T>, run: Run) -> Vec<usize> {
        if !self.masked {
            return Vec::new();
        }
        let mut rows = vec![0; run.rows().len() * self.heads];
        self.for_each(given.chunk.samples, self.heads, |row, head, at| {
            rows[at] = mask_row(given.mask.1, [row / run.items, head, row % run.items]);
        });
        rows
    }

    /// Calls a function with the row, the head and the index among features of each head of a part.
    fn for_each(
        &self,
        samples: Samples<'_>,
        heads: usize,
        mut work: impl FnMut(usize, usize, usize),
    ) {
        for run in samples.runs() {
            for row in run.rows() {
                for head in 0..heads {
                    work(row, head, self.index(run, heads, row, head));
                }
            }
        }
    }

    /// Heads of a token follow each other if they share keys, else tokens of a head do.
    fn index(&self, run: Run, heads: usize, row: usize, head: usize) -> usize {
        if self.shared {
            return row * heads + head;
        }
        let (within, items) = (row - run.first, run.items);
        run.first * heads + (within / items * heads + head) * items + within % items
    }

    /// The first element of a head among the output's multivectors.
    fn merged(&self, rows: usize, row: usize, head: usize, blade: usize) -> usize {
        ((blade * rows + row) * self.heads + head) * self.head.multivectors
    }
}

/// The gradient of a mask, whose rows several queries may share.
pub(crate) struct Shared<'a, T: Number> {
    /// The row of each query.
    rows: &'a [usize],
    keys: usize,
    to: &'a mut [T],
    /// The gradients of scores; `None` if each query has its own row, in order, because they are the gradient then.
    scores: Option<Buffer<T>>,
}

impl<'a, T: Number> Shared<'a, T> {
    pub(crate) fn new(rows: &'a [usize], keys: usize, to: &'a mut [T]) -> Self {
        let are_own = rows.iter().enumerate().all(|(query, &row)| query == row);
        let is_whole = are_own && to.len() == rows.len() * keys;
        Self {
            scores: (!is_whole).then(|| Buffer::take(rows.len() * keys)),
            rows,
            keys,
            to,
        }
    }

    /// Room for the gradients of scores.
    pub(crate) fn scores(&mut self) -> &mut [T] {
        match &mut self.scores {
            Some(own) => own,
            None => self.to,
        }
    }

    /// Writes the sums over the queries that share a row, in their order.
    pub(crate) fn add_up(self) {
        let Some(scores) = self.scores else { return };
        self.to.fill(T::default());
        for (own, &row) in scores.chunks_exact(self.keys.max(1)).zip(self.rows) {
            add(&mut self.to[row * self.keys..][..self.keys], own);
        }
    }
}

/// Copies a few elements: a call of the system's copy takes longer than they do.
#[inline(always)]
fn copy_few<T: Copy>(from: &[T], to: &mut [T]) {
    let ((from, last), (to, to_last)) = (from.as_chunks::<4>(), to.as_chunks_mut::<4>());
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
    for (to, from) in to_last.iter_mut().zip(last) {
        *to = *from;
    }
}

/// From each number of an input to the next.
fn strides(channels: Channels, rows: usize) -> HeadStrides {
    HeadStrides {
        blade: rows * channels.multivectors,
        row: channels.multivectors,
        scalars: channels.scalars,
    }
}

/// The row of a mask `[samples, heads, queries, keys]` for a sample of the chunk, a head and a query. An axis of 1 stands for all.
fn mask_row(shape: [usize; 4], at: [usize; 3]) -> usize {
    let axes = at.iter().zip(shape);
    axes.fold(0, |row, (&at, size)| row * size + at.min(size - 1))
}
