//! The network GATr.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;

use crate::Error;
use crate::layers::transformer::{
    AttentionOptions, Block, Channels, EquiLinear, Geometry, Initialization, Scope, Tokens,
    join_reference_within,
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
/// as in GATr. Over other algebras it is as L-GATr, E-GATr or C-GATr, see [`Geometry::of`].
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
    geometry: Geometry,
    first: EquiLinear,
    blocks: Vec<Block>,
    last: EquiLinear,
    /// Whether blocks run again in the backward pass.
    gradient_checkpointing: bool,
}

impl Gatr {
    /// The network over Cl(3,0,1) with parameters from `vb`.
    ///
    /// # Errors
    /// The errors of the layers.
    pub fn new(options: GatrOptions, vb: VarBuilder) -> std::result::Result<Self, Error> {
        Self::over(Geometry::gatr()?, options, vb)
    }

    /// The network over a geometry, or an algebra.
    ///
    /// # Errors
    /// The errors of the layers.
    pub fn over(
        geometry: impl Into<Geometry>,
        options: GatrOptions,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        let geometry = geometry.into();
        let linear = |from, to, name| {
            EquiLinear::over(geometry, from, to, Initialization::Default, vb.pp(name))
        };
        let block = |at: usize| {
            let vb = vb.pp("blocks").pp(at);
            Block::over(geometry, options.hidden, options.attention, vb)
        };
        Ok(Self {
            geometry,
            first: linear(options.input, options.hidden, "linear_in")?,
            blocks: (0..options.blocks)
                .map(block)
                .collect::<std::result::Result<_, _>>()?,
            last: linear(options.hidden, options.output, "linear_out")?,
            gradient_checkpointing: false,
        })
    }

    /// With gradient checkpointing the forward pass keeps only the inputs of blocks, and the backward pass runs each block again. A step takes less
    /// memory and more time; results and gradients are the same bit for bit. Other blocks of your own: [`op::recomputed`](crate::op::recomputed).
    #[must_use]
    pub fn with_gradient_checkpointing(self, gradient_checkpointing: bool) -> Self {
        Self {
            gradient_checkpointing,
            ..self
        }
    }

    /// Applies the network, with the mean of each sample's input as the reference of joins.
    ///
    /// # Errors
    /// Tokens of other channels.
    pub fn forward(&self, x: &Tokens) -> Result<Tokens> {
        self.forward_within(x, None, &Scope::Sample)
    }

    /// Applies the network with a reference of joins `[samples, items]`.
    ///
    /// # Errors
    /// Tokens of other channels, a reference of another shape.
    pub fn forward_with(&self, x: &Tokens, reference: &Tensor) -> Result<Tokens> {
        self.forward_within(x, Some(reference), &Scope::Sample)
    }

    /// Applies the network to items that attend within a scope. Without a reference of joins that of
    /// [`join_reference_within`](crate::layers::transformer::join_reference_within) is taken: the items of a sequence have that of their sequence.
    ///
    /// # Errors
    /// The errors of [`Self::forward_with`], and a scope that does not fit the tokens.
    pub fn forward_within(
        &self,
        x: &Tokens,
        reference: Option<&Tensor>,
        scope: &Scope,
    ) -> Result<Tokens> {
        let made = match (self.geometry.join, reference) {
            (true, None) => Some(join_reference_within(x, scope)?),
            _ => None,
        };
        let reference = reference.or(made.as_ref());
        let mut x = self.first.forward(x)?;
        for block in &self.blocks {
            x = match self.gradient_checkpointing {
                true => block.recomputed_within(&x, reference, scope)?,
                false => block.forward_within(&x, reference, scope)?,
            };
        }
        self.last.forward(&x)
    }
}
