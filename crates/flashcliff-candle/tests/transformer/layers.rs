//! Each layer, and the network, against the oracle.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use flashcliff::{Algebra, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Block, Channels, CrossAttention, EquiLayerNorm, EquiLinear,
    GeometricBilinear, Initialization, ScalarGate, Scope, SelfAttention, Sequences, Tokens,
};

use crate::common::{assert_close, disturb, parameter, random, values};
use crate::oracle::{Oracle, Token};
use crate::{ITEMS, SAMPLES, input, network, options, packed, samples};

const FROM: Channels = Channels::new(3, 5);
const TOLERANCE: f64 = 1e-11;

/// Compares a layer with a function of the items of a sample.
fn check<L>(
    what: &str,
    heads: usize,
    from: Channels,
    make: impl Fn(VarBuilder) -> L,
    apply: impl Fn(&L, &Tokens) -> Tokens,
    expected: impl Fn(&Oracle, usize, &[Token]) -> Vec<Token>,
) {
    let parameters = Parameters::seeded(3);
    let layer = make(parameters.builder(DType::F64, &Device::Cpu));
    disturb(&parameters, 7);
    let oracle = Oracle {
        parameters: &parameters,
        heads,
        rotary: None,
    };
    let x = input(from, 17);
    let got = values(apply(&layer, &x).packed());
    let all = samples(&x);
    let expected: Vec<f64> = all
        .iter()
        .enumerate()
        .flat_map(|(sample, items)| packed(&expected(&oracle, sample, items)))
        .collect();
    assert_close(&got, &expected, TOLERANCE, what);
}

/// A reference for each token.
fn references() -> Tensor {
    random(&[SAMPLES, ITEMS], 91)
}

#[test]
fn linear_layers_with_and_without_scalars() {
    for (from, to) in [
        (FROM, Channels::new(4, 2)),
        (FROM, Channels::new(2, 0)),
        (Channels::new(3, 0), Channels::new(4, 2)),
        (Channels::new(1, 0), Channels::new(1, 0)),
    ] {
        check(
            &format!("linear {from:?} to {to:?}"),
            1,
            from,
            |vb| EquiLinear::new(from, to, Initialization::Default, vb).unwrap(),
            |layer, x| layer.forward(x).unwrap(),
            |oracle, _, items| items.iter().map(|x| oracle.linear("", x)).collect(),
        );
    }
}

#[test]
fn norms_and_gates() {
    check(
        "norm",
        1,
        FROM,
        |_| EquiLayerNorm::new(FROM).unwrap(),
        |layer, x| layer.forward(x).unwrap(),
        |oracle, _, items| items.iter().map(|x| oracle.norm(x)).collect(),
    );
    check(
        "gate",
        1,
        FROM,
        |_| ScalarGate::new(FROM).unwrap(),
        |layer, x| layer.forward(x).unwrap(),
        |oracle, _, items| items.iter().map(|x| oracle.gate(x)).collect(),
    );
}

#[test]
fn a_small_multivector_is_divided_by_the_root_of_the_smallest_mean() {
    let norm = EquiLayerNorm::new(Channels::new(1, 0)).unwrap();
    let x = (random(&[2, 3, 16], 1) * 1e-3).unwrap();
    let x = Tokens::from_packed(x, Channels::new(1, 0)).unwrap();
    let y = norm.forward(&x).unwrap();
    let expected: Vec<f64> = values(x.packed()).iter().map(|x| x / 0.1).collect();
    assert_close(&values(y.packed()), &expected, 1e-14, "norm");
}

#[test]
fn products_and_joins_with_a_reference_for_each_token() {
    let reference = references();
    let of = values(&reference);
    check(
        "bilinear",
        1,
        FROM,
        |vb| GeometricBilinear::new(FROM, Channels::new(4, 3), vb).unwrap(),
        |layer, x| layer.forward(x, &reference).unwrap(),
        |oracle, sample, items| {
            let each = items.iter().enumerate();
            each.map(|(item, x)| oracle.bilinear("", x, of[sample * ITEMS + item]))
                .collect()
        },
    );
}

#[test]
fn attention_with_shared_and_own_keys() {
    for multi_query in [true, false] {
        for (from, heads) in [
            (FROM, 2),
            (Channels::new(4, 8), 4),
            (Channels::new(2, 0), 1),
        ] {
            let options = AttentionOptions {
                heads,
                ratio: 2,
                multi_query,
                ..AttentionOptions::default()
            };
            check(
                &format!("attention {options:?}"),
                heads,
                from,
                |vb| SelfAttention::new(from, options, vb).unwrap(),
                |layer, x| layer.forward(x).unwrap(),
                |oracle, _, items| oracle.attention("", items),
            );
        }
    }
}

