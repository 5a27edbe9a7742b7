//! The layers, and what they read.

use candle_core::{DType, Device, Module, Result, Tensor, Var};
use candle_nn::VarBuilder;
use flashcliff::ops::LinearOptions;
use flashcliff::{Algebra, Bias, Dtype, Invariant};
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Block, Channels, CrossAttention, Draws, EquiLayerNorm, EquiLinear,
    GeometricBilinear, GradeDropout, Initialization, ScalarGate, SelfAttention, Tokens,
    join_reference,
};
use flashcliff_candle::layers::{
    FlashCliffordLayer, FlashCliffordOptions, FullyConnectedSteerableGeometricProduct, GradeNorm,
    MVLayerNorm, MVLinear, MVSiLU, PointEmbedding, SteerableGeometricProduct,
    SteerableLayerOptions,
};
use flashcliff_floor::values;

use super::rotors::ROTORS;

/// The types of layers whose arithmetic on a GPU is that of core operators alone.
const ALL: &[Dtype] = &[Dtype::F32, Dtype::F64, Dtype::Bf16, Dtype::F16];
/// The types of the CPU, and of layers with other kernels on a GPU.
const EXACT: &[Dtype] = &[Dtype::F32, Dtype::F64];

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
    /// Bivectors `[blades of grade 2, batch, channels]`.
    Bivectors,
    /// Rotors `[blades of even grades, batch, channels]`, near 1.
    Rotors,
    /// Two rotors, and a number between 0 and 1 for each of them, `[batch, channels]`.
    TwoRotors,
}

