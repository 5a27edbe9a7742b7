//! What a timeline says of work: the same operations by the graph and by plans, and the formulas of layers.

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use flashcliff::Pass;
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{Channels, EquiLinear, Initialization, Tokens};
use flashcliff_candle::models::{Architecture, Hulls, Model};
use flashcliff_candle::objective::Objective;
use flashcliff_candle::optim::{Adam, AdamOptions};
use flashcliff_candle::timeline::{self, Operation};

const ROWS: usize = 6;

/// The operations of work, in order.
fn begun<R>(work: impl FnOnce() -> R) -> Vec<Arc<Operation>> {
    let (_, timeline) = timeline::record(&Device::Cpu, work).unwrap();
    let begun = timeline.slices().iter().filter(|slice| slice.begins);
    begun.map(|slice| slice.operation.clone()).collect()
}

/// The operations of work that move bytes, in order.
fn operations<R>(work: impl FnOnce() -> R) -> Vec<Arc<Operation>> {
    let mut all = begun(work);
    all.retain(|operation| operation.tensor_bytes > 0);
    all
}

/// The operations of a step, in order.
fn step(architecture: Architecture, planned: bool) -> Vec<Arc<Operation>> {
    let model = Model::new(architecture, 1, DType::F32).unwrap();
    let mut adam = Adam::new(model.parameters().variables(), AdamOptions::default()).unwrap();
    let mut objective = match planned {
        true => Objective::new(&model, ROWS, 1).unwrap(),
        false => Objective::through_graph(&model, ROWS, 1).unwrap(),
    };
    let ones = |shape| Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap();
    let batch = architecture.shapes(ROWS).map(ones);
    begun(|| {
        let loss = objective.evaluate(&batch).unwrap();
        adam.objective_step(&mut objective, &loss).unwrap();
    })
}

fn of<'a>(operations: &'a [Arc<Operation>], name: &str) -> Vec<&'a Operation> {
    let all = operations.iter().map(|operation| &**operation);
    all.filter(|operation| operation.operator == name).collect()
}

/// The number of calls of each operation.
fn calls(operations: &[Arc<Operation>]) -> BTreeMap<(&str, Option<&'static str>), usize> {
    let mut calls = BTreeMap::new();
    for operation in operations {
        let key = (&operation.operator[..], operation.phase.map(Pass::name));
        *calls.entry(key).or_insert(0) += 1;
    }
    calls
}

#[test]
fn a_planned_step_reports_each_operation_of_its_plan_once_a_pass() {
    let (forward, backward) = (Some("forward"), Some("backward"));
    // The embedding, two maps of each of four layers, and two maps of the head are linear. The gradients of their
    // parameters come apart from the gradients of their inputs. The embedding has no gradient of its input.
    let expected = [
        (("adam", None), 1),
        (("blade_norm", backward), 1),
        (("blade_norm", forward), 1),
        (("mv_linear", backward), 2 * 11 - 1),
        (("mv_linear", forward), 11),
        (("points", forward), 1),
        (("silu", backward), 1),
        (("silu", forward), 1),
        (("squared_error", forward), 1),
        (("steerable_product", backward), 4),
        (("steerable_product", forward), 4),
        // The beginning, and after the plan.
        (("the rest", None), 2),
    ];
    assert_eq!(
        calls(&step(Architecture::Hulls, true)),
        BTreeMap::from(expected)
    );
}

#[test]
fn a_step_through_the_graph_reports_our_nodes_and_candles_passes() {
    let all = step(Architecture::Gravity, true);
    let calls = calls(&all);
    for phase in [Some("forward"), Some("backward")] {
        let of = |name| calls[&(name, phase)];
        assert_eq!((of("block"), of("equi_linear")), (10, 2));
        assert_eq!(of("candle's operations"), 1);
    }
}

