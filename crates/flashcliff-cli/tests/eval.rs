//! Tests of `flashcliff eval`: its errors equal the errors that `train` measured, and the errors of the network in a file. Weights of
//! another network are refused.

mod common;

use common::runs::{metrics, tiny};
use common::{Folder, read};
use flashcliff::Dtype;
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_network::file::{self, Conversion, Stored};
use flashcliff_network::messages::Skeleton;
use flashcliff_network::{Cpu, Rows, Scales, Segments, Slices};
use serde_json::Value;

/// What the JSON of a run says.
fn eval(folder: &Folder, line: &str) -> Value {
    folder.stdout(&format!("eval {line} --json eval.json --overwrite"));
    folder.json("eval.json")
}

/// To the last bit, in both units, after the last step and with the best weights.
#[test]
fn the_errors_are_those_of_train() {
    let tasks = [
        "hulls",
        "regression",
        "volumes",
        "gravity",
        "nbody",
        "nbody5d",
    ];
    for task in tasks {
        let folder = Folder::new();
        // At this rate regression is not best at the end.
        let options = if task == "regression" { "--lr 0.1" } else { "" };
        let printed = folder.stdout(&tiny(task, "run", options));
        let metrics = metrics(&folder.path("run"));
        for (file, validation, test) in [
            ("state", "validation", "test"),
            ("best", "best_validation", "best_test"),
        ] {
            let line = format!("{task} run/{file}.safetensors");
            let report = eval(&folder, &line);
            for units in ["errors", "errors_in_target_units"] {
                let (own, of_run) = (&report[units], &metrics[units]);
                assert_eq!(own["validation"], of_run[validation], "{line}");
                assert_eq!(own["test"], of_run[test], "{line}");
            }
            for key in ["parameters", "target_scale", "target_shift"] {
                assert_eq!(report[key], metrics[key], "{line}");
            }
            let text = folder.stdout(&format!("eval {line} --split test"));
            let row = text.lines().find(|line| line.starts_with("test")).unwrap();
            let shown = row.split_whitespace().nth(2).unwrap();
            assert!(printed.contains(&format!("{shown} ")), "{shown}: {printed}");
        }
        let errors = &metrics["errors"];
        if task == "regression" {
            assert_ne!(errors["test"], errors["best_test"]);
        }
    }
}

/// The rows of samples of a task, and the relations between them.
fn graphs(task: &str, samples: usize) -> (Rows, Vec<Segments>) {
    match task {
        "nbody" | "nbody5d" => {
            let nodes = 5 * samples;
            let graph = |node| node / 5;
            let pairs = (0..nodes).flat_map(|a| (0..nodes).map(move |b| [a, b]));
            let edges = pairs.filter(|&[a, b]| a != b && graph(a) == graph(b));
            let edges: Vec<[usize; 2]> = edges.collect();
            let ends = [0, 1].map(|end| edges.iter().map(|edge| edge[end]).collect::<Vec<_>>());
            let own: Vec<usize> = (0..nodes).map(graph).collect();
            let rows = Rows {
                edges: edges.len(),
                graphs: samples,
                ..Rows::new(samples, 5)
            };
            let segments = [(&ends[0], nodes), (&ends[1], nodes), (&own, samples)];
            let segments = segments.map(|(targets, count)| Segments::new(targets, count).unwrap());
            (rows, segments.into())
        }
        "csmpn-hulls" => {
            let skeleton = Skeleton::new(8);
            (skeleton.rows(samples), skeleton.segments(samples).unwrap())
        }
        _ => (samples.into(), Vec::new()),
    }
}

