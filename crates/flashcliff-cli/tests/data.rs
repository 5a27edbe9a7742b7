//! Tests of `flashcliff data`.

mod common;

use std::ops::ControlFlow;

use common::{Folder, read};
use flashcliff_tasks::jets::{JetSplit, MAX_PARTICLES};
use flashcliff_tasks::{Sizes, Split, Task, jets};
use safetensors::Dtype;

fn f64s(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

#[test]
fn files_have_the_samples_of_the_tasks() {
    let folder = Folder::new();
    let sizes = Sizes {
        train: 5,
        val: 3,
        test: 0,
    };
    for task in Task::ALL {
        let numbers = "--samples=5 --val-samples=3 --test-samples=0 --seed=7";
        let line = format!("data {task} data --overwrite {numbers}");
        assert_eq!(folder.stdout(&line), "");
        let file = read(&folder.path("data"), Dtype::F32);
        let data = task.generate(sizes, 7).unwrap();
        let expect = |name: &str, split: &Split| {
            let inputs = &file[&format!("{name}.inputs")];
            assert_eq!(inputs.shape, split.shape, "{task}");
            assert_eq!(inputs.data, f64s(&split.inputs), "{task}");
            let targets = &file[&format!("{name}.targets")];
            assert_eq!(targets.shape, [split.len(), split.target_len], "{task}");
            assert_eq!(targets.data, f64s(&split.targets), "{task}");
        };
        expect("train", &data.train);
        expect("val", &data.val);
        expect("test", &data.test);
        assert_eq!(file["target_scale"].data, f64s(&[data.target_scale]));
        assert_eq!(file["target_shift"].data, f64s(&[data.target_shift]));
        assert_eq!(file.len(), 8);
    }
}

#[test]
fn files_have_jets() {
    let folder = Folder::new();
    let line = "data jets data --seed=7 --samples=5 --val-samples=3 --test-samples=2";
    assert_eq!(folder.stdout(line), "");
    let file = read(&folder.path("data"), Dtype::F32);
    let sizes = Sizes {
        train: 5,
        val: 3,
        test: 2,
    };
    let data = jets::generate(sizes, 7, &|_| ControlFlow::Continue(())).unwrap();
    let expect = |name: &str, split: &JetSplit| {
        let particles = &file[&format!("{name}.particles")];
        assert_eq!(particles.shape, [split.len(), MAX_PARTICLES, 4]);
        assert_eq!(particles.data, f64s(&split.particles));
        let counts: Vec<f64> = split.counts.iter().map(|&n| f64::from(n)).collect();
        assert_eq!(file[&format!("{name}.counts")].data, counts);
        assert_eq!(file[&format!("{name}.labels")].data, f64s(&split.labels));
        let ratios = &file[&format!("{name}.log_ratios")];
        assert_eq!(ratios.data, f64s(&split.log_ratios));
    };
    expect("train", &data.train);
    expect("val", &data.val);
    expect("test", &data.test);
    assert_eq!(file.len(), 12);
}
