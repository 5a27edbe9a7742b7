//! What observers count: the same work by the graph and by plans, and the formulas of layers.

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{Channels, EquiLinear, Initialization, Tokens};
use flashcliff_candle::models::{Architecture, Hulls, Model};
use flashcliff_candle::objective::Objective;
use flashcliff_candle::optim::{Adam, AdamOptions};
use flashcliff_candle::work::{self, Call, Phase};

const ROWS: usize = 6;

fn step(architecture: Architecture, planned: bool) -> Vec<Call> {
    let model = Model::new(architecture, 1, DType::F32).unwrap();
    let mut adam = Adam::new(model.parameters().variables(), AdamOptions::default()).unwrap();
    let mut objective = match planned {
        true => Objective::new(&model, ROWS, 1).unwrap(),
        false => Objective::through_graph(&model, ROWS, 1).unwrap(),
    };
    let points = (ROWS, architecture.points(), architecture.dim());
    let batch = [
        Tensor::ones(points, DType::F32, &Device::Cpu).unwrap(),
        Tensor::ones(ROWS, DType::F32, &Device::Cpu).unwrap(),
    ];
    let (loss, calls) = work::observed(|| {
        let loss = objective.evaluate(&batch)?;
        adam.objective_step(&mut objective, &loss)
    });
    loss.unwrap();
    calls
}

fn of<'a>(calls: &'a [Call], name: &'a str) -> Vec<&'a Call> {
    calls.iter().filter(|call| call.name == name).collect()
}

#[test]
fn a_plan_and_the_graph_do_the_same_work() {
    let (plan, graph) = (
        step(Architecture::Hulls, true),
        step(Architecture::Hulls, false),
    );
    for name in ["steerable_product", "adam"] {
        assert_eq!(of(&plan, name), of(&graph, name), "{name}");
    }
    // Four products with both passes.
    assert_eq!(of(&plan, "steerable_product").len(), 8);
    assert_eq!(of(&plan, "adam").len(), 1);
    let phases = [Phase::Forward, Phase::Backward, Phase::Update];
    let mut places = phases.map(|phase| plan.iter().rposition(|call| call.phase == phase).unwrap());
    places.sort_unstable();
    assert_eq!(places[2], plan.len() - 1);
}

/// The documentation of the model counts what is kept by hand.
#[test]
fn kept_bytes_are_those_of_the_model() {
    let kept: usize = step(Architecture::Hulls, true)
        .iter()
        .map(|call| call.kept_bytes)
        .sum();
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
    let (out, calls) = work::observed(|| layer.forward(&x)?.packed().backward());
    out.unwrap();
    let rows = 7 * 6;
    let forward = 2 * rows * (24 * 2 * 4 + 3 * 4 + 5 * (2 + 3));
    let flops: Vec<usize> = calls.iter().map(|call| call.flops).collect();
    assert_eq!(flops, [forward, 2 * forward]);
    let parameters = parameters.element_count();
    let moved = rows * (from.width() + to.width()) + parameters;
    assert_eq!(calls[0].bytes, 4 * moved);
    assert_eq!(calls[0].parameter_bytes, 4 * parameters);
}

/// Chunks of samples run on threads, and are parts of the call that is noted.
#[test]
fn a_network_of_blocks_notes_each_block_once() {
    let model = Model::new(Architecture::Gravity, 1, DType::F32).unwrap();
    let points = Tensor::ones((40, 4, 7), DType::F32, &Device::Cpu).unwrap();
    let (out, calls) = work::observed(|| model.forward(&points));
    out.unwrap();
    let names: Vec<&str> = calls.iter().map(|call| call.name).collect();
    let mut expected = vec!["block"; 12];
    expected[0] = "equi_linear";
    expected[11] = "equi_linear";
    assert_eq!(names, expected);
}

#[test]
fn observers_nest_and_end() {
    let model = Model::new(Architecture::Volumes, 1, DType::F32).unwrap();
    let points = Tensor::ones((2, 3, 3), DType::F32, &Device::Cpu).unwrap();
    let ((), outer) = work::observed(|| {
        let (_, inner) = work::observed(|| model.forward(&points));
        assert!(!inner.is_empty());
    });
    assert!(outer.is_empty());
    let panics = std::panic::catch_unwind(|| work::observed(|| panic!("planted")));
    assert!(panics.is_err());
    let (_, calls) = work::observed(|| ());
    assert!(calls.is_empty());
}