/// Rotary positions are those of the oracle; a shift of all positions changes nothing, another order of the items does.
#[test]
fn attention_with_rotary_positions() {
    for multi_query in [true, false] {
        // Five scalars of a head are made eight, nine ten, none eight.
        for (from, heads) in [
            (FROM, 2),
            (Channels::new(4, 9), 2),
            (Channels::new(2, 0), 1),
        ] {
            let options = AttentionOptions {
                heads,
                ratio: 2,
                multi_query,
                rotary: Some(50),
                ..AttentionOptions::default()
            };
            check(
                &format!("attention {options:?}"),
                heads,
                from,
                |vb| SelfAttention::new(from, options, vb).unwrap(),
                |layer, x| layer.forward(x).unwrap(),
                |oracle, _, items| {
                    let oracle = Oracle {
                        rotary: Some(50.0),
                        ..*oracle
                    };
                    oracle.attention("", items)
                },
            );
        }
    }
    let options = AttentionOptions {
        heads: 2,
        rotary: Some(4096),
        ..AttentionOptions::default()
    };
    let parameters = Parameters::seeded(5);
    let vb = || parameters.builder(DType::F64, &Device::Cpu);
    let layer = SelfAttention::new(FROM, options, vb()).unwrap();
    disturb(&parameters, 11);
    let x = random(&[1, 6, FROM.width()], 3);
    let out = |x: &Tensor, scope: &Scope| {
        let x = Tokens::from_packed(x.clone(), FROM).unwrap();
        let out = layer.forward_within(&x, scope).unwrap();
        out.packed().clone()
    };
    let two = Scope::Within(Sequences::new(&[0, 2, 6]).unwrap());
    let shifted = out(&x, &two).narrow(1, 2, 4).unwrap();
    let last = x.narrow(1, 2, 4).unwrap().contiguous().unwrap();
    let alone = out(&last, &Scope::Sample);
    assert_close(&values(&shifted), &values(&alone), TOLERANCE, "shifted");
    let order = Tensor::new(&[3_u32, 1, 2, 0], &Device::Cpu).unwrap();
    let of_swapped = out(&last.index_select(&order, 1).unwrap(), &Scope::Sample);
    let back = of_swapped.index_select(&order, 1).unwrap();
    let differs = |(a, b): (&f64, &f64)| (a - b).abs() > 1e-6;
    assert!(values(&back).iter().zip(&values(&alone)).any(differs));

    let zero = AttentionOptions {
        rotary: Some(0),
        ..options
    };
    let error = SelfAttention::new(FROM, zero, vb()).unwrap_err();
    assert!(error.to_string().contains("rotary"), "{error}");
    let error = CrossAttention::new(FROM, FROM, options, vb()).unwrap_err();
    assert!(error.to_string().contains("rotary"), "{error}");
    let lorentz = Algebra::new(Signature::new(1, 3, 0).unwrap()).unwrap();
    let error = SelfAttention::over(lorentz, FROM, options, vb()).unwrap_err();
    assert!(error.to_string().contains("head_norm"), "{error}");
}

#[test]
fn blocks_and_the_network() {
    let reference = random(&[SAMPLES, 1], 91);
    let of = values(&reference);
    let reference = reference.broadcast_as((SAMPLES, ITEMS)).unwrap();
    let attention = options(true).attention;
    check(
        "block",
        attention.heads,
        FROM,
        |vb| Block::new(FROM, attention, vb).unwrap(),
        |layer, x| layer.forward(x, &reference).unwrap(),
        |oracle, sample, items| oracle.block("", items, of[sample]),
    );
    for multi_query in [true, false] {
        let (net, parameters) = network(multi_query, DType::F64);
        let x = input(options(multi_query).input, 23);
        let oracle = Oracle {
            parameters: &parameters,
            heads: 2,
            rotary: None,
        };
        let all = samples(&x);
        let expected: Vec<f64> = all
            .iter()
            .flat_map(|items| packed(&oracle.network(2, items)))
            .collect();
        let got = net.forward(&x).unwrap();
        assert_close(&values(got.packed()), &expected, TOLERANCE, "network");
        // In single precision the same within its rounding.
        let (single, _) = network(multi_query, DType::F32);
        let x = x.packed().to_dtype(DType::F32).unwrap();
        let x = Tokens::from_packed(x, options(multi_query).input).unwrap();
        let got = single.forward(&x).unwrap();
        assert_close(&values(got.packed()), &expected, 2e-5, "network in f32");
    }
}

#[test]
fn tokens_are_taken_apart_as_they_were_put_together() {
    let (mv, s) = (random(&[16, 2, 3, 4], 1), random(&[2, 3, 5], 2));
    let tokens = Tokens::new(&mv, Some(&s)).unwrap();
    assert_eq!(values(&tokens.multivectors().unwrap()), values(&mv));
    assert_eq!(values(&tokens.scalars().unwrap().unwrap()), values(&s));
    assert!(Tokens::new(&mv, None).unwrap().scalars().unwrap().is_none());
    let error = Tokens::new(&s, None).unwrap_err().to_string();
    assert!(
        error.contains("[blades, samples, items, channels]"),
        "{error}"
    );
    let error = Tokens::new(&mv, Some(&mv)).unwrap_err().to_string();
    assert!(error.contains("[2, 3, channels]"), "{error}");
}

