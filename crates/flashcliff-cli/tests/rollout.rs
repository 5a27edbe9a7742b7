//! Tests of `flashcliff rollout`.

mod common;

use common::Folder;
use common::runs::tiny;
use flashcliff_tasks::{Sizes, Task};
use serde_json::Value;

/// Weights of a short run of a task in `run`, and what the JSON of a rollout of them says.
fn rollout(folder: &Folder, task: &str, options: &str) -> Value {
    let files = "--out out.svg --json out.json --overwrite";
    folder.stdout(&format!(
        "rollout {task} run/best.safetensors {files} {options}"
    ));
    folder.json("out.json")
}

fn trained(task: &str, options: &str) -> Folder {
    let folder = Folder::new();
    folder.stdout(&tiny(task, "run", options));
    folder
}

fn mean(row: &Value, of: &str) -> f64 {
    row[of]["mean"].as_f64().unwrap()
}

/// The root of the mean square of a row of the equivariance, in both types.
fn deviation(report: &Value, row: usize, moved: &str) -> [f64; 2] {
    let row = &report["equivariance"][row];
    assert_eq!(row["moved"], moved);
    ["f32", "f64"].map(|dtype| {
        let rms = row[dtype]["rms"].as_f64().unwrap();
        assert!(row[dtype]["largest"].as_f64().unwrap() >= rms);
        rms
    })
}

/// The errors of the first step equal the errors of the stored targets, up to bodies that meet.
#[test]
fn the_first_step_is_that_of_the_data() {
    for task in [Task::Gravity, Task::Bodies, Task::Bodies5d] {
        let (name, dim) = (task.name(), task.motion().unwrap().dim);
        let folder = trained(name, "");
        let report = rollout(&folder, name, "--samples 20 --steps 1");
        folder.stdout(&format!(
            "eval {name} run/best.safetensors --json eval.json"
        ));
        let sizes = Sizes {
            train: 1,
            val: 0,
            test: 20,
        };
        let seed = report["data_seed"].as_u64().unwrap();
        let test = task.generate(sizes, seed).unwrap().test;
        let time = report["time"].as_f64().unwrap() as f32;
        let moved = |time: f32| {
            let place = |body: &[f32]| -> Vec<f32> {
                let pairs = body[1..=dim].iter().zip(&body[1 + dim..]);
                pairs.map(|(x, v)| x + time * v).collect()
            };
            let places = test.inputs.chunks_exact(task.dim()).flat_map(place);
            let places: Vec<f32> = places.collect();
            test.mean_squared_error(&places).unwrap()
        };
        let step = &report["steps"][0];
        assert_eq!(mean(step, "rule"), 0.0);
        let eval = folder.json("eval.json")["errors"]["test"].as_f64().unwrap();
        for (of, expected) in [
            ("still", moved(0.0)),
            ("straight", moved(time)),
            ("model", eval),
        ] {
            let got = mean(step, of);
            assert!(
                (got / expected - 1.0).abs() < 0.02,
                "{name} {of}: {got} {expected}"
            );
        }
    }
}

#[test]
fn steps_samples_and_files_are_those_asked_for() {
    let folder = trained("nbody", "");
    let report = rollout(&folder, "nbody", "--steps 4 --samples 6");
    let steps = report["steps"].as_array().unwrap();
    let times: Vec<f64> = steps
        .iter()
        .map(|row| row["time"].as_f64().unwrap())
        .collect();
    assert_eq!(times, [1.0, 2.0, 3.0, 4.0]);
    for row in &steps[1..] {
        for of in ["model", "rule", "straight", "still"] {
            assert!(mean(row, of) > 0.0);
        }
    }
    let svg = std::fs::read_to_string(folder.path("out.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("sample 3") && !svg.contains("sample 4"));
    // Of each body the start, and the truth and the network after each step, if that is not too far away.
    let circles = svg.matches("<circle").count();
    assert!((4 * 5 * 5..=4 * 5 * 9).contains(&circles), "{circles}");

    let names =
        |text: &str| ["step", "model", "rotations", "out.svg"].map(|name| text.contains(name));
    let line = "rollout nbody run/best.safetensors --out out.svg";
    let text = folder.stdout(&format!("{line} --steps 4 --samples 1 --overwrite"));
    assert_eq!(names(&text), [true; 4], "{text}");
    let message = folder.failure(line, 1);
    assert!(message.contains("out.svg exists"), "{message}");
    let message = folder.failure(&format!("{line} --overwrite --samples 2001"), 1);
    assert!(message.contains("2000 samples at most"), "{message}");
}

/// Threads change nothing; the seed changes the motions of space alone.
#[test]
fn results_depend_on_the_seeds() {
    let folder = trained("nbody", "");
    let run = |options: &str| {
        rollout(
            &folder,
            "nbody",
            &format!("--samples 5 --steps 2 {options}"),
        )
    };
    let mut first = run("--threads 2");
    let picture = std::fs::read(folder.path("out.svg")).unwrap();
    let mut again = run("--threads 1");
    assert_eq!(std::fs::read(folder.path("out.svg")).unwrap(), picture);
    for report in [&mut first, &mut again] {
        report["program"] = Value::Null;
    }
    assert_eq!(first, again);
    let turned = run("--seed 1");
    assert_eq!(turned["steps"], first["steps"]);
    assert_ne!(turned["equivariance"], first["equivariance"]);
    let other = run("--data-seed 7");
    assert_ne!(other["steps"], first["steps"]);
}

/// Charged bodies commute with all motions of space, up to rounding.
fn check_equivariance(task: &str) {
    let folder = trained(task, "");
    let report = rollout(&folder, task, "--samples 20 --steps 1");
    for (row, moved) in ["rotations", "reflections", "translations"]
        .iter()
        .enumerate()
    {
        let [narrow, wide] = deviation(&report, row, moved);
        assert!((1e-9..1e-4).contains(&narrow), "{moved}: {narrow}");
        assert!((1e-18..1e-12).contains(&wide), "{moved}: {wide}");
    }
}

#[test]
fn the_networks_of_charged_bodies_are_equivariant() {
    check_equivariance("nbody");
    check_equivariance("nbody5d");
}

/// The network of gravity commutes with rotations and translations. It does not with reflections, which the check must see.
#[test]
fn the_network_of_gravity_sees_reflections() {
    let folder = trained("gravity", "");
    let report = rollout(&folder, "gravity", "--samples 20 --steps 1");
    for (row, moved) in [(0, "rotations"), (2, "translations")] {
        let [narrow, wide] = deviation(&report, row, moved);
        assert!(narrow < 1e-2, "{moved}: {narrow}");
        assert!(wide < 1e-9, "{moved}: {wide}");
    }
    let [_, wide] = deviation(&report, 1, "reflections");
    assert!(wide > 1e-6, "{wide}");
}

#[test]
fn weights_of_the_other_task_are_refused() {
    let folder = trained("nbody", "");
    let message = folder.failure("rollout gravity run/best.safetensors --out out", 1);
    assert!(message.contains("got weights of nbody"), "{message}");
    assert!(!folder.path("out").exists());
}
