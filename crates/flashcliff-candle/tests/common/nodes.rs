//! A table of everything that puts nodes into candle's graph, and the check that none of their gradients can be differentiated.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the tests on the CPU and those on a GPU each use a part"
)]

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{Module, VarBuilder};
use flashcliff::ops::{self, LinearOptions, ProductOptions};
use flashcliff::rotor::Parity;
use flashcliff::{Algebra, Dims, Invariant, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Block, BlockOptions, Call, Channels, CrossAttention, Draws, EquiLayerNorm,
    EquiLinear, GeometricBilinear, GradeDropout, Initialization, Mask, ScalarGate, Scope,
    SelfAttention, Sequences, Tokens,
};
use flashcliff_candle::layers::{
    FlashCliffordLayer, FlashCliffordOptions, FullyConnectedSteerableGeometricProduct, GradeNorm,
    MVLayerNorm, MVLinear, MVSiLU, PointEmbedding, SteerableGeometricProduct,
    SteerableLayerOptions,
};
use flashcliff_candle::models::{Architecture, Gatr, GatrOptions, Gravity, Model};
use flashcliff_candle::{functional as f, op, rotors};

const DTYPE: DType = DType::F32;
const CHANNELS: Channels = Channels::new(2, 4);

type NamedVar = (String, Var);

/// The variables of a case, by name, and its output.
type Made = (Vec<NamedVar>, Tensor);

/// Numbers with a long period, none of them zero.
fn numbers(shape: &[usize], device: &Device) -> Tensor {
    let count: usize = shape.iter().product();
    let data: Vec<f32> = (0..count)
        .map(|at| 0.3 + 0.2 * (at as f32 * 0.7).sin())
        .collect();
    Tensor::from_vec(data, shape, device).unwrap()
}

/// A function of variables of some shapes.
fn of(
    shapes: &[&[usize]],
    device: &Device,
    function: impl Fn(&[&Tensor]) -> Result<Tensor>,
) -> Made {
    let made = shapes.iter().enumerate();
    let made = made.map(|(at, shape)| {
        (
            format!("input {at}"),
            Var::from_tensor(&numbers(shape, device)).unwrap(),
        )
    });
    let vars: Vec<(String, Var)> = made.collect();
    let tensors: Vec<&Tensor> = vars.iter().map(|(_, var)| var.as_tensor()).collect();
    let output = function(&tensors).unwrap();
    (vars, output)
}

/// A layer with parameters, and a function of it and of variables of some shapes.
fn with<L>(
    shapes: &[&[usize]],
    device: &Device,
    layer: impl Fn(VarBuilder) -> L,
    function: impl Fn(&L, &[&Tensor]) -> Result<Tensor>,
) -> Made {
    let parameters = Parameters::seeded(3);
    let layer = layer(parameters.builder(DTYPE, device));
    let (mut vars, output) = of(shapes, device, |inputs| function(&layer, inputs));
    vars.extend(parameters.variables());
    (vars, output)
}

fn algebra(p: usize, q: usize, r: usize) -> Algebra {
    Algebra::new(Signature::new(p, q, r).unwrap()).unwrap()
}

/// The operators of the table, and functions of `functional`, in Cl(3,0,0) with two channels.
fn operators(device: &Device) -> Vec<(&'static str, Made)> {
    let a = algebra(3, 0, 0);
    let options = ProductOptions::default();
    let mv: &[usize] = &[8, 3, 2];
    let of = |shapes: &[&[usize]], function: &dyn Fn(&[&Tensor]) -> Result<Tensor>| {
        of(shapes, device, function)
    };
    let rows = ops::TABLE.iter().map(|row| {
        let operator = ops::by_name(a, row.name, &[]).unwrap();
        let dims = Dims {
            batch: 3,
            in_channels: 2,
            out_channels: 2,
            scalar_channels: 0,
        };
        let inputs = operator.inputs().iter();
        let shapes: Vec<Vec<usize>> = inputs.map(|input| input.shape(&dims)).collect();
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        (row.name, of(&shapes, &|x| op::apply(&operator, x)))
    });
    let others = vec![
        (
            "functional::sgp_norm",
            of(&[mv, mv, &[2, 20]], &|x| {
                f::sgp_norm(a, &options, x[0], x[1], x[2])
            }),
        ),
        (
            "functional::mv_linear",
            of(&[mv, &[2, 2, 4], &[2]], &|x| {
                f::mv_linear(a, &LinearOptions::default(), x[0], x[1], Some(x[2]))
            }),
        ),
        (
            "embed_points",
            of(&[&[3, 2, 3]], &|x| f::embed_points(a, x[0])),
        ),
        (
            "point_vectors",
            of(&[&[3, 2, 3]], &|x| f::point_vectors(a, x[0])),
        ),
        (
            "embedded points",
            of(&[&[3, 2, 3]], &|x| f::norm(a, &f::embed_points(a, x[0])?)),
        ),
    ];
    rows.chain(others).collect()
}

