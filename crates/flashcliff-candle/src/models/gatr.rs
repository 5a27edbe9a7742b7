//! The network GATr.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;

use crate::Error;
use crate::layers::transformer::{
    AttentionOptions, Block, Channels, EquiLinear, Initialization, Tokens, join_reference,
};

/// The sizes of a [`Gatr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatrOptions {
    /// Channels of the input.
    pub input: Channels,
    /// Channels of the output.
    pub output: Channels,
    /// Channels of the blocks.
    pub hidden: Channels,
    /// The blocks.
    pub blocks: usize,
    /// The attention of each block.
    pub attention: AttentionOptions,
}

/// GATr: a linear layer, blocks of attention and perceptrons, a linear layer. It commutes with rotations, translations and reflections of
/// space.
///
/// Parameters have the names of GATr's state dict: `linear_in`, `blocks.0`, ..., `linear_out`. The reference of joins is the mean of the input,
/// as in GATr.
///
/// Source: Brehmer, de Haan, Behrends and Cohen, NeurIPS 2023, arXiv 2305.18415.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use flashcliff_candle::init::Parameters;
/// use flashcliff_candle::layers::transformer::{AttentionOptions, Channels, Tokens};
/// use flashcliff_candle::models::{Gatr, GatrOptions};
///
/// let options = GatrOptions {
///     input: Channels::new(1, 1),
///     output: Channels::new(1, 1),
///     hidden: Channels::new(4, 8),
///     blocks: 2,
///     attention: AttentionOptions { heads: 2, ..AttentionOptions::default() },
/// };
/// let parameters = Parameters::seeded(1);
/// let net = Gatr::new(options, parameters.builder(DType::F32, &Device::Cpu))?;
/// let x = Tensor::ones((3, 5, 17), DType::F32, &Device::Cpu)?;
/// let out = net.forward(&Tokens::from_packed(x, options.input)?)?;
/// assert_eq!(out.multivectors()?.dims(), [16, 3, 5, 1]);
/// # Ok::<(), flashcliff_candle::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gatr {
    first: EquiLinear,
    blocks: Vec<Block>,
    last: EquiLinear,
}

impl Gatr {
    /// The network with parameters from `vb`.
    ///
    /// # Errors
    /// The errors of the layers.
    pub fn new(options: GatrOptions, vb: VarBuilder) -> std::result::Result<Self, Error> {
        let linear =
            |from, to, name| EquiLinear::new(from, to, Initialization::Default, vb.pp(name));
        let first = linear(options.input, options.hidden, "linear_in")?;
        let blocks = (0..options.blocks)
            .map(|i| Block::new(options.hidden, options.attention, vb.pp("blocks").pp(i)))
            .collect::<std::result::Result<_, _>>()?;
        let last = linear(options.hidden, options.output, "linear_out")?;
        Ok(Self {
            first,
            blocks,
            last,
        })
    }

    /// Applies the network, with the mean of each sample's input as the reference of joins.
    ///
    /// # Errors
    /// Tokens of other channels.
    pub fn forward(&self, x: &Tokens) -> Result<Tokens> {
        self.forward_with(x, &join_reference(x)?)
    }

    /// Applies the network with a reference of joins `[samples, items]`.
    ///
    /// # Errors
    /// Tokens of other channels, a reference of another shape.
    pub fn forward_with(&self, x: &Tokens, reference: &Tensor) -> Result<Tokens> {
        let mut x = self.first.forward(x)?;
        for block in &self.blocks {
            x = block.forward(&x, reference)?;
        }
        self.last.forward(&x)
    }
}
