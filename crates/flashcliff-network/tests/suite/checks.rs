//! Networks that cannot be made, planned or run.

use flashcliff::{Dtype, ops};
use flashcliff_network::{Axis, Cpu, Error, Keep, Network, Scales, Slices};

use crate::networks::{self, BLADES, CHANNELS};
use crate::runs::{run, run_in};

fn text<T: std::fmt::Debug>(refused: Result<T, Error>) -> String {
    refused.unwrap_err().to_string()
}

#[test]
fn shapes_are_checked_when_a_node_is_made() {
    let mut network = Network::new();
    let [points, target] = networks::ends(&mut network);
    let weight = network.parameter("weight", &[CHANNELS, CHANNELS]);
    let wide = network.parameter("wide", &[CHANNELS, 5]);
    let x = networks::embedded(&mut network, points);
    let linear = ops::mv_linear(networks::space(), &networks::linear_options()).unwrap();
    let node_count = network.to_string().lines().count();
    let cases = [
        (
            text(network.points(x)),
            "points: expected [rows, points, dim], got [8, rows, 2]",
        ),
        (
            text(network.blade_norm(target)),
            "blade_norm: expected [blades, rows, channels]",
        ),
        (text(network.blade(x, BLADES)), "blade: expected"),
        (text(network.first_blades(x, 9)), "first_blades: expected"),
        (
            text(network.scaled_sum([x, points], 1.0)),
            "scaled_sum: expected [8, rows, 2], got [rows, 2, 3]",
        ),
        (text(network.reverse_axes(x)), "three axes without rows"),
        (
            text(network.squared_error(x, target)),
            "squared_error: expected [8, rows, 2], got [rows]",
        ),
        (
            text(network.operator(&linear, &[x])),
            "mv_linear: expected 2 values, got 1",
        ),
        (
            text(network.operator(&linear, &[x, wide])),
            "mv_linear: tensor `weight`",
        ),
        (
            text(network.operator(&linear, &[weight, x])),
            "mv_linear: expected x [8, batch, in]",
        ),
        (
            text(network.extend_blades(weight, 4)),
            "extend_blades: expected a value that a node computes, got weight",
        ),
    ];
    for (got, expected) in cases {
        assert!(got.contains(expected), "{got}; {expected}");
    }
    // A refused node leaves nothing.
    assert_eq!(network.to_string().lines().count(), node_count);
}

#[test]
fn values_of_another_network_are_refused() {
    let (large, [prediction, _]) = networks::of_all_nodes();
    let mut small = Network::new();
    small.input("x", &[Axis::Rows]);
    assert!(
        text(small.activation(prediction, flashcliff_network::Activation::Relu))
            .contains("a value of this network, which has 1")
    );
    assert!(
        text(small.plan(&[prediction], 1, [Dtype::F32; 2])).contains("a value of this network")
    );
    assert!(
        text(small.gradients(prediction, prediction, Keep::All))
            .contains("a value of this network")
    );
    assert_eq!(large.name(prediction).chars().next(), Some('%'));
    assert_eq!(small.shape(prediction), None);
}

#[test]
fn ends_without_a_gradient_are_refused() {
    let mut network = Network::new();
    let [_, target] = networks::ends(&mut network);
    let shape = [Axis::Fixed(1), Axis::Rows, Axis::Fixed(1)];
    let x = network.input("x", &shape);
    let weight = network.parameter("weight", &[1, 1]);
    let linear = ops::mv_linear(
        networks::space(),
        &networks::linear_options().with_grades(flashcliff::GradeSet::single(0)),
    )
    .unwrap();
    let y = network.operator(&linear, &[x, weight]).unwrap();
    let [loss, seed] = network.squared_error(y, target).unwrap();
    // An error has no gradient.
    let got = text(network.gradients(loss, seed, Keep::All));
    assert!(
        got.contains("squared_error has no gradient here: an error is the end of a network"),
        "{got}"
    );
}

/// The first blades of an input lie in the memory of the host, which is longer.
#[test]
fn first_blades_of_an_input_are_read_where_they_lie() {
    let mut network = Network::new();
    let x = network.input("x", &[Axis::Fixed(4), Axis::Rows, Axis::Fixed(1)]);
    let few = network.first_blades(x, 2).unwrap();
    let y = network.scaled_sum([few, few], 0.5).unwrap();
    let plan = network.plan(&[y], 2, [Dtype::F64; 2]).unwrap();
    let given = [(1..=8).map(f64::from).collect()];
    let outputs = run(&plan, [&given, &[]], Scales::default());
    assert_eq!(outputs[0], given[0][..4]);
}

#[test]
fn outputs_are_values_that_nodes_compute() {
    let mut network = Network::new();
    let [points, _] = networks::ends(&mut network);
    let few = network.points(points).unwrap();
    let x = network.extend_blades(few, BLADES).unwrap();
    let types = [Dtype::F32; 2];
    assert!(
        text(network.plan(&[points], 1, types))
            .contains("output: expected a value that a node computes, got points")
    );
    // Zeros that are written once lie in no memory of a host, and the first blades of a value lie in it.
    assert!(text(network.plan(&[x], 1, types)).contains("output: expected"));
    let norm = network.blade_norm(x).unwrap();
    assert!(network.plan(&[norm], 1, types).is_ok());
    assert!(text(network.plan(&[few, norm], 1, types)).contains("output: expected"));
}

#[test]
fn tensors_of_other_lengths_are_refused() {
    let mut network = Network::new();
    let x = network.input("x", &[Axis::Rows, Axis::Fixed(2)]);
    let y = network
        .activation(x, flashcliff_network::Activation::Relu)
        .unwrap();
    let plan = network.plan(&[y], 3, [Dtype::F64; 2]).unwrap();
    let mut memory = Cpu::<f64>::new(&plan).unwrap();
    let mut run = |inputs: &[&[f64]], outputs: &mut [Vec<f64>]| {
        let sources = Slices {
            inputs,
            parameters: &[],
        };
        memory.run(&plan, &sources, outputs, Scales::default(), &mut |_| {})
    };
    let right = [0.0; 6];
    let cases = [
        (
            text(run(&[&right[..5]], &mut [vec![0.0; 6]])),
            "input 0: expected 6 elements, got 5",
        ),
        (
            text(run(&[], &mut [vec![0.0; 6]])),
            "input 0: expected 1 elements, got 0",
        ),
        (
            text(run(&[&right], &mut [vec![0.0; 7]])),
            "output 0: expected 6 elements, got 7",
        ),
        (
            text(run(&[&right], &mut [])),
            "the run of a plan: expected 1 values, got 0",
        ),
    ];
    for (got, expected) in cases {
        assert!(got.contains(expected), "{got}; {expected}");
    }
    assert!(run(&[&right], &mut [vec![0.0; 6]]).is_ok());
    let got = text(Cpu::<f32>::new(&plan));
    assert!(
        got.contains("expected a plan for f32 on the CPU, got one for features of f64"),
        "{got}"
    );
    // Memory is of one plan, and of its copies.
    let other = network.plan(&[y], 3, [Dtype::F64; 2]).unwrap();
    let mut run = |plan| {
        run_in(
            &mut memory,
            plan,
            [&[right.to_vec()], &[]],
            Scales::default(),
        )
    };
    assert!(text(run(&other)).contains("expected a plan for this memory, got one for another one"));
    assert!(run(&plan.clone()).is_ok());
    let half = network.plan(&[y], 3, [Dtype::F16, Dtype::F32]).unwrap();
    assert!(text(Cpu::<f32>::new(&half)).contains("features of f16"));
}
