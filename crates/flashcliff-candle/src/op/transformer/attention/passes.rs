//! The passes of attention over a chunk: features, runs of queries and keys through the core, merging of heads, and the gradients of all that.

use std::ops::Range;

use flashcliff::attention::{self as core, AttentionGradients, AttentionInputs, AttentionMask};

use super::{Attention, Side};
use crate::Error;
use crate::op::Scalar;
use crate::op::scratch::Buffer;
use crate::op::transformer::chunk::{Chunk, Run, Samples};
use crate::op::transformer::features::Part;

impl Attention {
    /// Writes the attended values of the inputs, as many as [`Self::sides`] has.
    pub(in crate::op::transformer) fn attend<T: Scalar>(
        &self,
        sides: &[Side<'_, T>],
        log_weights: &[T],
        y: &mut [T],
        kept: &mut [T],
    ) -> Result<(), Error> {
        let (queries, keys) = ends(sides);
        let sections = self.sections(queries.chunk.rows(), keys.chunk.rows());
        let [query, key, value, out, normaliser] = sections.split_mut(kept);
        let mut parts = [query, key, value];
        for side in sides {
            let normed = self.seen(side)?;
            let (mv, s) = side
                .chunk
                .split(side.channels, normed.as_deref().unwrap_or(side.data));
            let rows = side.chunk.rows();
            for place in self.places_of(side.index) {
                let len = self.head.features(place.part);
                let features = &mut parts[place.part as usize];
                self.for_each(side.chunk.samples, place.heads, |row, head, at| {
                    self.head.write(
                        place.part,
                        |channel, blade| {
                            mv[place.multivector(side.channels, rows, row, head, channel, blade)]
                        },
                        |channel| s[place.scalar(side.channels, row, head, channel)],
                        self.of_head(log_weights, head),
                        &mut features[at * len..][..len],
                    );
                });
            }
        }
        let [query, key, value] = parts.map(|part| &*part);
        for (run, of_keys) in self.runs(queries, keys) {
            let of_query = self.mask_rows(&queries.chunk, run);
            let places = self.places_of_run(run, of_keys);
            let inputs = self.inputs([query, key, value], &places, &queries.chunk, &of_query);
            core::forward(
                self.sizes(run, of_keys),
                self.scale(),
                inputs,
                &mut out[places[3].clone()],
                &mut normaliser[places[4].clone()],
            )?;
        }
        let (rows, width) = (queries.chunk.rows(), self.head.features(Part::Value));
        let (to, to_s) = queries.chunk.split_mut(self.output(), y);
        let blades = self.head.blades;
        self.for_each(queries.chunk.samples, self.heads, |row, head, at| {
            let out = &out[at * width..][..width];
            for channel in 0..self.head.multivectors {
                for blade in 0..blades {
                    to[self.merged(rows, row, head, channel, blade)] =
                        out[channel * blades + blade];
                }
            }
            let scalars = &out[blades * self.head.multivectors..];
            let first = (row * self.heads + head) * self.head.scalars;
            to_s[first..][..scalars.len()].copy_from_slice(scalars);
        });
        Ok(())
    }

    /// Writes the gradients of the inputs, and of the logarithms of weights unless their slice is empty.
    pub(in crate::op::transformer) fn gradients<T: Scalar>(
        &self,
        sides: &[Side<'_, T>],
        log_weights: &[T],
        kept: &[T],
        g: &[T],
        to: &mut [&mut [T]],
        of_weights: &mut [T],
    ) -> Result<(), Error> {
        let (queries, keys) = ends(sides);
        let sections = self.sections(queries.chunk.rows(), keys.chunk.rows());
        let [query, key, value, out, normaliser] = sections.split(kept);
        let of_out = self.unmerged(&queries.chunk, g);
        let mut parts: [Buffer<T>; 3] =
            std::array::from_fn(|part| Buffer::take(sections.lens[part]));
        let [of_query, of_key, of_value] = &mut parts;
        for (run, of_keys) in self.runs(queries, keys) {
            let rows = self.mask_rows(&queries.chunk, run);
            let places = self.places_of_run(run, of_keys);
            core::backward(
                self.sizes(run, of_keys),
                self.scale(),
                self.inputs([query, key, value], &places, &queries.chunk, &rows),
                &out[places[3].clone()],
                &normaliser[places[4].clone()],
                &of_out[places[3].clone()],
                AttentionGradients {
                    query: &mut of_query[places[0].clone()],
                    key: &mut of_key[places[1].clone()],
                    value: &mut of_value[places[2].clone()],
                },
            )?;
        }
        of_weights.fill(T::zero());
        for (side, to) in sides.iter().zip(to) {
            self.side_gradient(side, log_weights, &parts, to, of_weights)?;
        }
        Ok(())
    }

    /// Writes the gradient of an input from those of the features of its parts.
    fn side_gradient<T: Scalar>(
        &self,
        side: &Side<'_, T>,
        log_weights: &[T],
        features: &[Buffer<T>; 3],
        to: &mut [T],
        of_weights: &mut [T],
    ) -> Result<(), Error> {
        let channels = side.channels;
        let rows = side.chunk.rows();
        // Only the gradients of features of points depend on the input.
        let normed = match self.head.points {
            Some(_) => self.seen(side)?,
            None => None,
        };
        let (mv, _) = side
            .chunk
            .split(channels, normed.as_deref().unwrap_or(side.data));
        let mut of_normed = self
            .geometry
            .head_norm
            .then(|| Buffer::take(side.data.len()));
        let target = of_normed.as_deref_mut().unwrap_or(&mut *to);
        let (to_mv, to_s) = side.chunk.split_mut(channels, target);
        to_mv.fill(T::zero());
        for place in self.places_of(side.index) {
            let len = self.head.features(place.part);
            let gradient = &features[place.part as usize];
            self.for_each(side.chunk.samples, place.heads, |row, head, at| {
                let of_head = match (place.part, of_weights.is_empty()) {
                    (Part::Query, false) => {
                        let channels = self.head.multivectors;
                        &mut of_weights[head * channels..][..channels]
                    }
                    _ => &mut [],
                };
                self.head.read_gradient(
                    place.part,
                    |channel, blade| {
                        mv[place.multivector(channels, rows, row, head, channel, blade)]
                    },
                    self.of_head(log_weights, head),
                    &gradient[at * len..][..len],
                    |channel, blade, g| {
                        to_mv[place.multivector(channels, rows, row, head, channel, blade)] += g;
                    },
                    |channel, g| to_s[place.scalar(channels, row, head, channel)] = g,
                    of_head,
                );
            });
        }
        match of_normed {
            Some(of_normed) => self.normalised_gradient(side, &of_normed, to),
            None => Ok(()),
        }
    }

    /// The input with normalised heads; `None` if the geometry does not normalise heads.
    fn seen<T: Scalar>(&self, side: &Side<'_, T>) -> Result<Option<Buffer<T>>, Error> {
        let normed = self.geometry.head_norm.then(|| self.normalised(side));
        normed.transpose()
    }

    /// The gradient of the attended values of heads, from that of the output.
    fn unmerged<T: Scalar>(&self, chunk: &Chunk<'_, T>, g: &[T]) -> Buffer<T> {
        let (rows, width) = (chunk.rows(), self.head.features(Part::Value));
        let blades = self.head.blades;
        let mut of_out = Buffer::take(rows * self.heads * width);
        let (g, g_s) = chunk.split(self.output(), g);
        self.for_each(chunk.samples, self.heads, |row, head, at| {
            let of_out = &mut of_out[at * width..][..width];
            let (of_mv, of_s) = of_out.split_at_mut(blades * self.head.multivectors);
            for channel in 0..self.head.multivectors {
                for blade in 0..blades {
                    of_mv[channel * blades + blade] =
                        g[self.merged(rows, row, head, channel, blade)];
                }
            }
            let first = (row * self.heads + head) * self.head.scalars;
            of_s.copy_from_slice(&g_s[first..][..self.head.scalars]);
        });
        of_out
    }

    /// Runs of queries, each with its keys.
    fn runs<'a, T>(
        &self,
        queries: &Side<'a, T>,
        keys: &Side<'a, T>,
    ) -> impl Iterator<Item = (Run, Run)> + use<'a, T> {
        let (queries, keys) = (queries.chunk.samples, keys.chunk.samples);
        queries.runs().zip(keys.runs())
    }

