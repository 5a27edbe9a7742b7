//! Tests of `flashcliff train`: runs are reproducible and interruptible, and never harm older results.

mod common;

use std::path::Path;

use common::runs::{metrics, raw, same, tiny};
use common::{Folder, names_in, read};
use flashcliff_candle::checkpoint::Checkpoint;
use safetensors::Dtype;
use serde_json::Value;

#[test]
fn a_run_leaves_all_results() {
    for (task, parameters) in [
        ("hulls", 58_849),
        ("regression", 149_877),
        ("volumes", 48_913),
        ("gravity", 2_209_058),
        ("nbody5d", 210_113),
    ] {
        let folder = Folder::new();
        let out = folder.path("new/run");
        let text = folder.stdout(&tiny(task, "new/run", ""));
        assert!(
            text.contains("flashcliff (this run, seed 3)") && text.contains("test: "),
            "{text}"
        );
        let metrics = metrics(&out);
        assert_eq!(metrics["parameters"], parameters);
        assert_eq!(metrics["settings"]["task"], task);
        assert_eq!(metrics["settings"]["batch"], 8);
        assert_eq!(metrics["train_losses"].as_array().unwrap().len(), 12);
        let validations = metrics["validations"].as_array().unwrap();
        assert_eq!(validations.last().unwrap()[0], 12);
        assert_eq!(
            validations.last().unwrap()[1],
            metrics["errors"]["validation"]
        );
        let least = validations
            .iter()
            .map(|v| v[1].as_f64().unwrap())
            .fold(f64::INFINITY, f64::min);
        assert_eq!(metrics["errors"]["best_validation"], least);
        let svg = std::fs::read_to_string(out.join("curve.svg")).unwrap();
        assert!(
            svg.starts_with("<svg")
                && svg.contains("validation")
                && svg.trim_end().ends_with("</svg>")
        );
        let weights = read(&out.join("best.safetensors"), Dtype::F32);
        let count: usize = weights.values().map(|array| array.data.len()).sum();
        assert_eq!(count, parameters);
        let names = "best.safetensors curve.svg metrics.json state.safetensors";
        assert_eq!(names_in(&out).join(" "), names);
    }
}

#[test]
fn the_thread_count_changes_nothing_and_the_seed_does() {
    for task in ["hulls", "regression", "volumes"] {
        let folder = Folder::new();
        let run = |out: &str, options: &str| {
            folder.stdout(&tiny(task, out, options));
            folder.path(out)
        };
        let (one, two) = (run("one", "--threads 1"), run("two", "--threads 2"));
        same(&one, &two);
        let other = run("other", "--seed 4");
        assert_ne!(
            raw(&one.join("best.safetensors")),
            raw(&other.join("best.safetensors"))
        );
    }
}

#[test]
fn data_can_have_a_seed_of_their_own() {
    let folder = Folder::new();
    let run = |name: &str, seeds: &str| {
        let text = folder.stdout(&tiny("regression", name, seeds));
        let out = folder.path(name);
        (text, metrics(&out), out)
    };
    let (text, first, own) = run("own", "--seed=3");
    assert!(text.contains("(this run, seed 3)"), "{text}");
    let (_, _, same_data) = run("same", "--seed=3 --data-seed=3");
    assert_eq!(
        raw(&own.join("best.safetensors")),
        raw(&same_data.join("best.safetensors"))
    );
    // The scale of regression's targets is that of its training data.
    let (text, other, out) = run("other", "--seed=4 --data-seed=3");
    assert!(text.contains("seed 4, data of seed 3"), "{text}");
    assert_eq!(first["target_scale"], other["target_scale"]);
    assert_ne!(
        raw(&own.join("best.safetensors")),
        raw(&out.join("best.safetensors"))
    );
    let (_, none, _) = run("none", "--seed=4");
    assert_ne!(none["target_scale"], other["target_scale"]);
    // The seed of the data belongs to the run.
    let resume = "train regression --resume other/state.safetensors";
    folder.stdout(&format!("{resume} --data-seed=3"));
    let message = folder.failure(&format!("{resume} --data-seed=4"), 1);
    assert!(message.contains("--data-seed"), "{message}");
}

