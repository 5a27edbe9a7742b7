//! The layers that networks of transformers are made of.

use super::start::{Initialization, Start};
use crate::tokens::{Channels, Dropout, Gains, Geometry, Lanes, Linear, NormOptions, Step};
use crate::{Error, Network, Value};

/// A network that gets layers of transformers, with the starts of their parameters.
///
/// Each method adds a layer to the network: it takes and returns values of it. Parameters have the names of GATr's
/// state dict behind a prefix and a dot, or without both behind an empty prefix, and the shapes that [`Linear`],
/// [`Lanes::norm`] and [`Attention`](super::super::Attention) say. A host that binds parameters in the order of
/// [`Network::parameters`] needs to know no more of a layer.
///
/// ```
/// use flashcliff_network::Axis;
/// use flashcliff_network::tokens::{Channels, Geometry, Initialization, Layers};
///
/// let (from, to) = (Channels::new(2, 3), Channels::new(4, 5));
/// let mut layers = Layers::new(Geometry::gatr()?);
/// let token = Axis::Token { blades: 16, channels: from };
/// let x = layers.network.features("tokens", &[Axis::Rows, token]);
/// layers.linear("first", x, [from, to], Initialization::Default)?;
/// assert_eq!(layers.network.name(layers.network.parameters()[0]), "first.weight");
/// assert_eq!(layers.starts().len(), layers.network.parameters().len());
/// # Ok::<(), flashcliff_network::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Layers {
    /// The network so far.
    pub network: Network,
    pub(super) geometry: Geometry,
    /// The number of the block that layers are in, which comes first in the places of their dropout.
    pub(super) block: Option<u64>,
    drops: bool,
    starts: Vec<Start>,
    with_algebra: Vec<String>,
    /// The numbers of entries of the linear maps, which are there once a linear layer has asked.
    sizes: Option<Vec<usize>>,
}

/// The values that layers read besides their tokens, where they have use for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// The reference of joins, `[rows]`.
    pub reference: Option<Value>,
    /// The mask of attention, `[samples or 1, heads or 1, items or 1, items]`.
    pub mask: Option<Value>,
    /// The tokens of [extra channels](super::AttentionOptions::extra), `[rows, token]`.
    pub extra: Option<Value>,
}

impl Layers {
    /// A network without layers.
    pub fn new(geometry: Geometry) -> Self {
        Self {
            network: Network::new(),
            geometry,
            block: None,
            drops: true,
            starts: Vec::new(),
            with_algebra: Vec::new(),
            sizes: None,
        }
    }

    /// Layers that drop nothing, for runs without random numbers: their dropout adds no node.
    #[must_use]
    pub fn without_dropout(self) -> Self {
        Self {
            drops: false,
            ..self
        }
    }

    /// How each parameter starts, in the order of [`Network::parameters`].
    pub fn starts(&self) -> &[Start] {
        &self.starts
    }

    /// The prefixes of layers whose parameters belong to the algebra: to linear maps that commute with its group, or to grades.
    pub fn with_algebra(&self) -> &[String] {
        &self.with_algebra
    }

    /// Adds a parameter by its full name.
    pub(super) fn parameter(&mut self, name: &str, shape: &[usize], start: Start) -> Value {
        self.starts.push(start);
        self.network.parameter(name, shape)
    }

    /// Adds factors, which start at 1, and returns their elements one after another.
    pub(super) fn gains(&mut self, named: Vec<(String, Vec<usize>)>) -> Result<Value, Error> {
        let make = |(name, shape): (String, Vec<usize>)| {
            self.parameter(&name, &shape, Start::Constant(1.0))
        };
        let all: Vec<Value> = named.into_iter().map(make).collect();
        self.network.concatenate(&all)
    }

    /// A linear layer from channels to others.
    ///
    /// # Errors
    /// [`Error::Option`] without channels on a side, [`Error::Geometry`], the errors of [`Geometry::maps`], and [`Error::Shape`] for
    /// tokens of other channels.
    pub fn linear(
        &mut self,
        prefix: &str,
        x: Value,
        [from, to]: [Channels; 2],
        start: Initialization,
    ) -> Result<Value, Error> {
        from.check("channels of the input of a linear layer")?;
        to.check("channels of the output of a linear layer")?;
        let step = Linear::new(self.geometry, from, vec![to])?;
        self.linears(&[(prefix.to_owned(), start)], step, x)
    }

