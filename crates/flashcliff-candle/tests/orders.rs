//! Losses on gradients of networks, where candle keeps the graph of gradients. It asks the environment once in a
//! process, so each test runs itself again with the variable.

mod kept;

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{Module, VarBuilder};
use flashcliff::ops::{self, LinearOptions, SteerableOptions};
use flashcliff::rotor::Parity;
use flashcliff::{Algebra, Bias, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Call, Channels, CrossAttention, Draws, EquiLayerNorm, GeometricBilinear,
    Geometry, Mask, ScalarGate, Scope, SelfAttention, Sequences, Tokens,
};
use flashcliff_candle::layers::{
    FullyConnectedSteerableGeometricProduct, PointEmbedding, SteerableGeometricProduct,
    SteerableLayerOptions,
};
use flashcliff_candle::models::{Architecture, Gatr, GatrOptions, Model};
use flashcliff_candle::{op, rotors};

use kept::keeps;

const CHANNELS: Channels = Channels::new(2, 3);

fn algebra(p: usize, q: usize, r: usize) -> Algebra {
    Algebra::new(Signature::new(p, q, r).unwrap()).unwrap()
}

/// Numbers with a long period, none of them near zero.
fn numbers(shape: &[usize], phase: f64) -> Tensor {
    let count: usize = shape.iter().product();
    let number = |at: usize| {
        let x = (at as f64 * 0.7 + phase).sin();
        (0.3 + 0.5 * x.abs()).copysign(x)
    };
    let data: Vec<f64> = (0..count).map(number).collect();
    Tensor::from_vec(data, shape, &Device::Cpu).unwrap()
}

fn scalar(tensor: &Tensor) -> f64 {
    tensor.sum_all().unwrap().to_scalar().unwrap()
}

fn dot(x: &Tensor, y: &Tensor) -> Tensor {
    (x * y).unwrap().sum_all().unwrap()
}

type Function = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;

/// A function of inputs with parameters.
struct Case {
    name: &'static str,
    /// The inputs, and then the parameters.
    vars: Vec<Var>,
    inputs: usize,
    function: Function,
}

