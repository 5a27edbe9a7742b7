//! Each layer by itself, and what layers refuse. What networks of them compute is proven in `flashcliff-network`.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device};
use candle_nn::{VarBuilder, VarMap};
use flashcliff::{Algebra, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Block, Channels, CrossAttention, EquiLayerNorm, EquiLinear,
    GeometricBilinear, Geometry, Initialization, ScalarGate, Scope, SelfAttention, Sequences,
    Tokens, join_reference, join_reference_within,
};
use flashcliff_candle::models::Gatr;

use crate::common::{assert_close, disturb, parameter, random, says, values};
use crate::{ITEMS, SAMPLES, input, options};

const FROM: Channels = Channels::new(3, 5);

#[test]
fn a_block_is_its_layers() {
    let parameters = Parameters::seeded(3);
    let vb = parameters.builder(DType::F64, &Device::Cpu);
    let (attention, hidden) = (options(true).attention, FROM.times(2));
    let block = Block::new(FROM, attention, vb.clone()).unwrap();
    disturb(&parameters, 7);

    // Single layers find the variables of the block by their names.
    let count = parameters.variables().len();
    let of_attention = SelfAttention::new(FROM, attention, vb.pp("attention")).unwrap();
    let of_mlp = vb.pp("mlp").pp("layers");
    let bilinear = GeometricBilinear::new(FROM, hidden, of_mlp.pp(0)).unwrap();
    let start = Initialization::Default;
    let linear = EquiLinear::new(hidden, FROM, start, of_mlp.pp(2)).unwrap();
    assert_eq!(parameters.variables().len(), count);
    let norm = EquiLayerNorm::new(FROM).unwrap();
    let gate = ScalarGate::new(hidden).unwrap();

    let (x, reference) = (input(FROM, 17), random(&[SAMPLES, ITEMS], 91));
    let sum = |x: &Tokens, y: &Tokens| {
        Tokens::from_packed((x.packed() + y.packed()).unwrap(), FROM).unwrap()
    };
    let attended = of_attention.forward(&norm.forward(&x).unwrap()).unwrap();
    let attended = sum(&x, &attended);
    let normed = norm.forward(&attended).unwrap();
    let made = bilinear.forward(&normed, &reference).unwrap();
    let made = linear.forward(&gate.forward(&made).unwrap()).unwrap();
    let expected = values(sum(&attended, &made).packed());
    let got = block.forward(&x, &reference).unwrap();
    assert_close(&values(got.packed()), &expected, 1e-13, "block");
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
fn tokens_are_taken_apart_as_they_were_put_together() {
    let (mv, s) = (random(&[16, 2, 3, 4], 1), random(&[2, 3, 5], 2));
    let tokens = Tokens::new(&mv, Some(&s)).unwrap();
    assert_eq!(values(&tokens.multivectors().unwrap()), values(&mv));
    assert_eq!(values(&tokens.scalars().unwrap().unwrap()), values(&s));
    assert!(Tokens::new(&mv, None).unwrap().scalars().unwrap().is_none());
    let axes = "[blades, samples, items, channels]";
    says(Tokens::new(&s, None), &[axes]);
    says(Tokens::new(&mv, Some(&mv)), &["[2, 3, channels]"]);
}

/// Checks the starts of a layer's parameters, whose values `all` gives. Of n numbers the largest falls short of its bound with a chance of
/// `e^-slack`.
fn assert_within_bounds(all: impl Fn(&str) -> Vec<f64>, slack: f64) {
    let spreads = [0.5, 4.0, 6.0, 2.0, 0.5, 0.5, 1.5, 1.5, 0.5];
    let within = |values: Vec<f64>, bound: f64, what: &str| {
        let largest = values
            .iter()
            .fold(0.0_f64, |largest, w| largest.max(w.abs()));
        let least = (1.0 - slack / values.len() as f64) * bound;
        assert!(
            largest <= bound && largest > least,
            "{what}: {largest} {bound}"
        );
    };
    let weight = all("weight");
    for (map, spread) in spreads.into_iter().enumerate() {
        let bound = 0.5 / 4.0 * f64::sqrt(spread);
        let of_map = weight.iter().skip(map).step_by(9).copied().collect();
        within(of_map, bound, "weight");
    }
    within(all("s2mvs.weight"), 0.5 / 50f64.sqrt(), "s2mvs");
    let around_one = all("s2mvs.bias").iter().map(|b| b - 1.0).collect();
    within(around_one, 1.0 / 41f64.sqrt(), "bias");
    within(all("mvs2s.weight"), 1.0 / 32f64.sqrt(), "mvs2s");
    within(all("s2s.weight"), 1.0 / 50f64.sqrt(), "s2s");
    within(all("mvs2s.bias"), 1.0 / 41f64.sqrt(), "bias of scalars");
}

const MANY: [Channels; 2] = [Channels::new(16, 25), Channels::new(40, 30)];

#[test]
fn parameters_start_within_their_bounds() {
    let parameters = Parameters::seeded(1);
    let vb = parameters.builder(DType::F64, &Device::Cpu);
    let [from, to] = MANY;
    EquiLinear::new(from, to, Initialization::AlmostUnitScalar, vb).unwrap();
    assert_within_bounds(|name| parameter(&parameters, name), 8.0);
}

/// candle's own store of variables draws within one bound for all numbers of a variable, from numbers without a seed.
#[test]
fn parameters_of_other_stores_start_within_their_bounds() {
    let parameters = VarMap::new();
    let vb = VarBuilder::from_varmap(&parameters, DType::F64, &Device::Cpu);
    let [from, to] = MANY;
    let start = Initialization::AlmostUnitScalar;
    let layer = EquiLinear::new(from, to, start, vb.clone()).unwrap();
    let of_name = |name: &str| parameters.data().lock().unwrap()[name].clone();
    assert_within_bounds(|name| values(&of_name(name)), 40.0);
    // Parameters that the store has, such as weights of a file, stay as they are.
    let weight = of_name("weight");
    let before = values(&weight);
    let again = EquiLinear::new(from, to, start, vb).unwrap();
    assert_eq!(values(&weight), before);
    let tokens = Tokens::from_packed(random(&[1, 2, from.width()], 1), from).unwrap();
    let made = [&layer, &again].map(|layer| layer.forward(&tokens).unwrap().packed().clone());
    assert_eq!(values(&made[0]), values(&made[1]));
    for made in made {
        let gradients = made.sum_all().unwrap().backward().unwrap();
        assert!(gradients.get(&weight).is_some());
    }
}

#[test]
fn bad_sizes_are_errors() {
    let parameters = Parameters::seeded(1);
    let vb = || parameters.builder(DType::F64, &Device::Cpu);
    let odd = GeometricBilinear::new(FROM, Channels::new(3, 1), vb());
    says(odd, &["an even number"]);
    let options = AttentionOptions {
        heads: 0,
        ..AttentionOptions::default()
    };
    let none = SelfAttention::new(FROM, options, vb());
    says(none, &["heads: expected"]);
    let layer = GeometricBilinear::new(FROM, Channels::new(2, 1), vb()).unwrap();
    let x = input(FROM, 1);
    let wrong = random(&[SAMPLES, 1], 1);
    says(layer.forward(&x, &wrong), &["reference", "[23, 3]"]);
    let other = input(Channels::new(1, 1), 1);
    let moved = layer.forward(&other, &random(&[SAMPLES, ITEMS], 91));
    says(moved, &["channels of tokens"]);
    let axes = "[samples, items, blades * 1 + 1], such as 17";
    let few = Tokens::from_packed(x.packed().clone(), Channels::new(1, 1));
    says(few, &[axes]);
}

/// Tokens of scalars alone are tokens; tokens of nothing are not, and products need multivectors.
#[test]
fn layers_without_channels_are_refused() {
    let vb = || Parameters::seeded(0).builder(DType::F64, &Device::Cpu);
    let (none, start) = (Channels::new(0, 0), Initialization::Default);
    let nothing = "expected a multivector channel or a scalar channel, got 0";
    says(
        EquiLinear::new(none, FROM, start, vb()),
        &["the input of a linear layer", nothing],
    );
    says(
        EquiLinear::new(FROM, none, start, vb()),
        &["the output of a linear layer", nothing],
    );
    says(ScalarGate::new(none), &["channels of a gate", nothing]);
    let attention = SelfAttention::new(none, AttentionOptions::default(), vb());
    says(attention, &["channels of attention", nothing]);
    let block = Block::new(none, AttentionOptions::default(), vb());
    says(block, &["channels of attention", nothing]);
    let empty = Tokens::new(&random(&[16, 2, 3, 0], 1), None).unwrap();
    let normed = EquiLayerNorm::new(none).unwrap().forward(&empty);
    says(normed, &["channels of a norm", nothing]);
    let (scalars, none) = (Channels::new(0, 3), "expected a number from 1 up, got 0");
    for (from, to) in [(scalars, FROM.times(2)), (FROM, scalars)] {
        let bilinear = GeometricBilinear::new(from, to, vb());
        says(
            bilinear,
            &["multivector channels", "a bilinear layer", none],
        );
    }
    assert!(EquiLinear::new(scalars, scalars, start, vb()).is_ok());
}

/// Samples may have no items, and tokens no multivectors. The mean of nothing is 0, and an empty tensor has no place to read from.
#[test]
fn tokens_of_no_items_pass_through_layers() {
    let parameters = Parameters::seeded(3);
    let vb = parameters.builder(DType::F64, &Device::Cpu);
    let block = Block::new(FROM.times(2), options(true).attention, vb).unwrap();
    for (samples, items) in [(2, 0), (0, 3), (0, 0)] {
        let (mv, s) = (
            random(&[16, samples, items, 6], 1),
            random(&[samples, items, 10], 2),
        );
        let tokens = Tokens::new(&mv, Some(&s)).unwrap();
        let reference = join_reference(&tokens).unwrap();
        assert_eq!(reference.dims(), [samples, items]);
        let parts = [
            tokens.multivectors().unwrap(),
            tokens.scalars().unwrap().unwrap(),
        ];
        for part in parts {
            assert_eq!(values(&part.sum_all().unwrap()), [0.0]);
        }
        let made = block.forward(&tokens, &reference).unwrap();
        assert_eq!(made.packed().dims(), [samples, items, 16 * 6 + 10]);
        let total = made.scalars().unwrap().unwrap().sum_all().unwrap();
        let gradients = total.backward().unwrap();
        for (name, var) in parameters.variables() {
            let gradient = values(gradients.get(&var).unwrap());
            assert!(gradient.iter().all(|&x| x == 0.0), "{name}");
        }
    }
    let scalars = Tokens::from_packed(random(&[2, 3, 5], 1), Channels::new(0, 5)).unwrap();
    assert_eq!(values(&join_reference(&scalars).unwrap()), [0.0; 6]);
    let rows = Tokens::new(&random(&[16, 1, 0, 2], 1), None).unwrap();
    let of_rows = Tokens::from_packed(random(&[1, 3, 5], 1), Channels::new(0, 5)).unwrap();
    for (rows, offsets, expected) in [(rows, vec![0, 0], 0), (of_rows, vec![0, 1, 3], 3)] {
        let within = Scope::Within(Sequences::new(&offsets).unwrap());
        let found = join_reference_within(&rows, &within).unwrap();
        assert_eq!(
            (found.dims(), values(&found)),
            (&[1, expected][..], vec![0.0; expected])
        );
    }
}

#[test]
fn rotary_positions_say_what_they_need() {
    let parameters = Parameters::seeded(5);
    let vb = || parameters.builder(DType::F64, &Device::Cpu);
    let options = AttentionOptions {
        heads: 2,
        rotary: Some(4096),
        ..AttentionOptions::default()
    };
    let zero = AttentionOptions {
        rotary: Some(0),
        ..options
    };
    says(SelfAttention::new(FROM, zero, vb()), &["rotary"]);
    let between = CrossAttention::new(FROM, FROM, options, vb());
    says(between, &["rotary"]);
    let lorentz = Algebra::new(Signature::new(1, 3, 0).unwrap()).unwrap();
    let attention = SelfAttention::over(lorentz, FROM, options, vb());
    says(attention, &["head_norm"]);
}

#[test]
fn geometries_say_what_they_need() {
    let algebra = Algebra::new(Signature::new(3, 0, 0).unwrap()).unwrap();
    let parameters = Parameters::seeded(1);
    let vb = || parameters.builder(DType::F64, &Device::Cpu);
    let plain = Geometry::of(algebra);
    let (join, distances) = (true, true);
    for (choice, geometry) in [
        ("join", Geometry { join, ..plain }),
        ("distances", Geometry { distances, ..plain }),
    ] {
        let network = Gatr::over(geometry, options(true), vb());
        says(network, &[choice, "Cl(n,0,1)", "cl300"]);
    }
    let null = Algebra::new(Signature::new(1, 0, 2).unwrap()).unwrap();
    assert!(Gatr::over(null, options(true), vb()).is_err());
    let net = Gatr::over(algebra, options(true), vb()).unwrap();
    let other = Tokens::from_packed(random(&[1, 2, 2 * 16 + 3], 1), options(true).input).unwrap();
    says(net.forward(&other), &["blades of tokens", "8 of cl300"]);
}

/// Keys and values of one tensor: its gradient is the sum of the gradients of two tensors with the same numbers.
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