#[test]
fn a_plan_and_the_graph_do_the_same_work() {
    let plan = step(Architecture::Hulls, true);
    let graph = step(Architecture::Hulls, false);
    for name in [
        "points",
        "mv_linear",
        "steerable_product",
        "blade_norm",
        "silu",
        "adam",
    ] {
        assert_eq!(of(&plan, name), of(&graph, name), "{name}");
    }
    // Four products with both passes.
    assert_eq!(of(&plan, "steerable_product").len(), 8);
    // The inner maps of the products. The gradients of weights come apart from the gradients of values.
    let wide = |operations: &[Arc<Operation>], phase: Pass| -> Vec<Operation> {
        let maps = of(operations, "mv_linear").into_iter();
        let wide = maps.filter(|map| map.shapes[0] == [32, ROWS, 32] && map.phase == Some(phase));
        wide.cloned().collect()
    };
    let (forward, backward) = (wide(&graph, Pass::Forward), wide(&graph, Pass::Backward));
    assert_eq!((forward.len(), backward.len()), (8, 16));
    // The map without bias: x, its weights for six grades, and the output.
    let (x, weights, flops) = (32 * ROWS * 32 * 4, 32 * 32 * 6 * 4, 2 * 32 * ROWS * 32 * 32);
    let is_plain = |map: &&Operation| map.shapes.len() == 2;
    let plain = forward.iter().find(is_plain).unwrap();
    assert_eq!((plain.bytes, plain.saved_bytes), (2 * x + weights, 0));
    assert_eq!((plain.held_bytes, plain.flops), (plain.bytes, Some(flops)));
    assert_eq!(plain.algebra, "cl500");
    for (gradient, bytes) in [("x", x), ("weight", weights)] {
        let mut plain = backward.iter().filter(is_plain);
        let own = plain.find(|map| map.gradients == [gradient]).unwrap();
        assert_eq!(
            (own.bytes, own.flops),
            (2 * x + weights + bytes, Some(flops))
        );
    }
    let flops = |maps: &[Operation]| maps.iter().filter_map(|map| map.flops).sum::<usize>();
    assert_eq!(flops(&backward), 2 * flops(&forward));
    // The head: two maps of scalars.
    let maps = of(&graph, "mv_linear").into_iter();
    let head = maps.filter(|map| map.shapes[0][0] == 1 && map.phase == Some(Pass::Forward));
    let [first, second] = head.collect::<Vec<_>>()[..] else {
        panic!("expected two linear layers of the head");
    };
    assert_eq!(first.flops, Some(2 * ROWS * 32 * 32));
    assert_eq!(first.parameter_bytes, 4 * 32 * 33);
    assert_eq!(second.bytes, 4 * (ROWS * (32 + 1) + 33));
    // The step of the optimiser comes last, and belongs to no pass.
    let last = plan.last().unwrap();
    assert_eq!((last.operator.as_str(), last.phase), ("adam", None));
    assert_eq!(last.parameter_bytes, last.bytes);
}

/// The documentation of the model counts what is kept by hand.
#[test]
fn kept_bytes_are_those_of_the_model() {
    let all = step(Architecture::Hulls, true);
    let kept = |operation: &Arc<Operation>| operation.output_bytes + operation.saved_bytes;
    let kept: usize = all.iter().map(kept).sum();
    let by_hand = 4 * Hulls::saved_elements(ROWS);
    let ratio = kept as f64 / by_hand as f64;
    // The points as multivectors, row sums and the prediction come on top.
    assert!((1.0..1.03).contains(&ratio), "{ratio}");
}

/// Nine maps with 24 entries together, from multivectors to multivectors; one number from each scalar and to each.
#[test]
fn an_equivariant_layer_counts_the_entries_of_its_maps() {
    let parameters = Parameters::seeded(1);
    let vars = parameters.builder(DType::F32, &Device::Cpu);
    let (from, to) = (Channels::new(2, 3), Channels::new(4, 5));
    let layer = EquiLinear::new(from, to, Initialization::Default, vars).unwrap();
    let x = Tensor::ones((7, 6, from.width()), DType::F32, &Device::Cpu).unwrap();
    let x = Tokens::from_packed(x, from).unwrap();
    let all = operations(|| layer.forward(&x).unwrap().packed().backward().unwrap());
    let rows = 7 * 6;
    let forward = 2 * rows * (24 * 2 * 4 + 3 * 4 + 5 * (2 + 3));
    let flops: Vec<usize> = all.iter().filter_map(|operation| operation.flops).collect();
    // The input is not a variable, so the gradient of the parameters is all there is.
    assert_eq!(flops, [forward, forward]);
    let parameters = parameters.element_count();
    let moved = rows * (from.width() + to.width()) + parameters;
    assert_eq!(all[0].tensor_bytes, 4 * moved);
    assert_eq!(all[0].parameter_bytes, 4 * parameters);
    // The gradients of the parameters are written; the input is not a variable.
    assert_eq!(all[1].phase, Some(Pass::Backward));
    assert_eq!(all[1].tensor_bytes, 4 * (moved + parameters));
    assert_eq!(all[1].parameter_bytes, 8 * parameters);
    assert!(all.iter().all(|operation| operation.has_matrix_products));
}

/// Chunks of samples run on threads, and are parts of the operation that is recorded.
#[test]
fn a_network_of_blocks_has_each_block_once() {
    let model = Model::new(Architecture::Gravity, 1, DType::F32).unwrap();
    let points = Tensor::ones((40, 4, 7), DType::F32, &Device::Cpu).unwrap();
    let all = operations(|| model.forward(&points).unwrap());
    let names: Vec<&str> = all.iter().map(|one| one.operator.as_str()).collect();
    let mut expected = vec!["block"; 12];
    expected[0] = "equi_linear";
    expected[11] = "equi_linear";
    assert_eq!(names, expected);
}
