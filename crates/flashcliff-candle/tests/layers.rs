//! Compares the values of layers with the oracle, and their gradients with central differences of these values.

mod common;

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::Module;
use common::{Mv, Oracle, assert_close, disturb, noise, parameter, random, values};
use flashcliff::ops::LinearOptions;
use flashcliff::rotor::Parity;
use flashcliff::{Algebra, Bias, Invariant, Norm, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::{
    FlashCliffordLayer, FlashCliffordOptions, FullyConnectedSteerableGeometricProduct, GradeNorm,
    MVLayerNorm, MVLinear, MVSiLU, SteerableGeometricProduct, SteerableLayerOptions,
};
use flashcliff_candle::rotors;

const BATCH: usize = 3;
const IN: usize = 5;
const OUT: usize = 3;
const SQRT2: f64 = std::f64::consts::SQRT_2;

fn oracles() -> Vec<Oracle> {
    [(2, 0), (3, 0), (1, 3), (5, 0)]
        .map(|(p, q)| Oracle::new(p, q))
        .into()
}

/// Builds a layer with disturbed parameters, and checks its value against the oracle and its
/// gradients against differences of its value.
fn check<L: Module>(
    name: &str,
    oracle: &Oracle,
    layer: impl Fn(candle_nn::VarBuilder) -> L,
    expected: impl Fn(&Parameters, &Mv) -> Mv,
) {
    let parameters = Parameters::seeded(11);
    let layer = layer(parameters.builder(DType::F64, &Device::Cpu));
    disturb(&parameters, 100);
    let x = Var::from_tensor(&random(&[oracle.blades.len(), BATCH, IN], 5)).unwrap();
    let y = layer.forward(&x).unwrap();
    assert_close(
        &values(&y),
        &expected(&parameters, &Mv::of(&x)).data,
        1e-12,
        name,
    );

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
    for oracle in oracles() {
        for per_grade in [true, false] {
            for bias in [Bias::None, Bias::Scalar] {
                let options = LinearOptions::default()
                    .with_per_grade(per_grade)
                    .with_bias(bias);
                check(
                    "mv_linear",
                    &oracle,
                    |vb| MVLinear::new(oracle.algebra(), IN, OUT, &options, vb).unwrap(),
                    |p, x| {
                        let bias = (bias == Bias::Scalar).then(|| parameter(p, "bias"));
                        oracle.linear(x, &parameter(p, "weight"), bias.as_deref(), OUT)
                    },
                );
            }
        }
    }
}

#[test]
fn grade_norm() {
    for oracle in oracles() {
        check(
            "grade_norm",
            &oracle,
            |vb| GradeNorm::new(oracle.algebra(), IN, 0.0, vb).unwrap(),
            |p, x| oracle.grade_norm(x, &parameter(p, "a")),
        );
    }
}

#[test]
fn mv_silu() {
    for oracle in oracles() {
        for invariant in [Invariant::Mag2, Invariant::Norm] {
            check(
                "mv_silu",
                &oracle,
                |vb| MVSiLU::new(oracle.algebra(), IN, invariant, vb).unwrap(),
                |p, x| {
                    let (a, b) = (parameter(p, "a"), parameter(p, "b"));
                    oracle.mv_silu(x, &a, &b, invariant == Invariant::Norm)
                },
            );
        }
    }
}

#[test]
fn mv_layer_norm() {
    for oracle in oracles() {
        check(
            "mv_layer_norm",
            &oracle,
            |vb| MVLayerNorm::new(oracle.algebra(), IN, vb).unwrap(),
            |p, x| oracle.mv_layer_norm(x, &parameter(p, "a")),
        );
    }
}

/// `normalization(linear_right(x))`, without the steps that have no parameters.
fn right(oracle: &Oracle, p: &Parameters, x: &Mv) -> Mv {
    let r = oracle.linear(x, &parameter(p, "linear_right.weight"), None, IN);
    match p.get("normalization.a") {
        Some(a) => oracle.grade_norm(&r, &values(&a)),
        None => r,
    }
}

/// `(linear_left(x) + z) / sqrt 2`, or `z` if there is no such parameter.
fn left(oracle: &Oracle, p: &Parameters, x: &Mv, z: Mv) -> Mv {
    if p.get("linear_left.weight").is_none() {
        return z;
    }
    let (weight, bias) = (
        parameter(p, "linear_left.weight"),
        parameter(p, "linear_left.bias"),
    );
    let l = oracle.linear(x, &weight, Some(&bias), z.channels);
    z.map(|i, b, c, value| (l.at(i, b, c) + value) / SQRT2)
}

fn steerable_options() -> Vec<SteerableLayerOptions> {
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
    .into()
}

#[test]
fn steerable_geometric_product() {
    for oracle in oracles() {
        let paths = oracle.paths().len();
        for options in steerable_options() {
            check(
                "sgp",
                &oracle,
                |vb| SteerableGeometricProduct::new(oracle.algebra(), IN, options, vb).unwrap(),
                |p, x| {
                    let w = parameter(p, "weight");
                    let r = right(&oracle, p, x);
                    let z = oracle.weighted(x, &r, None, |path, n, _| w[n * paths + path]);
                    left(&oracle, p, x, z)
                },
            );
        }
    }
}

#[test]
fn fully_connected_steerable_geometric_product() {
    for oracle in oracles() {
        let paths = oracle.paths().len();
        for options in steerable_options() {
            check(
                "fcgp",
                &oracle,
                |vb| {
                    let algebra = oracle.algebra();
                    FullyConnectedSteerableGeometricProduct::new(algebra, IN, OUT, options, vb)
                        .unwrap()
                },
                |p, x| {
                    let w = parameter(p, "weight");
                    let r = right(&oracle, p, x);
                    let weight = |path, n, m| w[(m * IN + n) * paths + path];
                    let z = oracle.weighted(x, &r, Some(OUT), weight);
                    left(&oracle, p, x, z)
                },
            );
        }
    }
}

/// `(1 + erf(x / sqrt 2)) / 2`, by its Maclaurin series.
fn normal_cdf(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    for k in 1..200 {
        term *= -x * x / (2.0 * f64::from(k));
        sum += term / f64::from(2 * k + 1);
    }
    0.5 + sum / (2.0 * std::f64::consts::PI).sqrt()
}

#[test]
fn flash_clifford_layer() {
    for oracle in oracles() {
        let (grades, paths) = (oracle.grades(), oracle.paths().len());
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
                check(
                    "flash_clifford",
                    &oracle,
                    |vb| FlashCliffordLayer::new(oracle.algebra(), IN, options, vb).unwrap(),
                    |p, x| {
                        let stored = parameter(p, "linear_weight");
                        let mut weight = vec![0.0; stored.len()];
                        for (at, value) in stored.iter().enumerate() {
                            let (g, n, m) = (at / IN / IN, at / IN % IN, at % IN);
                            weight[(m * IN + n) * grades + g] = *value;
                        }
                        let mut y = oracle.linear(x, &weight, None, IN);
                        if bias != Bias::None {
                            let shift = parameter(p, "linear_bias");
                            let everywhere = bias == Bias::EveryBlade;
                            y = y.map(|i, _, c, v| {
                                v + if i == 0 || everywhere { shift[c] } else { 0.0 }
                            });
                        }
                        let gated =
                            |v: &Mv| v.map(|_, b, c, value| normal_cdf(v.at(0, b, c)) * value);
                        let w = parameter(p, "gp_weight");
                        let o = if fully_connected {
                            oracle.weighted(&gated(x), &gated(&y), Some(IN), |path, n, m| {
                                w[(path * IN + n) * IN + m]
                            })
                        } else {
                            oracle.weighted(&gated(x), &gated(&y), None, |path, n, _| {
                                w[n * paths + path]
                            })
                        };
                        match norm {
                            Norm::None => o,
                            Norm::Rms => oracle.grade_rms(&o),
                            _ => oracle.grade_invariant(&o),
                        }
                    },
                );
            }
        }
    }
}