/// The mean squared error of the network in a file.
fn error_of(
    stored: &Stored,
    (rows, relations): (Rows, Vec<Segments>),
    [inputs, targets]: [Vec<f32>; 2],
) -> f64 {
    let (network, outputs) = (stored.network(), [stored.outputs()[0].1]);
    let plan = network.plan(&outputs, rows, [Dtype::F32; 2]).unwrap();
    let parameters = stored.parameters::<f32>(Conversion::None).unwrap();
    let parameters: Vec<&[f32]> = parameters.iter().map(Vec::as_slice).collect();
    let sources = Slices {
        inputs: &[&inputs[..]],
        parameters: &parameters,
    };
    let scales = Scales {
        relations: &relations,
        ..Scales::default()
    };
    let mut out = [vec![f32::NAN; targets.len()]];
    let mut memory = Cpu::new(&plan).unwrap();
    memory
        .run(&plan, &sources, &mut out, scales, &mut |_| {})
        .unwrap();
    // A result has a number of all rows before the next number.
    let axes = network.shape(outputs[0]).unwrap();
    let numbers = axes[0].size(rows);
    let rows = targets.len() / numbers;
    let square =
        |at: usize| f64::from(out[0][at % numbers * rows + at / numbers] - targets[at]).powi(2);
    (0..targets.len()).map(square).sum::<f64>() / targets.len() as f64
}

#[test]
fn weights_are_networks_in_files_that_the_core_runs() {
    let tasks = [
        "hulls",
        "regression",
        "volumes",
        "nbody",
        "nbody5d",
        "csmpn-hulls",
    ];
    for task in tasks {
        let folder = Folder::new();
        let sizes = "--samples 4 --val-samples 2 --test-samples 2";
        folder.stdout(&format!(
            "train {task} {sizes} --steps 2 --batch 2 --out run"
        ));
        folder.stdout(&format!("data {task} data {sizes}"));
        let report = eval(&folder, &format!("{task} run/best.safetensors"));
        let data = read(&folder.path("data"), safetensors::Dtype::F32);
        let of = |name: &str| {
            data[&format!("test.{name}")]
                .data
                .iter()
                .map(|&x| x as f32)
                .collect()
        };
        let stored = file::load(folder.path("run/best.safetensors")).unwrap();
        let error = error_of(&stored, graphs(task, 2), ["inputs", "targets"].map(of));
        let expected = report["errors"]["test"].as_f64().unwrap();
        // The program squares differences, and takes their mean, in `f32`.
        let bound = 4.0 * f64::from(f32::EPSILON);
        assert!(
            (error / expected - 1.0).abs() < bound,
            "{task}: {error}, {expected}"
        );
    }
}

#[test]
fn splits_batches_and_samples_can_be_chosen() {
    let folder = Folder::new();
    folder.stdout(&tiny("regression", "run", ""));
    let run = |options: &str| {
        eval(
            &folder,
            &format!("regression run/best.safetensors {options}"),
        )
    };
    let usual = run("");
    let error = |report: &Value, name: &str| report["errors"][name].as_f64().unwrap();
    assert!(usual["errors"]["training"].is_null());
    assert_eq!(usual["samples"]["test"], 20);
    let train = run("--split train");
    assert_eq!(train["samples"]["training"], 40);
    assert!(train["errors"]["test"].is_null());
    let parts = run("--batch 3 --threads 1");
    assert!((error(&parts, "test") / error(&usual, "test") - 1.0).abs() < 1e-5);
    let fewer = run("--test-samples 7");
    assert_eq!(fewer["samples"]["test"], 7);
    assert_ne!(fewer["errors"]["test"], usual["errors"]["test"]);
    assert_eq!(fewer["errors"]["validation"], usual["errors"]["validation"]);
    let other = run("--data-seed 4");
    assert_eq!(
        (&usual["data_seed"], &other["data_seed"]),
        (&3.into(), &4.into())
    );
    assert_ne!(other["errors"]["test"], usual["errors"]["test"]);
    // Targets are standardised by the training samples.
    assert_ne!(run("--samples 30")["target_scale"], usual["target_scale"]);
}

/// The weights of a file, with the choices of layers and the settings or without.
fn weights(folder: &Folder) -> Checkpoint {
    Checkpoint::load(folder.path("run/best.safetensors")).unwrap()
}

fn without_settings(whole: &Checkpoint) -> Checkpoint {
    let mut older = Checkpoint::new();
    for (name, tensor) in whole.tensors() {
        older.insert(name, tensor);
    }
    older
}

