//! The network GATr.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use flashcliff_network::file::network_to_json;
use flashcliff_network::tokens::Transformer;

use crate::Error;
use crate::layers::transformer::{
    AttentionOptions, Block, BlockOptions, Call, Channels, EquiLinear, Geometry, Initialization,
    Scope, Tokens, join_reference_within,
};
use crate::op::constants::indices;

/// The sizes and options of a [`Gatr`].
///
/// ```
/// use flashcliff_candle::layers::transformer::Channels;
/// use flashcliff_candle::models::GatrOptions;
///
/// let (ends, hidden) = (Channels::new(1, 1), Channels::new(16, 128));
/// let options = GatrOptions { dropout: Some(0.1), reinsert_channels: vec![0], ..GatrOptions::new(ends, ends, hidden) };
/// assert_eq!((options.blocks, options.mlp_ratio), (10, 2));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct GatrOptions {
    /// Channels of the input.
    pub input: Channels,
    /// Channels of the output.
    pub output: Channels,
    /// Channels of the blocks.
    pub hidden: Channels,
    /// The number of blocks.
    pub blocks: usize,
    /// The attention of each block. Its `extra` channels are those that are reinserted.
    pub attention: AttentionOptions,
    /// Multivector channels of the input that queries and keys of every block see.
    pub reinsert_channels: Vec<usize>,
    /// Scalar channels of the input that they see.
    pub reinsert_scalars: Vec<usize>,
    /// Hidden channels of perceptrons for each channel of `hidden`.
    pub mlp_ratio: usize,
    /// Layers of perceptrons.
    pub mlp_layers: usize,
    /// The probability of [`GradeDropout`](crate::layers::transformer::GradeDropout) in blocks, see [`BlockOptions::dropout`].
    pub dropout: Option<f64>,
}

impl GatrOptions {
    /// The published network of these channels: ten blocks, default attention, perceptrons of ratio 2, nothing reinserted, no dropout.
    pub const fn new(input: Channels, output: Channels, hidden: Channels) -> Self {
        Self {
            input,
            output,
            hidden,
            blocks: 10,
            attention: AttentionOptions::PUBLISHED,
            reinsert_channels: Vec::new(),
            reinsert_scalars: Vec::new(),
            mlp_ratio: 2,
            mlp_layers: 2,
            dropout: None,
        }
    }

    /// The options of a block.
    fn block(&self) -> BlockOptions {
        let extra = Channels::new(self.reinsert_channels.len(), self.reinsert_scalars.len());
        BlockOptions {
            attention: AttentionOptions {
                extra,
                ..self.attention
            },
            mlp_ratio: self.mlp_ratio,
            mlp_layers: self.mlp_layers,
            dropout: self.dropout,
        }
    }

    /// Checks that the channels that are reinserted are channels of the input.
    fn check(&self) -> std::result::Result<(), Error> {
        let lists = [
            (
                "reinsert_channels",
                &self.reinsert_channels,
                self.input.multivectors,
            ),
            (
                "reinsert_scalars",
                &self.reinsert_scalars,
                self.input.scalars,
            ),
        ];
        for (option, list, count) in lists {
            if let Some(&beyond) = list.iter().find(|&&channel| channel >= count) {
                return Err(Error::Option {
                    option,
                    expected: "indices of channels of the input",
                    got: beyond as f64,
                });
            }
        }
        Ok(())
    }
}

