//! A table of everything that puts nodes into candle's graph, and the check that none of their gradients can be differentiated.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test that uses the table uses a part"
)]

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{Module, VarBuilder};
use flashcliff::ops::{self, LinearOptions, ProductOptions};
use flashcliff::rotor::Parity;
use flashcliff::{Algebra, Dims, Gate, Invariant, Norm, Operator, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Block, BlockOptions, Call, Channels, CrossAttention, Draws, EquiLayerNorm,
    EquiLinear, GeometricBilinear, Geometry, GradeDropout, Initialization, Mask, ScalarGate, Scope,
    SelfAttention, Sequences, Tokens,
};
use flashcliff_candle::layers::{
    FlashCliffordLayer, FlashCliffordOptions, FullyConnectedSteerableGeometricProduct, GradeNorm,
    MVLayerNorm, MVLinear, MVSiLU, PointEmbedding, SteerableGeometricProduct,
    SteerableLayerOptions,
};
use flashcliff_candle::models::{Architecture, Gatr, GatrOptions, Gravity, Model};
use flashcliff_candle::{functional as f, op, rotors};

const CHANNELS: Channels = Channels::new(2, 4);
/// The numbers of a token of 16 blades.
const WIDTH: usize = 16 * CHANNELS.multivectors + CHANNELS.scalars;

/// A function of inputs with parameters.
pub struct Case {
    pub name: String,
    /// The inputs, and then the parameters.
    pub vars: Vec<(String, Var)>,
    inputs: usize,
    function: Function,
}

type Function = Box<dyn Fn(&[&Tensor]) -> Result<Tensor>>;

impl Case {
    /// The result for the inputs as a function changes them.
    pub fn output(&self, change: impl Fn(&Tensor) -> Result<Tensor>) -> Tensor {
        let inputs = self.vars[..self.inputs].iter();
        let inputs: Vec<Tensor> = inputs.map(|(_, x)| change(x).unwrap()).collect();
        (self.function)(&inputs.iter().collect::<Vec<_>>()).unwrap()
    }
}

/// Cases on a device, in a type.
pub struct Cases<'a> {
    device: &'a Device,
    dtype: DType,
    all: Vec<Case>,
}

/// Numbers with a long period, none of them near zero.
pub fn numbers(shape: &[usize], phase: f64) -> Tensor {
    let count: usize = shape.iter().product();
    let number = |at: usize| {
        let x = (at as f64 * 0.7 + phase).sin();
        (0.3 + 0.5 * x.abs()).copysign(x)
    };
    Tensor::from_vec((0..count).map(number).collect(), shape, &Device::Cpu).unwrap()
}

impl<'a> Cases<'a> {
    pub fn new(device: &'a Device, dtype: DType) -> Self {
        let all = Vec::new();
        Self { device, dtype, all }
    }

    fn numbers(&self, shape: &[usize], phase: f64) -> Tensor {
        let numbers = numbers(shape, phase).to_dtype(self.dtype).unwrap();
        numbers.to_device(self.device).unwrap()
    }

    /// Adds a function of variables of some shapes.
    pub fn of(
        &mut self,
        name: &str,
        shapes: &[&[usize]],
        function: impl Fn(&[&Tensor]) -> Result<Tensor> + 'static,
    ) {
        let vars = shapes.iter().enumerate().map(|(at, shape)| {
            let numbers = self.numbers(shape, 0.4 + at as f64);
            (format!("input {at}"), Var::from_tensor(&numbers).unwrap())
        });
        self.all.push(Case {
            name: name.to_owned(),
            vars: vars.collect(),
            inputs: shapes.len(),
            function: Box::new(function),
        });
    }