/// Weights of other programs, and of `train` before it stored its settings, are measured on the usual data.
#[test]
fn weights_without_settings_have_the_usual_data() {
    let folder = Folder::new();
    folder.stdout(&tiny("volumes", "run", ""));
    without_settings(&weights(&folder))
        .save(folder.path("older"))
        .unwrap();
    let sizes = "--samples 40 --val-samples 20 --test-samples 20 --data-seed 3";
    let older = eval(&folder, &format!("volumes older {sizes}"));
    let own = eval(&folder, "volumes run/best.safetensors");
    assert_eq!(older["errors"], own["errors"]);
    let usual = eval(&folder, "volumes older");
    assert_eq!(usual["samples"]["test"], 4096);
    assert_eq!(usual["data_seed"], 0);
}

/// Networks with dropout have weights of other names, which the settings say.
#[test]
fn the_settings_say_the_network() {
    let folder = Folder::new();
    folder.stdout(&tiny("gravity", "run", "--dropout 0.2"));
    let report = eval(&folder, "gravity run/best.safetensors");
    let errors = &metrics(&folder.path("run"))["errors"];
    assert_eq!(report["errors"]["test"], errors["best_test"]);
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let folder = Folder::new();
    folder.stdout(&tiny("volumes", "run", ""));
    let whole = weights(&folder);
    let refused = |checkpoint: &Checkpoint, line: &str, phrases: &[&str]| {
        checkpoint.save(folder.path("other")).unwrap();
        let message = folder.failure(&format!("eval {line} other --json none"), 1);
        for phrase in phrases {
            assert!(message.contains(phrase), "{phrase}: {message}");
        }
        assert!(!folder.path("none").exists());
    };
    let of_task = ["other: expected weights of hulls, got weights of volumes"];
    refused(&whole, "hulls", &of_task);

    let (name, tensor) = whole.tensors().first_key_value().unwrap();
    let expected = "other: expected the weights of the network of volumes";
    let mut fewer = Checkpoint::new();
    for (other, tensor) in whole.tensors().iter().skip(1) {
        fewer.insert(other, tensor);
    }
    refused(
        &fewer,
        "volumes",
        &[expected, &format!("no tensor `{name}`")],
    );

    let mut more = whole.clone();
    more.insert("head.extra", tensor);
    refused(&more, "volumes", &[expected, "got also `head.extra`"]);

    // Axes of one element count for nothing, so a matrix is needed.
    let is_matrix =
        |own: &candle_core::Tensor| own.dims().iter().filter(|&&size| size > 1).count() > 1;
    let (matrix, of_matrix) = whole
        .tensors()
        .iter()
        .find(|(_, own)| is_matrix(own))
        .unwrap();
    let mut reshaped = whole.clone();
    reshaped.insert(matrix, &of_matrix.flatten_all().unwrap());
    refused(&reshaped, "volumes", &[expected, matrix, "expected shape"]);

    let mut wide = whole.clone();
    wide.insert(name, &tensor.to_dtype(candle_core::DType::F64).unwrap());
    refused(
        &wide,
        "volumes",
        &[expected, name, "expected type F32, got F64"],
    );

    let mut described = whole.clone();
    described.describe("net.0", "algebra", "cl500");
    refused(&described, "volumes", &[expected, "weights of algebra"]);

    let mut settings = whole.clone();
    settings.insert_text("settings", "{}");
    refused(&settings, "volumes", &["other: ", "settings: "]);
}

/// A path of Unix is any bytes, and JSON has Unicode alone.
#[cfg(unix)]
#[test]
fn weights_may_have_a_name_that_is_no_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    for (task, command, more) in [
        ("volumes", "eval", ""),
        ("nbody", "rollout", "--samples 2 --steps 1 --out out.svg"),
    ] {
        let folder = Folder::new();
        folder.stdout(&tiny(task, "run", ""));
        let name = OsStr::from_bytes(b"own \xff.safetensors");
        let best = folder.path("run").join("best.safetensors");
        std::fs::copy(best, folder.0.path().join(name)).unwrap();
        let mut program = folder.command(&format!("{command} {task}"));
        let program = program.arg(name).args(["--json", "out.json"]);
        let output = program.args(more.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let weights = &folder.json("out.json")["weights"];
        assert_eq!(weights, "own \u{fffd}.safetensors");
    }
}
