//! Gradients of networks beside differences.

use flashcliff_network::tokens::{Channels, Geometry, Lanes, NormOptions, Step};
use flashcliff_network::{Axis, Cpu, Keep, Network, Plan, Scales, Value};

use crate::networks::{self, BLADES, CHANNELS};
use crate::runs::{Differences, F64, given, place, run, run_in, with_gradients};

const ROWS: usize = 3;

/// The values that gradients are by: the points and all parameters.
fn all(network: &Network) -> Vec<Value> {
    [&network.inputs()[..1], network.parameters()].concat()
}

/// The error of a network and its gradients, with a plan for them.
fn planned(network: &Network, [prediction, target]: [Value; 2], keep: Keep) -> Plan {
    let mut network = network.clone();
    let by = all(&network);
    let [loss, seed] = network.squared_error(prediction, target).unwrap();
    let mut outputs = with_gradients(&mut network, [prediction, seed], &by, keep);
    outputs[0] = loss;
    network.plan(&outputs, ROWS, F64).unwrap()
}

/// Compares each element of each gradient with a difference of the error.
fn assert_gradients(network: &Network, ends: [Value; 2]) {
    let plan = planned(network, ends, Keep::All);
    let mut numbers = given(network, ROWS);
    let scales = Scales::default();
    let outputs = run(&plan, [&numbers[0], &numbers[1]], scales);
    let by = all(network);
    let places = by.iter().map(|&own| place(network, own));
    let how = Differences {
        step: 1e-3,
        ..Differences::of(usize::MAX)
    };
    how.assert(&mut numbers, places.zip(&outputs[1..]), |numbers| {
        run(&plan, numbers, scales)[0][0]
    });
}

#[test]
fn gradients_are_those_of_differences() {
    let (network, ends) = networks::of_all_nodes();
    assert_gradients(&network, ends);
}

/// Of the last product only the scalars are read; the memory of their gradient held other gradients before.
#[test]
fn the_rest_of_a_gradient_is_cleared() {
    let mut network = Network::new();
    let [points, target] = networks::ends(&mut network);
    let weights = [1, 2, 3].map(|at| network.parameter(&format!("w{at}"), &[CHANNELS, CHANNELS]));
    let mut x = networks::embedded(&mut network, points);
    for weight in weights {
        let y = networks::map(&mut network, x, weight);
        x = networks::square(&mut network, y);
    }
    let prediction = networks::head(&mut network, x);
    assert_gradients(&network, [prediction, target]);
}

/// First blades of a value that other nodes read too: their gradient is added to the first blades of another.
#[test]
fn gradients_of_first_blades_are_added() {
    let mut network = Network::new();
    let [points, target] = networks::ends(&mut network);
    let weight = network.parameter("weight", &[CHANNELS, CHANNELS]);
    let x = network.points(points).unwrap();
    let x = network.extend_blades(x, BLADES).unwrap();
    let x = networks::map(&mut network, x, weight);
    let four = network.first_blades(x, 4).unwrap();
    let one = network.first_blades(four, 1).unwrap();
    let norm = network.blade_norm(four).unwrap();
    let both = network.scaled_sum([norm, one], 1.0).unwrap();
    let all = network.blade_norm(x).unwrap();
    let sum = network.scaled_sum([both, all], 1.0).unwrap();
    let prediction = networks::head(&mut network, sum);
    assert_gradients(&network, [prediction, target]);
}

#[test]
fn values_between_blocks_alone_give_the_same_bits_in_less_memory() {
    let (network, ends) = networks::of_all_nodes();
    let [inputs, parameters] = given(&network, ROWS);
    let [all, less] = [Keep::All, Keep::BetweenBlocks].map(|keep| planned(&network, ends, keep));
    assert!(less.arena_bytes() < all.arena_bytes());
    assert!(less.call_count() > all.call_count());
    let [all, less] = [all, less].map(|plan| run(&plan, [&inputs, &parameters], Scales::default()));
    assert_eq!(all, less);
}

/// What a run before left in memory does not matter.
#[test]
fn bits_depend_on_the_numbers_alone() {
    let (network, ends) = networks::of_all_nodes();
    let [inputs, parameters] = given(&network, ROWS);
    let others = networks::numbers(&network, network.inputs(), ROWS, 100);
    for keep in [Keep::All, Keep::BetweenBlocks] {
        let plan = planned(&network, ends, keep);
        let mut memory = Cpu::new(&plan).unwrap();
        let mut run = |inputs: &[Vec<f64>]| {
            run_in(&mut memory, &plan, [inputs, &parameters], Scales::default()).unwrap()
        };
        let first = run(&inputs);
        assert_ne!(run(&others), first);
        assert_eq!(run(&inputs), first);
    }
}

/// The scale of gradients multiplies them and not the error.
#[test]
fn scales_multiply_what_they_say() {
    let (network, ends) = networks::of_all_nodes();
    let plan = planned(&network, ends, Keep::All);
    let [inputs, parameters] = given(&network, ROWS);
    let with = |error: f64, gradient: f64| {
        let scales = Scales {
            error,
            gradient,
            ..Scales::default()
        };
        run(&plan, [&inputs, &parameters], scales)
    };
    let (one, scaled) = (with(1.0, 1.0), with(0.5, 8.0));
    for (at, (one, scaled)) in one.iter().zip(&scaled).enumerate() {
        let factor = if at == 0 { 0.5 } else { 4.0 };
        for (one, scaled) in one.iter().zip(scaled) {
            assert!(
                (factor * one - scaled).abs() <= 1e-12 * one.abs(),
                "output {at}"
            );
        }
    }
}