fn maps_of_rotors(device: &Device) -> Vec<(&'static str, Made)> {
    let a = algebra(3, 0, 0);
    let versors: &[usize] = &[4, 3, 2];
    let even = Parity::Even;
    let of = |shapes: &[&[usize]], function: &dyn Fn(&[&Tensor]) -> Result<Tensor>| {
        of(shapes, device, function)
    };
    vec![
        ("exp", of(&[&[3, 3, 2]], &|x| rotors::exp(a, x[0]))),
        ("log", of(&[versors], &|x| rotors::log(a, x[0]))),
        (
            "inverse",
            of(&[versors], &|x| rotors::inverse(a, even, x[0])),
        ),
        (
            "normalized",
            of(&[versors], &|x| rotors::normalized(a, even, x[0])),
        ),
        (
            "interpolate",
            of(&[versors, versors, &[3, 2]], &|x| {
                rotors::interpolate(a, even, x[0], &(x[1] + 0.1)?, x[2])?
                    + rotors::interpolate(a, even, &(x[0] + 0.1)?, x[1], x[2])
            }),
        ),
        (
            "interpolate at one time",
            of(&[versors, versors, &[1]], &|x| {
                rotors::interpolate(a, even, x[0], x[1], x[2])
            }),
        ),
        (
            "action",
            of(&[&[8, 3, 2], &[4, 2, 2], &[2, 2]], &|x| {
                rotors::action(a, even, None, x[0], x[1], x[2])
            }),
        ),
    ]
}

fn layers(device: &Device) -> Vec<(&'static str, Made)> {
    let a = algebra(3, 0, 0);
    let mv: &[usize] = &[8, 3, 2];
    let steerable = SteerableLayerOptions::default();
    let flash = FlashCliffordOptions::default();
    fn forward<L: Module>(layer: &L, x: &[&Tensor]) -> Result<Tensor> {
        layer.forward(x[0])
    }
    vec![
        (
            "MVLinear",
            with(
                &[mv],
                device,
                |vb| MVLinear::new(a, 2, 3, &LinearOptions::default(), vb).unwrap(),
                forward,
            ),
        ),
        (
            "GradeNorm",
            with(
                &[mv],
                device,
                |vb| GradeNorm::new(a, 2, 0.0, vb).unwrap(),
                forward,
            ),
        ),
        (
            "MVLayerNorm",
            with(
                &[mv],
                device,
                |vb| MVLayerNorm::new(a, 2, vb).unwrap(),
                forward,
            ),
        ),
        (
            "MVSiLU",
            with(
                &[mv],
                device,
                |vb| MVSiLU::new(a, 2, Invariant::Mag2, vb).unwrap(),
                forward,
            ),
        ),
        (
            "SteerableGeometricProduct",
            with(
                &[mv],
                device,
                |vb| SteerableGeometricProduct::new(a, 2, steerable, vb).unwrap(),
                forward,
            ),
        ),
        (
            "FullyConnectedSteerableGeometricProduct",
            with(
                &[mv],
                device,
                |vb| FullyConnectedSteerableGeometricProduct::new(a, 2, 3, steerable, vb).unwrap(),
                forward,
            ),
        ),
        (
            "FlashCliffordLayer",
            with(
                &[mv],
                device,
                |vb| FlashCliffordLayer::new(a, 2, flash, vb).unwrap(),
                forward,
            ),
        ),
        (
            "PointEmbedding",
            with(
                &[&[3, 2, 3]],
                device,
                |vb| PointEmbedding::new(a, 2, 4, vb).unwrap(),
                forward,
            ),
        ),
    ]
}

/// Packed tokens of a layer.
fn tokens(x: &Tensor) -> Result<Tokens> {
    Tokens::from_packed(x.clone(), CHANNELS)
}