#[test]
fn a_published_budget_is_compared() {
    let folder = Folder::new();
    let out = folder.path("run");
    let sizes = "--samples 30 --val-samples 50 --test-samples 50";
    let text = folder.stdout(&format!("train regression {sizes} --out run"));
    for part in [
        "CGENN, mean of 5",
        "GLGENN, mean of 5",
        "0.07908",
        "150,453",
        "2506.09625",
        "in the target's own units",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let metrics = metrics(&out);
    assert_eq!(metrics["published"].as_array().unwrap().len(), 2);
    // The model has learnt: a constant would have an error of about 1.
    assert!(metrics["errors"]["best_validation"].as_f64().unwrap() < 0.7);
    let scale = metrics["target_scale"].as_f64().unwrap().powi(2);
    let ratio = metrics["errors_in_target_units"]["test"].as_f64().unwrap()
        / metrics["errors"]["test"].as_f64().unwrap();
    assert!((ratio / scale - 1.0).abs() < 1e-6);
}

/// The smallest training set of GLGENN, for fewer steps than its rows have.
#[test]
fn bodies_in_five_dimensions_are_learnt() {
    let folder = Folder::new();
    let sizes = "--samples 30 --val-samples 30 --test-samples 30";
    let text = folder.stdout(&format!("train nbody5d {sizes} --steps 40 --out run"));
    assert!(
        text.contains("--samples 30 --steps 2048 --batch 128"),
        "{text}"
    );
    let metrics = metrics(&folder.path("run"));
    // All 30 samples are a batch.
    let losses = metrics["train_losses"].as_array().unwrap();
    let loss = |step: usize| losses[step].as_f64().unwrap();
    assert!(loss(39) < 0.2 * loss(0), "{} {}", loss(0), loss(39));
    assert_eq!(metrics["settings"]["batch"], 128);
    // Bodies that keep their velocities have the error 0.1.
    let test = metrics["errors"]["best_test"].as_f64().unwrap();
    assert!(test < 0.08, "{test}");
    assert_eq!(metrics["published"].as_array().unwrap().len(), 0);
}

#[test]
fn older_results_are_not_replaced_without_being_asked() {
    let folder = Folder::new();
    let out = folder.path("run");
    folder.stdout(&tiny("regression", "run", ""));
    let before = std::fs::read(out.join("metrics.json")).unwrap();
    let message = folder.failure(&tiny("regression", "run", ""), 1);
    assert!(
        message.contains("metrics.json") && message.contains("--overwrite"),
        "{message}"
    );
    assert_eq!(std::fs::read(out.join("metrics.json")).unwrap(), before);
    folder.stdout(&tiny("regression", "run", "--overwrite"));
    assert_ne!(std::fs::read(out.join("metrics.json")).unwrap(), before);
}

/// Interrupts a run whose state is `before`. The run goes on to the same results as a run that was not interrupted.
/// `options` are further options of its command line.
#[cfg(unix)]
fn interrupt_and_resume(folder: &Folder, task: &str, steps: usize, options: &str) {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let [straight, broken, moved] = ["straight", "broken", "moved"].map(|name| folder.path(name));
    let line = |out| tiny(task, out, &format!("--steps {steps} {options}"));
    folder.stdout(&line("straight"));

    let mut child = folder
        .command(&line("broken"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let training = lines
        .by_ref()
        .map(Result::unwrap)
        .any(|line| line.contains(&format!("step 24 of {steps}")));
    assert!(training);
    common::signal(&child, "INT");
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = common::text(&output.stdout);
    let state = broken.join("state.safetensors");
    assert!(
        text.contains("interrupted after") && text.contains("broken/state.safetensors"),
        "{text}"
    );
    assert!(!broken.join("metrics.json").exists());

    // The run was interrupted somewhere in the middle.
    let checkpoint = Checkpoint::load(&state).unwrap();
    let history: Value = serde_json::from_str(checkpoint.text("history").unwrap()).unwrap();
    let step = history["step"].as_u64().unwrap();
    assert!((24..steps as u64).contains(&step), "{step}");

    std::fs::copy(&state, folder.path("before")).unwrap();
    let resume = format!("train {task} --resume broken/state.safetensors");
    folder.stdout(&format!("{resume} --out moved --threads 1"));
    same(&straight, &moved);
    folder.stdout(&resume);
    same(&straight, &broken);
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_goes_on_as_if_nothing_had_happened() {
    let folder = Folder::new();
    // The place in the schedule and the norm of the gradients are a part of the state.
    let options = "--optimizer adamw --weight-decay 0.01 --schedule cosine --warmup 30 --clip adaptive --accumulate 4";
    interrupt_and_resume(&folder, "hulls", 400, options);
    let message = folder.failure("train volumes --resume before", 1);
    assert!(
        message.contains("the task hulls") && message.contains("got volumes"),
        "{message}"
    );
    let message = folder.failure("train hulls --resume before --batch 9", 1);
    assert!(
        message.contains("--batch 8") && message.contains("got 9"),
        "{message}"
    );
}

/// The learning rate falls before and after the interruption, and dropout goes on with the numbers of the next step.
#[cfg(unix)]
#[test]
fn an_interrupted_run_of_gravity_goes_on_too() {
    interrupt_and_resume(
        &Folder::new(),
        "gravity",
        40,
        "--dropout 0.2 --accumulate 2",
    );
}

/// Dropout is a setting of the run. Without it nothing is stored, and weights have the names of before.
#[test]
fn dropout_of_gravity_is_a_setting() {
    let folder = Folder::new();
    let run = |name: &str, options: &str| {
        folder.stdout(&tiny("gravity", name, options));
        folder.path(name)
    };
    let (plain, none) = (run("plain", ""), run("none", "--dropout 0"));
    same(&plain, &none);
    assert!(metrics(&none)["settings"]["dropout"].is_null());

    let dropped = run("dropped", "--dropout 0.2");
    assert_eq!(metrics(&dropped)["settings"]["dropout"], 0.2);
    let losses = |out: &Path| metrics(out)["train_losses"].clone();
    assert_ne!(losses(&plain)[0], losses(&dropped)[0]);
    let has =
        |out: &Path, name: &str| read(&out.join("best.safetensors"), Dtype::F32).contains_key(name);
    for (out, last) in [(&plain, 2), (&dropped, 3)] {
        assert!(has(out, &format!("blocks.0.mlp.layers.{last}.weight")));
    }
    // Blocks that run again drop the same.
    let again = run("again", "--dropout 0.2 --gradient-checkpointing");
    same(&dropped, &again);

    let resume = "train gravity --resume dropped/state.safetensors --dropout";
    folder.stdout(&format!("{resume} 0.2"));
    let message = folder.failure(&format!("{resume} 0"), 1);
    assert!(message.contains("expected --dropout 0.2"), "{message}");
}

#[test]
fn gravity_has_the_published_settings_and_rows() {
    let folder = Folder::new();
    let out = folder.path("run");
    // The network learns little in so few steps, and is compared with nothing.
    let text = folder.stdout(&tiny("gravity", "run", ""));
    let budget = "there are for --samples 1000 --steps 5001 --batch 64";
    assert!(text.contains(budget), "{text}");
    let metrics = metrics(&out);
    let settings = &metrics["settings"];
    assert_eq!(settings["learning_rate"], 3e-4);
    assert_eq!(settings["clip_norm"], 10.0);
    assert_eq!(settings["schedule"], "constant");
    assert_eq!(settings["decay_every"], 2);
    folder.stdout(&tiny(
        "gravity",
        "run",
        "--schedule cosine --lr 0.001 --overwrite",
    ));
    let settings = crate::metrics(&out)["settings"].clone();
    assert!(settings["decay_every"].is_null());
    assert_eq!(settings["learning_rate"], 1e-3);
}

#[test]
fn hulls_of_csmpn_have_the_published_settings() {
    let folder = Folder::new();
    let sizes = "--samples 2 --steps 2 --batch 1 --val-samples 1 --test-samples 1";
    let text = folder.stdout(&format!("train csmpn-hulls {sizes} --out run"));
    assert!(text.contains("254,325"), "{text}");
    let settings = &metrics(&folder.path("run"))["settings"];
    assert_eq!(settings["learning_rate"], 1e-3);
    assert_eq!(settings["ramps"], true);
    let line = format!("train csmpn-hulls {sizes} --schedule constant --out run --overwrite");
    folder.stdout(&line);
    assert!(metrics(&folder.path("run"))["settings"]["ramps"].is_null());
    let found = folder.stdout("eval csmpn-hulls run/best.safetensors --split test");
    assert!(found.contains("csmpn-hulls"), "{found}");
}

#[test]
fn tasks_have_networks_beside_the_published_ones() {
    let folder = Folder::new();
    for (task, model, parameters, rate) in [
        ("hulls", "affine", "4,385", 1e-2),
        ("regression", "invariants", "68,865", 1e-3),
    ] {
        let text = folder.stdout(&tiny(task, task, &format!("--model {model}")));
        assert!(text.contains(parameters), "{text}");
        let settings = &metrics(&folder.path(task))["settings"];
        assert_eq!(settings["model"], model);
        assert_eq!(settings["learning_rate"], rate);
        assert_eq!(settings["ramps"], true);
        // The weights say which network they are of.
        folder.stdout(&format!("eval {task} {task}/best.safetensors --split test"));
        let line = format!("train {task} --resume {task}/state.safetensors");
        folder.stdout(&line);
        let error = folder.failure(&format!("{line} --model published"), 1);
        assert!(error.contains("--model"), "{error}");
    }
    folder.stdout(&tiny("hulls", "usual", ""));
    assert!(metrics(&folder.path("usual"))["settings"]["model"].is_null());
    let error = folder.failure("train volumes --model affine", 1);
    assert!(
        error.contains("expected a network of volumes: published, got affine"),
        "{error}"
    );
}

/// Weights of another algebra or norm would give wrong results. States from before they said so can be continued.
#[test]
fn a_state_of_another_norm_or_algebra_is_refused() {
    let folder = Folder::new();
    let out = folder.path("run");
    folder.stdout(&tiny("regression", "run", ""));
    let whole = Checkpoint::load(out.join("state.safetensors")).unwrap();
    let best = Checkpoint::load(out.join("best.safetensors")).unwrap();
    for (checkpoint, prefix) in [(&whole, "model."), (&whole, "best."), (&best, "")] {
        let described = |choice| checkpoint.described(&format!("{prefix}gp.1"), choice);
        assert_eq!(described("algebra"), Some("cl500"));
        assert_eq!(described("norm"), Some("grade_norm"));
    }

    let tampered = folder.path("tampered");
    let resume = |out| format!("train regression --resume tampered --out {out}");
    for (layer, choice, value) in [
        ("model.gp.1", "norm", "none"),
        ("model.gp.1", "algebra", "cl410"),
        ("best.gp.0", "algebra", "cl410"),
    ] {
        let mut other = whole.clone();
        other.describe(layer, choice, value);
        // Choices of names that are no layers of the model are not compared.
        other.describe("model.head", "norm", "none");
        other.save(&tampered).unwrap();
        let message = folder.failure(&resume("refused"), 1);
        let says = format!("{layer}: expected weights of {choice}");
        assert!(
            message.contains(&says) && message.contains(value),
            "{message}"
        );
        assert!(!folder.path("refused").exists());
    }

    let mut older = Checkpoint::new();
    for (name, tensor) in whole.tensors() {
        older.insert(name, tensor);
    }
    for text in ["settings", "history"] {
        older.insert_text(text, whole.text(text).unwrap());
    }
    older.save(&tampered).unwrap();
    folder.stdout(&resume("continued"));
    same(&out, &folder.path("continued"));
}

/// Lion has one moment.
#[cfg(unix)]
#[test]
fn an_interrupted_run_with_lion_goes_on_too() {
    let options = "--optimizer lion --weight-decay 0.1";
    interrupt_and_resume(&Folder::new(), "hulls", 400, options);
}

#[test]
fn lion_is_a_setting() {
    let folder = Folder::new();
    let weights = |optimizer: &str| {
        let out = folder.path(optimizer);
        let options = format!("--optimizer {optimizer} --weight-decay 0.1");
        folder.stdout(&tiny("volumes", optimizer, &options));
        assert_eq!(metrics(&out)["settings"]["optimizer"], optimizer);
        raw(&out.join("state.safetensors"))
    };
    assert_ne!(weights("lion"), weights("adamw"));
}

/// All options of the optimiser are a part of the run: they are stored, kept by `--resume`, and change the weights.
#[test]
fn options_of_the_optimiser_are_settings() {
    let folder = Folder::new();
    let straight = folder.path("straight");
    let options = [
        "--optimizer adamw",
        "--weight-decay 0.1",
        "--clip-norm 0.5",
        "--schedule half-cosine",
        "--warmup 4",
        "--accumulate 2",
    ];
    folder.stdout(&tiny("volumes", "straight", &options.join(" ")));
    let settings = &metrics(&straight)["settings"];
    assert_eq!(settings["optimizer"], "adamw");
    assert_eq!(settings["weight_decay"], 0.1);
    assert_eq!(settings["clip_norm"], 0.5);
    assert_eq!(settings["schedule"], "half-cosine");
    assert_eq!(settings["warmup"], 4);
    assert_eq!(settings["accumulate"], 2);
    assert_eq!(settings["clip"], Value::Null);
    assert_eq!(settings["precision"], "highest");
    assert_eq!(settings["learning_rate"], 1e-3);
    // Each of them matters.
    for left_out in options {
        // AdamW differs from Adam by the decay alone.
        let kept = options.into_iter().filter(|option| *option != left_out);
        let kept: Vec<&str> = kept.chain(["--overwrite"]).collect();
        folder.stdout(&tiny("volumes", "without", &kept.join(" ")));
        let weights = |out: &Path| raw(&out.join("state.safetensors"));
        assert_ne!(
            weights(&folder.path("without")),
            weights(&straight),
            "{left_out}"
        );
    }

    for (option, other, expected) in [
        ("--optimizer", "adam", "adamw"),
        ("--weight-decay", "0.2", "0.1"),
        ("--clip-norm", "1", "0.5"),
        ("--schedule", "cosine", "half-cosine"),
        ("--warmup", "5", "4"),
        ("--accumulate", "4", "2"),
        ("--precision", "tf32", "highest"),
    ] {
        let resume = "train volumes --resume straight/state.safetensors";
        let message = folder.failure(&format!("{resume} {option} {other}"), 1);
        let says = format!("expected {option} {expected}");
        assert!(message.contains(&says), "{message}");
    }
}

/// A schedule takes the place of the task's own, so it is another run.
#[test]
fn a_schedule_is_not_that_of_the_task() {
    let folder = Folder::new();
    for task in ["nbody", "gravity"] {
        folder.stdout(&tiny(task, "run", "--overwrite"));
        let resume = format!("train {task} --resume run/state.safetensors");
        let message = folder.failure(&format!("{resume} --schedule constant"), 1);
        assert!(
            message.contains("expected --schedule as the task has it")
                && message.contains("got constant"),
            "{message}"
        );
        folder.stdout(&resume);
        folder.stdout(&tiny(task, "run", "--schedule constant --overwrite"));
        folder.stdout(&format!("{resume} --schedule constant"));
    }
}

/// A state of before there were such options is one of a run without them.
#[test]
fn a_state_without_options_of_the_optimiser_can_be_continued() {
    let folder = Folder::new();
    let (out, continued) = (folder.path("run"), folder.path("continued"));
    folder.stdout(&tiny("volumes", "run", ""));
    let whole = Checkpoint::load(out.join("state.safetensors")).unwrap();
    let mut settings: Value = serde_json::from_str(whole.text("settings").unwrap()).unwrap();
    let map = settings.as_object_mut().unwrap();
    for option in
        "optimizer weight_decay clip_norm clip accumulate precision schedule warmup".split(' ')
    {
        assert!(map.remove(option).is_some(), "{option}");
    }
    let mut older = whole.clone();
    older.insert_text("settings", settings.to_string());
    older.save(folder.path("older")).unwrap();
    folder.stdout("train volumes --resume older --out continued");
    same(&out, &continued);
}

/// The CPU captures nothing, and says so in the results.
#[test]
fn the_results_say_how_steps_were_run() {
    let folder = Folder::new();
    for (capture, reason) in [
        ("auto", "the CPU has no graphs to capture"),
        ("off", "capture is off"),
    ] {
        let out = folder.path(capture);
        folder.stdout(&tiny(
            "regression",
            capture,
            &format!("--capture {capture}"),
        ));
        let steps = &metrics(&out)["steps"];
        assert_eq!(steps["captured"], false);
        assert_eq!(steps["not_captured_because"], reason);
        assert!(steps["median_milliseconds"].as_f64().unwrap() > 0.0);
    }
}

/// The times of the start lie within each other, and name what a run on the CPU has alone.
#[test]
fn the_results_say_how_long_the_start_took() {
    let folder = Folder::new();
    let out = folder.path("run");
    let begun = std::time::Instant::now();
    folder.stdout(&tiny("regression", "run", ""));
    let all = begun.elapsed().as_secs_f64();
    let start = &metrics(&out)["start_seconds"];
    let seconds = |name: &str| start[name].as_f64().unwrap_or_else(|| panic!("{name}"));
    let parts = ["data", "model", "first_step"].map(seconds);
    let until = seconds("until_first_step");
    assert!(parts.iter().all(|&part| part >= 0.0));
    assert!(parts.iter().sum::<f64>() <= until && until < all);
    for absent in "driver libraries handles ranks capture until_captured".split(' ') {
        assert!(start[absent].is_null(), "{absent}");
    }
}

/// Hulls' steps take less memory and give the same weights, whether a run began with checkpointing or goes on with it.
#[test]
fn gradient_checkpointing_changes_memory_alone() {
    let folder = Folder::new();
    let bytes = |out: &Path| {
        let steps = &metrics(out)["steps"];
        (
            steps["gradient_checkpointing"].as_bool().unwrap(),
            steps["buffer_bytes"].as_u64().unwrap(),
        )
    };
    for task in ["hulls", "regression", "volumes"] {
        let names = ["kept", "again"].map(|name| format!("{task}-{name}"));
        let [kept, again] = names.each_ref().map(|name| folder.path(name));
        for options in ["", "--accumulate 2"] {
            let run = |name: &str, more: &str| {
                folder.stdout(&tiny(task, name, &format!("{options} {more} --overwrite")));
            };
            run(&names[0], "");
            run(&names[1], "--gradient-checkpointing");
            same(&kept, &again);
            let [(without, more), (with, less)] = [&kept, &again].map(|out| bytes(out));
            assert!(!without && with);
            assert!(less < more, "{task}: {less}, {more}");
        }
    }
    let before = Checkpoint::load(folder.path("hulls-kept/state.safetensors")).unwrap();
    assert!(!before.text("settings").unwrap().contains("checkpointing"));
}

/// The same holds for steps of gravity, which go through candle's graph and have no buffers themselves.
#[test]
fn gradient_checkpointing_works_without_a_plan() {
    let folder = Folder::new();
    let [kept, again] = ["kept", "again"].map(|name| folder.path(name));
    folder.stdout(&tiny("gravity", "kept", ""));
    folder.stdout(&tiny("gravity", "again", "--gradient-checkpointing"));
    same(&kept, &again);
    for (out, expected) in [(&kept, false), (&again, true)] {
        let steps = &metrics(out)["steps"];
        assert_eq!(steps["gradient_checkpointing"].as_bool(), Some(expected));
        assert!(steps["buffer_bytes"].is_null());
    }
}
