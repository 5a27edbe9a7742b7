//! Training with all options of attention, perceptrons and dropout: gradients, random numbers, and errors.

use candle_core::{DType, Device, Tensor, Var};
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Block, BlockOptions, Call, Channels, CrossAttention, Draw, Draws,
    GradeDropout, SelfAttention, Tokens,
};
use flashcliff_candle::models::{Gatr, GatrOptions};

use crate::common::{disturb, random, says, values};
use crate::{ITEMS, input, options};

fn draws(seed: u64) -> Draws {
    Draws::new(seed, &Device::Cpu).unwrap()
}

/// A network with all options.
fn network(multi_query: bool) -> (Gatr, Parameters) {
    let plain = options(multi_query);
    let options = GatrOptions {
        attention: AttentionOptions {
            head_scale: true,
            ..plain.attention
        },
        reinsert_channels: vec![0],
        reinsert_scalars: vec![2, 1],
        mlp_ratio: 1,
        mlp_layers: 3,
        dropout: Some(0.25),
        ..plain
    };
    let parameters = Parameters::seeded(5);
    let vb = parameters.builder(DType::F64, &Device::Cpu);
    let net = Gatr::new(options, vb).unwrap();
    disturb(&parameters, 11);
    (net, parameters)
}

fn call(draw: &Draw) -> Call<'_> {
    Call {
        draw: Some(draw),
        ..Call::default()
    }
}

#[test]
fn gradients_are_central_differences() {
    for multi_query in [true, false] {
        let (net, parameters) = network(multi_query);
        let channels = options(true).input;
        let x = Var::from_tensor(input(channels, 7).packed()).unwrap();
        let draw = draws(3).draw().unwrap();
        let run = |net: &Gatr| {
            let tokens = Tokens::from_packed(x.as_tensor().clone(), channels).unwrap();
            let out = net.call(&tokens, &call(&draw)).unwrap();
            let weights = random(out.packed().dims(), 41);
            (out.packed() * weights).unwrap().sum_all().unwrap()
        };
        let gradients = run(&net).backward().unwrap();
        let again = net.clone().with_gradient_checkpointing(true);
        let again = run(&again).backward().unwrap();
        let mut variables = parameters.variables();
        variables.push(("input".to_owned(), x.clone()));
        for (name, var) in variables {
            let gradient = values(gradients.get(&var).unwrap());
            let found = values(again.get(&var).unwrap());
            assert_eq!(found, gradient, "{name}, with blocks that run again");
            let start = values(&var);
            let largest = gradient.iter().fold(1e-2_f64, |l, g| l.max(g.abs()));
            let index = start.len() / 3;
            let at = |by: f64| {
                let mut moved = start.clone();
                moved[index] += by;
                let moved = Tensor::from_vec(moved, var.dims(), var.device()).unwrap();
                var.set(&moved).unwrap();
                values(&run(&net))[0]
            };
            let step = 1e-4;
            let (near, far) = (at(step) - at(-step), at(2.0 * step) - at(-2.0 * step));
            let expected = (8.0 * near - far) / (12.0 * step);
            at(0.0);
            let error = (gradient[index] - expected).abs();
            assert!(
                error <= 1e-6 * largest,
                "{name}[{index}]: got {}, expected {expected}",
                gradient[index]
            );
        }
    }
}

#[test]
fn no_samples_are_no_tokens() {
    let (net, parameters) = network(true);
    let channels = options(true).input;
    let none = Tensor::zeros((0, 3, channels.width()), DType::F64, &Device::Cpu);
    let x = Tokens::from_packed(none.unwrap(), channels).unwrap();
    let reference = Tensor::zeros((0, 3), DType::F64, &Device::Cpu).unwrap();
    let out = net.forward_with(&x, &reference).unwrap();
    assert_eq!(out.packed().dims(), [0, 3, options(true).output.width()]);
    let gradients = out.packed().sum_all().unwrap().backward().unwrap();
    for (name, var) in parameters.variables() {
        let gradient = gradients.get(&var).unwrap_or_else(|| panic!("{name}"));
        assert!(values(gradient).iter().all(|&g| g == 0.0), "{name}");
    }
}

#[test]
fn passes_blocks_and_seeds_drop_differently() {
    let (net, _) = network(true);
    let x = input(options(true).input, 7);
    let out = |draw: &Draw| values(net.call(&x, &call(draw)).unwrap().packed());
    let own = draws(3);
    let (first, second) = (own.draw().unwrap(), own.draw().unwrap());
    let outputs = [
        out(&first),
        out(&second),
        out(&first.of(0)),
        out(&draws(4).draw().unwrap()),
        values(net.forward(&x).unwrap().packed()),
    ];
    for (at, one) in outputs.iter().enumerate() {
        assert!(outputs[..at].iter().all(|other| other != one));
    }
    assert_eq!(out(&draws(3).draw().unwrap()), outputs[0]);
    assert_eq!(own.passes().unwrap(), 2);
}