fn transformers(device: &Device) -> Vec<(&'static str, Made)> {
    let x: &[usize] = &[2, 3, 36];
    let reference: &[usize] = &[2, 3];
    let attention = AttentionOptions {
        heads: 2,
        head_scale: true,
        ..AttentionOptions::default()
    };
    let block = || BlockOptions {
        attention,
        ..BlockOptions::default()
    };
    let reinserting = || GatrOptions {
        blocks: 1,
        attention,
        reinsert_channels: vec![1],
        reinsert_scalars: vec![2],
        ..GatrOptions::new(CHANNELS, CHANNELS, CHANNELS)
    };
    let packed = |made: Result<Tokens>| Ok(made?.packed().clone());
    let shown = numbers(&[2, 1, 3, 3], device).ge(0.2).unwrap();
    let masked = Scope::Masked(Mask::boolean(&shown, DTYPE).unwrap());
    let ragged = Scope::Within(Sequences::new(&[0, 2, 2, 6]).unwrap());
    let network = |scope: Scope, shape: &[usize]| {
        with(
            &[shape],
            device,
            |vb| Gatr::new(reinserting(), vb).unwrap(),
            |net, x| packed(net.forward_within(&tokens(x[0])?, None, &scope)),
        )
    };
    vec![
        (
            "Tokens::new",
            with(
                &[&[16, 2, 3, 2], &[2, 3, 4]],
                device,
                |_| EquiLayerNorm::new(CHANNELS).unwrap(),
                |norm, x| packed(norm.forward(&Tokens::new(x[0], Some(x[1]))?)),
            ),
        ),
        (
            "EquiLinear",
            with(
                &[x],
                device,
                |vb| EquiLinear::new(CHANNELS, CHANNELS, Initialization::Default, vb).unwrap(),
                |layer, x| packed(layer.forward(&tokens(x[0])?)),
            ),
        ),
        (
            "EquiLayerNorm",
            with(
                &[x],
                device,
                |vb| EquiLayerNorm::with_gains(algebra(1, 3, 0), CHANNELS, vb).unwrap(),
                |layer, x| packed(layer.forward(&tokens(x[0])?)),
            ),
        ),
        (
            "ScalarGate",
            with(
                &[x],
                device,
                |_| ScalarGate::new(CHANNELS).unwrap(),
                |layer, x| packed(layer.forward(&tokens(x[0])?)),
            ),
        ),
        (
            "GradeDropout",
            with(
                &[x],
                device,
                |_| GradeDropout::new(CHANNELS, 0.3).unwrap(),
                |layer, x| {
                    let draw = Draws::new(7, x[0].device())?.draw()?;
                    packed(layer.forward(&tokens(x[0])?, Some(&draw)))
                },
            ),
        ),
        (
            "GeometricBilinear",
            with(
                &[x, reference],
                device,
                |vb| GeometricBilinear::new(CHANNELS, CHANNELS, vb).unwrap(),
                |layer, x| packed(layer.forward(&tokens(x[0])?, x[1])),
            ),
        ),
        (
            "SelfAttention",
            with(
                &[x],
                device,
                |vb| SelfAttention::new(CHANNELS, attention, vb).unwrap(),
                |layer, x| packed(layer.forward(&tokens(x[0])?)),
            ),
        ),
        (
            "CrossAttention",
            with(
                &[x, &[2, 5, 36]],
                device,
                |vb| CrossAttention::new(CHANNELS, CHANNELS, attention, vb).unwrap(),
                |layer, x| packed(layer.forward(&tokens(x[0])?, &tokens(x[1])?)),
            ),
        ),
        (
            "Block",
            with(
                &[x, reference],
                device,
                |vb| Block::new(CHANNELS, block(), vb).unwrap(),
                |layer, x| {
                    let call = Call {
                        reference: Some(x[1]),
                        ..Call::default()
                    };
                    packed(layer.call(&tokens(x[0])?, &call))
                },
            ),
        ),
        ("Gatr", network(Scope::Sample, x)),
        ("Gatr, masked", network(masked, x)),
        ("Gatr, ragged", network(ragged, &[1, 6, 36])),
        (
            "Gatr, recomputed",
            with(
                &[x],
                device,
                |vb| {
                    Gatr::new(reinserting(), vb)
                        .unwrap()
                        .with_gradient_checkpointing(true)
                },
                |net, x| packed(net.forward(&tokens(x[0])?)),
            ),
        ),
    ]
}

