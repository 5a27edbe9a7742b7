//! Transformers as networks: their layers, and whole ones of a linear layer, blocks of attention and perceptrons, and a linear layer.
//!
//! * `layers` - a network that gets layers; linear layers, norms, gates and dropout.
//! * `attention` - attention with its projections.
//! * `block` - a block, and its perceptron with products and joins.
//! * `start` - how parameters start.

mod attention;
mod block;
mod layers;
mod start;

use super::{Channels, Geometry};
use crate::{Axis, Error, Network, Value};
pub use attention::AttentionOptions;
pub use block::BlockOptions;
pub use layers::{Beside, Layers};
pub use start::{Initialization, Start};

/// The sizes and options of a geometric algebra transformer: GATr over Cl(3,0,1), L-GATr over Cl(1,3), their relatives over other algebras.
///
/// Parameters of the network have the names of GATr's state dict, such as `blocks.0.attention.out_linear.weight`, and the shapes that
/// [`Linear`](super::Linear), [`Lanes::norm`](super::Lanes::norm) and [`Attention`](super::Attention) say.
///
/// Sources: GATr (arXiv 2305.18415), L-GATr (arXiv 2405.14806).
///
/// ```
/// use flashcliff_network::tokens::{AttentionOptions, Channels, Geometry, Transformer};
///
/// let (ends, hidden) = (Channels::new(1, 1), Channels::new(4, 8));
/// let options = Transformer {
///     blocks: 2,
///     attention: AttentionOptions { heads: 2, ..AttentionOptions::default() },
///     ..Transformer::new(Geometry::gatr()?, ends, ends, hidden)
/// };
/// let (network, _) = options.network()?;
/// let names: Vec<&str> = network.inputs().iter().map(|&input| network.name(input)).collect();
/// assert_eq!(names, ["tokens", "reference"]);
/// assert_eq!(network.name(network.parameters()[0]), "linear_in.weight");
/// # Ok::<(), flashcliff_network::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Transformer {
    /// The algebra, and what follows from it.
    pub geometry: Geometry,
    /// Channels of the input.
    pub input: Channels,
    /// Channels of the output.
    pub output: Channels,
    /// Channels of the blocks.
    pub hidden: Channels,
    /// The number of blocks. Default: 10.
    pub blocks: usize,
    /// The attention of each block. The tokens of its extra channels are an input.
    pub attention: AttentionOptions,
    /// The axes of a mask, an input that is added to the scores of every block:
    /// `[samples or 1, heads or 1, items or 1, items]`. Default: no mask.
    pub mask: Option<[Axis; 4]>,
    /// Hidden channels of perceptrons for each channel of `hidden`. Default: 2.
    pub mlp_ratio: usize,
    /// Layers of perceptrons, at least 1. Default: 2.
    pub mlp_layers: usize,
    /// The probability of dropout of grades after each layer of a perceptron, and after attention unless its own
    /// options have one. A run without random numbers drops nothing. Default: `None`.
    pub dropout: Option<f64>,
}

/// The values at the ends of a transformer's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The input `tokens` `[rows, token]`.
    pub tokens: Value,
    /// The input `reference` `[rows]` of joins, if the geometry has joins. GATr takes the mean over the items and
    /// channels of a sample of the component of the input at the blade of all vectors that are not null.
    pub reference: Option<Value>,
    /// The input `mask`, if there is one.
    pub mask: Option<Value>,
    /// The input `extra` `[rows, token]` of further tokens, if they have channels.
    pub extra: Option<Value>,
    /// The output `[rows, token]`.
    pub output: Value,
}

impl Transformer {
    /// The published network of these channels: ten blocks, default attention, perceptrons of ratio 2, nothing reinserted, no dropout.
    pub fn new(geometry: Geometry, input: Channels, output: Channels, hidden: Channels) -> Self {
        Self {
            geometry,
            input,
            output,
            hidden,
            blocks: 10,
            attention: AttentionOptions::default(),
            mask: None,
            mlp_ratio: 2,
            mlp_layers: 2,
            dropout: None,
        }
    }

    /// The network, with each block as a separate [block](Network::block).
    ///
    /// # Errors
    /// [`Error::Option`] for no head, ratios or layers of 0, what is not a probability, and an odd number of multivector channels with
    /// joins; [`Error::Geometry`] for choices that the algebra does not have; [`Error::Shape`] for axes that are no mask's.
    pub fn network(&self) -> Result<(Network, Ends), Error> {
        self.geometry.check()?;
        let options = self.block();
        options.check(self.geometry, self.hidden)?;
        let mut layers = Layers::new(self.geometry);
        let mut ends = self.inputs(&mut layers.network);
        let beside = Beside {
            reference: ends.reference,
            mask: ends.mask,
            extra: ends.extra,
        };
        let start = Initialization::Default;
        let channels = [self.input, self.hidden];
        let mut x = layers.linear("linear_in", ends.tokens, channels, start)?;
        for at in 0..self.blocks {
            layers.network.block();
            layers.block = Some(at as u64);
            let name = format!("blocks.{at}");
            x = layers.block(&name, x, self.hidden, &options, &beside)?;
        }
        layers.network.block();
        let channels = [self.hidden, self.output];
        ends.output = layers.linear("linear_out", x, channels, start)?;
        Ok((layers.network, ends))
    }

    /// The options of a block.
    fn block(&self) -> BlockOptions {
        BlockOptions {
            attention: self.attention,
            mlp_ratio: self.mlp_ratio,
            mlp_layers: self.mlp_layers,
            dropout: self.dropout,
        }
    }

    /// Adds the inputs. The output is not known yet.
    fn inputs(&self, network: &mut Network) -> Ends {
        let blades = self.geometry.blades();
        let of = |channels| [Axis::Rows, Axis::Token { blades, channels }];
        let tokens = network.input("tokens", &of(self.input));
        let has_extra = self.attention.extra != Channels::default();
        Ends {
            tokens,
            reference: self
                .geometry
                .has_joins()
                .then(|| network.input("reference", &[Axis::Rows])),
            mask: self.mask.map(|axes| network.input("mask", &axes)),
            extra: has_extra.then(|| network.input("extra", &of(self.attention.extra))),
            output: tokens,
        }
    }
}

/// Checks a number that is at least 1.
pub(super) fn at_least_one(option: &'static str, got: usize) -> Result<(), Error> {
    match got {
        0 => Err(Error::Option {
            option,
            expected: "a number from 1 up",
            got: 0.0,
        }),
        _ => Ok(()),
    }
}
