//! The layers, and what they read.

use candle_core::{Module, Result, Tensor};
use candle_nn::VarBuilder;
use flashcliff::ops::LinearOptions;
use flashcliff::{Algebra, Bias, Invariant};
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Block, Channels, EquiLayerNorm, EquiLinear, GeometricBilinear,
    Initialization, ScalarGate, SelfAttention, Tokens, join_reference,
};
use flashcliff_candle::layers::{
    FlashCliffordLayer, FlashCliffordOptions, FullyConnectedSteerableGeometricProduct, GradeNorm,
    MVLayerNorm, MVLinear, MVSiLU, PointEmbedding, SteerableGeometricProduct,
    SteerableLayerOptions,
};

/// The points of a sample that an embedding reads.
const POINTS: usize = 16;
/// The items of a sample of tokens.
const ITEMS: usize = 16;
/// The scalar channels of a token for each multivector channel.
const SCALARS: usize = 4;

/// What a layer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// Multivectors `[blades, batch, channels]`.
    Multivectors,
    /// Points `[batch, points, dim]`.
    Points,
    /// Tokens `[samples, items, width]`, and the reference of joins too.
    Tokens { with_reference: bool },
}

/// A layer as a function of its inputs.
pub(super) type Apply = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;

/// A layer.
#[derive(Debug)]
pub(super) struct Layer {
    /// The name of the type, and what tells two of one type apart.
    pub(super) name: &'static str,
    pub(super) input: Input,
    make: fn(&Size, VarBuilder<'_>) -> std::result::Result<Apply, flashcliff_candle::Error>,
}

/// The size of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) algebra: Algebra,
    pub(super) batch: usize,
    pub(super) channels: usize,
}

impl Size {
    /// The channels of tokens.
    fn tokens(&self) -> Channels {
        Channels::new(self.channels, SCALARS * self.channels)
    }
}

impl Layer {
    /// Whether the layer is one of transformers.
    pub(super) fn is_of_tokens(&self) -> bool {
        matches!(self.input, Input::Tokens { .. })
    }

    /// The layer with parameters from a builder.
    ///
    /// # Errors
    /// The errors of the layer.
    pub(super) fn make(
        &self,
        size: &Size,
        vars: VarBuilder<'_>,
    ) -> std::result::Result<Apply, flashcliff_candle::Error> {
        (self.make)(size, vars)
    }

    /// The shape of the input whose gradient is taken.
    pub(super) fn shape(&self, size: &Size) -> Vec<usize> {
        let Size {
            algebra,
            batch,
            channels,
        } = *size;
        match self.input {
            Input::Multivectors => vec![algebra.blade_count(), batch, channels],
            Input::Points => vec![batch, POINTS, algebra.signature().dim()],
            Input::Tokens { .. } => vec![batch, ITEMS, size.tokens().width()],
        }
    }

    /// The inputs after the first.
    ///
    /// # Errors
    /// The errors of candle.
    pub(super) fn others(&self, size: &Size, x: &Tensor) -> Result<Vec<Tensor>> {
        match self.input {
            Input::Tokens {
                with_reference: true,
            } => {
                let tokens = Tokens::from_packed(x.detach(), size.tokens())?;
                Ok(vec![join_reference(&tokens)?])
            }
            _ => Ok(Vec::new()),
        }
    }
}

fn module(layer: impl Module + 'static) -> Apply {
    Box::new(move |inputs| layer.forward(&inputs[0]))
}

/// A layer from tokens to tokens.
fn tokens(
    channels: Channels,
    layer: impl Fn(&Tokens, &[Tensor]) -> Result<Tokens> + 'static,
) -> Apply {
    Box::new(move |inputs| {
        let x = Tokens::from_packed(inputs[0].clone(), channels)?;
        Ok(layer(&x, &inputs[1..])?.packed().clone())
    })
}

const TOKENS: Input = Input::Tokens {
    with_reference: false,
};
const TOKENS_WITH_REFERENCE: Input = Input::Tokens {
    with_reference: true,
};

