//! The derivative of attention along directions, for gradients of gradients.
//!
//! Tokens are [jets](super::jet), and so are queries, keys and values. The gradient by the first component is the
//! derivative of one order more, and the gradient by the changes is the gradient of derivatives of fewer directions.

use std::ops::Range;

use flashcliff::attention::{self as core, AttentionGradients, AttentionTangents};

use super::jet::along_one_more;
use super::step::{Given, Gradients};
use super::{Attention, Channels};
use crate::scratch::Buffer;
use crate::{Error, Number};

/// The derivative of attention without distances and norms of heads. Each of its inputs has the channels of an input of
/// attention for each component of a jet, one after another.
#[derive(Clone, Debug)]
pub struct AttentionTangent {
    pub(crate) attention: Attention,
    /// The components of tokens: `2^n` of the derivative along `n` directions, at least two.
    pub(crate) components: usize,
}

impl AttentionTangent {
    /// The derivative of attention along one direction; `None` if its heads have norms or distances of points, which
    /// come before as separate [steps](super::HeadNorm).
    pub(crate) fn new(attention: Attention) -> Option<Self> {
        let is_plain = attention.head.points.is_none() && !attention.geometry.head_norm;
        is_plain.then_some(Self {
            attention,
            components: 2,
        })
    }

    /// The derivative along one more direction; `None` if there are as many as a step has.
    pub(crate) fn derivative(&self) -> Option<Self> {
        along_one_more(self.components).map(|components| Self {
            components,
            ..self.clone()
        })
    }

    /// The channels of the inputs.
    pub(crate) fn sides(&self) -> Vec<Channels> {
        let sides = self.attention.sides().into_iter();
        sides
            .map(|channels| channels.times(self.components))
            .collect()
    }

    /// The components of both inputs; no numbers of an input that is not there.
    fn parted<T: Number>(&self, given: &Given<'_, T>) -> Vec<[Buffer<T>; 2]> {
        let rows = [given.chunk.samples, given.chunk.context].map(super::chunk::Samples::rows);
        let mut sides = self.sides().into_iter().zip(rows);
        let mut part = |x: &[T]| match sides.next() {
            Some((side, rows)) => {
                let layout = self.attention.layout(rows, side);
                layout.runs_of_channels(x, self.components)
            }
            None => (0..self.components).map(|_| Buffer::take(0)).collect(),
        };
        let (x, other) = (part(given.x), part(given.other));
        x.into_iter().zip(other).map(<[_; 2]>::from).collect()
    }

    /// The queries, keys and values of all heads, for each component.
    fn features<T: Number>(
        &self,
        given: &Given<'_, T>,
        components: &[[Buffer<T>; 2]],
    ) -> Result<Vec<[Buffer<T>; 3]>, Error> {
        let of = |[x, other]: &[Buffer<T>; 2]| {
            let given = Given { x, other, ..*given };
            self.attention.features(&given)
        };
        components.iter().map(of).collect()
    }

    pub(crate) fn forward<T: Number>(
        &self,
        given: &Given<'_, T>,
        y: &mut [T],
    ) -> Result<(), Error> {
        let jets = self.features(given, &self.parted(given))?;
        let (own, along) = (&jets[0], &jets[1..]);
        let mut out = Buffer::take(self.attention.out_len(given));
        for run in self.attention.runs(given) {
            let rows = self.attention.mask_rows(given, run[0]);
            let places = self.attention.places_of_run(run);
            core::tangent(
                self.attention.sizes(run),
                self.attention.scale(),
                self.attention
                    .inputs(own.each_ref().map(|own| &**own), &places, given, &rows),
                &tangents(along, &places),
                &mut out[places[3].clone()],
            )?;
        }
        self.attention.merge(&given.chunk, &out, y);
        Ok(())
    }

    pub(crate) fn backward<T: Number>(
        &self,
        given: &Given<'_, T>,
        g: &[T],
        to: Gradients<'_, T>,
    ) -> Result<(), Error> {
        let components = self.parted(given);
        let jets = self.features(given, &components)?;
        let (own, along) = (&jets[0], &jets[1..]);
        let of_out = self.attention.unmerged(&given.chunk, g);
        let empty = |own: &[Buffer<T>; 3]| own.each_ref().map(|own| Buffer::take(own.len()));
        let mut of: Vec<[Buffer<T>; 3]> = jets.iter().map(empty).collect();
        let mut of_mask = to.mask;
        for run in self.attention.runs(given) {
            let rows = self.attention.mask_rows(given, run[0]);
            let keys = self.attention.sizes(run).keys;
            let mut of_rows = of_mask
                .as_deref_mut()
                .map(|to| super::attention::passes::Shared::new(&rows, keys, to));
            let places = self.attention.places_of_run(run);
            let mut scores = of_rows.as_mut().map(|own| own.scores());
            // The gradient of scores is that of the first component.
            let gradients = of.iter_mut().map(|[query, key, value]| AttentionGradients {
                query: &mut query[places[0].clone()],
                key: &mut key[places[1].clone()],
                value: &mut value[places[2].clone()],
                scores: scores.take(),
            });
            let mut gradients: Vec<_> = gradients.collect();
            core::tangent_backward(
                self.attention.sizes(run),
                self.attention.scale(),
                self.attention
                    .inputs(own.each_ref().map(|own| &**own), &places, given, &rows),
                &tangents(along, &places),
                &of_out[places[3].clone()],
                &mut gradients,
            )?;
            drop(gradients);
            if let Some(own) = of_rows {
                own.add_up();
            }
        }
        self.write(given, &components[0], &of, [to.x, to.other])
    }

    /// Writes the gradients of the inputs from the gradients of the features of each component.
    fn write<T: Number>(
        &self,
        given: &Given<'_, T>,
        [x, other]: &[Buffer<T>; 2],
        of: &[[Buffer<T>; 3]],
        to: [Option<&mut [T]>; 2],
    ) -> Result<(), Error> {
        let given = Given { x, other, ..*given };
        for (side, to) in self.attention.sides_of(&given).iter().zip(to) {
            let Some(to) = to else { continue };
            let mut each = Vec::with_capacity(of.len());
            for of in of {
                let mut own = Buffer::take(side.x.len());
                self.attention
                    .read_features(side, &[], of, &mut own, &mut [])?;
                each.push(own);
            }
            let channels = side.channels.times(self.components);
            let layout = self.attention.layout(side.rows(), channels);
            layout.join_runs(&each, to);
        }
        Ok(())
    }
}

/// The changes of the features of a run.
fn tangents<'a, T: Number>(
    along: &'a [[Buffer<T>; 3]],
    places: &[Range<usize>; 5],
) -> Vec<AttentionTangents<'a, T>> {
    let tangents = along.iter().map(|[query, key, value]| AttentionTangents {
        query: &query[places[0].clone()],
        key: &key[places[1].clone()],
        value: &value[places[2].clone()],
    });
    tangents.collect()
}
