//! Plans: the calls that outputs need, and their memory.

use flashcliff::Dtype;
use flashcliff_network::{Activation, Axis, Cpu, Error, Network, Scales, Slices, Work, file};

use crate::networks::{self, CHANNELS, ends};
use crate::runs::run;

const F32: [Dtype; 2] = [Dtype::F32; 2];

#[test]
fn nodes_that_no_output_needs_have_no_call() {
    let mut network = Network::new();
    let [points, _] = ends(&mut network);
    let x = networks::embedded(&mut network, points);
    let norm = network.blade_norm(x).unwrap();
    let twice = network.scaled_sum([norm, norm], 1.0).unwrap();
    assert_eq!(network.plan(&[norm], 4, F32).unwrap().call_count(), 3);
    assert_eq!(network.plan(&[twice], 4, F32).unwrap().call_count(), 4);
}

/// A run writes a value to one place: the other output would stay as it was.
#[test]
fn a_value_is_one_output() {
    let mut network = Network::new();
    let [points, _] = ends(&mut network);
    let x = networks::embedded(&mut network, points);
    let norm = network.blade_norm(x).unwrap();
    let other = network.activation(norm, Activation::Silu).unwrap();
    let error = network.plan(&[norm, other, norm], 4, F32).unwrap_err();
    let Error::OutputTwice { got } = &error else {
        panic!("{error}");
    };
    assert_eq!(got, network.name(norm));
    let stored = file::network_to_json(&network, &[("a", norm), ("b", other), ("c", norm)]);
    let error = stored.unwrap_err().to_string();
    assert!(
        error.starts_with("the output `c` cannot be stored: another output"),
        "{error}"
    );
}

/// A chain needs two places, however long it is.
#[test]
fn values_of_a_chain_share_two_places() {
    let mut network = Network::new();
    let mut x = network.input("x", &[Axis::Rows, Axis::Fixed(64)]);
    for _ in 0..9 {
        x = network.activation(x, Activation::Silu).unwrap();
    }
    let plan = network.plan(&[x], 16, F32).unwrap();
    assert_eq!(plan.arena_bytes(), 2 * 16 * 64 * 4);
    // One value between the input and the output.
    let short = Network::clone(&network);
    let first = plan.writes(1)[0];
    assert_eq!(
        short.plan(&[first], 16, F32).unwrap().arena_bytes(),
        16 * 64 * 4
    );
}

/// What is made of parameters alone comes first, so that it can run beside other work.
#[test]
fn parameters_are_prepared_first() {
    let (network, [prediction, _]) = networks::of_all_nodes();
    let plan = network.plan(&[prediction], 4, F32).unwrap();
    assert!(matches!(plan.work(0), Work::ReverseAxes));
}

/// Outputs have the type of the model, and so has what shares an operator with the error.
#[test]
fn features_of_16_bits_end_before_the_prediction() {
    let (mut network, [prediction, target]) = networks::of_all_nodes();
    let [loss, _] = network.squared_error(prediction, target).unwrap();
    let plan = network.plan(&[loss], 4, [Dtype::Bf16, Dtype::F32]).unwrap();
    let dtype = |value| plan.tensor(value).unwrap().1;
    assert_eq!(dtype(loss), Dtype::F32);
    assert_eq!(dtype(prediction), Dtype::F32);
    let is_product = |call: &usize| plan.work(*call).name() == "sgp_norm";
    let product = (0..plan.call_count()).find(is_product).unwrap();
    assert_eq!(dtype(plan.writes(product)[0]), Dtype::Bf16);
    for &input in network.inputs().iter().chain(network.parameters()) {
        if let Some((_, dtype)) = plan.tensor(input) {
            assert_eq!(dtype, Dtype::F32, "{}", network.name(input));
        }
    }
}

/// A network without rows in a batch computes nothing, and all shapes are there.
#[test]
fn no_rows_are_a_batch_too() {
    let (network, [prediction, _]) = networks::of_all_nodes();
    let plan = network.plan(&[prediction], 0, [Dtype::F64; 2]).unwrap();
    let parameters = networks::numbers(&network, network.parameters(), 0, 1);
    let inputs = [Vec::new(), Vec::new()];
    let outputs = run(&plan, [&inputs, &parameters], Scales::default());
    assert_eq!(outputs, [[0.0; 0]]);
    assert_eq!(plan.tensor(prediction).unwrap().0, [1, 0, 1]);
}

/// A watch hears of every call in order, and of the end.
#[test]
fn a_watch_hears_of_every_call() {
    let mut network = Network::new();
    let x = network.input("x", &[Axis::Rows, Axis::Fixed(CHANNELS)]);
    let y = network.activation(x, Activation::Relu).unwrap();
    let z = network.activation(y, Activation::Relu).unwrap();
    let plan = network.plan(&[z], 1, [Dtype::F64; 2]).unwrap();
    let sources = Slices {
        inputs: &[&[-1.0, 2.0]],
        parameters: &[],
    };
    let (mut outputs, mut heard) = ([vec![0.0; CHANNELS]], Vec::new());
    let mut watch = |call| heard.push(call);
    let mut memory = Cpu::<f64>::new(&plan).unwrap();
    memory
        .run(&plan, &sources, &mut outputs, Scales::default(), &mut watch)
        .unwrap();
    assert_eq!(outputs, [vec![0.0, 2.0]]);
    assert_eq!(heard, [0, 1, 2]);
}