impl Case {
    /// The first input stands for positions.
    fn new<L: 'static>(
        name: &'static str,
        shapes: &[&[usize]],
        layer: impl FnOnce(VarBuilder) -> L,
        function: impl Fn(&L, &[Tensor]) -> Result<Tensor> + 'static,
    ) -> Self {
        let parameters = Parameters::seeded(3);
        let layer = layer(parameters.builder(DType::F64, &Device::Cpu));
        let of_shapes = shapes.iter().enumerate();
        let of_shapes = of_shapes.map(|(at, shape)| numbers(shape, 0.4 + at as f64));
        let mut vars: Vec<Var> = of_shapes.map(|x| Var::from_tensor(&x).unwrap()).collect();
        vars.extend(parameters.variables().into_iter().map(|(_, var)| var));
        Self {
            name,
            vars,
            inputs: shapes.len(),
            function: Box::new(move |x| function(&layer, x)),
        }
    }

    fn of_model(name: &'static str, architecture: Architecture, points: [usize; 3]) -> Self {
        let model = Model::new(architecture, 3, DType::F64).unwrap();
        let mut vars = vec![Var::from_tensor(&numbers(&points, 0.4)).unwrap()];
        vars.extend(
            model
                .parameters()
                .variables()
                .into_iter()
                .map(|(_, var)| var),
        );
        let function = Box::new(move |x: &[Tensor]| model.forward(&x[0]));
        Self {
            name,
            vars,
            inputs: 1,
            function,
        }
    }

    /// An energy, with operations of candle before and after the network.
    fn energy(&self) -> Tensor {
        let inputs = self.vars[..self.inputs].iter();
        let inputs: Vec<Tensor> = inputs.map(|x| (x.as_tensor() * 1.1).unwrap()).collect();
        let out = (self.function)(&inputs).unwrap();
        let weights = numbers(out.dims(), 1.3);
        dot(&out.sin().unwrap(), &weights)
    }

    /// The gradients of the energy by the first tensors.
    fn gradients(&self, count: usize) -> Vec<Tensor> {
        let by: Vec<&Tensor> = self.vars[..count].iter().map(Var::as_tensor).collect();
        op::gradients(&self.energy(), &by).unwrap()
    }

    /// A number made of the gradients by the first tensors.
    fn loss(&self, count: usize) -> Tensor {
        let gradients = self.gradients(count);
        let terms = gradients.iter().enumerate();
        let terms = terms.map(|(at, own)| dot(own, &numbers(own.dims(), 2.0 + at as f64)));
        terms.reduce(|sum, more| (sum + more).unwrap()).unwrap()
    }

    /// Compares the gradients of a loss with differences, by each tensor along a change of it.
    fn assert_differences(&self, count: usize) {
        let found = self.loss(count).backward().unwrap();
        let mut largest = 0.0_f64;
        for (at, var) in self.vars.iter().enumerate() {
            let along = numbers(var.dims(), 5.0);
            let before = var.as_tensor().copy().unwrap();
            let moved = |step: f64| {
                var.set(&(&before + (&along * step).unwrap()).unwrap())
                    .unwrap();
                scalar(&self.loss(count))
            };
            let across = |step: f64| moved(step) - moved(-step);
            // Norms and gates turn sharply near zero, where some channels start.
            let step = 1e-6;
            let want = (8.0 * across(step) - across(2.0 * step)) / (12.0 * step);
            var.set(&before).unwrap();
            let got = match found.get(var) {
                Some(gradient) => scalar(&(gradient * &along).unwrap()),
                None => 0.0,
            };
            largest = largest.max(got.abs());
            assert!(
                (got - want).abs() <= 1e-7 * (1.0 + got.abs()),
                "{}, {count}: by tensor {at} of shape {:?} {got}, by differences {want}",
                self.name,
                var.dims()
            );
        }
        assert!(largest > 1e-2, "{}: {largest}", self.name);
    }

    /// Compares the third derivative along three changes of positions with differences of the second.
    fn assert_third(&self) {
        let x = &self.vars[0];
        let [u, v, w] = [3.0, 4.0, 5.0].map(|phase| numbers(x.dims(), phase));
        let along = |of: &Tensor, change: &Tensor| {
            let found = op::gradients(of, &[x]).unwrap();
            dot(&found[0], change)
        };
        let second = || along(&along(&self.energy(), &u), &v);
        let got = scalar(&along(&second(), &w));
        let before = x.as_tensor().copy().unwrap();
        let moved = |step: f64| {
            x.set(&(&before + (&w * step).unwrap()).unwrap()).unwrap();
            scalar(&second())
        };
        let across = |step: f64| moved(step) - moved(-step);
        let want = (8.0 * across(1e-5) - across(2e-5)) / 12e-5;
        assert!(
            (got - want).abs() <= 1e-7 * (1.0 + got.abs()) && got.abs() > 1e-2,
            "{}: {got}, {want}",
            self.name
        );
    }

    /// The Hessian by all tensors is symmetric.
    fn assert_symmetric(&self) {
        let count = self.vars.len();
        let changes = [7.0, 11.0].map(|phase| {
            let own = self.vars.iter().enumerate();
            let own = own.map(|(at, var)| numbers(var.dims(), phase + at as f64));
            own.collect::<Vec<Tensor>>()
        });
        let along = |first: &[Tensor], then: &[Tensor]| -> f64 {
            let pairs = self.gradients(count);
            let pairs = pairs
                .iter()
                .zip(first)
                .map(|(own, change)| dot(own, change));
            let slope = pairs.reduce(|sum, more| (sum + more).unwrap()).unwrap();
            let found = slope.backward().unwrap();
            let own = self.vars.iter().zip(then);
            let own = own.filter_map(|(var, change)| Some(scalar(&dot(found.get(var)?, change))));
            own.sum()
        };
        let [u, v] = &changes;
        let (one, other) = (along(u, v), along(v, u));
        assert!(
            (one - other).abs() <= 1e-9 * one.abs().max(1.0) && one.abs() > 1e-2,
            "{}: {one}, {other}",
            self.name
        );
    }
}

fn tokens(x: &Tensor) -> Result<Tokens> {
    Tokens::from_packed(x.clone(), CHANNELS)
}

fn packed(tokens: Result<Tokens>) -> Result<Tensor> {
    Ok(tokens?.packed().clone())
}

