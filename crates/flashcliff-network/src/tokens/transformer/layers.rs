//! Layers of a transformer with parameters of their own, by the names of GATr's state dict.

use crate::tokens::{Channels, Dropout, Gains, Geometry, Linear, Norm, Step};
use crate::{Error, Network, Value};

/// A network that gets layers.
pub(in crate::tokens) struct Layers {
    pub(in crate::tokens) network: Network,
    pub(in crate::tokens) geometry: Geometry,
}

impl Layers {
    pub(in crate::tokens) fn new(geometry: Geometry) -> Self {
        Self {
            network: Network::new(),
            geometry,
        }
    }

    /// Adds parameters by their full names, and returns their elements one after another in some order.
    pub(in crate::tokens) fn parameters(
        &mut self,
        named: &[(String, Vec<usize>)],
        order: &[usize],
    ) -> Result<Value, Error> {
        let all = named.iter();
        let all: Vec<Value> = all
            .map(|(name, shape)| self.network.parameter(name, shape))
            .collect();
        let ordered: Vec<Value> = order.iter().map(|&at| all[at]).collect();
        self.network.concatenate(&ordered)
    }

    /// Linear layers that share an input, each under a prefix.
    pub(super) fn linear(
        &mut self,
        prefixes: &[String],
        step: Linear,
        x: Value,
    ) -> Result<Value, Error> {
        let names = step.names().into_iter().zip(prefixes);
        let names = names.flat_map(|(names, prefix)| {
            let own = names.into_iter();
            own.map(move |name| format!("{prefix}.{name}"))
        });
        let named: Vec<_> = names.zip(step.shapes()).collect();
        let parameters = self.parameters(&named, &step.order())?;
        self.network.step(Step::Linear(step), &[x, parameters])
    }

    /// A linear layer from channels to others.
    pub(super) fn linear_to(
        &mut self,
        prefix: &str,
        x: Value,
        [from, to]: [Channels; 2],
    ) -> Result<Value, Error> {
        let step = Linear::new(self.geometry, from, vec![to])?;
        self.linear(&[prefix.to_owned()], step, x)
    }

    /// The norm of a block, with gains if the geometry says so.
    pub(super) fn block_norm(
        &mut self,
        prefix: &str,
        x: Value,
        channels: Channels,
    ) -> Result<Value, Error> {
        if !self.geometry.norm_gains {
            return self.norm(x, channels);
        }
        let shapes = Gains::new(self.geometry, channels).shapes().into_iter();
        // A matrix for multivectors, a list for scalars.
        let named = shapes.map(|shape| match shape.len() {
            2 => (format!("{prefix}.weight_mv"), shape),
            _ => (format!("{prefix}.weight_s"), shape),
        });
        let named: Vec<_> = named.collect();
        let order: Vec<usize> = (0..named.len()).collect();
        let gains = self.parameters(&named, &order)?;
        let step = Norm::with_gains(self.geometry, channels);
        self.network.step(Step::Norm(step), &[x, gains])
    }

    /// The norm without gains.
    pub(super) fn norm(&mut self, x: Value, channels: Channels) -> Result<Value, Error> {
        let step = Norm::new(self.geometry, channels);
        self.network.step(Step::Norm(step), &[x])
    }

    /// Dropout with a probability, if there is one, by the number of a block and its number there.
    pub(super) fn dropped(
        &mut self,
        x: Value,
        channels: Channels,
        p: Option<f64>,
        places: [usize; 2],
    ) -> Result<Value, Error> {
        let Some(p) = p else { return Ok(x) };
        let places = places.map(|place| place as u64);
        let step = Dropout::new(self.geometry, channels, p, &places)?;
        self.network.step(Step::Dropout(step), &[x])
    }
}