    /// Adds a function of a layer with parameters, and of variables of some shapes.
    pub fn with<L: 'static>(
        &mut self,
        name: &str,
        shapes: &[&[usize]],
        layer: impl FnOnce(VarBuilder) -> L,
        function: impl Fn(&L, &[&Tensor]) -> Result<Tensor> + 'static,
    ) {
        let parameters = Parameters::seeded(3);
        let layer = layer(parameters.builder(self.dtype, self.device));
        self.of(name, shapes, move |x| function(&layer, x));
        let vars = &mut self.all.last_mut().unwrap().vars;
        vars.extend(parameters.variables());
    }

    fn model(&mut self, name: &str, architecture: Architecture, points: [usize; 3]) {
        let model = Model::on_device(architecture, 3, self.dtype, self.device).unwrap();
        let parameters = model.parameters().variables();
        self.of(name, &[&points], move |x| model.forward(x[0]));
        self.all.last_mut().unwrap().vars.extend(parameters);
    }

    pub fn all(self) -> Vec<Case> {
        self.all
    }
}

pub fn algebra(p: usize, q: usize, r: usize) -> Algebra {
    Algebra::new(Signature::new(p, q, r).unwrap()).unwrap()
}

/// Operators of the table, some with options, and functions of `functional`.
///
/// The algebra is Cl(3,0,0), with two channels.
pub fn operators(cases: &mut Cases) {
    let a = algebra(3, 0, 0);
    let mut operator = |name: &str, own: Operator| {
        let dims = Dims {
            batch: 3,
            in_channels: 2,
            out_channels: 3,
            scalar_channels: 0,
        };
        let shapes = own.inputs().iter().map(|input| input.shape(&dims));
        let shapes: Vec<Vec<usize>> = shapes.collect();
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        cases.of(name, &shapes, move |x| op::apply(&own, x));
    };
    for row in ops::TABLE {
        operator(row.name, ops::by_name(a, row.name, &[]).unwrap());
    }
    for (gate, norm) in [(Gate::Silu, Norm::Rms), (Gate::None, Norm::None)] {
        let options = ProductOptions::default().with_gate(gate).with_norm(norm);
        let name = format!("products with {options:?}");
        operator(&name, ops::sgp_norm(a, &options).unwrap());
        operator(&name, ops::fcgp_norm(a, &options).unwrap());
    }
    let mv: &[usize] = &[8, 3, 2];
    let points: &[usize] = &[3, 2, 3];
    cases.of("functional::sgp_norm", &[mv, mv, &[2, 20]], move |x| {
        f::sgp_norm(a, &ProductOptions::default(), x[0], x[1], x[2])
    });
    cases.of("functional::mv_linear", &[mv, &[2, 2, 4], &[2]], move |x| {
        f::mv_linear(a, &LinearOptions::default(), x[0], x[1], Some(x[2]))
    });
    cases.of("embed_points", &[points], move |x| f::embed_points(a, x[0]));
    cases.of("point_vectors", &[points], move |x| {
        f::point_vectors(a, x[0])
    });
    cases.of("embedded points", &[points], move |x| {
        f::norm(a, &f::embed_points(a, x[0])?)
    });
}

/// Maps of rotors, in Cl(3,0,0).
pub fn maps_of_rotors(cases: &mut Cases) {
    let (a, first) = (algebra(3, 0, 0), cases.all.len());
    let versors: &[usize] = &[4, 3, 2];
    let even = Parity::Even;
    cases.of("exp", &[&[3, 3, 2]], move |x| rotors::exp(a, x[0]));
    cases.of("log", &[versors], move |x| rotors::log(a, x[0]));
    cases.of("inverse", &[versors], move |x| {
        rotors::inverse(a, even, x[0])
    });
    cases.of("normalized", &[versors], move |x| {
        rotors::normalized(a, even, x[0])
    });
    cases.of("interpolate", &[versors, versors, &[3, 2]], move |x| {
        rotors::interpolate(a, even, x[0], &(x[1] + 0.1)?, x[2])?
            + rotors::interpolate(a, even, &(x[0] + 0.1)?, x[1], x[2])
    });
    cases.of(
        "interpolate at one time",
        &[versors, versors, &[1]],
        move |x| rotors::interpolate(a, even, x[0], x[1], x[2]),
    );
    cases.of("action", &[&[8, 3, 2], versors, &[3, 2]], move |x| {
        rotors::action(a, even, None, x[0], x[1], x[2])
    });
    // Rotors with a negative scalar are beyond half a turn.
    for case in &cases.all[first..] {
        for (_, var) in &case.vars {
            var.set(&var.abs().unwrap()).unwrap();
        }
    }
}

