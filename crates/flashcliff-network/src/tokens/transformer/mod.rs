//! Whole transformers as networks: a linear layer, blocks of attention and perceptrons, a linear layer.
//!
//! * `layers` - layers with parameters of their own.
//! * `attention` - attention between projections.
//! * `perceptron` - the perceptron of a block, with products and joins.

mod attention;
pub(super) mod layers;
mod perceptron;

use super::{Channels, Geometry};
use crate::{Axis, Error, Network, Value};
pub use attention::AttentionOptions;
use layers::Layers;

/// The sizes and options of a geometric algebra transformer: GATr over Cl(3,0,1), L-GATr over Cl(1,3), their relatives over other algebras.
///
/// Parameters of the network have the names of GATr's state dict, such as `blocks.0.attention.out_linear.weight`, and the shapes that
/// [`Linear`](super::Linear), [`Norm::with_gains`](super::Norm::with_gains) and [`Attention`](super::Attention) say.
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
    /// The attention of each block.
    pub attention: AttentionOptions,
    /// The channels of further tokens, an input that the projections to queries and keys of every block see beside the channels of the block; without
    /// `multi_query` the projection to values does too. GATr reinserts channels of its input so. Extra scalars need hidden scalars. Default: none.
    pub extra: Channels,
    /// The axes of a mask, an input that is added to the scores of every block: `[samples or 1, heads or 1, items or 1, items]`. Default: no mask.
    pub mask: Option<[Axis; 4]>,
    /// Hidden channels of perceptrons for each channel of `hidden`. Default: 2.
    pub mlp_ratio: usize,
    /// Layers of perceptrons, at least 1. Default: 2.
    pub mlp_layers: usize,
    /// The probability of dropout of grades behind each layer of a perceptron, and behind attention unless its own options have one. A run without
    /// random numbers drops nothing. Default: `None`.
    pub dropout: Option<f64>,
}

/// The values at the ends of a transformer's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The input `tokens` `[rows, token]`.
    pub tokens: Value,
    /// The input `reference` `[rows]` of joins, if the geometry has joins. GATr takes the mean over the items and channels of a sample of the component of
    /// the input at the blade of all vectors that are not null.
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
            extra: Channels::default(),
            mask: None,
            mlp_ratio: 2,
            mlp_layers: 2,
            dropout: None,
        }
    }

    /// The network, with each block as a [block](Network::block) of its own.
    ///
    /// # Errors
    /// [`Error::Option`] for no head, ratios or layers of 0, what is no probability, and an odd number of multivector channels with joins;
    /// [`Error::Geometry`] for choices that the algebra does not have; [`Error::Shape`] for axes that are no mask's.
    pub fn network(&self) -> Result<(Network, Ends), Error> {
        self.check()?;
        let mut layers = Layers::new(self.geometry);
        let mut ends = self.inputs(&mut layers.network);
        let mut x = layers.linear_to("linear_in", ends.tokens, [self.input, self.hidden])?;
        for at in 0..self.blocks {
            layers.network.block();
            x = self.block(&mut layers, at, x, &ends)?;
        }
        layers.network.block();
        ends.output = layers.linear_to("linear_out", x, [self.hidden, self.output])?;
        Ok((layers.network, ends))
    }

    fn check(&self) -> Result<(), Error> {
        self.geometry.check()?;
        self.attention.check()?;
        at_least_one("mlp_ratio", self.mlp_ratio)?;
        at_least_one("mlp_layers", self.mlp_layers)?;
        if self.hidden.scalars == 0 && self.extra.scalars > 0 {
            return Err(Error::Option {
                option: "extra scalars of attention",
                expected: "0, because its tokens have no scalars",
                got: self.extra.scalars as f64,
            });
        }
        if self.attention.rotary.is_some() && self.geometry.head_norm {
            // The norm of a head comes first in published networks, and it is a part of attention here.
            return Err(Error::Geometry {
                choice: "rotary positions",
                expected: "a geometry without head_norm",
                got: format!("one with it, over {}", self.geometry.algebra.name()),
            });
        }
        Ok(())
    }

    /// Adds the inputs. The output is not known yet.
    fn inputs(&self, network: &mut Network) -> Ends {
        let blades = self.geometry.blades();
        let of = |channels| [Axis::Rows, Axis::Token { blades, channels }];
        let tokens = network.input("tokens", &of(self.input));
        let has_joins = self.geometry.product && self.geometry.join;
        let has_extra = self.extra != Channels::default();
        Ends {
            tokens,
            reference: has_joins.then(|| network.input("reference", &[Axis::Rows])),
            mask: self.mask.map(|axes| network.input("mask", &axes)),
            extra: has_extra.then(|| network.input("extra", &of(self.extra))),
            output: tokens,
        }
    }

    /// `x + attention(norm(x))`, then `x + perceptron(norm(x))`.
    fn block(&self, layers: &mut Layers, at: usize, x: Value, ends: &Ends) -> Result<Value, Error> {
        let prefix = format!("blocks.{at}");
        let normed = layers.block_norm(&format!("{prefix}.norm1"), x, self.hidden)?;
        let made = self.attend(layers, &format!("{prefix}.attention"), normed, ends)?;
        let dropout = self.attention.dropout.or(self.dropout);
        let made = layers.dropped(made, self.hidden, dropout, [at, 0])?;
        let x = layers.network.scaled_sum([x, made], 1.0)?;
        let normed = layers.block_norm(&format!("{prefix}.norm2"), x, self.hidden)?;
        let made = self.perceptron(layers, at, normed, ends.reference)?;
        layers.network.scaled_sum([x, made], 1.0)
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
