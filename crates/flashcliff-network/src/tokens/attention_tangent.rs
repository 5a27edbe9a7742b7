//! The derivative of attention: how its result changes with queries, keys and values, for gradients of gradients.
//!
//! Its gradient by the tokens is the second derivative of attention, and that by their changes is the gradient of attention.

use std::ops::Range;

use flashcliff::attention::{self as core, AttentionGradients, AttentionTangents};

use super::step::{Given, Gradients};
use super::{Attention, Channels};
use crate::scratch::Buffer;
use crate::{Error, Number};

/// How attention without distances and norms of heads changes. Each of its inputs has the channels of an input of
/// attention, and their changes after them.
#[derive(Clone, Debug)]
pub struct AttentionTangent {
    pub(crate) attention: Attention,
}

impl AttentionTangent {
    /// The derivative of attention; `None` if its heads have norms or distances of points, which come before as
    /// separate [steps](super::HeadNorm).
    pub(crate) fn new(attention: Attention) -> Option<Self> {
        let is_plain = attention.head.points.is_none() && !attention.geometry.head_norm;
        is_plain.then_some(Self { attention })
    }

    /// The channels of the inputs.
    pub(crate) fn sides(&self) -> Vec<Channels> {
        let sides = self.attention.sides().into_iter();
        sides.map(|channels| channels.and(channels)).collect()
    }

    /// The inputs of attention, and their changes.
    fn parted<T: Number>(&self, given: &Given<'_, T>) -> [[Buffer<T>; 2]; 2] {
        let own = &self.attention;
        let rows = [given.chunk.samples, given.chunk.context].map(super::chunk::Samples::rows);
        let mut sides = own.sides().into_iter().zip(rows);
        let mut part = |x: &[T]| match sides.next() {
            Some((side, rows)) => own.layout(rows, side.and(side)).parted(x, side),
            None => [(); 2].map(|()| Buffer::take(0)),
        };
        let [x, u] = part(given.x);
        let [other, of_other] = part(given.other);
        [[x, other], [u, of_other]]
    }

    /// The queries, keys and values of all heads.
    fn features<T: Number>(
        &self,
        given: &Given<'_, T>,
        [x, other]: &[Buffer<T>; 2],
    ) -> Result<[Buffer<T>; 3], Error> {
        let given = Given { x, other, ..*given };
        self.attention.features(&given)
    }

    pub(crate) fn forward<T: Number>(
        &self,
        given: &Given<'_, T>,
        y: &mut [T],
    ) -> Result<(), Error> {
        let [own, along] = self.parted(given);
        let (own, along) = (self.features(given, &own)?, self.features(given, &along)?);
        let mut out = Buffer::take(self.attention.out_len(given));
        for run in self.attention.runs(given) {
            let rows = self.attention.mask_rows(given, run[0]);
            let places = self.attention.places_of_run(run);
            core::tangent(
                self.attention.sizes(run),
                self.attention.scale(),
                self.attention
                    .inputs(own.each_ref().map(|own| &**own), &places, given, &rows),
                tangents(&along, &places),
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
        let sides = self.parted(given);
        let own = self.features(given, &sides[0])?;
        let along = self.features(given, &sides[1])?;
        let of_out = self.attention.unmerged(&given.chunk, g);
        let lens = own.each_ref().map(|own| own.len());
        let mut of = [lens; 2].map(|lens| lens.map(Buffer::take));
        let mut of_mask = to.mask;
        for run in self.attention.runs(given) {
            let rows = self.attention.mask_rows(given, run[0]);
            let keys = self.attention.sizes(run).keys;
            let mut of_rows = of_mask
                .as_deref_mut()
                .map(|to| super::attention::passes::Shared::new(&rows, keys, to));
            let places = self.attention.places_of_run(run);
            let mut scores = of_rows.as_mut().map(|own| own.scores());
            let gradients = of.each_mut().map(|[query, key, value]| AttentionGradients {
                query: &mut query[places[0].clone()],
                key: &mut key[places[1].clone()],
                value: &mut value[places[2].clone()],
                scores: scores.take(),
            });
            core::tangent_backward(
                self.attention.sizes(run),
                self.attention.scale(),
                self.attention
                    .inputs(own.each_ref().map(|own| &**own), &places, given, &rows),
                tangents(&along, &places),
                &of_out[places[3].clone()],
                gradients,
            )?;
            if let Some(own) = of_rows {
                own.add_up();
            }
        }
        self.write(given, &sides[0], &of, [to.x, to.other])
    }

    /// Writes the gradients of the inputs from the gradients of features and of their changes.
    fn write<T: Number>(
        &self,
        given: &Given<'_, T>,
        [x, other]: &[Buffer<T>; 2],
        of: &[[Buffer<T>; 3]; 2],
        to: [Option<&mut [T]>; 2],
    ) -> Result<(), Error> {
        let given = Given { x, other, ..*given };
        for (side, to) in self.attention.sides_of(&given).iter().zip(to) {
            let Some(to) = to else { continue };
            let mut both = [(); 2].map(|()| Buffer::take(side.x.len()));
            for (to, of) in both.iter_mut().zip(of) {
                self.attention.read_features(side, &[], of, to, &mut [])?;
            }
            let channels = side.channels;
            let layout = self.attention.layout(side.rows(), channels.and(channels));
            layout.join([&*both[0], &*both[1]], [channels; 2], to);
        }
        Ok(())
    }
}

/// The changes of the features of a run.
fn tangents<'a, T: Number>(
    along: &'a [Buffer<T>; 3],
    places: &[Range<usize>; 5],
) -> AttentionTangents<'a, T> {
    let [query, key, value] = along;
    AttentionTangents {
        query: &query[places[0].clone()],
        key: &key[places[1].clone()],
        value: &value[places[2].clone()],
    }
}