#[test]
fn parameters_start_within_their_bounds() {
    let parameters = Parameters::seeded(1);
    let vb = parameters.builder(DType::F64, &Device::Cpu);
    let from = Channels::new(16, 25);
    let to = Channels::new(40, 30);
    EquiLinear::new(from, to, Initialization::AlmostUnitScalar, vb).unwrap();
    let weight = parameter(&parameters, "weight");
    let spreads = [0.5, 4.0, 6.0, 2.0, 0.5, 0.5, 1.5, 1.5, 0.5];
    let within = |values: Vec<f64>, bound: f64, what: &str| {
        let largest = values
            .iter()
            .fold(0.0_f64, |largest, w| largest.max(w.abs()));
        // Of n numbers the largest falls short of this with a chance of e^-8.
        let least = (1.0 - 8.0 / values.len() as f64) * bound;
        assert!(
            largest <= bound && largest > least,
            "{what}: {largest} {bound}"
        );
    };
    for (map, spread) in spreads.into_iter().enumerate() {
        let bound = 0.5 / 4.0 * f64::sqrt(spread);
        let of_map = weight.iter().skip(map).step_by(9).copied().collect();
        within(of_map, bound, "weight");
    }
    let all = |name: &str| parameter(&parameters, name);
    within(all("s2mvs.weight"), 0.5 / 50f64.sqrt(), "s2mvs");
    let around_one = all("s2mvs.bias").iter().map(|b| b - 1.0).collect();
    within(around_one, 1.0 / 41f64.sqrt(), "bias");
    within(all("mvs2s.weight"), 1.0 / 32f64.sqrt(), "mvs2s");
    within(all("s2s.weight"), 1.0 / 50f64.sqrt(), "s2s");
    within(all("mvs2s.bias"), 1.0 / 41f64.sqrt(), "bias of scalars");
}

#[test]
fn bad_sizes_are_errors() {
    let parameters = Parameters::seeded(1);
    let vb = || parameters.builder(DType::F64, &Device::Cpu);
    let odd = GeometricBilinear::new(FROM, Channels::new(3, 1), vb());
    assert!(odd.unwrap_err().to_string().contains("an even number"));
    let options = AttentionOptions {
        heads: 0,
        ..AttentionOptions::default()
    };
    let none = SelfAttention::new(FROM, options, vb()).unwrap_err();
    assert!(none.to_string().contains("heads: expected"));
    let layer = GeometricBilinear::new(FROM, Channels::new(2, 1), vb()).unwrap();
    let x = input(FROM, 1);
    let wrong = random(&[SAMPLES, 1], 1);
    let error = layer.forward(&x, &wrong).unwrap_err().to_string();
    assert!(
        error.contains("reference") && error.contains("[23, 3]"),
        "{error}"
    );
    let other = input(Channels::new(1, 1), 1);
    let error = layer
        .forward(&other, &references())
        .unwrap_err()
        .to_string();
    assert!(error.contains("channels of tokens"), "{error}");
    let error = Tokens::from_packed(x.packed().clone(), Channels::new(1, 1));
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("[samples, items, blades * 1 + 1], such as 17")
    );
}

/// Keys and values of one tensor: its gradient is the sum of those of two tensors with the same numbers.
#[test]
fn a_tensor_that_is_two_parameters_gets_both_gradients() {
    let (channels, others) = (Channels::new(2, 3), Channels::new(3, 4));
    let options = options(true).attention;
    let (tied, apart) = (Parameters::seeded(1), Parameters::seeded(2));
    let vb = tied.builder(DType::F64, &Device::Cpu);
    let vb = vb.rename_f(|name: &str| name.replace("v_linear", "k_linear"));
    let one = CrossAttention::new(channels, others, options, vb).unwrap();
    let vb = apart.builder(DType::F64, &Device::Cpu);
    let two = CrossAttention::new(channels, others, options, vb).unwrap();
    for (name, var) in apart.variables() {
        let own = tied.get(&name.replace("v_linear", "k_linear")).unwrap();
        var.set(&own).unwrap();
    }
    let (x, y) = (input(channels, 3), input(others, 5));
    let [(sum, of_one), (expected, of_two)] = [&one, &two].map(|layer| {
        let out = layer.forward(&x, &y).unwrap();
        let seed = random(out.packed().dims(), 7);
        let loss = (out.packed() * seed).unwrap().sum_all().unwrap();
        (values(out.packed()), loss.backward().unwrap())
    });
    assert_eq!(sum, expected);
    let gradient = |of: &GradStore, parameters: &Parameters, name: &str| {
        values(of.get(&parameters.get(name).unwrap()).unwrap())
    };
    let got = gradient(&of_one, &tied, "k_linear.weight");
    let [keys, others] =
        ["k_linear", "v_linear"].map(|name| gradient(&of_two, &apart, &format!("{name}.weight")));
    let both: Vec<f64> = keys.iter().zip(others).map(|(a, b)| a + b).collect();
    assert_close(&got, &both, 1e-13, "gradient");
}
