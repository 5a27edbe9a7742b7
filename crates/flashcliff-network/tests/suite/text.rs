//! Networks and plans as text.

use flashcliff::Dtype;
use flashcliff_network::tokens::{AttentionOptions, Channels, Geometry, Transformer};
use flashcliff_network::{Activation, Axis, Keep, Machine, Network, Rows};

use crate::networks::{self, CHANNELS};

fn small() -> (Network, [flashcliff_network::Value; 2]) {
    let mut network = Network::new();
    let [points, target] = networks::ends(&mut network);
    let x = networks::embedded(&mut network, points);
    let weight = network.parameter("weight", &[CHANNELS, CHANNELS]);
    let x = networks::map(&mut network, x, weight);
    network.block();
    let x = networks::head(&mut network, x);
    (network, [x, target])
}

#[test]
fn a_network_is_a_line_for_each_node() {
    let (network, _) = small();
    let expected = "\
input points [rows, 2, 3]
input target [rows]
parameter weight [2, 2]
parameter last [1, 2]
%2 [4, rows, 2] = points(points)
%3 [8, rows, 2] = extend_blades 8(%2)
%5 [8, rows, 2], %6 [saved] = mv_linear(%3, weight)
block 1
%8 [1, rows, 2] = first_blades 1(%5)
%9 [1, rows, 1], %10 [saved] = mv_linear(%8, last)
";
    assert_eq!(network.to_string(), expected);
}

#[test]
fn a_drawing_has_a_box_for_each_node_and_an_arrow_for_each_value_read() {
    let (network, _) = small();
    let dot = network.dot();
    assert_eq!(dot.matches(" -> ").count(), 7);
    assert_eq!(dot.matches("shape=ellipse").count(), 4);
    assert!(dot.starts_with("digraph") && dot.ends_with("}\n"));
}