/// GATr: a linear layer, blocks of attention and perceptrons, a linear layer. It commutes with rotations, translations and reflections of
/// space.
///
/// Parameters have the names of GATr's state dict: `linear_in`, `blocks.0`, ..., `linear_out`. The reference of joins
/// is the mean of the input, as in GATr. Over other algebras the network is that of L-GATr, E-GATr or C-GATr, see
/// [`Geometry::of`].
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
///     blocks: 2,
///     attention: AttentionOptions { heads: 2, ..AttentionOptions::default() },
///     ..GatrOptions::new(Channels::new(1, 1), Channels::new(1, 1), Channels::new(4, 8))
/// };
/// let parameters = Parameters::seeded(1);
/// let net = Gatr::new(options, parameters.builder(DType::F32, &Device::Cpu))?;
/// let x = Tensor::ones((3, 5, 17), DType::F32, &Device::Cpu)?;
/// let out = net.forward(&Tokens::from_packed(x, Channels::new(1, 1))?)?;
/// assert_eq!(out.multivectors()?.dims(), [16, 3, 5, 1]);
/// # Ok::<(), flashcliff_candle::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gatr {
    geometry: Geometry,
    options: GatrOptions,
    reinserted: Option<Selection>,
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
        options.check()?;
        let of_block = options.block();
        let linear = |from, to, name| {
            EquiLinear::over(geometry, from, to, Initialization::Default, vb.pp(name))
        };
        let block = |at: usize| {
            let vb = vb.pp("blocks").pp(at);
            Block::over(geometry, options.hidden, of_block, vb)
        };
        let blades = geometry.algebra.blade_count();
        Ok(Self {
            geometry,
            reinserted: Selection::new(&options, blades),
            first: linear(options.input, options.hidden, "linear_in")?,
            blocks: (0..options.blocks)
                .map(block)
                .collect::<std::result::Result<_, _>>()?,
            last: linear(options.hidden, options.output, "linear_out")?,
            options,
            gradient_checkpointing: false,
        })
    }

    /// The network as JSON, for [`Checkpoint::set_network`](crate::checkpoint::Checkpoint::set_network): a file with
    /// it and the parameters opens in Rust, C, PyTorch and JAX. Its inputs are `tokens` and, with joins, the
    /// `reference` of each item, which [`Self::forward`] makes as
    /// [`join_reference`](crate::layers::transformer::join_reference) does; with reinserted channels these are the
    /// input `extra`. Its output is `output`.
    ///
    /// # Errors
    /// The errors of the description.
    pub fn description(&self) -> std::result::Result<String, Error> {
        let options = &self.options;
        let BlockOptions {
            attention,
            mlp_ratio,
            mlp_layers,
            dropout,
        } = options.block();
        let (network, ends) = Transformer {
            blocks: options.blocks,
            attention,
            mlp_ratio,
            mlp_layers,
            dropout,
            ..Transformer::new(self.geometry, options.input, options.output, options.hidden)
        }
        .network()?;
        Ok(network_to_json(&network, &[("output", ends.output)])?)
    }

    /// With gradient checkpointing the forward pass keeps only the inputs of blocks, and the backward pass runs each
    /// block again. A step takes less memory and more time; results and gradients are the same bit for bit.
    /// [`op::recomputed`](crate::op::recomputed) does it for any function.
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

    /// Applies the network to items that attend within a scope. If there is no reference of joins, it is that of
    /// [`join_reference_within`](crate::layers::transformer::join_reference_within): each sequence has its own.
    ///
    /// # Errors
    /// The errors of [`Self::forward_with`], and a scope that does not fit the tokens.
    pub fn forward_within(
        &self,
        x: &Tokens,
        reference: Option<&Tensor>,
        scope: &Scope,
    ) -> Result<Tokens> {
        self.call(x, &Call::within(reference, scope))
    }

    /// Applies the network with all that a call may have. In training that is the random numbers of dropout, of which
    /// each block takes its own. The network makes the reference of joins if there is none, and the extra tokens of
    /// its blocks.
    ///
    /// # Errors
    /// The errors of [`Self::forward_within`]; extra tokens; random numbers on another device.
    pub fn call(&self, x: &Tokens, call: &Call) -> Result<Tokens> {
        if let Some(extra) = call.extra {
            return Err(Error::Shape {
                tensor: "extra tokens".to_owned(),
                expected: "none, because a network reinserts channels of its input".to_owned(),
                got: extra.packed().dims().to_vec(),
            }
            .into());
        }
        let made = match (self.geometry.has_joins(), call.reference) {
            (true, None) => Some(join_reference_within(x, call.scope)?),
            _ => None,
        };
        let extra = self
            .reinserted
            .as_ref()
            .map(|chosen| chosen.of(x, self.geometry));
        let extra = extra.transpose()?;
        let input = x;
        let mut x = self.first.forward(input)?;
        for (at, block) in (0..).zip(&self.blocks) {
            let draw = call.draw.map(|draw| draw.of(at));
            let call = Call {
                reference: call.reference.or(made.as_ref()),
                extra: extra.as_ref(),
                draw: draw.as_ref(),
                ..*call
            };
            x = match self.gradient_checkpointing {
                true => block.recomputed(&x, &call)?,
                false => block.call(&x, &call)?,
            };
        }
        self.last.forward(&x)
    }
}

/// Channels of the input that blocks see again.
#[derive(Clone, Debug)]
struct Selection {
    channels: Channels,
    /// Their columns in packed tokens.
    columns: Vec<u32>,
    /// A name of the columns.
    name: String,
}

impl Selection {
    /// The channels that options reinsert, if there are some.
    fn new(options: &GatrOptions, blades: usize) -> Option<Self> {
        let (lists, input) = (
            (&options.reinsert_channels, &options.reinsert_scalars),
            options.input,
        );
        let channels = Channels::new(lists.0.len(), lists.1.len());
        if channels == Channels::default() {
            return None;
        }
        let of_blades = (0..blades).flat_map(|blade| {
            lists
                .0
                .iter()
                .map(move |at| blade * input.multivectors + at)
        });
        let first = blades * input.multivectors;
        let columns = of_blades.chain(lists.1.iter().map(|at| first + at));
        Some(Self {
            channels,
            // Rows of tokens are far shorter.
            columns: columns.map(|column| column as u32).collect(),
            name: format!("{lists:?} of {input:?} over {blades} blades"),
        })
    }

    fn of(&self, x: &Tokens, geometry: Geometry) -> Result<Tokens> {
        let columns = indices(&self.name, || Ok(self.columns.clone()), x.packed())?;
        let chosen = x.packed().contiguous()?.index_select(&columns, 2)?;
        Tokens::over(chosen, self.channels, geometry)
    }
}