pub fn layers(cases: &mut Cases) {
    let a = algebra(3, 0, 0);
    let mv: &[usize] = &[8, 3, 2];
    let points: &[usize] = &[3, 2, 3];
    let steerable = SteerableLayerOptions::default();
    let flash = FlashCliffordOptions::default();
    fn forward<L: Module>(layer: &L, x: &[&Tensor]) -> Result<Tensor> {
        layer.forward(x[0])
    }
    cases.with(
        "MVLinear",
        &[mv],
        |vb| MVLinear::new(a, 2, 3, &LinearOptions::default(), vb).unwrap(),
        forward,
    );
    cases.with(
        "GradeNorm",
        &[mv],
        |vb| GradeNorm::new(a, 2, 0.0, vb).unwrap(),
        forward,
    );
    cases.with(
        "MVLayerNorm",
        &[mv],
        |vb| MVLayerNorm::new(a, 2, vb).unwrap(),
        forward,
    );
    cases.with(
        "MVSiLU",
        &[mv],
        |vb| MVSiLU::new(a, 2, Invariant::Mag2, vb).unwrap(),
        forward,
    );
    cases.with(
        "SteerableGeometricProduct",
        &[mv],
        |vb| SteerableGeometricProduct::new(a, 2, steerable, vb).unwrap(),
        forward,
    );
    cases.with(
        "FullyConnectedSteerableGeometricProduct",
        &[mv],
        |vb| FullyConnectedSteerableGeometricProduct::new(a, 2, 3, steerable, vb).unwrap(),
        forward,
    );
    cases.with(
        "FlashCliffordLayer",
        &[mv],
        |vb| FlashCliffordLayer::new(a, 2, flash, vb).unwrap(),
        forward,
    );
    cases.with(
        "PointEmbedding",
        &[points],
        |vb| PointEmbedding::new(a, 2, 4, vb).unwrap(),
        forward,
    );
    cases.with(
        "PointEmbedding and SteerableGeometricProduct",
        &[points],
        |vb| {
            let embedding = PointEmbedding::new(a, 2, 2, vb.pp("embedding")).unwrap();
            let product = SteerableGeometricProduct::new(a, 2, steerable, vb.pp("product"));
            (embedding, product.unwrap())
        },
        |(embedding, product), x| product.forward(&embedding.forward(x[0])?),
    );
}

fn tokens(x: &Tensor) -> Result<Tokens> {
    Tokens::from_packed(x.clone(), CHANNELS)
}

fn packed(made: Result<Tokens>) -> Result<Tensor> {
    Ok(made?.packed().clone())
}

const X: &[usize] = &[2, 3, WIDTH];
const REFERENCE: &[usize] = &[2, 3];

const ATTENTION: AttentionOptions = AttentionOptions {
    heads: 2,
    head_scale: true,
    ..AttentionOptions::PUBLISHED
};

