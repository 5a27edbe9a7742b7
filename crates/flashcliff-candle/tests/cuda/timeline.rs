//! Timelines: the operations of steps on a GPU, by the clock of its stream.

use std::collections::BTreeMap;
use std::time::Instant;

use candle_core::{DType, Device};
use flashcliff::Pass;
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::objective::{Features, Objective, ObjectiveOptions};
use flashcliff_candle::optim::{Adam, AdamOptions};
use flashcliff_candle::timeline::{self, Timeline};

use crate::models::data;
use crate::trials::{Tests, gpu};

const ROWS: usize = 32;

pub(crate) fn add(tests: &mut Tests) {
    tests.add(
        "timeline::planned_steps_have_the_operations_of_the_cpu",
        || {
            let regression = Architecture::Regression { width: 20 };
            for architecture in [Architecture::Hulls, regression, Architecture::Volumes] {
                let here = calls(&step(architecture, &Device::Cpu, Features::Model).1);
                for features in [Features::Model, Features::Bf16] {
                    let there = calls(&step(architecture, gpu(), features).1);
                    assert!(there.keys().eq(here.keys()), "{there:?} {here:?}");
                    for (name, count) in &there {
                        // A GPU runs some linear maps of the same rows together.
                        let is_linear = name.0 == "mv_linear";
                        let fits = *count == here[name] || is_linear && *count < here[name];
                        assert!(
                            fits,
                            "{architecture:?} {features:?} {name:?}: {count} of {}",
                            here[name]
                        );
                    }
                }
            }
        },
    );
    tests.add(
        "timeline::steps_through_the_graph_have_ours_and_candles",
        || {
            let (_, timeline) = step(Architecture::Gravity, gpu(), Features::Model);
            let calls = calls(&timeline);
            for phase in ["forward", "backward"] {
                let of = |name: &str| calls[&(name.to_owned(), Some(phase))];
                assert_eq!((of("block"), of("equi_linear")), (10, 2));
                assert_eq!(of("candle's operations"), 1);
            }
        },
    );
    tests.add(
        "timeline::slices_follow_each_other_and_last_as_long_as_the_step",
        lengths,
    );
}

/// The seconds of a warm step by the clock of the host, and its operations.
fn step(architecture: Architecture, device: &Device, features: Features) -> (f64, Timeline) {
    let model = Model::on_device(architecture, 5, DType::F32, device).unwrap();
    let mut adam = Adam::new(model.parameters().variables(), AdamOptions::default()).unwrap();
    let options = ObjectiveOptions {
        features,
        ..ObjectiveOptions::default()
    };
    let mut objective = Objective::with_options(&model, ROWS, 1, &options).unwrap();
    let batch = data(architecture, ROWS, DType::F32, device);
    let mut run = || {
        let loss = objective.evaluate(&batch).unwrap();
        adam.objective_step(&mut objective, &loss).unwrap();
    };
    // Kernels are loaded and plans are made.
    (0..3).for_each(|_| run());
    device.synchronize().unwrap();
    // The step that is recorded, since recording it takes time too.
    let timed = || {
        let start = Instant::now();
        run();
        device.synchronize().unwrap();
        start.elapsed().as_secs_f64()
    };
    timeline::record(device, timed).unwrap()
}

/// The number of calls of each operation.
fn calls(timeline: &Timeline) -> BTreeMap<(String, Option<&'static str>), usize> {
    let mut calls = BTreeMap::new();
    for slice in timeline.slices() {
        let operation = &slice.operation;
        let key = (operation.operator.clone(), operation.phase.map(Pass::name));
        *calls.entry(key).or_insert(0) += usize::from(slice.begins);
    }
    calls
}

/// The clock of the GPU has a resolution of half a microsecond.
fn lengths() {
    let mut least = f64::INFINITY;
    for _ in 0..10 {
        let (seconds, timeline) = step(Architecture::Hulls, gpu(), Features::Model);
        let mut end = 0.0;
        for slice in timeline.slices() {
            assert!((slice.start - end).abs() < 1e-6 && slice.seconds >= 0.0);
            end = slice.start + slice.seconds;
        }
        let sum: f64 = timeline.slices().iter().map(|slice| slice.seconds).sum();
        assert!((sum - timeline.seconds()).abs() < 1e-6);
        let of_products = timeline.slices().iter();
        let of_products =
            of_products.filter(|slice| slice.operation.operator == "steerable_product");
        assert!(of_products.map(|slice| slice.seconds).sum::<f64>() > 0.0);
        least = least.min((sum / seconds - 1.0).abs());
    }
    // Rows that left out the backward pass, or counted a pass twice, would differ by a third and more.
    assert!(least < 0.2, "{least}");
}