/// All layers, with the defaults of their options.
pub(super) const LAYERS: &[Layer] = &[
    Layer {
        name: "MVLinear",
        input: Input::Multivectors,
        make: |size, vars| {
            let options = LinearOptions::default()
                .with_per_grade(true)
                .with_bias(Bias::Scalar);
            let channels = size.channels;
            let layer = MVLinear::new(size.algebra, channels, channels, &options, vars)?;
            Ok(module(layer))
        },
    },
    Layer {
        name: "GradeNorm",
        input: Input::Multivectors,
        make: |size, vars| {
            Ok(module(GradeNorm::new(
                size.algebra,
                size.channels,
                0.0,
                vars,
            )?))
        },
    },
    Layer {
        name: "MVLayerNorm",
        input: Input::Multivectors,
        make: |size, vars| Ok(module(MVLayerNorm::new(size.algebra, size.channels, vars)?)),
    },
    Layer {
        name: "MVSiLU",
        input: Input::Multivectors,
        make: |size, vars| {
            let layer = MVSiLU::new(size.algebra, size.channels, Invariant::Mag2, vars)?;
            Ok(module(layer))
        },
    },
    Layer {
        name: "PointEmbedding",
        input: Input::Points,
        make: |size, vars| {
            let layer = PointEmbedding::new(size.algebra, POINTS, size.channels, vars)?;
            Ok(module(layer))
        },
    },
    Layer {
        name: "SteerableGeometricProduct",
        input: Input::Multivectors,
        make: |size, vars| {
            let options = SteerableLayerOptions::default();
            let layer = SteerableGeometricProduct::new(size.algebra, size.channels, options, vars)?;
            Ok(module(layer))
        },
    },
    Layer {
        name: "FullyConnectedSteerableGeometricProduct",
        input: Input::Multivectors,
        make: |size, vars| {
            let options = SteerableLayerOptions::default();
            let (algebra, channels) = (size.algebra, size.channels);
            let layer = FullyConnectedSteerableGeometricProduct::new(
                algebra, channels, channels, options, vars,
            )?;
            Ok(module(layer))
        },
    },
    Layer {
        name: "FlashCliffordLayer",
        input: Input::Multivectors,
        make: |size, vars| {
            let options = FlashCliffordOptions::default();
            let layer = FlashCliffordLayer::new(size.algebra, size.channels, options, vars)?;
            Ok(module(layer))
        },
    },
    Layer {
        name: "FlashCliffordLayer.fully_connected",
        input: Input::Multivectors,
        make: |size, vars| {
            let options = FlashCliffordOptions {
                fully_connected: true,
                ..FlashCliffordOptions::default()
            };
            let layer = FlashCliffordLayer::new(size.algebra, size.channels, options, vars)?;
            Ok(module(layer))
        },
    },
    Layer {
        name: "EquiLinear",
        input: TOKENS,
        make: |size, vars| {
            let channels = size.tokens();
            let layer = EquiLinear::new(channels, channels, Initialization::Default, vars)?;
            Ok(tokens(channels, move |x, _| layer.forward(x)))
        },
    },
    Layer {
        name: "EquiLayerNorm",
        input: TOKENS,
        make: |size, _| {
            let layer = EquiLayerNorm::new(size.tokens())?;
            Ok(tokens(size.tokens(), move |x, _| layer.forward(x)))
        },
    },
    Layer {
        name: "ScalarGate",
        input: TOKENS,
        make: |size, _| {
            let layer = ScalarGate::new(size.tokens())?;
            Ok(tokens(size.tokens(), move |x, _| layer.forward(x)))
        },
    },
    Layer {
        name: "GeometricBilinear",
        input: TOKENS_WITH_REFERENCE,
        make: |size, vars| {
            let channels = size.tokens();
            let layer = GeometricBilinear::new(channels, channels, vars)?;
            Ok(tokens(channels, move |x, more| layer.forward(x, &more[0])))
        },
    },
    Layer {
        name: "SelfAttention",
        input: TOKENS,
        make: |size, vars| {
            let layer = SelfAttention::new(size.tokens(), AttentionOptions::default(), vars)?;
            Ok(tokens(size.tokens(), move |x, _| layer.forward(x)))
        },
    },
    Layer {
        name: "Block",
        input: TOKENS_WITH_REFERENCE,
        make: |size, vars| {
            let layer = Block::new(size.tokens(), AttentionOptions::default(), vars)?;
            Ok(tokens(size.tokens(), move |x, more| {
                layer.forward(x, &more[0])
            }))
        },
    },
];
