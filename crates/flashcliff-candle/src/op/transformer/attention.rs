//! Attention of heads over multivectors and scalars.

use flashcliff::attention::{self as core, AttentionGradients, AttentionInputs, AttentionSizes};

use super::chunk::Chunk;
use super::features::{Head, Part};
use super::stage::{Given, Gradients};
use super::{BLADES, Channels};
use crate::Error;
use crate::op::Scalar;
use crate::op::scratch::Buffer;

/// From queries, keys and values side by side to the attended values of all heads.
///
/// Parameter: `log_weights` `[heads, 1, channels of a head]`. The head is the fastest index of a channel of queries,
/// and of keys and values unless heads share them. It is the slowest index of a channel of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    pub(super) heads: usize,
    pub(super) head: Head,
    /// Whether all heads share keys and values.
    pub(super) shared: bool,
}

/// Where the channels of a part of the input are.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) part: Part,
    /// The first multivector channel, and the first scalar channel.
    pub(super) first: Channels,
    /// The heads, which are the step from one channel of a head to the next.
    pub(super) heads: usize,
}

/// Queries, keys, values, then the output and the normalisers.
struct Sections {
    query: usize,
    key: usize,
    value: usize,
    out: usize,
    normaliser: usize,
}

impl Attention {
    pub(crate) fn new(heads: usize, head: Channels, shared: bool) -> Self {
        Self {
            heads,
            head: Head {
                multivectors: head.multivectors,
                scalars: head.scalars,
            },
            shared,
        }
    }

    fn of_head(&self) -> Channels {
        Channels::new(self.head.multivectors, self.head.scalars)
    }

    /// The channels of queries, keys and values.
    pub(crate) fn parts(&self) -> [Channels; 3] {
        let all = self.of_head().times(self.heads);
        let others = if self.shared { self.of_head() } else { all };
        [all, others, others]
    }

    pub(super) fn input(&self) -> Channels {
        let sum = |of: fn(&Channels) -> usize| self.parts().iter().map(of).sum();
        Channels::new(sum(|c| c.multivectors), sum(|c| c.scalars))
    }

    pub(super) fn output(&self) -> Channels {
        self.of_head().times(self.heads)
    }

    pub(super) fn shapes(&self) -> Vec<Vec<usize>> {
        vec![vec![self.heads, 1, self.head.multivectors]]
    }

    /// One over the root of the number of features.
    pub(super) fn scale(&self) -> f64 {
        1.0 / (self.head.features(Part::Query) as f64).sqrt()
    }

    pub(super) fn places(&self) -> [Place; 3] {
        let [all, others, _] = self.parts();
        let heads = if self.shared { 1 } else { self.heads };
        let second = Channels::new(
            all.multivectors + others.multivectors,
            all.scalars + others.scalars,
        );
        let place = |part, first, heads| Place { part, first, heads };
        [
            place(Part::Query, Channels::default(), self.heads),
            place(Part::Key, all, heads),
            place(Part::Value, second, heads),
        ]
    }

    /// Heads that share keys are more queries of one group.
    fn sizes<T>(&self, chunk: &Chunk<'_, T>) -> AttentionSizes {
        let (groups, queries) = match self.shared {
            true => (chunk.samples, chunk.items * self.heads),
            false => (chunk.samples * self.heads, chunk.items),
        };
        AttentionSizes {
            groups,
            queries,
            keys: chunk.items,
            features: self.head.features(Part::Query),
            width: self.head.features(Part::Value),
        }
    }

    fn sections<T>(&self, chunk: &Chunk<'_, T>) -> Sections {
        let sizes = self.sizes(chunk);
        let (queries, keys) = (sizes.groups * sizes.queries, sizes.groups * sizes.keys);
        Sections {
            query: queries * sizes.features,
            key: keys * sizes.features,
            value: keys * sizes.width,
            out: queries * sizes.width,
            normaliser: queries,
        }
    }

    pub(super) fn kept<T>(&self, chunk: &Chunk<'_, T>) -> usize {
        let sections = self.sections(chunk);
        let inputs = sections.query + sections.key + sections.value;
        inputs + sections.out + sections.normaliser
    }

    pub(super) fn forward<T: Scalar>(
        &self,
        given: Given<'_, T>,
        x: &[T],
        y: &mut [T],
        kept: &mut [T],
    ) -> Result<(), Error> {
        let chunk = &given.chunk;
        let sections = self.sections(chunk);
        let (query, rest) = kept.split_at_mut(sections.query);
        let (key, rest) = rest.split_at_mut(sections.key);
        let (value, rest) = rest.split_at_mut(sections.value);
        let (out, normaliser) = rest.split_at_mut(sections.out);
        let rows = chunk.rows();
        let (mv, s) = chunk.split(self.input(), x);
        let input = self.input();
        let log_weights = given.parameters[0];
        for (place, features) in self.places().into_iter().zip([&mut *query, key, value]) {
            let len = self.head.features(place.part);
            self.for_each(chunk, place, |row, head, at| {
                self.head.write(
                    place.part,
                    |channel, blade| mv[place.multivector(input, rows, row, head, channel, blade)],
                    |channel| s[place.scalar(input, row, head, channel)],
                    self.weights(log_weights, head),
                    &mut features[at * len..][..len],
                );
            });
        }
        let inputs = AttentionInputs { query, key, value };
        core::forward(self.sizes(chunk), self.scale(), inputs, out, normaliser)?;
        let width = self.head.features(Part::Value);
        let (to, to_s) = chunk.split_mut(self.output(), y);
        self.for_each_output(chunk, |row, head, at| {
            let out = &out[at * width..][..width];
            for channel in 0..self.head.multivectors {
                for blade in 0..BLADES {
                    to[self.merged(rows, row, head, channel, blade)] =
                        out[channel * BLADES + blade];
                }
            }
            let scalars = &out[BLADES * self.head.multivectors..];
            let first = (row * self.heads + head) * self.head.scalars;
            to_s[first..][..scalars.len()].copy_from_slice(scalars);
        });
        Ok(())
    }