    /// Where queries, keys, values, the output and the normalisers of a run are.
    fn places_of_run(&self, queries: Run, keys: Run) -> [Range<usize>; 5] {
        let begin = self.sections(queries.first, keys.first).lens;
        let end = self.sections(queries.rows().end, keys.rows().end).lens;
        std::array::from_fn(|at| begin[at]..end[at])
    }

    fn inputs<'x, T>(
        &self,
        [query, key, value]: [&'x [T]; 3],
        places: &[Range<usize>; 5],
        chunk: &Chunk<'x, T>,
        of_query: &'x [usize],
    ) -> AttentionInputs<'x, T> {
        AttentionInputs {
            query: &query[places[0].clone()],
            key: &key[places[1].clone()],
            value: &value[places[2].clone()],
            mask: chunk.mask.as_ref().map(|mask| AttentionMask {
                rows: mask.numbers,
                of_query,
            }),
        }
    }

    /// The row of the mask for each query of a run, if there is one. Ragged batches have none, so a run is a whole chunk.
    fn mask_rows<T>(&self, chunk: &Chunk<'_, T>, run: Run) -> Vec<usize> {
        let Some(mask) = &chunk.mask else {
            return Vec::new();
        };
        let mut rows = vec![0; run.rows().len() * self.heads];
        self.for_each(chunk.samples, self.heads, |row, head, at| {
            rows[at] = mask.row(row / run.items, head, row % run.items);
        });
        rows
    }

    fn of_head<'a, T>(&self, log_weights: &'a [T], head: usize) -> &'a [T] {
        match log_weights {
            [] => &[],
            _ => &log_weights[head * self.head.multivectors..][..self.head.multivectors],
        }
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

    /// The element of the output's multivectors.
    fn merged(&self, rows: usize, row: usize, head: usize, channel: usize, blade: usize) -> usize {
        let channels = self.heads * self.head.multivectors;
        (blade * rows + row) * channels + head * self.head.multivectors + channel
    }
}

/// The inputs of queries and of keys, which may be one.
fn ends<'x, 'a, T>(sides: &'x [Side<'a, T>]) -> (&'x Side<'a, T>, &'x Side<'a, T>) {
    (&sides[0], &sides[sides.len() - 1])
}