#[test]
fn counters_go_on_from_a_checkpoint() {
    let own = draws(3);
    own.draw().unwrap();
    let mut state = Checkpoint::new();
    own.export("train.", &mut state).unwrap();
    let next = own.draw().unwrap();
    let other = draws(3);
    other.import("train.", &state).unwrap();
    assert_eq!(other.passes().unwrap(), 1);
    let layer = GradeDropout::new(Channels::new(2, 3), 0.5).unwrap();
    let x = input(Channels::new(2, 3), 7);
    let left = |draw: &Draw| values(layer.forward(&x, Some(draw)).unwrap().packed());
    assert_eq!(left(&other.draw().unwrap()), left(&next));
    assert!(other.import("", &state).is_err());
}

#[test]
fn attention_to_another_set_has_factors_of_heads_and_dropout() {
    let (from, others) = (Channels::new(2, 3), Channels::new(4, 6));
    let (x, keys) = (input(from, 7), input(others, 8));
    let layer = |change: fn(&mut AttentionOptions)| {
        let mut options = options(false).attention;
        change(&mut options);
        let parameters = Parameters::seeded(5);
        let vb = parameters.builder(DType::F64, &Device::Cpu);
        let layer = CrossAttention::new(from, others, options, vb).unwrap();
        (layer, parameters)
    };
    let (plain, _) = layer(|_| {});
    let (scaled, parameters) = layer(|options| {
        (options.head_scale, options.dropout) = (true, Some(0.5));
    });
    let expected = values(plain.forward(&x, &keys).unwrap().packed());
    // Factors of 1 change nothing, and nothing is dropped in prediction.
    assert_eq!(
        values(scaled.forward(&x, &keys).unwrap().packed()),
        expected
    );
    let draw = draws(1).draw().unwrap();
    let dropped = values(scaled.call(&x, &keys, &call(&draw)).unwrap().packed());
    for (&dropped, &expected) in dropped.iter().zip(&expected) {
        assert!(dropped == 0.0 || (dropped - 2.0 * expected).abs() < 1e-12);
    }
    let of_heads = parameters.get("head_scale").unwrap();
    of_heads.set(&of_heads.zeros_like().unwrap()).unwrap();
    let biases = values(scaled.forward(&x, &keys).unwrap().packed());
    let width = from.width();
    assert!(biases.chunks(width).all(|row| row == &biases[..width]));
}

#[test]
fn options_say_what_they_need() {
    let parameters = Parameters::seeded(1);
    let vb = || parameters.builder(DType::F64, &Device::Cpu);
    let channels = Channels::new(4, 6);
    let block = |change: fn(&mut BlockOptions)| {
        let mut options = BlockOptions::default();
        change(&mut options);
        Block::new(channels, options, vb())
    };
    for (name, refused) in [
        ("mlp_ratio", block(|options| options.mlp_ratio = 0)),
        ("mlp_layers", block(|options| options.mlp_layers = 0)),
        ("dropout", block(|options| options.dropout = Some(1.0))),
        ("dropout", block(|own| own.attention.dropout = Some(-0.1))),
        ("dropout", block(|options| options.dropout = Some(f64::NAN))),
    ] {
        says(refused, &[name]);
    }
    let network = |channels: Vec<usize>, scalars: Vec<usize>| {
        let options = GatrOptions {
            reinsert_channels: channels,
            reinsert_scalars: scalars,
            ..options(true)
        };
        Gatr::new(options, vb())
    };
    says(network(vec![0, 2], vec![]), &["reinsert_channels", "2"]);
    says(network(vec![], vec![3]), &["reinsert_scalars", "3"]);

    let seeing = AttentionOptions {
        extra: Channels::new(1, 2),
        ..options(true).attention
    };
    let without = Channels::new(4, 0);
    let attention = SelfAttention::new(without, seeing, vb());
    says(attention, &["extra scalars"]);
    let attention = CrossAttention::new(channels, channels, seeing, vb());
    says(attention, &["extra channels"]);
    let layer = SelfAttention::new(channels, seeing, vb()).unwrap();
    let (x, extra) = (input(channels, 7), input(Channels::new(1, 2), 8));
    says(layer.forward(&x), &["extra tokens"]);
    let with = |extra| Call {
        extra: Some(extra),
        ..Call::default()
    };
    assert!(layer.call(&x, &with(&extra)).is_ok());
    says(layer.call(&x, &with(&x)), &["channels of tokens"]);
    let few = extra.packed().narrow(1, 0, ITEMS - 1).unwrap();
    let few = Tokens::from_packed(few, extra.channels()).unwrap();
    says(layer.call(&x, &with(&few)), &["extra tokens"]);
    let plain = SelfAttention::new(channels, options(true).attention, vb().pp("plain")).unwrap();
    says(plain.call(&x, &with(&extra)), &["takes none"]);
}