const ATTENTION: AttentionOptions = AttentionOptions {
    heads: 2,
    ..AttentionOptions::PUBLISHED
};

/// L-GATr with reinserted channels, of one block.
fn lorentz(vb: VarBuilder, dropout: Option<f64>) -> Gatr {
    let options = GatrOptions {
        blocks: 1,
        attention: ATTENTION,
        reinsert_channels: vec![1],
        reinsert_scalars: vec![2],
        dropout,
        ..GatrOptions::new(CHANNELS, CHANNELS, CHANNELS)
    };
    Gatr::over(algebra(1, 3, 0), options, vb).unwrap()
}

const WIDTH: usize = 16 * CHANNELS.multivectors + CHANNELS.scalars;

/// Transformers and attention.
fn transformers() -> Vec<Case> {
    let x: &[usize] = &[2, 3, WIDTH];
    let within = |name, shape: &[usize], scope: Scope| {
        let layer = |vb: VarBuilder| lorentz(vb, None);
        Case::new(name, &[shape], layer, move |net, x| {
            packed(net.forward_within(&tokens(&x[0])?, None, &scope))
        })
    };
    let shown = numbers(&[2, 1, 3, 3], 0.2).ge(-0.4).unwrap();
    let masked = Scope::Masked(Mask::boolean(&shown, DType::F64).unwrap());
    let ragged = Scope::Within(Sequences::new(&[0, 2, 2, 6]).unwrap());
    vec![
        within("L-GATr", x, Scope::Sample),
        within("L-GATr, masked", x, masked),
        within("L-GATr, ragged", &[1, 6, WIDTH], ragged),
        Case::new(
            "L-GATr with dropout",
            &[x],
            |vb| {
                let draw = Draws::new(7, &Device::Cpu).unwrap().draw().unwrap();
                (lorentz(vb, Some(0.3)), draw)
            },
            |(net, draw), x| {
                let call = Call {
                    draw: Some(draw),
                    ..Call::default()
                };
                packed(net.call(&tokens(&x[0])?, &call))
            },
        ),
        Case::new(
            "another set",
            &[x, &[2, 5, WIDTH]],
            |vb| {
                let geometry = Geometry::of(algebra(1, 3, 0));
                CrossAttention::over(geometry, CHANNELS, CHANNELS, ATTENTION, vb).unwrap()
            },
            |layer, x| packed(layer.forward(&tokens(&x[0])?, &tokens(&x[1])?)),
        ),
        Case::new(
            "GATr, with the mean of its inputs as reference",
            &[x],
            |vb| {
                let options = GatrOptions {
                    blocks: 1,
                    attention: ATTENTION,
                    ..GatrOptions::new(CHANNELS, CHANNELS, CHANNELS)
                };
                Gatr::new(options, vb).unwrap()
            },
            |net, x| packed(net.forward(&tokens(&x[0])?)),
        ),
        Case::new(
            "attention with distances",
            &[x],
            |vb| {
                SelfAttention::over(Geometry::of(algebra(3, 0, 1)), CHANNELS, ATTENTION, vb)
                    .unwrap()
            },
            |layer, x| packed(layer.forward(&tokens(&x[0])?)),
        ),
        Case::new(
            "attention of vectors",
            &[&[2, 3, 4 * CHANNELS.multivectors + CHANNELS.scalars]],
            |vb| {
                let geometry = Geometry::slim(algebra(1, 3, 0));
                SelfAttention::over(geometry, CHANNELS, ATTENTION, vb).unwrap()
            },
            |layer, x| {
                let vectors = 4 * CHANNELS.multivectors;
                let shape = [2, 3, CHANNELS.multivectors, 4];
                let mv = x[0].narrow(2, 0, vectors)?.reshape(&shape)?;
                let scalars = x[0].narrow(2, vectors, CHANNELS.scalars)?;
                let mv = mv.permute((3, 0, 1, 2))?.contiguous()?;
                packed(layer.forward(&Tokens::new(&mv, Some(&scalars))?))
            },
        ),
    ]
}