fn models(device: &Device) -> Vec<(&'static str, Made)> {
    let model = |architecture: Architecture, points: [usize; 3]| {
        let model = Model::on_device(architecture, 3, DTYPE, device).unwrap();
        let (mut vars, output) = of(&[&points], device, |x| model.forward(x[0]));
        vars.extend(model.parameters().variables());
        (vars, output)
    };
    vec![
        ("Hulls", model(Architecture::Hulls, [2, 16, 5])),
        (
            "Regression",
            model(Architecture::Regression { width: 8 }, [2, 2, 5]),
        ),
        ("Volumes", model(Architecture::Volumes, [2, 3, 3])),
        (
            "Gravity",
            with(
                &[&[2, 4, 7]],
                device,
                |vb| Gravity::new(vb).unwrap(),
                |net, x| net.forward(x[0]),
            ),
        ),
    ]
}

fn others(device: &Device) -> Vec<(&'static str, Made)> {
    vec![
        (
            "recomputed",
            of(&[&[4, 3], &[3, 3]], device, |x| {
                let w = x[1].clone();
                op::recomputed(&[x[0]], move |x| x[0].matmul(&w)?.tanh())
            }),
        ),
        (
            "first_order",
            of(&[&[4, 3]], device, |x| op::first_order(x[0])?.t()?.exp()),
        ),
    ]
}

/// Everything that puts nodes into candle's graph, on a device.
pub fn all(device: &Device) -> Vec<(&'static str, Made)> {
    let all = [
        operators,
        maps_of_rotors,
        layers,
        transformers,
        models,
        others,
    ];
    all.into_iter().flat_map(|of| of(device)).collect()
}

/// Checks that the gradient of a loss on the gradient of any variable is an error of the node, or finite.
/// `tests/gradients.rs` has the numbers.
pub fn check_where_kept(name: &str, (vars, output): &Made) {
    let energy = output.sin().unwrap().sum_all().unwrap();
    let gradients = energy.backward().unwrap();
    let losses = vars.iter().map(|(of, var)| {
        let gradient = gradients.get(var);
        let gradient = gradient.unwrap_or_else(|| panic!("{name}: {of} has no gradient"));
        gradient.sqr().unwrap().sum_all().unwrap()
    });
    let losses: Vec<Tensor> = losses.collect();
    // One backward pass shows that all of them are finite. Where it is an error, each variable by itself says which it is.
    let all = Tensor::stack(&losses, 0).unwrap().sum_all().unwrap();
    if let Ok(found) = all.backward() {
        check_finite(name, vars, &found);
        return;
    }
    for (loss, of) in losses.iter().zip(vars) {
        match loss.backward() {
            Err(error) => assert!(
                error.to_string().contains("no second derivatives"),
                "{name}, {}: {error}",
                of.0
            ),
            Ok(found) => check_finite(name, std::slice::from_ref(of), &found),
        }
    }
}

/// Checks that the gradients of variables, where there are some, are finite.
fn check_finite(name: &str, vars: &[NamedVar], found: &GradStore) {
    for (of, var) in vars {
        let second = found.get(var).map(|second| second.sum_all().unwrap());
        let sum = second.map_or(0.0, |sum| sum.to_scalar::<f32>().unwrap());
        assert!(sum.is_finite(), "{name}, {of}: {sum}");
    }
}

/// Checks that a loss on the gradient of any variable is an error, alone and beside a function of candle of the same variable.
pub fn check(name: &str, (vars, output): &Made) {
    let energy = output.sin().unwrap().sum_all().unwrap();
    for (of, var) in vars {
        let beside = (&energy + var.sqr().unwrap().sum_all().unwrap()).unwrap();
        for energy in [&energy, &beside] {
            let gradient = energy.backward().unwrap().remove(var);
            let gradient = gradient.unwrap_or_else(|| panic!("{name}: {of} has no gradient"));
            let loss = gradient.sqr().unwrap().sum_all().unwrap();
            match loss.backward() {
                Err(error) => assert!(
                    error.to_string().contains("no second derivatives"),
                    "{name}, {of}: {error}"
                ),
                Ok(_) => panic!("{name}, {of}: expected an error, got gradients"),
            }
            let loss = gradient.detach().sqr().unwrap().sum_all().unwrap();
            loss.backward().unwrap();
        }
    }
}
