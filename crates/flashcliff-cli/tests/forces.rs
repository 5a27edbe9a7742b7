//! Tests of the task `forces` and of `flashcliff dynamics`.

mod common;

use common::runs::{metrics, tiny};
use common::{Folder, read};
use flashcliff_network::file::{self, Conversion, Stored};
use flashcliff_network::{Cpu, Rows, Scales, Segments, Slices};
use flashcliff_tasks::silicon::{ATOMS, Crystal, ENERGY_WEIGHT, IMAGES, reach, shifts};
use serde_json::Value;

fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or_else(|| panic!("{name}: {of}"))
}

/// Weights of a run that is long enough to learn something, in `run`.
fn learned() -> (Folder, String) {
    let folder = Folder::new();
    let sizes = "--samples 64 --steps 120 --val-samples 32 --test-samples 48";
    let text = folder.stdout(&format!("train forces {sizes} --seed 3 --out run"));
    (folder, text)
}

/// Energies of samples by the network in a file, whose edges are found among the atoms of the
/// crystal at rest.
fn energies(stored: &Stored, sites: &[f32]) -> Vec<f32> {
    let samples = sites.len() / (4 * (ATOMS + IMAGES));
    let edges = Crystal::of_samples().edges(reach());
    let repeated = |step: usize, own: Vec<usize>| -> Vec<usize> {
        let all = (0..samples).map(|sample| sample * step);
        all.flat_map(|first| own.iter().map(move |at| first + at).collect::<Vec<_>>())
            .collect()
    };
    let (all_atoms, all_sites) = (samples * ATOMS, samples * (ATOMS + IMAGES));
    let image = |shift| ATOMS + shifts().iter().position(|own| *own == shift).unwrap();
    let relations = [
        (
            ATOMS,
            edges.iter().map(|own| own.receiver).collect(),
            all_atoms,
        ),
        (
            ATOMS,
            edges.iter().map(|own| own.sender).collect(),
            all_atoms,
        ),
        (
            ATOMS + IMAGES,
            edges.iter().map(|own| image(own.shift)).collect(),
            all_sites,
        ),
        (ATOMS + IMAGES, (0..ATOMS).collect(), all_sites),
        (1, vec![0; ATOMS], samples),
    ];
    let relations =
        relations.map(|(step, own, count)| Segments::new(&repeated(step, own), count).unwrap());
    let rows = Rows {
        edges: samples * edges.len(),
        graphs: samples,
        others: [all_atoms, 0, 0],
        ..Rows::new(samples, ATOMS + IMAGES)
    };
    let output = [stored.outputs()[0].1];
    let types = [flashcliff::Dtype::F32; 2];
    let plan = stored.network().plan(&output, rows, types).unwrap();
    let parameters = stored.parameters::<f32>(Conversion::None).unwrap();
    let parameters: Vec<&[f32]> = parameters.iter().map(Vec::as_slice).collect();
    let sources = Slices {
        inputs: &[sites],
        parameters: &parameters,
    };
    let scales = Scales {
        relations: &relations,
        ..Scales::default()
    };
    let mut out = [vec![f32::NAN; samples]];
    let mut memory = Cpu::new(&plan).unwrap();
    memory
        .run(&plan, &sources, &mut out, scales, &mut |_| {})
        .unwrap();
    let [out] = out;
    out
}