/// Layers of transformers without attention.
fn steps() -> Vec<Case> {
    let x: &[usize] = &[2, 3, WIDTH];
    let lorentz = || algebra(1, 3, 0);
    vec![
        Case::new(
            "EquiLayerNorm",
            &[x],
            |vb| EquiLayerNorm::with_gains(lorentz(), CHANNELS, vb).unwrap(),
            |layer, x| packed(layer.forward(&tokens(&x[0])?)),
        ),
        Case::new(
            "ScalarGate",
            &[x],
            |_| ScalarGate::over(lorentz(), CHANNELS).unwrap(),
            |layer, x| packed(layer.forward(&tokens(&x[0])?)),
        ),
        Case::new(
            "GeometricBilinear",
            &[x],
            |vb| GeometricBilinear::over(lorentz(), CHANNELS, CHANNELS, vb).unwrap(),
            |layer, x| packed(layer.forward_without_joins(&tokens(&x[0])?)),
        ),
        Case::new(
            "joins and their reference",
            &[&[2, 3], x],
            |vb| GeometricBilinear::new(CHANNELS, CHANNELS, vb).unwrap(),
            |layer, x| packed(layer.forward(&tokens(&x[1])?, &x[0])),
        ),
    ]
}

fn layers() -> Vec<Case> {
    let a = algebra(3, 0, 0);
    let options = SteerableLayerOptions::default();
    let mv: &[usize] = &[8, 3, 2];
    vec![
        Case::new(
            "steerable",
            &[mv],
            |vb| SteerableGeometricProduct::new(a, 2, options, vb).unwrap(),
            |layer, x| layer.forward(&x[0]),
        ),
        Case::new(
            "fully connected",
            &[mv],
            |vb| FullyConnectedSteerableGeometricProduct::new(a, 2, 3, options, vb).unwrap(),
            |layer, x| layer.forward(&x[0]),
        ),
        Case::new(
            "embedding and steerable",
            &[&[3, 2, 3]],
            |vb| {
                let embedding = PointEmbedding::new(a, 2, 2, vb.pp("embedding")).unwrap();
                let product = SteerableGeometricProduct::new(a, 2, options, vb.pp("product"));
                (embedding, product.unwrap())
            },
            |(embedding, product), x| product.forward(&embedding.forward(&x[0])?),
        ),
        Case::new(
            "versors",
            &[mv, &[4, 3, 2], &[3, 2]],
            |_| (),
            move |(), x| rotors::action(a, Parity::Even, None, &x[0], &x[1], &x[2]),
        ),
    ]
}

fn models() -> Vec<Case> {
    vec![
        Case::of_model("volumes", Architecture::Volumes, [2, 3, 3]),
        Case::of_model(
            "regression",
            Architecture::Regression { width: 4 },
            [2, 2, 5],
        ),
        Case::of_model("bodies", Architecture::Bodies, [1, 5, 7]),
    ]
}

#[test]
fn losses_on_forces_of_transformers_have_the_gradients_of_differences() {
    if keeps("losses_on_forces_of_transformers_have_the_gradients_of_differences") {
        for case in transformers() {
            case.assert_differences(1);
            case.assert_differences(case.vars.len());
        }
    }
}

#[test]
fn losses_on_forces_of_layers_have_the_gradients_of_differences() {
    if keeps("losses_on_forces_of_layers_have_the_gradients_of_differences") {
        for case in layers().into_iter().chain(steps()) {
            case.assert_differences(1);
            case.assert_differences(case.vars.len());
        }
    }
}

#[test]
fn losses_on_forces_of_models_have_the_gradients_of_differences() {
    if keeps("losses_on_forces_of_models_have_the_gradients_of_differences") {
        for case in models() {
            case.assert_differences(1);
        }
    }
}

#[test]
fn second_derivatives_are_symmetric() {
    if keeps("second_derivatives_are_symmetric") {
        for case in transformers().into_iter().chain(layers()) {
            case.assert_symmetric();
        }
    }
}

