//! Networks and plans as text.

use flashcliff::Dtype;
use flashcliff_network::{Keep, Network};

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