/// The gradient of a sum is the seed for each summand; each is a separate output.
#[test]
fn summands_have_gradients_of_their_own() {
    let shape = [Axis::Fixed(1), Axis::Rows, Axis::Fixed(2)];
    let mut network = Network::new();
    let [x, y, seed] = ["x", "y", "seed"].map(|name| network.features(name, &shape));
    let sum = network.scaled_sum([x, y], 1.0).unwrap();
    let outputs = with_gradients(&mut network, [sum, seed], &[x, y], Keep::All);
    let plan = network.plan(&outputs, 1, F64).unwrap();
    let numbers = [vec![1.0, 2.0], vec![10.0, 20.0], vec![0.5, -0.5]];
    let made = run(&plan, [&numbers, &[]], Scales::default());
    assert_eq!(made, [vec![11.0, 22.0], vec![0.5, -0.5], vec![0.5, -0.5]]);
}

/// Results may depend on each other: the gradient of a value is a sum over all of them.
#[test]
fn several_results_have_gradients_of_their_own() {
    let shape = [Axis::Fixed(1), Axis::Rows, Axis::Fixed(2)];
    let mut network = Network::new();
    let [a, b] = ["a", "b"].map(|name| network.features(name, &shape));
    let first = network.scaled_sum([a, b], 0.5).unwrap();
    let second = network.scaled_sum([first, b], 0.25).unwrap();
    let own = network.differentiated(&[first, second], &[true, true]);
    let own = own.unwrap();
    let [results, gradients] = own.stages();
    assert_eq!(results, [first, second]);
    let plan = own.network().plan(gradients, 1, F64).unwrap();
    let numbers = [[1.0, 2.0], [3.0, 4.0], [5.0, -6.0], [8.0, 16.0]].map(Vec::from);
    let made = run(&plan, [&numbers, &[]], Scales::default());
    // The gradient of `first` is 5 + 8 / 4 and -6 + 16 / 4. That by `a` is half of it; that by `b` has a quarter of
    // that of `second` besides.
    assert_eq!(made, [vec![3.5, -1.0], vec![5.5, 3.0]]);
}

/// The gradient of a residual sum is that of both summands, and a norm adds its own to it where it lies.
#[test]
fn norms_of_tokens_add_to_the_gradient_of_a_sum() {
    let geometry = Geometry::gatr().unwrap();
    let channels = Channels::new(2, 3);
    let blades = geometry.blades();
    let token = [Axis::Rows, Axis::Token { blades, channels }];
    let gated = |network: &mut Network, x| {
        let step = Lanes::gated(geometry, channels, geometry.gates()).unwrap();
        network.step(Step::Lanes(step), &[x]).unwrap()
    };
    let mut network = Network::new();
    let [x, seed] = ["x", "seed"].map(|name| network.input(name, &token));
    let x_gated = gated(&mut network, x);
    let step = Step::Lanes(Lanes::norm(geometry, channels, NormOptions::default()).unwrap());
    let normed = network.step(step, &[x_gated]).unwrap();
    let made = gated(&mut network, normed);
    let sum = network.scaled_sum([x_gated, made], 1.0).unwrap();
    let ends = [sum, gated(&mut network, sum)];
    let texts = ends.map(|end| {
        let mut network = network.clone();
        network.gradients_by(end, seed, &[x], Keep::All).unwrap();
        network.to_string()
    });
    // A seed stays as it is, so its sum is a separate value, beside the sum of the forward pass.
    let counts = |text: &String| {
        ["invariant_norm gradient, added", "scaled_sum"].map(|name| text.matches(name).count())
    };
    assert_eq!(texts.each_ref().map(counts), [[0, 2], [1, 1]], "{texts:?}");
}

/// Parts of a concatenation whose gradients nobody wants are left out, wherever they stand.
#[test]
fn parts_of_a_concatenation_have_gradients_of_their_own() {
    let mut network = Network::new();
    let parts = [2, 3, 1].map(|len| network.parameter(&format!("p{len}"), &[len]));
    let all = network.concatenate(&parts).unwrap();
    let seed = network.input("seed", &[Axis::Fixed(6)]);
    let numbers = [
        vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        vec![0.1, 0.2],
        vec![0.3, 0.4, 0.5],
        vec![0.6],
    ];
    for wanted in [vec![1], vec![0, 2], vec![2], vec![0, 1, 2]] {
        let mut network = network.clone();
        let by: Vec<Value> = wanted.iter().map(|&at| parts[at]).collect();
        let outputs = with_gradients(&mut network, [all, seed], &by, Keep::All);
        let plan = network.plan(&outputs, 1, F64).unwrap();
        let made = run(&plan, [&numbers[..1], &numbers[1..]], Scales::default());
        assert_eq!(made[0], numbers[1..].concat());
        let expected = [&numbers[0][..2], &numbers[0][2..5], &numbers[0][5..]];
        let expected: Vec<&[f64]> = wanted.iter().map(|&at| expected[at]).collect();
        assert_eq!(made[1..], expected);
    }
}
