//! Parts of values along an axis, and rows by their relations.

use flashcliff::segments::Related;

use super::{Held, Number, Run, Sources};
use crate::Error;
use crate::network::{Axis, Node, Value};
use crate::relation::{Along, Relation};
use crate::work::Sides;

impl<'a, T: Number, S: Sources<T>> Run<'a, T, S> {
    /// The relations that a gathering or a sum follows, with what the sum is divided by.
    pub(super) fn related(&self, along: Along, inner: usize) -> Related<'a> {
        let own = |relation: Relation| self.scales.relations[relation.number()].lists();
        Related {
            of: own(along.relation),
            minus: along.minus.map(own),
            reduction: along.reduction,
            inner,
        }
    }

    /// Values side by side along an axis.
    pub(super) fn join(
        &self,
        node: &Node,
        held: &Held<'a, T, S>,
        sides: &Sides,
    ) -> Result<(), Error> {
        let (o, inner) = (
            self.write(node.outputs[0])?,
            self.behind(node.outputs[0], sides)?,
        );
        let whole = sides.whole() * inner;
        if sides.parts.iter().any(|(_, there)| !there) {
            o.fill(T::default());
        }
        for (at, (from, size)) in sides.there().enumerate() {
            let (own, part) = (from * inner, size * inner);
            let x = self.read(node, held, at)?;
            for (o, x) in o
                .chunks_exact_mut(whole.max(1))
                .zip(x.chunks_exact(part.max(1)))
            {
                o[own..own + part].copy_from_slice(x);
            }
        }
        Ok(())
    }

    /// The parts of a value along an axis.
    pub(super) fn split_along(
        &self,
        node: &Node,
        held: &Held<'a, T, S>,
        sides: &Sides,
    ) -> Result<(), Error> {
        let (x, inner) = (
            self.read(node, held, 0)?,
            self.behind(node.inputs[0], sides)?,
        );
        let whole = sides.whole() * inner;
        for (&output, (from, size)) in node.outputs.iter().zip(sides.there()) {
            let (own, part) = (from * inner, size * inner);
            let o = self.write(output)?;
            for (o, x) in o
                .chunks_exact_mut(part.max(1))
                .zip(x.chunks_exact(whole.max(1)))
            {
                o.copy_from_slice(&x[own..own + part]);
            }
        }
        Ok(())
    }

    /// The elements of the axes after the axis of the sides.
    pub(super) fn behind(&self, value: Value, sides: &Sides) -> Result<usize, Error> {
        Ok(self.plan.spot(value)?.shape[sides.axis + 1..]
            .iter()
            .product())
    }

    /// The elements of a row of a value that a node reads: the product of the sizes after the axis of its rows.
    pub(super) fn inner(&self, node: &Node, rows: Axis) -> usize {
        let axes = self
            .plan
            .network()
            .shape(node.inputs[0])
            .unwrap_or_default();
        let behind = axes.iter().skip_while(|&&axis| axis != rows).skip(1);
        behind.map(|axis| axis.size(self.plan.batch())).product()
    }

    /// Values one after another.
    pub(super) fn concatenate(
        &self,
        node: &Node,
        held: &Held<'a, T, S>,
        lens: &[usize],
    ) -> Result<(), Error> {
        let mut rest = self.write(node.outputs[0])?;
        for (at, &len) in lens.iter().enumerate() {
            let (own, others) = rest.split_at_mut(len);
            own.copy_from_slice(self.read(node, held, at)?);
            rest = others;
        }
        Ok(())
    }

    /// The gradients of values that lie one after another.
    pub(super) fn split(
        &self,
        node: &Node,
        held: &Held<'a, T, S>,
        (lens, wanted): (&[usize], &[bool]),
    ) -> Result<(), Error> {
        let mut rest = self.read(node, held, 0)?;
        let mut outputs = node.outputs.iter();
        for (&len, &wanted) in lens.iter().zip(wanted) {
            let (own, others) = rest.split_at(len);
            rest = others;
            // There are results of what is wanted alone.
            if wanted && let Some(&output) = outputs.next() {
                self.write(output)?.copy_from_slice(own);
            }
        }
        Ok(())
    }
}
