//! Compares the values of layers with references of operators, and their gradients with central differences of these values.

mod common;

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::Module;
use common::{Reference, assert_close, disturb, noise, parameter, random, says, values};
use flashcliff::ops::LinearOptions;
use flashcliff::rotor::Parity;
use flashcliff::{Algebra, Bias, Invariant, Norm, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::{
    self as layers, FlashCliffordLayer, FlashCliffordOptions,
    FullyConnectedSteerableGeometricProduct, GradeNorm, MVLayerNorm, MVLinear, MVSiLU,
    PointEmbedding, SteerableGeometricProduct, SteerableLayerOptions,
};
use flashcliff_candle::rotors;
use flashcliff_program::operators::Value;

const BATCH: usize = 3;
const IN: usize = 5;
const OUT: usize = 3;
/// The batch, and as many channels behind a layer as in front of it.
const SAME: [usize; 3] = [BATCH, IN, IN];
/// A product without a gate and a norm.
const PLAIN: [(&str, Value); 2] = [("gate", Value::Name("none")), ("norm", Value::Name("none"))];

fn references() -> [Reference; 4] {
    [(2, 0), (3, 0), (1, 3), (5, 0)].map(|(p, q)| Reference::new(p, q))
}

fn algebra() -> Algebra {
    Algebra::new(Signature::new(3, 0, 0).unwrap()).unwrap()
}

/// Builds a layer with disturbed parameters, and checks its value against the references and its
/// gradients against differences of its value.
fn check<L: Module>(
    name: &str,
    algebra: Algebra,
    layer: impl Fn(candle_nn::VarBuilder) -> L,
    expected: impl Fn(&dyn Fn(&str) -> Vec<f64>, &[f64]) -> Vec<f64>,
) {
    let parameters = Parameters::seeded(11);
    let layer = layer(parameters.builder(DType::F64, &Device::Cpu));
    disturb(&parameters, 100);
    let x = Var::from_tensor(&random(&[algebra.blade_count(), BATCH, IN], 5)).unwrap();
    let y = layer.forward(&x).unwrap();
    let expected_values = expected(&|name| parameter(&parameters, name), &values(&x));
    assert_close(&values(&y), &expected_values, 1e-12, name);

    let cotangent = random(y.dims(), 77);
    let loss = || {
        let y = layer.forward(&x).unwrap();
        (y * &cotangent).unwrap().sum_all().unwrap()
    };
    let grads = loss().backward().unwrap();
    let mut leaves = vec![("x".to_owned(), x.clone())];
    leaves.extend(parameters.variables());
    for (leaf, var) in leaves {
        let start = var.copy().unwrap();
        let direction = random(var.dims(), 31);
        let value = |step: f64| {
            var.set(&(&start + (&direction * step).unwrap()).unwrap())
                .unwrap();
            loss().to_scalar::<f64>().unwrap()
        };
        let h = 1e-4;
        let (far, near) = (value(2.0 * h) - value(-2.0 * h), value(h) - value(-h));
        let expected = (8.0 * near - far) / (12.0 * h);
        var.set(&start).unwrap();
        let got: f64 = values(grads.get(&var).unwrap())
            .iter()
            .zip(values(&direction))
            .map(|(g, d)| g * d)
            .sum();
        let error = (got - expected).abs();
        assert!(
            error <= 1e-8 * (1.0 + expected.abs()),
            "{name}, gradient of {leaf}: got {got}, expected {expected}"
        );
    }
}

#[test]
fn mv_linear() {
    for reference in references() {
        for per_grade in [true, false] {
            for bias in [Bias::None, Bias::Scalar] {
                let options = LinearOptions::default()
                    .with_per_grade(per_grade)
                    .with_bias(bias);
                let settings = [
                    ("per_grade", Value::Flag(per_grade)),
                    ("bias", Value::Name(bias.name())),
                ];
                check(
                    "mv_linear",
                    reference.algebra,
                    |vb| MVLinear::new(reference.algebra, IN, OUT, &options, vb).unwrap(),
                    |p, x| {
                        let mut inputs = vec![x.to_vec(), p("weight")];
                        inputs.extend((bias == Bias::Scalar).then(|| p("bias")));
                        let inputs: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
                        reference.of("mv_linear", &settings, [BATCH, IN, OUT], &inputs)
                    },
                );
            }
        }
    }
}

#[test]
fn grade_norm() {
    for reference in references() {
        check(
            "grade_norm",
            reference.algebra,
            |vb| GradeNorm::new(reference.algebra, IN, 0.0, vb).unwrap(),
            |p, x| reference.of("grade_norm", &[], SAME, &[x, &p("a")]),
        );
    }
}

#[test]
fn mv_silu() {
    for reference in references() {
        for invariant in [Invariant::Mag2, Invariant::Norm] {
            let settings = [("invariant", Value::Name(invariant.name()))];
            check(
                "mv_silu",
                reference.algebra,
                |vb| MVSiLU::new(reference.algebra, IN, invariant, vb).unwrap(),
                |p, x| reference.of("mv_silu", &settings, SAME, &[x, &p("a"), &p("b")]),
            );
        }
    }
}

#[test]
fn mv_layer_norm() {
    for reference in references() {
        check(
            "mv_layer_norm",
            reference.algebra,
            |vb| MVLayerNorm::new(reference.algebra, IN, vb).unwrap(),
            |p, x| reference.of("mv_layer_norm", &[], SAME, &[x, &p("a")]),
        );
    }
}

fn steerable_options() -> [SteerableLayerOptions; 4] {
    [
        (true, Some(0.0)),
        (true, None),
        (false, Some(0.5)),
        (false, None),
    ]
    .map(|(first_order, normalization_init)| SteerableLayerOptions {
        first_order,
        normalization_init,
    })
}

#[test]
fn steerable_geometric_product() {
    for reference in references() {
        let algebra = reference.algebra;
        for options in steerable_options() {
            let normalize = options.normalization_init.is_some();
            let settings = [
                ("first_order", Value::Flag(options.first_order)),
                ("normalize", Value::Flag(normalize)),
            ];
            check(
                "sgp",
                algebra,
                |vb| SteerableGeometricProduct::new(algebra, IN, options, vb).unwrap(),
                |p, x| {
                    let right = reference.linear(SAME, x, &p("linear_right.weight"), &[]);
                    let mut inputs = vec![x.to_vec(), right, p("weight")];
                    inputs.extend(normalize.then(|| p("normalization.a")));
                    inputs.extend(options.first_order.then(|| {
                        let (weight, bias) = (p("linear_left.weight"), p("linear_left.bias"));
                        reference.linear(SAME, x, &weight, &bias)
                    }));
                    let inputs: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
                    reference.of("steerable_product", &settings, SAME, &inputs)
                },
            );
        }
    }
}

#[test]
fn fully_connected_steerable_geometric_product() {
    let sizes = [BATCH, IN, OUT];
    for reference in references() {
        let algebra = reference.algebra;
        let paths = algebra.path_count();
        for options in steerable_options() {
            check(
                "fcgp",
                algebra,
                |vb| {
                    FullyConnectedSteerableGeometricProduct::new(algebra, IN, OUT, options, vb)
                        .unwrap()
                },
                |p, x| {
                    let mut right = reference.linear(SAME, x, &p("linear_right.weight"), &[]);
                    if options.normalization_init.is_some() {
                        let a = p("normalization.a");
                        right = reference.of("grade_norm", &[], SAME, &[&right, &a]);
                    }
                    // From [out, in, paths] to [paths, in, out].
                    let stored = p("weight");
                    let weight: Vec<f64> = (0..stored.len())
                        .map(|at| {
                            let (path, n, m) = (at / OUT / IN, at / OUT % IN, at % OUT);
                            stored[(m * IN + n) * paths + path]
                        })
                        .collect();
                    let inputs = [x, &right, &weight];
                    let product = reference.of("fcgp_norm", &PLAIN, sizes, &inputs);
                    if !options.first_order {
                        return product;
                    }
                    let (weight, bias) = (p("linear_left.weight"), p("linear_left.bias"));
                    let left = reference.linear(sizes, x, &weight, &bias);
                    let sums = left.iter().zip(product);
                    sums.map(|(l, z)| (l + z) / 2f64.sqrt()).collect()
                },
            );
        }
    }
}

#[test]
fn flash_clifford_layer() {
    for reference in references() {
        let algebra = reference.algebra;
        for fully_connected in [false, true] {
            for (norm, bias) in [
                (Norm::Invariant, Bias::Scalar),
                (Norm::None, Bias::None),
                (Norm::Rms, Bias::EveryBlade),
            ] {
                let options = FlashCliffordOptions {
                    norm,
                    fully_connected,
                    bias,
                };
                let linear = [
                    ("weight_layout", Value::Name("grade_in_out")),
                    ("bias", Value::Name(bias.name())),
                ];
                let product = match fully_connected {
                    true => "fcgp_norm",
                    false => "sgp_norm",
                };
                check(
                    "flash_clifford",
                    algebra,
                    |vb| FlashCliffordLayer::new(algebra, IN, options, vb).unwrap(),
                    |p, x| {
                        let mut inputs = vec![x.to_vec(), p("linear_weight")];
                        inputs.extend((bias != Bias::None).then(|| p("linear_bias")));
                        let inputs: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
                        let y = reference.of("mv_linear", &linear, SAME, &inputs);
                        let norm = [("norm", Value::Name(norm.name()))];
                        reference.of(product, &norm, SAME, &[x, &y, &p("gp_weight")])
                    },
                );
            }
        }
    }
}

#[test]
fn state_dicts_have_pytorchs_names_and_shapes() {
    let algebra = algebra();
    let entries = |parameters: &Parameters| -> Vec<(String, Vec<usize>)> {
        let variables = parameters.variables();
        variables
            .into_iter()
            .map(|(name, var)| (name, var.dims().to_vec()))
            .collect()
    };
    let own = |list: &[(&str, &[usize])]| -> Vec<(String, Vec<usize>)> {
        list.iter()
            .map(|(name, shape)| ((*name).to_owned(), shape.to_vec()))
            .collect()
    };
    let build = |make: &dyn Fn(candle_nn::VarBuilder)| {
        let parameters = Parameters::seeded(0);
        make(parameters.builder(DType::F32, &Device::Cpu));
        entries(&parameters)
    };
    let options = SteerableLayerOptions::default();

    let got = build(&|vb| drop(SteerableGeometricProduct::new(algebra, 5, options, vb).unwrap()));
    let expected = own(&[
        ("weight", &[5, 20]),
        ("normalization.a", &[5, 4]),
        ("linear_right.weight", &[5, 5, 4]),
        ("linear_left.weight", &[5, 5, 4]),
        ("linear_left.bias", &[1, 5, 1]),
    ]);
    assert_eq!(got, expected);

    let got = build(&|vb| {
        drop(FullyConnectedSteerableGeometricProduct::new(algebra, 5, 3, options, vb).unwrap());
    });
    let expected = own(&[
        ("weight", &[3, 5, 20]),
        ("normalization.a", &[5, 4]),
        ("linear_right.weight", &[5, 5, 4]),
        ("linear_left.weight", &[3, 5, 4]),
        ("linear_left.bias", &[1, 3, 1]),
    ]);
    assert_eq!(got, expected);

    let got = build(&|vb| drop(MVSiLU::new(algebra, 5, Invariant::Mag2, vb).unwrap()));
    assert_eq!(got, own(&[("a", &[1, 5, 4]), ("b", &[1, 5, 4])]));
    let got = build(&|vb| drop(MVLayerNorm::new(algebra, 5, vb).unwrap()));
    assert_eq!(got, own(&[("a", &[1, 5])]));
    let one_matrix = LinearOptions::default()
        .with_per_grade(false)
        .with_bias(Bias::Scalar);
    let got = build(&|vb| drop(MVLinear::new(algebra, 5, 3, &one_matrix, vb).unwrap()));
    assert_eq!(got, own(&[("weight", &[3, 5]), ("bias", &[1, 3, 1])]));
}

#[test]
fn weights_start_with_their_published_spread() {
    let parameters = Parameters::seeded(4);
    let options = SteerableLayerOptions::default();
    let vb = parameters.builder(DType::F64, &Device::Cpu);
    FullyConnectedSteerableGeometricProduct::new(algebra(), 48, 32, options, vb).unwrap();
    let spread = |name: &str, expected: f64| {
        let values = parameter(&parameters, name);
        let count = values.len() as f64;
        let got = (values.iter().map(|x| x * x).sum::<f64>() / count).sqrt();
        // The tolerance is five standard errors of a standard deviation.
        let error = 5.0 * expected / (2.0 * count).sqrt();
        assert!(
            (got - expected).abs() < error,
            "{name}: got {got}, expected {expected}"
        );
    };
    spread("weight", 1.0 / (48.0f64 * 4.0).sqrt());
    spread("linear_right.weight", 1.0 / 48f64.sqrt());
    spread("linear_left.weight", 1.0 / 48f64.sqrt());
    assert!(
        parameter(&parameters, "normalization.a")
            .iter()
            .all(|x| *x == 0.0)
    );
    assert!(
        parameter(&parameters, "linear_left.bias")
            .iter()
            .all(|x| *x == 0.0)
    );
}

/// The limit only applies to GPUs.
#[test]
fn a_limit_of_blocks_makes_no_difference_here() {
    let algebra = algebra();
    let x = random(&[8, BATCH, IN], 5);
    let connected = |bytes: Option<usize>| {
        let vb = Parameters::seeded(3).builder(DType::F64, &Device::Cpu);
        let options = SteerableLayerOptions::default();
        let layer = FullyConnectedSteerableGeometricProduct::new(algebra, IN, OUT, options, vb);
        let layer = layer.unwrap();
        let layer = bytes.map_or(layer.clone(), |bytes| layer.with_block_bytes(bytes));
        values(&layer.forward(&x).unwrap())
    };
    let flash_clifford = |fully_connected, bytes: Option<usize>| {
        let vb = Parameters::seeded(3).builder(DType::F64, &Device::Cpu);
        let options = FlashCliffordOptions {
            fully_connected,
            ..FlashCliffordOptions::default()
        };
        let layer = FlashCliffordLayer::new(algebra, IN, options, vb).unwrap();
        let layer = bytes.map_or(layer.clone(), |bytes| layer.with_block_bytes(bytes));
        values(&layer.forward(&x).unwrap())
    };
    for bytes in [0, 4096] {
        assert_eq!(connected(Some(bytes)), connected(None));
        for form in [false, true] {
            assert_eq!(
                flash_clifford(form, Some(bytes)),
                flash_clifford(form, None)
            );
        }
    }
}

#[test]
fn a_layer_refuses_other_channels() {
    let vb = Parameters::seeded(0).builder(DType::F64, &Device::Cpu);
    let layer = SteerableGeometricProduct::new(algebra(), IN, SteerableLayerOptions::default(), vb)
        .unwrap();
    let x = Tensor::from_vec(noise(8 * 4, 1), (8, 1, 4), &Device::Cpu).unwrap();
    let expected = format!("steerable_product: x: expected shape [8, batch, {IN}], got [8, 1, 4]");
    says(layer.forward(&x), &[&expected]);
}

/// Weights start within bounds that have the number of channels beneath a line. A layer of no channels is refused before it has any.
#[test]
fn layers_without_channels_are_refused() {
    let (algebra, options) = (algebra(), LinearOptions::default());
    let parameters = Parameters::seeded(0);
    let builder = |name: &str| parameters.builder(DType::F64, &Device::Cpu).pp(name);
    let refused = |option: &str| format!("{option}: expected a number from 1 up, got 0");
    let product = SteerableLayerOptions::default();
    let flash = [false, true].map(|fully_connected| FlashCliffordOptions {
        fully_connected,
        ..Default::default()
    });
    for (inputs, outputs, option) in [(0, 3, "in_channels"), (3, 0, "out_channels")] {
        let message = [&*refused(option)];
        says(
            MVLinear::new(algebra, inputs, outputs, &options, builder("linear")),
            &message,
        );
        let full = FullyConnectedSteerableGeometricProduct::new(
            algebra,
            inputs,
            outputs,
            product,
            builder("full"),
        );
        says(full, &message);
    }
    let message = [&*refused("channels")];
    says(
        SteerableGeometricProduct::new(algebra, 0, product, builder("product")),
        &message,
    );
    for options in flash {
        says(
            FlashCliffordLayer::new(algebra, 0, options, builder("flash")),
            &message,
        );
    }
    says(GradeNorm::new(algebra, 0, 0.0, builder("norm")), &message);
    says(
        MVLayerNorm::new(algebra, 0, builder("layer_norm")),
        &message,
    );
    says(
        MVSiLU::new(algebra, 0, Invariant::Norm, builder("silu")),
        &message,
    );
    says(
        PointEmbedding::new(algebra, 3, 0, builder("points")),
        &message,
    );
    says(
        PointEmbedding::new(algebra, 0, 3, builder("points")),
        &[&refused("points")],
    );
    says(
        layers::linear(0, 3, builder("mlp")),
        &[&refused("in_features")],
    );
    says(
        layers::linear(3, 0, builder("mlp")),
        &[&refused("out_features")],
    );
    assert_eq!(parameters.names(), [""; 0]);
}

/// A layer whose output does not fit in memory says so before it computes: what is asked for, what is there, and what to do.
#[test]
fn outputs_that_do_not_fit_are_refused() {
    let algebra = algebra();
    let (many, device) = (1 << 18, Device::Cpu);
    let builder = || Parameters::seeded(1).builder(DType::F32, &device);
    let options = LinearOptions::default();
    let linear = MVLinear::new(algebra, 1, many, &options, builder()).unwrap();
    let x = Tensor::zeros((8, many, 1), DType::F32, &device).unwrap();
    let words = ["mv_linear", "GiB of memory", "262144 out", "batch"];
    says(linear.forward(&x), &words);
    let versors = Tensor::zeros((4, many, 1), DType::F32, &device).unwrap();
    let weight = Tensor::zeros((many, 1), DType::F32, &device).unwrap();
    let acted = rotors::action(algebra, Parity::Even, None, &x, &versors, &weight);
    let output = "the output [8, 262144, 262144]";
    says(acted, &[output, "GiB of memory", "make the batch smaller"]);
}
