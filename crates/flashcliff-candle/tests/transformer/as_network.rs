//! Whole transformers of `flashcliff-network`, beside those that candle binds layer by layer: the same parameters, and the same results.

use std::collections::BTreeMap;

use candle_core::{DType, Device};
use flashcliff::{Algebra, Dtype, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Call, Channels, Draws, Geometry, Tokens, join_reference,
};
use flashcliff_candle::models::{Gatr, GatrOptions};
use flashcliff_network::tokens::{Draw, Ends, Transformer};
use flashcliff_network::{Cpu, Network, Rows, Scales, Slices};

use super::{ITEMS, SAMPLES, options};
use crate::common::{disturb, random, values};

/// The network of candle's options.
fn of_options(geometry: Geometry, options: &GatrOptions) -> (Network, Ends) {
    let made = Transformer {
        blocks: options.blocks,
        attention: AttentionOptions {
            extra: Channels::new(
                options.reinsert_channels.len(),
                options.reinsert_scalars.len(),
            ),
            ..options.attention
        },
        mlp_ratio: options.mlp_ratio,
        mlp_layers: options.mlp_layers,
        dropout: options.dropout,
        ..Transformer::new(geometry, options.input, options.output, options.hidden)
    };
    made.network().unwrap()
}

/// The channels of the input that are reinserted, row by row.
fn reinserted(x: &[f64], blades: usize, options: &GatrOptions) -> Vec<f64> {
    let mv = options.input.multivectors;
    let of_row = |row: &[f64]| {
        let chosen = &options.reinsert_channels;
        let of_blade = |blade: usize| chosen.iter().map(move |&at| blade * mv + at);
        let scalars = options.reinsert_scalars.iter();
        let columns = (0..blades).flat_map(of_blade);
        let columns = columns.chain(scalars.map(|at| blades * mv + at));
        columns.map(|at| row[at]).collect::<Vec<_>>()
    };
    x.chunks(blades * mv + options.input.scalars)
        .flat_map(of_row)
        .collect()
}

fn assert_alike(geometry: Geometry, options: &GatrOptions) {
    let parameters = Parameters::seeded(5);
    let vb = parameters.builder(DType::F64, &Device::Cpu);
    let net = Gatr::over(geometry, options.clone(), vb).unwrap();
    disturb(&parameters, 11);
    let (network, ends) = of_options(geometry, options);

    let variables = parameters.variables().into_iter();
    let variables: BTreeMap<String, _> = variables
        .map(|(name, variable)| (name, (variable.dims().to_vec(), values(&variable))))
        .collect();
    let shapes = network.parameters().iter().map(|&parameter| {
        let axes = network.shape(parameter).unwrap();
        let sizes = axes.iter().map(|axis| axis.size(1)).collect::<Vec<_>>();
        (network.name(parameter).to_owned(), sizes)
    });
    let shapes: BTreeMap<String, Vec<usize>> = shapes.collect();
    let expected = variables.iter();
    let expected: BTreeMap<String, Vec<usize>> = expected
        .map(|(name, (shape, _))| (name.clone(), shape.clone()))
        .collect();
    assert_eq!(shapes, expected);

    let width = geometry.width(options.input);
    let packed = random(&[SAMPLES, ITEMS, width], 3);
    let x = Tokens::from_packed(packed.clone(), options.input).unwrap();
    let reference = values(&join_reference(&x).unwrap());
    let packed = values(&packed);
    let extra = reinserted(&packed, geometry.blades(), options);
    let mut inputs: Vec<&[f64]> = vec![&packed];
    inputs.extend(ends.reference.map(|_| &*reference));
    inputs.extend(ends.extra.map(|_| &*extra));
    let given = network.parameters().iter();
    let given: Vec<&[f64]> = given
        .map(|&parameter| &*variables[network.name(parameter)].1)
        .collect();
    let rows = Rows::new(SAMPLES, ITEMS);
    let plan = network.plan(&[ends.output], rows, [Dtype::F64; 2]).unwrap();
    let expected = values(net.forward(&x).unwrap().packed());
    let mut memory = Cpu::new(&plan).unwrap();
    let mut run = |parameters: &[&[f64]], scales: Scales| {
        let mut outputs = [vec![f64::NAN; expected.len()]];
        let sources = Slices {
            inputs: &inputs,
            parameters,
        };
        memory
            .run(&plan, &sources, &mut outputs, scales, &mut |_| {})
            .unwrap();
        let [output] = outputs;
        output
    };
    // The second pass of training with a seed.
    let draws = Draws::new(6, &Device::Cpu).unwrap();
    let [_, second] = [(); 2].map(|()| draws.draw().unwrap());
    let call = Call {
        draw: Some(&second),
        ..Call::default()
    };
    let trained = values(net.call(&x, &call).unwrap().packed());
    assert_eq!(trained != expected, options.dropout.is_some());
    let scales = Scales {
        draw: Some(Draw { key: 6, step: 2 }),
        ..Scales::default()
    };
    assert!(largest_difference(&run(&given, scales), &trained) < 1e-11);
    let mut difference = |parameters: &[&[f64]]| {
        let got = run(parameters, Scales::default());
        largest_difference(&got, &expected)
    };
    assert!(difference(&given) < 1e-11);
    // Every parameter counts. What all keys share may not: attention drops it.
    let is_shared = |name: &str| name.contains("k_linear") && name.ends_with("bias");
    for at in 0..given.len() {
        let name = network.name(network.parameters()[at]);
        if is_shared(name) {
            continue;
        }
        let other: Vec<f64> = given[at].iter().map(|x| 1.5 * x + 0.1).collect();
        let mut given = given.clone();
        given[at] = &other;
        assert!(difference(&given) > 1e-9, "{name}");
    }
}

/// The largest difference from the expected numbers, each divided by 1 plus the size of the number. It is NaN if a number is NaN.
fn largest_difference(got: &[f64], expected: &[f64]) -> f64 {
    let pairs = got.iter().zip(expected);
    let differences = pairs.map(|(got, expected)| (got - expected).abs() / (1.0 + expected.abs()));
    differences.fold(0.0, |most, own| match own > most || own.is_nan() {
        true => own,
        false => most,
    })
}

#[test]
fn networks_of_transformers_have_names_and_results_of_candle() {
    let gatr = Geometry::gatr().unwrap();
    let of = |p, q| Geometry::of(Algebra::new(Signature::new(p, q, 0).unwrap()).unwrap());
    let plain = options(true);
    let rich = GatrOptions {
        attention: AttentionOptions {
            rotary: Some(4096),
            head_scale: true,
            ..plain.attention
        },
        reinsert_channels: vec![1],
        reinsert_scalars: vec![2, 0],
        mlp_layers: 3,
        dropout: Some(0.5),
        ..plain.clone()
    };
    let reinserting = GatrOptions {
        reinsert_channels: vec![1, 0],
        ..options(false)
    };
    for options in [&plain, &options(false), &rich, &reinserting] {
        assert_alike(gatr, options);
        if options.attention.rotary.is_none() {
            assert_alike(Geometry::lgatr_2().unwrap(), options);
            assert_alike(of(3, 0), options);
        }
    }
    let product = false;
    assert_alike(Geometry { product, ..gatr }, &plain);
}
