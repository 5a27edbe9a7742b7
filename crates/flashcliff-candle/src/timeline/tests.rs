//! Recordings of work whose operations are known.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use candle_core::{DType, Tensor};
use flashcliff::Pass;

use super::*;
use crate::models::{Architecture, Model};
use crate::objective::Objective;
use crate::optim::{Adam, AdamOptions};

fn named(name: &str) -> impl FnOnce() -> Arc<Operation> {
    let operation = Arc::new(Operation::other(name, None));
    move || operation
}

fn nap(milliseconds: u64) {
    sleep(Duration::from_millis(milliseconds));
}

/// The slices and the seconds of each operation.
fn sums(timeline: &Timeline) -> BTreeMap<(String, Option<&'static str>), (usize, f64)> {
    let mut sums = BTreeMap::new();
    for slice in timeline.slices() {
        let phase = slice.operation.phase.map(Pass::name);
        let key = (slice.operation.operator.clone(), phase);
        let (calls, seconds) = sums.entry(key).or_insert((0, 0.0));
        *calls += usize::from(slice.begins);
        *seconds += slice.seconds;
    }
    sums
}

fn record_on_cpu<R>(work: impl FnOnce() -> R) -> (R, Timeline) {
    record(&Device::Cpu, work).unwrap()
}

#[test]
fn an_operation_within_another_takes_its_time_from_it() {
    let (done, timeline) = record_on_cpu(|| {
        within(named("outer"), || {
            nap(2);
            within(named("inner"), || nap(20));
            nap(2);
            7
        })
    });
    assert_eq!(done, 7);
    let sums = sums(&timeline);
    let of = |name: &str| sums[&(name.to_owned(), None)];
    assert_eq!((of("outer").0, of("inner").0), (1, 1));
    assert!(of("inner").1 >= 0.02 && of("outer").1 >= 0.004, "{sums:?}");
    // A sum that counted the inner one twice would be 20 ms longer.
    let total: f64 = sums.values().map(|(_, seconds)| seconds).sum();
    assert!((total - timeline.seconds()).abs() < 1e-9, "{sums:?}");
    let names: Vec<&str> = timeline
        .slices()
        .iter()
        .map(|slice| slice.operation.operator.as_str())
        .collect();
    assert_eq!(names, ["the rest", "outer", "inner", "outer", "the rest"]);
}

#[test]
fn only_the_recording_thread_records_and_only_while_it_does() {
    within(named("before"), || ());
    let ((), timeline) = record_on_cpu(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| within(named("elsewhere"), || nap(1)));
        });
        begin(named("here"));
    });
    within(named("behind"), || ());
    let sums = sums(&timeline);
    let names: Vec<&str> = sums.keys().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["here", "the rest"]);
    assert!(!is_recording());
}

#[test]
fn a_recording_within_another_takes_its_calls() {
    let (inner, outer) = record_on_cpu(|| {
        within(named("first"), || ());
        let ((), inner) = record_on_cpu(|| within(named("second"), || ()));
        within(named("third"), || ());
        inner
    });
    assert!(sums(&inner).contains_key(&("second".to_owned(), None)));
    let outer = sums(&outer);
    assert!(outer.contains_key(&("third".to_owned(), None)));
    assert!(!outer.contains_key(&("second".to_owned(), None)));
}

#[test]
fn a_panic_ends_a_recording() {
    let caught = std::panic::catch_unwind(|| record(&Device::Cpu, || panic!("expected")));
    assert!(caught.is_err() && !is_recording());
}

/// A model in training with a batch of ones.
fn training(architecture: Architecture, rows: usize) -> (Adam, Objective, [Tensor; 2]) {
    let model = Model::new(architecture, 3, DType::F32).unwrap();
    let shape = (rows, architecture.points(), architecture.dim());
    let targets = match architecture.targets() {
        1 => vec![rows],
        targets => vec![rows, targets],
    };
    let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap();
    let batch = [ones(&[shape.0, shape.1, shape.2]), ones(&targets)];
    let adam = Adam::new(model.parameters().variables(), AdamOptions::default()).unwrap();
    (adam, Objective::new(&model, rows, 1).unwrap(), batch)
}

fn step(architecture: Architecture, rows: usize) -> Timeline {
    let (mut adam, mut objective, batch) = training(architecture, rows);
    let ((), timeline) = record_on_cpu(|| {
        let loss = objective.evaluate(&batch).unwrap();
        adam.objective_step(&mut objective, &loss).unwrap();
    });
    timeline
}

#[test]
fn a_planned_step_reports_each_operation_of_its_plan_once_a_pass() {
    let sums = sums(&step(Architecture::Hulls, 4));
    let calls: Vec<(&str, Option<&str>, usize)> = sums
        .iter()
        .map(|((name, phase), (calls, _))| (name.as_str(), *phase, *calls))
        .collect();
    let (forward, backward) = (Some("forward"), Some("backward"));
    // The embedding, two maps of each of four layers, and two maps of the head are linear. The gradients of their parameters come apart from those
    // of their inputs, which the embedding has not.
    assert_eq!(
        calls,
        [
            ("adam", None, 1),
            ("blade_norm", backward, 1),
            ("blade_norm", forward, 1),
            ("mv_linear", backward, 2 * 11 - 1),
            ("mv_linear", forward, 11),
            ("points", forward, 1),
            ("silu", backward, 1),
            ("silu", forward, 1),
            ("squared_error", forward, 1),
            ("steerable_product", backward, 4),
            ("steerable_product", forward, 4),
            // The beginning, and behind the plan.
            ("the rest", None, 2),
        ]
    );
}