/// The layer as operators of candle's graph, each with its own derivatives.
#[test]
fn gradients_of_gradients_are_those_of_operators() {
    if !keeps("gradients_of_gradients_are_those_of_operators") {
        return;
    }
    let a = algebra(3, 0, 0);
    let parameters = Parameters::seeded(3);
    let vb = parameters.builder(DType::F64, &Device::Cpu);
    let layer = SteerableGeometricProduct::new(a, 2, SteerableLayerOptions::default(), vb).unwrap();
    let of = |name: &str| {
        let all = parameters.variables().into_iter();
        let mut own = all.filter(|(own, _)| own == name);
        own.next().unwrap().1
    };
    let linear = |bias| {
        let options = LinearOptions::default().with_per_grade(true);
        ops::mv_linear(a, &options.with_bias(bias)).unwrap()
    };
    let composed = |x: &Tensor| -> Result<Tensor> {
        let [right, left, bias] = [
            "linear_right.weight",
            "linear_left.weight",
            "linear_left.bias",
        ]
        .map(of);
        let right = op::apply(&linear(Bias::None), &[x, &right])?;
        let bias = bias.flatten_all()?;
        let left = op::apply(&linear(Bias::Scalar), &[x, &left, &bias])?;
        let options = SteerableOptions::default()
            .with_first_order(true)
            .with_normalize(true);
        let product = ops::steerable_product(a, &options).unwrap();
        let [weight, norm] = ["weight", "normalization.a"].map(of);
        op::apply(&product, &[x, &right, &weight, &norm, &left])
    };
    let x = Var::from_tensor(&numbers(&[8, 3, 2], 0.4)).unwrap();
    let variables = parameters.variables().into_iter().map(|(_, var)| var);
    let variables: Vec<Var> = [x.clone()].into_iter().chain(variables).collect();
    let second = |out: Tensor| {
        let forces = op::gradients(&out.sin().unwrap().sum_all().unwrap(), &[&x]).unwrap();
        let found = forces[0]
            .sqr()
            .unwrap()
            .sum_all()
            .unwrap()
            .backward()
            .unwrap();
        let own = variables.iter();
        own.map(|var| {
            found
                .get(var)
                .unwrap()
                .flatten_all()
                .unwrap()
                .to_vec1::<f64>()
                .unwrap()
        })
        .collect::<Vec<_>>()
    };
    let one = second(layer.forward(&x).unwrap());
    let other = second(composed(&x).unwrap());
    for (one, other) in one.iter().zip(&other) {
        let scale = other.iter().fold(0.0_f64, |scale, x| scale.max(x.abs()));
        for (one, other) in one.iter().zip(other) {
            assert!((one - other).abs() <= 1e-12 * scale, "{one}, {other}");
        }
    }
}

/// The third derivative along three changes beside differences of the second.
#[test]
fn third_derivatives_are_those_of_differences() {
    if !keeps("third_derivatives_are_those_of_differences") {
        return;
    }
    for case in layers().into_iter().chain(steps()) {
        case.assert_third();
    }
}

/// A step without further derivatives is an error that names it.
#[test]
fn refusals_name_the_step() {
    if !keeps("refusals_name_the_step") {
        return;
    }
    let x: &[usize] = &[2, 3, WIDTH];
    let mask = Case::new(
        "a learned mask",
        &[&[2, 1, 3, 3]],
        |vb| lorentz(vb, None),
        |net, x| {
            let scope = Scope::Masked(Mask::additive(&x[0])?);
            let seen = tokens(&numbers(&[2, 3, WIDTH], 0.3))?;
            packed(net.forward_within(&seen, None, &scope))
        },
    );
    let again = Case::new(
        "recomputed",
        &[x],
        |vb| lorentz(vb, None).with_gradient_checkpointing(true),
        |net, x| packed(net.forward(&tokens(&x[0])?)),
    );
    let third = transformers().remove(0);
    let along = |of: &Tensor| op::gradients(of, &[&third.vars[0]]).unwrap().remove(0);
    let second = along(&third.loss(1)).sqr().unwrap().sum_all().unwrap();
    let error = second.backward().unwrap_err().to_string();
    assert!(
        error.starts_with("block: head_norm_tangent gradient: "),
        "{error}"
    );
    for (case, step) in [
        (mask, "block: attention gradient, of its mask too: "),
        (again, "recomputed: "),
    ] {
        let error = case.loss(1).backward().unwrap_err().to_string();
        assert!(error.starts_with(step), "{}: {error}", case.name);
        assert!(error.contains("no second derivatives"), "{error}");
    }
}