    /// Linear layers that share an input, each with its prefix.
    pub(super) fn linears(
        &mut self,
        layers: &[(String, Initialization)],
        step: Linear,
        x: Value,
    ) -> Result<Value, Error> {
        let sizes = self.sizes()?;
        let mut all = Vec::new();
        let of_layers = step.layers.iter().zip(step.names());
        for ((prefix, start), (&output, names)) in layers.iter().zip(of_layers) {
            for ((kind, shape), name) in step.of_layer(output).into_iter().zip(names) {
                let start = start.of(kind, &step, &sizes);
                all.push(self.parameter(&under(prefix, name), &shape, start));
            }
            self.with_algebra.push(prefix.clone());
        }
        let ordered: Vec<Value> = step.order().into_iter().map(|at| all[at]).collect();
        let parameters = self.network.concatenate(&ordered)?;
        self.network.step(Step::Linear(step), &[x, parameters])
    }

    /// The numbers of entries of the linear maps, of a geometry that is checked.
    fn sizes(&mut self) -> Result<Vec<usize>, Error> {
        if let Some(sizes) = &self.sizes {
            return Ok(sizes.clone());
        }
        self.geometry.check()?;
        let maps = self.geometry.maps()?;
        let sizes: Vec<usize> = maps.iter().map(|map| map.entries.len()).collect();
        Ok(self.sizes.insert(sizes).clone())
    }

    /// The norm of a block, with gains if the geometry says so.
    pub(super) fn block_norm(
        &mut self,
        prefix: &str,
        x: Value,
        channels: Channels,
    ) -> Result<Value, Error> {
        match self.geometry.norm_gains {
            true => self.norm_with_gains(prefix, x, channels),
            false => self.norm(x, channels),
        }
    }

    /// The norm with gains, which start at 1: `weight_mv` and `weight_s`, where there are such channels.
    ///
    /// # Errors
    /// [`Error::Option`] without channels, and [`Error::Shape`] for tokens of other channels.
    pub fn norm_with_gains(
        &mut self,
        prefix: &str,
        x: Value,
        channels: Channels,
    ) -> Result<Value, Error> {
        channels.check(OF_NORM)?;
        let shapes = Gains::new(self.geometry, channels).shapes().into_iter();
        // A matrix for multivectors, a list for scalars.
        let named = shapes.map(|shape| match shape.len() {
            2 => (under(prefix, "weight_mv"), shape),
            _ => (under(prefix, "weight_s"), shape),
        });
        let gains = self.gains(named.collect())?;
        self.with_algebra.push(prefix.to_owned());
        let step = Lanes::norm(self.geometry, channels, NormOptions::with_gains())?;
        self.network.step(Step::Lanes(step), &[x, gains])
    }

    /// The norm without gains.
    ///
    /// # Errors
    /// [`Error::Option`] without channels, and [`Error::Shape`] for tokens of other channels.
    pub fn norm(&mut self, x: Value, channels: Channels) -> Result<Value, Error> {
        channels.check(OF_NORM)?;
        let step = Lanes::norm(self.geometry, channels, NormOptions::default())?;
        self.network.step(Step::Lanes(step), &[x])
    }

    /// The gated nonlinearity.
    ///
    /// # Errors
    /// [`Error::Option`] without channels, [`Error::Shape`] for tokens of other channels, and the errors of the core.
    pub fn gate(&mut self, x: Value, channels: Channels) -> Result<Value, Error> {
        channels.check("channels of a gate")?;
        let step = Lanes::gated(self.geometry, channels, self.geometry.gates())?;
        self.network.step(Step::Lanes(step), &[x])
    }

    /// Dropout of grades with a probability, if there is one. Layers with another place drop others.
    ///
    /// # Errors
    /// [`Error::Option`] for what is not a probability below 1, and [`Error::Shape`] for tokens of other channels.
    pub fn dropout(
        &mut self,
        x: Value,
        channels: Channels,
        p: Option<f64>,
        place: usize,
    ) -> Result<Value, Error> {
        let Some(p) = p else { return Ok(x) };
        let places: Vec<u64> = self.block.into_iter().chain([place as u64]).collect();
        let step = Dropout::new(self.geometry, channels, p, &places)?;
        match self.drops {
            true => self.network.step(Step::Dropout(step), &[x]),
            false => Ok(x),
        }
    }
}

/// The name that messages give the channels of a norm.
const OF_NORM: &str = "channels of a norm";

/// A name behind a prefix, if there is one.
pub(super) fn under(prefix: &str, name: &str) -> String {
    match prefix {
        "" => name.to_owned(),
        _ => format!("{prefix}.{name}"),
    }
}