/// An input after the first.
pub(super) enum Other {
    /// A constant.
    Fixed(Tensor),
    /// A variable, with its name.
    Varied(&'static str, Var),
}

impl Other {
    pub(super) fn tensor(&self) -> &Tensor {
        match self {
            Self::Fixed(tensor) => tensor,
            Self::Varied(_, var) => var.as_tensor(),
        }
    }
}

/// A layer as a function of its inputs.
pub(super) type Apply = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;

/// A layer.
#[derive(Debug)]
pub(super) struct Layer {
    /// The name of the type, and what tells two of one type apart.
    pub(super) name: &'static str,
    pub(super) input: Input,
    /// The types that it takes on a GPU.
    pub(super) on_gpu: &'static [Dtype],
    /// Whether it is a function of rotors.
    pub(super) is_of_rotors: bool,
    make: Make,
}

/// Makes a layer of a size with parameters from a builder.
pub(super) type Make =
    fn(&Size, VarBuilder<'_>) -> std::result::Result<Apply, flashcliff_candle::Error>;

const fn layer(name: &'static str, input: Input, on_gpu: &'static [Dtype], make: Make) -> Layer {
    Layer {
        name,
        input,
        on_gpu,
        is_of_rotors: false,
        make,
    }
}

/// A function of rotors.
pub(super) const fn of_rotors(name: &'static str, input: Input, make: Make) -> Layer {
    Layer {
        is_of_rotors: true,
        ..layer(name, input, EXACT, make)
    }
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

    /// The blades of even grades.
    pub(super) fn rotor_blades(&self) -> usize {
        self.algebra.blade_count().div_ceil(2)
    }
}

/// Numbers in (-1, 1), the same in every type that holds the numbers of f32.
pub(super) fn numbers(shape: &[usize], seed: u64) -> Vec<f32> {
    values(shape.iter().product(), seed)
}

/// Rotors near 1, with angles below a right one: the scalar is first.
fn rotors(shape: &[usize], seed: u64) -> Vec<f32> {
    let scalars = shape[1..].iter().product();
    let mut data = numbers(shape, seed);
    data.iter_mut().for_each(|number| *number *= 0.5);
    data[..scalars].iter_mut().for_each(|number| *number += 1.0);
    data
}

/// A tensor of a type on a device.
pub(super) fn put(
    data: Vec<f32>,
    shape: &[usize],
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    let on_cpu = Tensor::from_vec(data, shape, &Device::Cpu)?;
    on_cpu.to_dtype(dtype)?.to_device(device)
}

impl Layer {
    /// Whether the layer is one of transformers.
    pub(super) fn is_of_tokens(&self) -> bool {
        matches!(self.input, Input::Tokens { .. })
    }

    /// The layer with parameters from a builder.
    pub(super) fn make(
        &self,
        size: &Size,
        vars: VarBuilder<'_>,
    ) -> std::result::Result<Apply, flashcliff_candle::Error> {
        (self.make)(size, vars)
    }

    /// Whether a device takes tensors of a type.
    pub(super) fn takes(&self, dtype: Dtype, gpu: bool) -> bool {
        let types = if gpu { self.on_gpu } else { EXACT };
        types.contains(&dtype)
    }

    /// The shape of the first input.
    fn shape(&self, size: &Size) -> Vec<usize> {
        let Size {
            algebra,
            batch,
            channels,
        } = *size;
        let dim = algebra.signature().dim();
        match self.input {
            Input::Multivectors => vec![algebra.blade_count(), batch, channels],
            Input::Points => vec![batch, POINTS, dim],
            Input::Tokens { .. } => vec![batch, ITEMS, size.tokens().width()],
            Input::Bivectors => vec![dim * dim.saturating_sub(1) / 2, batch, channels],
            Input::Rotors | Input::TwoRotors => vec![size.rotor_blades(), batch, channels],
        }
    }

    /// The first input, whose gradient is taken.
    pub(super) fn first(&self, size: &Size, dtype: DType, device: &Device) -> Result<Tensor> {
        let shape = self.shape(size);
        let data = match self.input {
            Input::Rotors | Input::TwoRotors => rotors(&shape, 3),
            _ => numbers(&shape, 3),
        };
        put(data, &shape, dtype, device)
    }

    /// The inputs after the first.
    pub(super) fn others(&self, size: &Size, x: &Tensor) -> Result<Vec<Other>> {
        let (dtype, device) = (x.dtype(), x.device());
        match self.input {
            Input::Tokens {
                with_reference: true,
            } => {
                let tokens = Tokens::from_packed(x.detach(), size.tokens())?;
                Ok(vec![Other::Fixed(join_reference(&tokens)?)])
            }
            Input::TwoRotors => {
                let shape = self.shape(size);
                let places = numbers(&shape[1..], 5);
                let places = places.into_iter().map(|number| 0.5 + 0.5 * number);
                let b = put(rotors(&shape, 4), &shape, dtype, device)?;
                let t = put(places.collect(), &shape[1..], dtype, device)?;
                Ok(vec![
                    Other::Varied("b", Var::from_tensor(&b)?),
                    Other::Varied("t", Var::from_tensor(&t)?),
                ])
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

/// All layers, and after them the functions of rotors.
pub(super) fn all() -> impl Iterator<Item = &'static Layer> {
    LAYERS.iter().chain(ROTORS)
}

/// The layers, with the defaults of their options.
const LAYERS: &[Layer] = &[
    layer("MVLinear", Input::Multivectors, ALL, |size, vars| {
        let options = LinearOptions::default()
            .with_per_grade(true)
            .with_bias(Bias::Scalar);
        let channels = size.channels;
        let layer = MVLinear::new(size.algebra, channels, channels, &options, vars)?;
        Ok(module(layer))
    }),
    layer("GradeNorm", Input::Multivectors, ALL, |size, vars| {
        Ok(module(GradeNorm::new(
            size.algebra,
            size.channels,
            0.0,
            vars,
        )?))
    }),
    layer("MVLayerNorm", Input::Multivectors, ALL, |size, vars| {
        Ok(module(MVLayerNorm::new(size.algebra, size.channels, vars)?))
    }),
    layer("MVSiLU", Input::Multivectors, ALL, |size, vars| {
        let layer = MVSiLU::new(size.algebra, size.channels, Invariant::Mag2, vars)?;
        Ok(module(layer))
    }),
    layer("PointEmbedding", Input::Points, EXACT, |size, vars| {
        let layer = PointEmbedding::new(size.algebra, POINTS, size.channels, vars)?;
        Ok(module(layer))
    }),
    layer(
        "SteerableGeometricProduct",
        Input::Multivectors,
        EXACT,
        |size, vars| {
            let options = SteerableLayerOptions::default();
            let layer = SteerableGeometricProduct::new(size.algebra, size.channels, options, vars)?;
            Ok(module(layer))
        },
    ),
    layer(
        "FullyConnectedSteerableGeometricProduct",
        Input::Multivectors,
        EXACT,
        |size, vars| {
            let options = SteerableLayerOptions::default();
            let (algebra, channels) = (size.algebra, size.channels);
            let layer = FullyConnectedSteerableGeometricProduct::new(
                algebra, channels, channels, options, vars,
            )?;
            Ok(module(layer))
        },
    ),
    layer(
        "FlashCliffordLayer",
        Input::Multivectors,
        ALL,
        |size, vars| {
            let options = FlashCliffordOptions::default();
            let layer = FlashCliffordLayer::new(size.algebra, size.channels, options, vars)?;
            Ok(module(layer))
        },
    ),
    layer(
        "FlashCliffordLayer.fully_connected",
        Input::Multivectors,
        ALL,
        |size, vars| {
            let options = FlashCliffordOptions {
                fully_connected: true,
                ..FlashCliffordOptions::default()
            };
            let layer = FlashCliffordLayer::new(size.algebra, size.channels, options, vars)?;
            Ok(module(layer))
        },
    ),
    layer("EquiLinear", TOKENS, EXACT, |size, vars| {
        let channels = size.tokens();
        let layer = EquiLinear::new(channels, channels, Initialization::Default, vars)?;
        Ok(tokens(channels, move |x, _| layer.forward(x)))
    }),
    layer("EquiLayerNorm", TOKENS, EXACT, |size, _| {
        let layer = EquiLayerNorm::new(size.tokens())?;
        Ok(tokens(size.tokens(), move |x, _| layer.forward(x)))
    }),
    layer("ScalarGate", TOKENS, EXACT, |size, _| {
        let layer = ScalarGate::new(size.tokens())?;
        Ok(tokens(size.tokens(), move |x, _| layer.forward(x)))
    }),
    layer("GradeDropout", TOKENS, EXACT, |size, vars| {
        let layer = GradeDropout::new(size.tokens(), 0.25)?;
        let draw = Draws::new(1, vars.device())?.draw()?;
        Ok(tokens(size.tokens(), move |x, _| {
            layer.forward(x, Some(&draw))
        }))
    }),
    layer(
        "GeometricBilinear",
        TOKENS_WITH_REFERENCE,
        EXACT,
        |size, vars| {
            let channels = size.tokens();
            let layer = GeometricBilinear::new(channels, channels, vars)?;
            Ok(tokens(channels, move |x, more| layer.forward(x, &more[0])))
        },
    ),
    layer("SelfAttention", TOKENS, EXACT, |size, vars| {
        let layer = SelfAttention::new(size.tokens(), AttentionOptions::default(), vars)?;
        Ok(tokens(size.tokens(), move |x, _| layer.forward(x)))
    }),
    layer("CrossAttention", TOKENS, EXACT, |size, vars| {
        let (channels, options) = (size.tokens(), AttentionOptions::default());
        let layer = CrossAttention::new(channels, channels, options, vars)?;
        Ok(tokens(channels, move |x, _| layer.forward(x, x)))
    }),
    layer("Block", TOKENS_WITH_REFERENCE, EXACT, |size, vars| {
        let layer = Block::new(size.tokens(), AttentionOptions::default(), vars)?;
        Ok(tokens(size.tokens(), move |x, more| {
            layer.forward(x, &more[0])
        }))
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The layers that modules export: all names except the names of options and parts.
    fn exported(path: &str) -> Vec<String> {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../flashcliff-candle/src/layers"
        );
        let source = std::fs::read_to_string(format!("{folder}/{path}")).unwrap();
        let uses = source.split(';').filter_map(|text| {
            let (_, names) = text.rsplit_once("pub use ")?;
            Some(names.rsplit("::").next()?.trim_matches(['{', '}']))
        });
        let names = uses.flat_map(|names| names.split(','));
        // A list over several lines ends with a comma.
        let names = names.map(str::trim).filter(|name| !name.is_empty());
        let names = names.map(ToOwned::to_owned);
        let parts = [
            "Call",
            "Channels",
            "Draw",
            "Draws",
            "Geometry",
            "Initialization",
            "Mask",
            "Scope",
            "Sequences",
            "Tokens",
            "join_reference",
            "join_reference_within",
        ];
        let is_layer =
            |name: &String| !name.ends_with("Options") && !parts.contains(&name.as_str());
        names.filter(is_layer).collect()
    }

    #[test]
    fn every_layer_is_measured() {
        let mut names = exported("mod.rs");
        names.extend(exported("transformer/mod.rs"));
        assert!(names.len() > 10, "{names:?}");
        for name in names {
            let is_own = |layer: &&Layer| layer.name.split('.').next() == Some(&name);
            assert!(LAYERS.iter().any(|layer| is_own(&layer)), "{name}");
        }
    }

    #[test]
    fn rotors_are_near_one() {
        let data = rotors(&[4, 5, 3], 1);
        assert!(data[..15].iter().all(|scalar| (0.5..1.5).contains(scalar)));
        assert!(data[15..].iter().all(|number| number.abs() <= 0.5));
    }
}
