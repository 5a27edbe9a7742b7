//! Attention of heads over multivectors and scalars: sizes, and where parts are. `passes` computes.

pub(crate) mod passes;

use flashcliff::attention::AttentionSizes;

use super::chunk::{Layout, Run};
use super::features::{Head, Part};
use super::step::{Given, Gradients};
use super::{Channels, Geometry};

/// Attention of heads. Its input has queries, keys and values side by side; or one input has the queries, and one of
/// another set the keys and values. The output has the attended values of all heads.
///
/// Parameter, with distances: `log_weights` `[heads, 1, channels of a head]`. The head is the fastest index of a channel of queries,
/// and of keys and values unless heads share them. It is the slowest index of a channel of the output.
#[derive(Clone, Debug)]
pub struct Attention {
    pub(crate) geometry: Geometry,
    pub(crate) heads: usize,
    pub(crate) head: Head,
    /// Whether all heads share keys and values.
    pub(crate) shared: bool,
    /// Whether a mask is added to scores.
    pub(crate) masked: bool,
    /// Whether keys and values are of the context.
    pub(crate) crossing: bool,
}

/// Where the channels of a part of the input are.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) part: Part,
    /// The number of the input.
    pub(crate) side: usize,
    /// The first multivector channel, and the first scalar channel.
    pub(crate) first: Channels,
    /// The heads, which are the step from one channel of a head to the next.
    pub(crate) heads: usize,
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
    /// Attention of so many heads of some channels. With `shared` all heads share keys and values.
    pub fn new(geometry: Geometry, heads: usize, head: Channels, shared: bool) -> Self {
        Self {
            head: Head::new(&geometry, head),
            geometry,
            heads,
            shared,
            masked: false,
            crossing: false,
        }
    }

    /// The attention to keys and values of the context, which lie side by side in separate tokens.
    #[must_use]
    pub fn crossing(self) -> Self {
        Self {
            crossing: true,
            ..self
        }
    }

    /// The attention with a mask.
    #[must_use]
    pub fn masked(self) -> Self {
        Self {
            masked: true,
            ..self
        }
    }

    /// The channels of queries, keys and values.
    pub fn parts(&self) -> [Channels; 3] {
        let head = self.head.channels();
        let all = head.times(self.heads);
        let others = if self.shared { head } else { all };
        [all, others, others]
    }

    /// The channels of the input, or of the inputs: queries, then keys and values.
    pub(crate) fn sides(&self) -> Vec<Channels> {
        let [query, key, value] = self.parts();
        match self.crossing {
            true => vec![query, key.and(value)],
            false => vec![query.and(key).and(value)],
        }
    }

    /// The channels of the first input.
    pub(crate) fn input(&self) -> Channels {
        self.sides()[0]
    }

    /// The heads.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// The channels of the result.
    pub fn output(&self) -> Channels {
        self.head.channels().times(self.heads)
    }

    /// The shapes of the parameters: the logarithms of the weights of distances, if there are some.
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        let shape = vec![self.heads, 1, self.head.multivectors];
        self.head.points.iter().map(|_| shape.clone()).collect()
    }

    /// One over the root of the number of features.
    pub(crate) fn scale(&self) -> f64 {
        1.0 / (self.head.features(Part::Query) as f64).sqrt()
    }

    pub(crate) fn places(&self) -> [Place; 3] {
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
    pub(crate) fn places_of(&self, side: usize) -> impl Iterator<Item = Place> {
        let places = self.places().into_iter();
        places.filter(move |place| place.side == side)
    }

    /// The heads of keys and values.
    fn key_heads(&self) -> usize {
        if self.shared { 1 } else { self.heads }
    }

    /// The sizes for runs of queries and keys. Heads that share keys are more queries of one group.
    pub(crate) fn sizes(&self, [queries, keys]: [Run; 2]) -> AttentionSizes {
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

    pub(crate) fn layout(&self, rows: usize, channels: Channels) -> Layout {
        Layout {
            blades: self.head.blades,
            rows,
            channels,
        }
    }

    /// The lengths for so many rows of queries and of keys.
    fn sections(&self, [queries, keys]: [usize; 2]) -> Sections {
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

    /// The number of elements that the backward pass needs besides the inputs, of a row of items and of one of the context.
    pub(crate) fn kept(&self) -> [usize; 2] {
        let of = |rows| self.sections(rows).lens.iter().sum();
        match self.crossing {
            true => [of([1, 0]), of([0, 1])],
            false => [of([1, 1]), 0],
        }
    }

    /// The operations for each pair of a query and a key, of all heads, forwards and backwards: the products of
    /// matrices, which are scores and values, and backwards scores again, and the gradients of weights, queries, keys
    /// and values. The exponential and the sum of weights are one each.
    pub(crate) fn flops_of_pair(&self) -> [usize; 2] {
        let [features, width] = [Part::Query, Part::Value].map(|part| self.head.features(part));
        let each = [
            2 * (features + width) + 2,
            2 * (3 * features + 2 * width) + 2,
        ];
        each.map(|each| self.heads * each)
    }
}

impl Place {
    /// The element of the input's scalars.
    pub(crate) fn scalar(&self, input: Channels, row: usize, head: usize, channel: usize) -> usize {
        row * input.scalars + self.first.scalars + channel * self.heads + head
    }
}