#[test]
fn state_dicts_have_pytorchs_names_and_shapes() {
    let oracle = Oracle::new(3, 0);
    let algebra = oracle.algebra();
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
    let oracle = Oracle::new(3, 0);
    let parameters = Parameters::seeded(4);
    let options = SteerableLayerOptions::default();
    let vb = parameters.builder(DType::F64, &Device::Cpu);
    FullyConnectedSteerableGeometricProduct::new(oracle.algebra(), 48, 32, options, vb).unwrap();
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
    let algebra = Oracle::new(3, 0).algebra();
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
    let oracle = Oracle::new(3, 0);
    let vb = Parameters::seeded(0).builder(DType::F64, &Device::Cpu);
    let layer =
        SteerableGeometricProduct::new(oracle.algebra(), IN, SteerableLayerOptions::default(), vb)
            .unwrap();
    let x = Tensor::from_vec(noise(8 * 4, 1), (8, 1, 4), &Device::Cpu).unwrap();
    let error = layer.forward(&x).unwrap_err().to_string();
    let expected = format!("steerable_product: x: expected shape [8, batch, {IN}], got [8, 1, 4]");
    assert!(error.contains(&expected), "{error}");
}

/// A layer whose output does not fit in memory says so before it computes: what is asked for, what is there, and what to do.
#[test]
fn outputs_that_do_not_fit_are_refused() {
    let algebra = Algebra::new(Signature::new(3, 0, 0).unwrap()).unwrap();
    let (many, device) = (1 << 18, Device::Cpu);
    let builder = || Parameters::seeded(1).builder(DType::F32, &device);
    let options = LinearOptions::default();
    let linear = MVLinear::new(algebra, 1, many, &options, builder()).unwrap();
    let x = Tensor::zeros((8, many, 1), DType::F32, &device).unwrap();
    let error = linear.forward(&x).unwrap_err().to_string();
    for part in ["mv_linear", "GiB of memory", "262144 out", "batch"] {
        assert!(error.contains(part), "{error}");
    }
    let versors = Tensor::zeros((4, many, 1), DType::F32, &device).unwrap();
    let weight = Tensor::zeros((many, 1), DType::F32, &device).unwrap();
    let acted = rotors::action(algebra, Parity::Even, None, &x, &versors, &weight);
    let error = acted.unwrap_err().to_string();
    for part in [
        "the output [8, 262144, 262144]",
        "GiB of memory",
        "make the batch smaller",
    ] {
        assert!(error.contains(part), "{error}");
    }
}