#[test]
fn forces_are_learned_and_move_atoms() {
    let (folder, text) = learned();
    assert!(!text.contains("no table with errors"), "{text}");
    for part in [
        "11,968",
        "energy, meV/atom",
        "force, meV/A",
        "no force, mean energy",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let metrics = metrics(&folder.path("run"));
    let [best, trivial] = ["best", "trivial"].map(|name| &metrics["forces"][name]);
    for (name, part) in [("energy", 0.3), ("force", 0.2)] {
        let (own, of_nothing) = (number(best, name), number(trivial, name));
        assert!(own < part * of_nothing, "{name}: {own} {of_nothing}");
    }
    assert!(number(best, "cosine") > 0.98 && number(trivial, "cosine") == 0.0);

    // `eval` finds the same errors, digit by digit.
    let weights = "run/best.safetensors";
    let text = folder.stdout(&format!("eval forces {weights} --json eval.json"));
    assert!(text.contains("test, no force and mean energy"), "{text}");
    let report = folder.json("eval.json");
    assert_eq!(report["forces"]["test"][0], *best);
    assert_eq!(report["forces"]["test"][1], *trivial);
    energies_of_files_are_those_of_the_program(&folder, &report);
    atoms_move(&folder);
}

fn energies_of_files_are_those_of_the_program(folder: &Folder, report: &Value) {
    folder.stdout("data forces data --samples 1 --val-samples 1 --test-samples 48 --seed 3");
    let data = read(&folder.path("data"), safetensors::Dtype::F32);
    let stored = file::load(folder.path("run/best.safetensors")).unwrap();
    let sites: Vec<f32> = data["test.inputs"].data.iter().map(|&x| x as f32).collect();
    let targets = data["test.targets"].data.chunks_exact(4 * ATOMS);
    let pairs = energies(&stored, &sites).into_iter().zip(targets);
    let apart = pairs
        .map(|(own, target)| (f64::from(own) / ATOMS as f64 - target[3] / ENERGY_WEIGHT).abs());
    let error = 1e3 * apart.sum::<f64>() / 48.0;
    let expected = number(&report["forces"]["test"][0], "energy");
    assert!((error / expected - 1.0).abs() < 1e-3, "{error} {expected}");
}

fn atoms_move(folder: &Folder) {
    let run = |options: &str| {
        let line = format!(
            "dynamics run/best.safetensors --cells 1 --json out.json --overwrite {options}"
        );
        let text = folder.stdout(&line);
        assert!(text.contains("steps a second"), "{text}");
        folder.json("out.json")
    };
    let own = run("--steps 60");
    assert_eq!(own["atoms"], 8);
    assert!(number(&own, "steps_per_second") > 0.0);
    // The atoms keep about half of the energy of motion: at 600 kelvin 78 meV each.
    assert!(
        (300.0..1200.0).contains(&number(&own, "temperature")),
        "{own}"
    );
    assert!(number(&own, "drift") < 3.0, "{own}");
    assert!(number(&own, "force_error") < 300.0, "{own}");
    let short = run("--steps 120 --time-step 0.5");
    assert!(
        number(&short, "drift") < 0.5 * number(&own, "drift"),
        "{own} {short}"
    );
    let narrow = run("--steps 60 --precision f32");
    assert!(
        (number(&narrow, "drift") - number(&own, "drift")).abs() < 0.5,
        "{narrow}"
    );
    assert_ne!(run("--steps 60 --seed 1")["energy"], own["energy"]);
    let wide = "dynamics run/best.safetensors --cells 1 --steps 1 --skin 1e9";
    let error = folder.failure(wide, 1);
    assert!(error.contains("make --skin smaller"), "{error}");

    // Weights of another task are refused.
    folder.stdout(&tiny("volumes", "volumes", ""));
    let error = folder.failure("dynamics volumes/best.safetensors", 1);
    assert!(
        error.contains("forces") && error.contains("volumes"),
        "{error}"
    );
}

/// A run that is resumed ends as one that was not interrupted, and steps in parts give nearly the
/// same.
#[test]
fn runs_are_resumed_bit_for_bit() {
    let folder = Folder::new();
    folder.stdout(&tiny("forces", "run", ""));
    let text = folder.stdout("train forces --resume run/state.safetensors --out again");
    assert!(text.contains("12 steps"), "{text}");
    common::runs::same(&folder.path("run"), &folder.path("again"));
    folder.stdout(&tiny("forces", "parts", "--accumulate 2"));
    let error = |out: &str| number(&metrics(&folder.path(out))["errors"], "test");
    let (whole, parts) = (error("run"), error("parts"));
    assert!((whole / parts - 1.0).abs() < 1e-3, "{whole} {parts}");
}