#[test]
fn a_step_through_the_graph_reports_our_nodes_and_candles_passes() {
    let sums = sums(&step(Architecture::Gravity, 2));
    for phase in ["forward", "backward"] {
        let of = |name: &str| sums[&(name.to_owned(), Some(phase))];
        assert_eq!((of("block").0, of("equi_linear").0), (10, 2));
        assert_eq!(of("candle's operations").0, 1);
        assert!(of("candle's operations").1 > 0.0);
    }
}

#[test]
fn bytes_and_operations_are_those_of_the_tensors() {
    let rows = 4;
    let timeline = step(Architecture::Hulls, rows);
    let find = |phase, inputs: usize| {
        let mut slices = timeline.slices().iter().map(|slice| &slice.operation);
        let is_same = |operation: &&Arc<Operation>| {
            operation.operator == "mv_linear"
                && operation.phase == Some(phase)
                && operation.shapes.len() == inputs
                && operation.shapes[0] == [32, rows, 32]
        };
        slices.find(is_same).unwrap().clone()
    };
    // The map without bias: x, its weights for six grades, and the output.
    let (x, weights) = (32 * rows * 32 * 4, 32 * 32 * 6 * 4);
    let forward = find(Pass::Forward, 2);
    assert_eq!(forward.bytes, 2 * x + weights);
    assert_eq!(
        (forward.saved_bytes, forward.held_bytes),
        (0, 2 * x + weights)
    );
    assert_eq!(forward.flops, Some(2 * 32 * rows * 32 * 32));
    assert_eq!(forward.algebra, "cl500");
    let backward = |gradient: &str, bytes: usize| {
        let mut slices = timeline.slices().iter().map(|slice| &slice.operation);
        let is_own = |own: &&Arc<Operation>| {
            own.gradients == [gradient] && own.shapes.len() == 2 && own.shapes[0] == [32, rows, 32]
        };
        let own = slices.find(is_own).unwrap();
        assert_eq!(own.bytes, 2 * x + weights + bytes);
        assert_eq!(own.flops, Some(2 * 32 * rows * 32 * 32));
    };
    backward("x", x);
    backward("weight", weights);
}

/// A step of four operations that sleep, one of them within another.
fn naps() {
    within(named("first"), || nap(2));
    within(named("outer"), || {
        nap(1);
        within(named("inner"), || nap(3));
        nap(1);
    });
    begin(named("last"));
    nap(2);
}

#[test]
fn windows_of_equal_steps_are_one_step() {
    let ((), whole) = record_on_cpu(naps);
    for slices in [1, 2, 3, 100] {
        let mut sampler = Sampler::new(&Device::Cpu, &whole, slices);
        for _ in 0..3 {
            sampler.plain(naps).unwrap();
            for _ in 0..sampler.steps_of_a_round() {
                sampler.sample(naps).unwrap();
            }
        }
        let sampled = sampler.finish();
        let of = |timeline: &Timeline| -> Vec<(String, bool)> {
            let slices = timeline.slices().iter();
            slices
                .map(|slice| (slice.operation.operator.clone(), slice.begins))
                .collect()
        };
        assert_eq!(of(&sampled.timeline), of(&whole));
        let sums = sums(&sampled.timeline);
        for (name, least) in [
            ("first", 2.0),
            ("outer", 2.0),
            ("inner", 3.0),
            ("last", 2.0),
        ] {
            let (calls, seconds) = sums[&(name.to_owned(), None)];
            // A window that was shifted by a slice would give one operation the time of another. Lengths are relative to steps without marks, whose
            // sleeps last longer at times.
            assert!(calls == 1 && seconds >= 0.6e-3 * least, "{name}: {seconds}");
        }
        let mut end = 0.0;
        for slice in sampled.timeline.slices() {
            assert!((slice.start - end).abs() < 1e-12 && slice.seconds >= 0.0);
            end = slice.start + slice.seconds;
        }
        // Sleeps last longer on a busy machine, but all of the step is in some slice.
        let least = 9.0e-3;
        assert!(sampled.plain_seconds >= least && sampled.timeline.seconds() >= 0.8 * least);
    }
}

#[test]
fn a_step_with_other_marks_is_refused() {
    let ((), whole) = record_on_cpu(naps);
    let mut sampler = Sampler::new(&Device::Cpu, &whole, 4);
    let error = sampler
        .sample(|| within(named("first"), || ()))
        .unwrap_err();
    assert!(
        matches!(error, Error::OtherStep { expected, got } if got < expected),
        "{error}"
    );
    assert!(!is_recording());
}