#[test]
fn a_page_says_what_runs() {
    let (mut network, [prediction, target]) = small();
    let [loss, seed] = network.squared_error(prediction, target).unwrap();
    let pairs = network.gradients(prediction, seed, Keep::All).unwrap();
    let outputs: Vec<_> = pairs
        .iter()
        .map(|&(_, gradient)| gradient)
        .chain([loss])
        .collect();
    let plan = network.plan(&outputs, 4, [Dtype::F32; 2]).unwrap();
    let page = plan.explain();
    assert_eq!(page.lines().count(), plan.call_count() + 2);
    for part in [
        "for 4 rows, features in f32, model in f32",
        "mv_linear gradient",
        "[8, 4, 2] [2, 2]",
        "squared_error",
        "memory between inputs and outputs",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    // The map of all blades: 2 x 2 products of 4 rows, 8 blades, a product and a sum each.
    let is_map = |call: &usize| plan.work(*call).name() == "mv_linear";
    let map = (0..plan.call_count()).find(is_map).unwrap();
    assert_eq!(plan.size(map).flops, 2 * 2 * 2 * 4 * 8);
    assert_eq!(plan.size(map).bytes, 4 * (2 * 8 * 4 * 2 + 2 * 2));
}

#[test]
fn a_page_of_a_small_network_has_this_text() {
    let (network, [prediction, _]) = small();
    let plan = network.plan(&[prediction], 1 << 20, [Dtype::F32; 2]);
    let plan = plan.unwrap();
    let machine = Machine {
        bytes_per_second: f64::from(1 << 30),
        flops_per_second: 1e9,
        seconds_per_call: 1e-6,
    };
    let expected = "\
5 calls for 1048576 rows, features in f32, model in f32
   0  points                           [1048576, 2, 3] -> [4, 1048576, 2]  56.00 MiB, 0.000 Gflop, modelled 54688.500 us
   1  extend_blades 8                  [4, 1048576, 2] -> [8, 1048576, 2]  0.00 MiB, 0.000 Gflop, modelled 0.000 us
   2  mv_linear                        [8, 1048576, 2] [2, 2] -> [8, 1048576, 2] [0]  128.00 MiB, 0.067 Gflop, modelled 125001.015 us
   3  first_blades 1                   [8, 1048576, 2] -> [1, 1048576, 2]  0.00 MiB, 0.000 Gflop, modelled 0.000 us
   4  mv_linear                        [1, 1048576, 2] [1, 2] -> [1, 1048576, 1] [0]  12.00 MiB, 0.004 Gflop, modelled 11719.757 us
stage 0 modelled 191409.272 us
in all 196.00 MiB moved, 0.071 Gflop; memory between inputs and outputs 128.00 MiB
";
    assert_eq!(plan.explain_on(&machine), expected);
}

/// Rates that are powers of two, so that all times are exact.
#[test]
fn times_of_a_model_are_those_of_bytes_or_of_operations() {
    let (mut network, [prediction, _]) = small();
    let last = network.activation(prediction, Activation::Relu).unwrap();
    let stages: [&[_]; 2] = [&[prediction], &[last]];
    let plan = network.plan_stages(&stages, 4, [Dtype::F32; 2]).unwrap();
    let named = |name: &str| {
        let mut calls = 0..plan.call_count();
        calls.find(|&call| plan.work(call).name() == name).unwrap()
    };
    let map = named("mv_linear");
    // 4 bytes of 2 x 8 blades of 4 x 2 elements and of 2 x 2 weights; 2 operations for 2 x 2 products of 4 rows of 8 blades.
    let (bytes, flops) = (528.0, 256.0);
    let machine = |bytes_per_second, flops_per_second| Machine {
        bytes_per_second,
        flops_per_second,
        seconds_per_call: 0.25,
    };
    let seconds = |call, machine| plan.modelled_seconds(call, &machine);
    assert_eq!(seconds(map, machine(1.0, 1.0)), bytes + 0.25);
    assert_eq!(seconds(map, machine(64.0, 64.0)), bytes / 64.0 + 0.25);
    assert_eq!(seconds(map, machine(64.0, 16.0)), flops / 16.0 + 0.25);
    // Values in one memory are no call; an activation of 4 elements reads and writes 4 bytes of each.
    assert_eq!(seconds(named("first_blades"), machine(1.0, 1.0)), 0.0);
    assert_eq!(seconds(named("relu"), machine(1.0, 1.0)), 32.25);

    let machine = machine(64.0, 16.0);
    let page = plan.explain_on(&machine);
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(lines.len(), plan.call_count() + 4);
    assert!(
        lines[1 + map].ends_with(", modelled 16250000.000 us"),
        "{page}"
    );
    for stage in 0..2 {
        let all: f64 = plan.calls(stage).map(|call| seconds(call, machine)).sum();
        let line = format!("stage {stage} modelled {:.3} us", all * 1e6);
        assert!(lines.contains(&line.as_str()), "{line}\n{page}");
    }
    let without = |line: &&str| !line.starts_with("stage ");
    let cut = |line: &str| line.split(", modelled").next().unwrap().to_owned();
    let rest: Vec<String> = page.lines().filter(without).map(cut).collect();
    assert_eq!(rest, plan.explain().lines().collect::<Vec<_>>());
}

fn advice_for(options: &Transformer, dtype: Dtype) -> Vec<String> {
    let (network, ends) = options.network().unwrap();
    let plan = network
        .plan(&[ends.output], Rows::new(2, 3), [dtype; 2])
        .unwrap();
    let advice = plan.advice();
    let page = plan.explain();
    let lines = page
        .lines()
        .filter_map(|line| line.strip_prefix("faster on a GPU: "));
    assert_eq!(lines.collect::<Vec<_>>(), advice);
    advice
}

#[test]
fn a_page_says_what_would_be_faster_on_a_gpu() {
    let ends = Channels::new(1, 0);
    let hidden = |multivectors, scalars| {
        let geometry = Geometry::gatr().unwrap();
        let hidden = Channels::new(multivectors, scalars);
        let attention = AttentionOptions {
            heads: 8,
            ..AttentionOptions::default()
        };
        Transformer {
            blocks: 1,
            attention,
            ..Transformer::new(geometry, ends, ends, hidden)
        }
    };
    assert_eq!(advice_for(&hidden(8, 32), Dtype::F32), [""; 0]);
    let found = advice_for(&hidden(8, 32), Dtype::F64);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("features are f64"), "{found:?}");
    // 8 x 16 + 36 numbers are no whole units.
    let found = advice_for(&hidden(8, 36), Dtype::F32);
    // A head has 33 features of its queries and keys.
    let expected = "attention of heads with 33 features fills them up to 36 with zeros: multiples of 4 need none";
    let (attention, maps) = found.split_first().unwrap();
    assert_eq!(attention, expected);
    assert!(
        !maps.is_empty() && maps.iter().all(|line| line.starts_with("linear maps of ")),
        "{found:?}"
    );
    assert!(maps.iter().any(|line| line.contains("164")), "{found:?}");
    let masked = Transformer {
        mask: Some([Axis::Samples, Axis::Fixed(1), Axis::Fixed(1), Axis::Items]),
        ..hidden(8, 32)
    };
    let found = advice_for(&masked, Dtype::F32);
    assert!(
        found.iter().any(|line| line.contains("with a mask")),
        "{found:?}"
    );
    let wide = Transformer {
        attention: AttentionOptions {
            heads: 1,
            ..AttentionOptions::default()
        },
        ..hidden(8, 32)
    };
    let found = advice_for(&wide, Dtype::F32);
    assert!(
        found
            .iter()
            .any(|line| line.contains("up to 96 features need none")),
        "{found:?}"
    );
}