/// Layers of transformers without attention.
pub fn steps(cases: &mut Cases) {
    let lorentz = algebra(1, 3, 0);
    cases.with(
        "Tokens::new",
        &[&[16, 2, 3, 2], &[2, 3, 4]],
        |_| EquiLayerNorm::new(CHANNELS).unwrap(),
        |norm, x| packed(norm.forward(&Tokens::new(x[0], Some(x[1]))?)),
    );
    cases.with(
        "EquiLinear",
        &[X],
        |vb| EquiLinear::new(CHANNELS, CHANNELS, Initialization::Default, vb).unwrap(),
        |layer, x| packed(layer.forward(&tokens(x[0])?)),
    );
    cases.with(
        "EquiLayerNorm",
        &[X],
        |vb| EquiLayerNorm::with_gains(lorentz, CHANNELS, vb).unwrap(),
        |layer, x| packed(layer.forward(&tokens(x[0])?)),
    );
    cases.with(
        "ScalarGate",
        &[X],
        |_| ScalarGate::over(lorentz, CHANNELS).unwrap(),
        |layer, x| packed(layer.forward(&tokens(x[0])?)),
    );
    cases.with(
        "GradeDropout",
        &[X],
        |_| GradeDropout::new(CHANNELS, 0.3).unwrap(),
        |layer, x| {
            let draw = Draws::new(7, x[0].device())?.draw()?;
            packed(layer.forward(&tokens(x[0])?, Some(&draw)))
        },
    );
    cases.with(
        "GeometricBilinear",
        &[REFERENCE, X],
        |vb| GeometricBilinear::new(CHANNELS, CHANNELS, vb).unwrap(),
        |layer, x| packed(layer.forward(&tokens(x[1])?, x[0])),
    );
    cases.with(
        "GeometricBilinear without joins",
        &[X],
        |vb| GeometricBilinear::over(lorentz, CHANNELS, CHANNELS, vb).unwrap(),
        |layer, x| packed(layer.forward_without_joins(&tokens(x[0])?)),
    );
}

fn options(dropout: Option<f64>) -> GatrOptions {
    GatrOptions {
        blocks: 1,
        attention: ATTENTION,
        reinsert_channels: vec![1],
        reinsert_scalars: vec![2],
        dropout,
        ..GatrOptions::new(CHANNELS, CHANNELS, CHANNELS)
    }
}

/// L-GATr of one block with reinserted channels.
pub fn lorentz(vb: VarBuilder, dropout: Option<f64>) -> Gatr {
    Gatr::over(algebra(1, 3, 0), options(dropout), vb).unwrap()
}

/// L-GATr whose mask adds a variable to scores.
pub fn learned_mask(cases: &mut Cases) {
    let seen = cases.numbers(X, 0.3);
    cases.with(
        "a learned mask",
        &[&[2, 1, 3, 3]],
        |vb| lorentz(vb, None),
        move |net, x| {
            let scope = Scope::Masked(Mask::additive(x[0])?);
            packed(net.forward_within(&tokens(&seen)?, None, &scope))
        },
    );
}