    pub(super) fn backward<T: Scalar>(
        &self,
        given: Given<'_, T>,
        x: &[T],
        kept: &[T],
        g: &[T],
        to: Gradients<'_, '_, T>,
    ) -> Result<(), Error> {
        let chunk = &given.chunk;
        let sections = self.sections(chunk);
        let (query, rest) = kept.split_at(sections.query);
        let (key, rest) = rest.split_at(sections.key);
        let (value, rest) = rest.split_at(sections.value);
        let (out, normaliser) = rest.split_at(sections.out);
        let rows = chunk.rows();
        let width = self.head.features(Part::Value);
        let mut of_out = Buffer::take(sections.out);
        let (g, g_s) = chunk.split(self.output(), g);
        self.for_each_output(chunk, |row, head, at| {
            let of_out = &mut of_out[at * width..][..width];
            let (of_mv, of_s) = of_out.split_at_mut(BLADES * self.head.multivectors);
            for channel in 0..self.head.multivectors {
                for blade in 0..BLADES {
                    of_mv[channel * BLADES + blade] =
                        g[self.merged(rows, row, head, channel, blade)];
                }
            }
            let first = (row * self.heads + head) * self.head.scalars;
            of_s.copy_from_slice(&g_s[first..][..self.head.scalars]);
        });
        let mut of_query = Buffer::take(sections.query);
        let mut of_key = Buffer::take(sections.key);
        let mut of_value = Buffer::take(sections.value);
        core::backward(
            self.sizes(chunk),
            self.scale(),
            AttentionInputs { query, key, value },
            out,
            normaliser,
            &of_out,
            AttentionGradients {
                query: &mut of_query,
                key: &mut of_key,
                value: &mut of_value,
            },
        )?;
        let input = self.input();
        let (mv, _) = chunk.split(input, x);
        let (to_mv, to_s) = chunk.split_mut(input, to.input);
        to_mv.fill(T::zero());
        let log_weights = given.parameters[0];
        let mut none: [&mut [T]; 1] = [&mut []];
        let of_weights = to.parameters.first_mut().unwrap_or(&mut none[0]);
        of_weights.fill(T::zero());
        for (place, gradient) in self
            .places()
            .into_iter()
            .zip([&*of_query, &*of_key, &*of_value])
        {
            let len = self.head.features(place.part);
            self.for_each(chunk, place, |row, head, at| {
                let of_head = match (place.part, of_weights.is_empty()) {
                    (Part::Query, false) => {
                        let channels = self.head.multivectors;
                        &mut of_weights[head * channels..][..channels]
                    }
                    _ => &mut [],
                };
                self.head.read_gradient(
                    place.part,
                    |channel, blade| mv[place.multivector(input, rows, row, head, channel, blade)],
                    self.weights(log_weights, head),
                    &gradient[at * len..][..len],
                    |channel, blade, g| {
                        to_mv[place.multivector(input, rows, row, head, channel, blade)] += g;
                    },
                    |channel, g| to_s[place.scalar(input, row, head, channel)] = g,
                    of_head,
                );
            });
        }
        Ok(())
    }

    fn weights<'a, T>(&self, log_weights: &'a [T], head: usize) -> &'a [T] {
        &log_weights[head * self.head.multivectors..][..self.head.multivectors]
    }

    /// Calls a function with the row, the head and the index among features of each head of a part.
    fn for_each<T>(
        &self,
        chunk: &Chunk<'_, T>,
        place: Place,
        mut work: impl FnMut(usize, usize, usize),
    ) {
        for row in 0..chunk.rows() {
            for head in 0..place.heads {
                work(row, head, self.index(chunk.items, place.heads, row, head));
            }
        }
    }

    /// Calls `work` for each row and head of the output, which has the order of queries.
    fn for_each_output<T>(&self, chunk: &Chunk<'_, T>, work: impl FnMut(usize, usize, usize)) {
        self.for_each(chunk, self.places()[0], work);
    }

    /// Heads of a token follow each other if they share keys, else tokens of a head do.
    fn index(&self, items: usize, heads: usize, row: usize, head: usize) -> usize {
        match self.shared {
            true => row * heads + head,
            false => (row / items * heads + head) * items + row % items,
        }
    }

    /// The element of the output's multivectors.
    fn merged(&self, rows: usize, row: usize, head: usize, channel: usize, blade: usize) -> usize {
        let channels = self.heads * self.head.multivectors;
        (blade * rows + row) * channels + head * self.head.multivectors + channel
    }
}

impl Place {
    /// The element of the input's multivectors.
    fn multivector(
        &self,
        input: Channels,
        rows: usize,
        row: usize,
        head: usize,
        channel: usize,
        blade: usize,
    ) -> usize {
        let at = self.first.multivectors + channel * self.heads + head;
        (blade * rows + row) * input.multivectors + at
    }

    /// The element of the input's scalars.
    fn scalar(&self, input: Channels, row: usize, head: usize, channel: usize) -> usize {
        row * input.scalars + self.first.scalars + channel * self.heads + head
    }
}
