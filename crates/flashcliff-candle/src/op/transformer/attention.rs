//! Attention of heads over multivectors and scalars: sizes, and where parts are. `passes` computes.

mod passes;

use flashcliff::attention::AttentionSizes;

use super::Channels;
use super::chunk::{Chunk, Run};
use super::features::{Head, Part};
use super::geometry::Geometry;
use super::stage::{Given, Gradients};
use crate::Error;
use crate::op::Scalar;

/// Attention of heads. Its input has queries, keys and values side by side; or one input has the queries, and one of another set the keys and values.
/// The output has the attended values of all heads.
///
/// Parameter, with distances: `log_weights` `[heads, 1, channels of a head]`. The head is the fastest index of a channel of queries,
/// and of keys and values unless heads share them. It is the slowest index of a channel of the output.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    pub(super) geometry: Geometry,
    pub(super) heads: usize,
    pub(super) head: Head,
    /// Whether all heads share keys and values.
    pub(super) shared: bool,
    /// Whether keys and values are of another set.
    crossing: bool,
}

/// Where the channels of a part of the input are.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) part: Part,
    /// The index of the input among those of queries and of keys.
    pub(super) side: usize,
    /// The first multivector channel, and the first scalar channel.
    pub(super) first: Channels,
    /// The heads, which are the step from one channel of a head to the next.
    pub(super) heads: usize,
}

/// An input. It has all parts, the queries, or the keys and values.
pub(super) struct Side<'a, T> {
    pub(super) index: usize,
    pub(super) chunk: Chunk<'a, T>,
    pub(super) channels: Channels,
    pub(super) data: &'a [T],
}

/// The lengths of queries, keys, values, the output and the normalisers.
struct Sections {
    lens: [usize; 5],
}

impl Sections {
    fn split<'x, T>(&self, data: &'x [T]) -> [&'x [T]; 5] {
        let mut rest = data;
        self.lens.map(|len| {
            let (own, others) = rest.split_at(len);
            rest = others;
            own
        })
    }

    fn split_mut<'x, T>(&self, data: &'x mut [T]) -> [&'x mut [T]; 5] {
        let mut rest = data;
        self.lens.map(|len| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(len);
            rest = others;
            own
        })
    }
}

impl Attention {
    pub(crate) fn new(geometry: Geometry, heads: usize, head: Channels, shared: bool) -> Self {
        Self {
            head: Head::new(&geometry, head),
            geometry,
            heads,
            shared,
            crossing: false,
        }
    }

    /// The attention to keys and values of another set.
    pub(crate) fn crossing(self) -> Self {
        Self {
            crossing: true,
            ..self
        }
    }

    /// The channels of queries, keys and values.
    pub(crate) fn parts(&self) -> [Channels; 3] {
        let head = self.head.channels();
        let all = head.times(self.heads);
        let others = if self.shared { head } else { all };
        [all, others, others]
    }

    /// The channels of the inputs.
    pub(super) fn sides(&self) -> Vec<Channels> {
        let [query, key, value] = self.parts();
        match self.crossing {
            true => vec![query, key.and(value)],
            false => vec![query.and(key).and(value)],
        }
    }

    /// The channels of the first input.
    pub(super) fn input(&self) -> Channels {
        self.sides()[0]
    }

    pub(super) fn output(&self) -> Channels {
        self.head.channels().times(self.heads)
    }

    pub(super) fn shapes(&self) -> Vec<Vec<usize>> {
        let shape = vec![self.heads, 1, self.head.multivectors];
        self.head.points.iter().map(|_| shape.clone()).collect()
    }

    /// One over the root of the number of features.
    pub(super) fn scale(&self) -> f64 {
        1.0 / (self.head.features(Part::Query) as f64).sqrt()
    }

    pub(super) fn places(&self) -> [Place; 3] {
        let [query, key, _] = self.parts();
        let heads = self.key_heads();
        let (side, first) = match self.crossing {
            true => (1, Channels::default()),
            false => (0, query),
        };
        let place = |part, side, first, heads| Place {
            part,
            side,
            first,
            heads,
        };
        [
            place(Part::Query, 0, Channels::default(), self.heads),
            place(Part::Key, side, first, heads),
            place(Part::Value, side, first.and(key), heads),
        ]
    }

    /// The parts of an input.
    pub(super) fn places_of(&self, side: usize) -> Vec<Place> {
        let mut places = self.places().to_vec();
        places.retain(|place| place.side == side);
        places
    }

    /// The heads of keys and values.
    fn key_heads(&self) -> usize {
        if self.shared { 1 } else { self.heads }
    }

    /// The sizes for runs of queries and keys. Heads that share keys are more queries of one group.
    fn sizes(&self, queries: Run, keys: Run) -> AttentionSizes {
        let (groups, queries) = match self.shared {
            true => (queries.samples, queries.items * self.heads),
            false => (queries.samples * self.heads, queries.items),
        };
        AttentionSizes {
            groups,
            queries,
            keys: keys.items,
            features: self.head.features(Part::Query),
            width: self.head.features(Part::Value),
        }
    }

    fn sections(&self, queries: usize, keys: usize) -> Sections {
        let (queries, keys) = (queries * self.heads, keys * self.key_heads());
        let [features, width] = [Part::Query, Part::Value].map(|part| self.head.features(part));
        Sections {
            lens: [
                queries * features,
                keys * features,
                keys * width,
                queries * width,
                queries,
            ],
        }
    }

    /// The number of elements that the backward pass needs besides the inputs.
    pub(super) fn kept(&self, queries: usize, keys: usize) -> usize {
        self.sections(queries, keys).lens.iter().sum()
    }

    /// Attention within one input, as a stage.
    pub(super) fn forward<T: Scalar>(
        &self,
        given: Given<'_, T>,
        x: &[T],
        y: &mut [T],
        kept: &mut [T],
    ) -> Result<(), Error> {
        self.attend(&[self.whole(given.chunk, x)], weights(&given), y, kept)
    }

    /// The gradients of [`Self::forward`].
    pub(super) fn backward<T: Scalar>(
        &self,
        given: Given<'_, T>,
        x: &[T],
        kept: &[T],
        g: &[T],
        to: Gradients<'_, '_, T>,
    ) -> Result<(), Error> {
        let mut none: [&mut [T]; 1] = [&mut []];
        let of_weights = to.parameters.first_mut().unwrap_or(&mut none[0]);
        self.gradients(
            &[self.whole(given.chunk, x)],
            weights(&given),
            kept,
            g,
            &mut [to.input],
            of_weights,
        )
    }

    fn whole<'a, T>(&self, chunk: Chunk<'a, T>, data: &'a [T]) -> Side<'a, T> {
        Side {
            index: 0,
            chunk,
            channels: self.input(),
            data,
        }
    }
}

/// The logarithms of the weights of distances; empty without them.
fn weights<'a, T>(given: &Given<'a, T>) -> &'a [T] {
    given.parameters.first().copied().unwrap_or(&[])
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
    pub(super) fn scalar(&self, input: Channels, row: usize, head: usize, channel: usize) -> usize {
        row * input.scalars + self.first.scalars + channel * self.heads + head
    }
}