/// Attention, and networks that have it.
pub fn transformers(cases: &mut Cases) {
    cases.with(
        "SelfAttention",
        &[X],
        |vb| SelfAttention::new(CHANNELS, ATTENTION, vb).unwrap(),
        |layer, x| packed(layer.forward(&tokens(x[0])?)),
    );
    cases.with(
        "SelfAttention of vectors",
        &[&[4, 2, 3, CHANNELS.multivectors], &[2, 3, CHANNELS.scalars]],
        |vb| {
            let geometry = Geometry::slim(algebra(1, 3, 0));
            let options = AttentionOptions {
                head_scale: false,
                ..ATTENTION
            };
            SelfAttention::over(geometry, CHANNELS, options, vb).unwrap()
        },
        |layer, x| packed(layer.forward(&Tokens::new(x[0], Some(x[1]))?)),
    );
    for geometry in [
        Geometry::of(algebra(3, 0, 1)),
        Geometry::of(algebra(1, 3, 0)),
    ] {
        cases.with(
            "CrossAttention",
            &[X, &[2, 5, WIDTH]],
            |vb| CrossAttention::over(geometry, CHANNELS, CHANNELS, ATTENTION, vb).unwrap(),
            |layer, x| packed(layer.forward(&tokens(x[0])?, &tokens(x[1])?)),
        );
    }
    cases.with(
        "Block",
        &[X, REFERENCE],
        |vb| {
            let options = BlockOptions {
                attention: ATTENTION,
                ..BlockOptions::default()
            };
            Block::new(CHANNELS, options, vb).unwrap()
        },
        |layer, x| {
            let call = Call {
                reference: Some(x[1]),
                ..Call::default()
            };
            packed(layer.call(&tokens(x[0])?, &call))
        },
    );
    cases.with(
        "GATr, with the mean of its inputs as reference",
        &[X],
        |vb| Gatr::new(options(None), vb).unwrap(),
        |net, x| packed(net.forward(&tokens(x[0])?)),
    );
    let shown = numbers(&[2, 1, 3, 3], 0.2).ge(-0.4).unwrap();
    let shown = shown.to_device(cases.device).unwrap();
    let masked = Scope::Masked(Mask::boolean(&shown, cases.dtype).unwrap());
    let ragged = Scope::Within(Sequences::new(&[0, 2, 2, 6]).unwrap());
    for (name, shape, scope) in [
        ("L-GATr", X, Scope::Sample),
        ("L-GATr, masked", X, masked),
        ("L-GATr, ragged", &[1, 6, WIDTH], ragged),
    ] {
        cases.with(
            name,
            &[shape],
            |vb| lorentz(vb, None),
            move |net, x| packed(net.forward_within(&tokens(x[0])?, None, &scope)),
        );
    }
    let draw = Draws::new(7, cases.device).unwrap().draw().unwrap();
    cases.with(
        "L-GATr with dropout",
        &[X],
        |vb| lorentz(vb, Some(0.3)),
        move |net, x| {
            let call = Call {
                draw: Some(&draw),
                ..Call::default()
            };
            packed(net.call(&tokens(x[0])?, &call))
        },
    );
    cases.with(
        "L-GATr, recomputed",
        &[X],
        |vb| lorentz(vb, None).with_gradient_checkpointing(true),
        |net, x| packed(net.forward(&tokens(x[0])?)),
    );
}

pub fn models(cases: &mut Cases) {
    cases.model("Hulls", Architecture::Hulls, [2, 16, 5]);
    let regression = Architecture::Regression { width: 4 };
    cases.model("Regression", regression, [2, 2, 5]);
    cases.model("Volumes", Architecture::Volumes, [2, 3, 3]);
}

/// A network that begins with operations of candle, which take gradients out of the graph.
pub fn bodies(cases: &mut Cases) {
    cases.model("Bodies", Architecture::Bodies, [1, 5, 7]);
}

/// A network of ten blocks, whose layers are above.
fn gravity(cases: &mut Cases) {
    cases.with(
        "Gravity",
        &[&[2, 4, 7]],
        |vb| Gravity::new(vb).unwrap(),
        |net, x| net.forward(x[0]),
    );
}

pub fn others(cases: &mut Cases) {
    cases.of("recomputed", &[&[4, 3], &[3, 3]], |x| {
        let w = x[1].clone();
        op::recomputed(&[x[0]], move |x| x[0].matmul(&w)?.tanh())
    });
    cases.of("first_order", &[&[4, 3]], |x| {
        op::first_order(x[0])?.t()?.exp()
    });
}

/// Checks everything that puts nodes into candle's graph at once.
///
/// A loss on the gradient of any variable is an error, alone and beside a function of candle of the
/// same variable.
pub fn check_all(device: &Device) {
    let mut cases = Cases::new(device, DType::F32);
    for add in [
        operators,
        maps_of_rotors,
        layers,
        steps,
        transformers,
        models,
        gravity,
        others,
    ] {
        add(&mut cases);
    }
    cases.all.iter().for_each(check);
}

fn check(case: &Case) {
    let name = &case.name;
    // An operation of candle in front of a node takes its gradient out of the graph.
    let output = case.output(|x| Ok(x.clone()));
    let energy = output.sin().unwrap().sum_all().unwrap();
    for (of, var) in &case.vars {
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
