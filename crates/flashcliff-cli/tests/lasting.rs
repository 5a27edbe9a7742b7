//! A training run survives events around it: nobody reads its messages, the disk is full, another run wants its folder, signals come.

#![cfg(unix)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use candle_core::{DType, Device, Tensor};
use common::runs::{metrics, same, tiny};
use common::{Folder, names_in, signal, text, words};
use flashcliff_candle::checkpoint::Checkpoint;
use safetensors::SafeTensors;

const RESULTS: [&str; 4] = [
    "best.safetensors",
    "curve.svg",
    "metrics.json",
    "state.safetensors",
];

/// The line of a small run of some steps in `run`, with further options.
fn with(steps: usize, options: &str) -> String {
    tiny("hulls", "run", &format!("--steps {steps} {options}"))
}

const RESUME: &str = "train hulls --resume run/state.safetensors";

/// Starts a run in the background. Returns the run and its messages.
fn begin(mut command: Command) -> (Child, BufReader<ChildStderr>) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let messages = BufReader::new(child.stderr.take().unwrap());
    (child, messages)
}

/// Reads messages up to one with this text. Returns all that were read.
fn wait_for(messages: &mut BufReader<ChildStderr>, part: &str) -> String {
    let mut read = String::new();
    while messages.read_line(&mut read).unwrap() > 0 {
        if read.lines().last().unwrap().contains(part) {
            return read;
        }
    }
    panic!("no `{part}`: {read}");
}

/// Waits for the end. Returns the status and the standard output.
fn end(child: Child, messages: BufReader<ChildStderr>) -> (Option<i32>, String) {
    messages.lines().for_each(drop);
    let output = child.wait_with_output().unwrap();
    (output.status.code(), text(&output.stdout))
}

#[test]
fn nobody_reads_the_messages() {
    let folder = Folder::new();
    let out = folder.path("run");
    let (mut child, messages) = begin(folder.command(&with(12, "")));
    drop(messages);
    assert!(child.wait().unwrap().success());
    assert_eq!(names_in(&out), RESULTS);
    // Now nobody reads the results either.
    let (mut child, messages) = begin(folder.command(&with(12, "--overwrite")));
    drop((messages, child.stdout.take()));
    assert!(child.wait().unwrap().success());
    assert_eq!(names_in(&out), RESULTS);
}

#[cfg(target_os = "linux")]
#[test]
fn the_disk_of_the_messages_is_full() {
    let folder = Folder::new();
    let full = || Stdio::from(fs::File::create("/dev/full").unwrap());
    let out = folder.path("run");
    let status = folder.command(&with(12, "")).stderr(full()).status();
    assert!(status.unwrap().success());
    assert_eq!(names_in(&out), RESULTS);
    // It is an error if nobody reads the results, after all files are written.
    fs::remove_dir_all(&out).unwrap();
    let output = folder.command(&with(12, "")).stdout(full()).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot write standard output"));
    assert_eq!(names_in(&out), RESULTS);
    // An error gives its status even if nobody can read its message.
    let mut command = folder.command("train hulls --lr 0");
    assert_eq!(command.stderr(full()).status().unwrap().code(), Some(1));
}

#[test]
fn a_folder_is_for_one_run_at_a_time() {
    let folder = Folder::new();
    let out = folder.path("run");
    let (mut child, mut messages) = begin(folder.command(&with(1_000_000, "")));
    wait_for(&mut messages, "parameters");
    let process = format!("in use by process {} on ", child.id());
    for options in ["", "--overwrite"] {
        let message = folder.failure(&with(12, options), 1);
        assert!(
            message.contains(&process) && message.contains(" since 20"),
            "{message}"
        );
    }
    // The folder is also locked under another name.
    symlink("run", folder.path("link")).unwrap();
    let message = folder.failure(&tiny("hulls", "link", "--overwrite"), 1);
    assert!(message.contains(&process), "{message}");
    // A run that was killed holds no lock.
    child.kill().unwrap();
    child.wait().unwrap();
    folder.stdout(&with(12, "--overwrite"));
    assert_eq!(names_in(&out), RESULTS);
}

#[test]
fn a_killed_run_goes_on_from_its_last_steps() {
    let folder = Folder::new();
    folder.stdout(&tiny("hulls", "straight", "--steps 64"));
    let state = folder.path("run/state.safetensors");
    let (mut child, mut messages) = begin(folder.command(&with(64, "--save-every 3")));
    wait_for(&mut messages, "step 8 of 64");
    child.kill().unwrap();
    child.wait().unwrap();
    let checkpoint = flashcliff_candle::checkpoint::Checkpoint::load(&state).unwrap();
    let history: serde_json::Value =
        serde_json::from_str(checkpoint.text("history").unwrap()).unwrap();
    let step = history["step"].as_u64().unwrap();
    assert!(step >= 6 && step.is_multiple_of(3), "{step}");
    folder.stdout(RESUME);
    same(&folder.path("straight"), &folder.path("run"));
}

/// The run is so short that nobody would think of saving its state.
#[test]
fn a_state_is_saved_early_without_being_asked() {
    let folder = Folder::new();
    let out = folder.path("run");
    let (mut child, mut messages) = begin(folder.command(&with(64, "")));
    wait_for(&mut messages, "step 6 of 64");
    child.kill().unwrap();
    child.wait().unwrap();
    folder.stdout(RESUME);
    assert_eq!(names_in(&out), RESULTS);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_waited_for() {
    let folder = Folder::new();
    let out = folder.path("run");
    let state = out.join("state.safetensors");
    fs::create_dir(&out).unwrap();
    symlink("/dev/full", &state).unwrap();
    let line = with(64, "--overwrite --save-every 2");
    let (child, mut messages) = begin(folder.command(&line));
    let read = wait_for(&mut messages, "not saved after step 2");
    assert!(
        read.contains("No space left") && read.contains("goes on"),
        "{read}"
    );
    fs::remove_file(&state).unwrap();
    wait_for(&mut messages, "is saved");
    assert_eq!(end(child, messages).0, Some(0));
    assert_eq!(names_in(&out), RESULTS);
    assert!(fs::symlink_metadata(&state).unwrap().is_file());
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_stays_full_is_an_error_with_all_other_results() {
    let folder = Folder::new();
    let out = folder.path("run");
    fs::create_dir(&out).unwrap();
    symlink("/dev/full", out.join("state.safetensors")).unwrap();
    let output = folder.command(&with(12, "--overwrite")).output();
    let output = output.unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    for part in [
        "done up to step 12",
        "state.safetensors could not be saved: this run has saved no state",
        "No space left",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(text(&output.stdout).contains("flashcliff (this run, seed 3)"));
    assert_eq!(metrics(&out)["train_losses"].as_array().unwrap().len(), 12);
    assert_eq!(names_in(&out), RESULTS);
}

/// The folder is removed during the run, but the last state is saved all the same.
#[test]
fn a_removed_folder_is_made_again() {
    let folder = Folder::new();
    let out = folder.path("run");
    let (child, mut messages) = begin(folder.command(&with(64, "--save-every 1")));
    wait_for(&mut messages, "step 4 of 64");
    fs::rename(&out, folder.path("moved")).unwrap();
    wait_for(&mut messages, "not saved after step");
    assert_eq!(end(child, messages).0, Some(0));
    assert_eq!(names_in(&out), RESULTS);
}

#[test]
fn an_error_that_is_no_number_is_told_and_the_run_can_go_on() {
    let folder = Folder::new();
    let out = folder.path("run");
    let message = folder.failure(&with(1, "--lr 1e30"), 1);
    assert!(
        message.contains("expected a finite validation error, got NaN after step 1")
            && message.contains("--resume"),
        "{message}"
    );
    // All steps are done: the results are written now, and the run still fails.
    let message = folder.failure(RESUME, 1);
    assert!(message.contains("got NaN after step 1"), "{message}");
    assert!(metrics(&out)["errors"]["validation"].is_null());
    // In the middle of a run, the state after the step is saved.
    fs::remove_dir_all(&out).unwrap();
    folder.failure(&with(3, "--lr 1e30"), 1);
    let message = folder.failure(RESUME, 1);
    assert!(
        message.contains("expected a finite loss") && message.contains("at step 1"),
        "{message}"
    );
    assert_eq!(names_in(&out), ["state.safetensors"]);
}

/// Sends a signal some time after a run has begun to write to its folder.
fn stop_while_data_are_made(child: &Child, out: &Path, name: &str) {
    let start = Instant::now();
    while !out.join(".flashcliff.lock").exists() {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
    signal(child, name);
}

#[test]
fn a_signal_while_the_data_are_made_ends_the_run() {
    let folder = Folder::new();
    let out = folder.path("run");
    // The data of this run take more than ten minutes.
    let (child, mut messages) = begin(folder.command("train hulls --samples 3000000 --out run"));
    let start = Instant::now();
    stop_while_data_are_made(&child, &out, "INT");
    let message = wait_for(&mut messages, "error: ");
    assert!(
        message.contains("stopped by a signal before the first step"),
        "{message}"
    );
    assert_eq!(end(child, messages).0, Some(1));
    assert!(start.elapsed() < Duration::from_secs(30));
    assert!(!out.exists());
}

/// The state of a resumed run is as safe while the data are made again as it is later.
#[test]
fn a_signal_while_the_data_of_a_resumed_run_are_made_is_no_error() {
    let folder = Folder::new();
    let out = folder.path("run");
    let state = out.join("state.safetensors");
    folder.stdout(&with(12, ""));
    // A run like that, with so many samples that their making takes many minutes.
    let mut checkpoint = Checkpoint::load(&state).unwrap();
    let mut settings: serde_json::Value =
        serde_json::from_str(checkpoint.text("settings").unwrap()).unwrap();
    settings["samples"] = 3_000_000.into();
    settings["steps"] = 24.into();
    checkpoint.insert_text("settings", settings.to_string());
    checkpoint.save(&state).unwrap();
    let before = fs::read(&state).unwrap();
    let another = folder.path("another one");
    // The command that is shown continues the run in its folder.
    for (name, options) in [("INT", ""), ("TERM", ""), ("INT", " --out \"another one\"")] {
        let line = format!("{RESUME}{options}");
        let (child, messages) = begin(folder.command(&line));
        let own = if options.is_empty() { &out } else { &another };
        stop_while_data_are_made(&child, own, name);
        let (status, results) = end(child, messages);
        assert_eq!(status, Some(0), "{results}");
        assert!(
            results.contains("interrupted after 12 of 24 steps")
                && results.ends_with(&format!("flashcliff {}\n", line.replace('"', "'"))),
            "{results}"
        );
        assert_eq!(fs::read(&state).unwrap(), before);
    }
}

/// Losses are a tensor: the header of a file has no room for the losses of ten million steps.
#[test]
fn a_state_has_room_for_long_runs() {
    let folder = Folder::new();
    let state = folder.path("run/state.safetensors");
    folder.stdout(&with(12, ""));
    // A run of so many steps would take hours. What it leaves differs from this by the settings and the history alone.
    let steps = 12_000_000_usize;
    let mut checkpoint = Checkpoint::load(&state).unwrap();
    for (name, numbers) in [
        ("settings", [("steps", 2 * steps), ("val_every", 2 * steps)]),
        ("history", [("step", steps), ("seconds", steps)]),
    ] {
        let mut text: serde_json::Value =
            serde_json::from_str(checkpoint.text(name).unwrap()).unwrap();
        for (key, number) in numbers {
            text[key] = number.into();
        }
        checkpoint.insert_text(name, text.to_string());
    }
    let losses = Tensor::full(0.012_345_679_f32, steps, &Device::Cpu).unwrap();
    checkpoint.insert("history.losses", &losses);
    checkpoint.save(&state).unwrap();
    let (child, mut messages) = begin(folder.command(RESUME));
    wait_for(&mut messages, "parameters");
    signal(&child, "INT");
    let (status, results) = end(child, messages);
    assert_eq!(status, Some(0), "{results}");
    let checkpoint = Checkpoint::load(&state).unwrap();
    let history: serde_json::Value =
        serde_json::from_str(checkpoint.text("history").unwrap()).unwrap();
    let step = history["step"].as_u64().unwrap() as usize;
    assert!(step >= steps, "{step}");
    assert!(
        checkpoint
            .get("history.losses", &[step], DType::F32)
            .is_ok()
    );
}

/// A run that goes on in its folder keeps its results there, by whatever name the folder is called.
#[test]
fn a_run_may_go_on_in_its_folder_under_another_name() {
    let folder = Folder::new();
    folder.stdout(&tiny("volumes", "run", ""));
    let resume = "train volumes --resume run/state.safetensors --out";
    let absolute = folder.path("run");
    for name in ["./run", "run/../run", absolute.to_str().unwrap()] {
        folder.stdout(&format!("{resume} \"{name}\""));
    }
    folder.stdout(&tiny("volumes", "another", ""));
    let message = folder.failure(&format!("{resume} another"), 1);
    assert!(message.contains("of an earlier run"), "{message}");
}

/// States of before losses were a tensor have them in the text.
#[test]
fn a_state_with_losses_in_its_text_can_be_continued() {
    const LOSSES: &str = "history.losses";
    let folder = Folder::new();
    folder.stdout(&tiny("volumes", "run", ""));
    let whole = Checkpoint::load(folder.path("run/state.safetensors")).unwrap();
    let losses = whole.get(LOSSES, &[12], DType::F32).unwrap();
    let mut history: serde_json::Value =
        serde_json::from_str(whole.text("history").unwrap()).unwrap();
    assert!(history.get("losses").is_none(), "{history}");
    history["losses"] = losses.to_vec1::<f32>().unwrap().into();
    let mut older = Checkpoint::new();
    for (name, tensor) in whole.tensors() {
        if name != LOSSES {
            older.insert(name, tensor);
        }
    }
    older.insert_text("settings", whole.text("settings").unwrap());
    older.insert_text("history", history.to_string());
    older.save(folder.path("older")).unwrap();
    folder.stdout("train volumes --resume older --out continued");
    same(&folder.path("run"), &folder.path("continued"));
}

/// The help says that an error that is not a number gives status 1. This holds for the error of the best weights too.
#[test]
fn best_weights_that_are_no_numbers_are_an_error() {
    let folder = Folder::new();
    let out = folder.path("run");
    let state = out.join("state.safetensors");
    for prefix in ["best.", "model."] {
        folder.stdout(&with(12, "--overwrite"));
        let mut bytes = fs::read(&state).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let of_bias = |name: &&str| name.starts_with(prefix) && name.ends_with("bias");
        let name = file.names().into_iter().find(of_bias).unwrap().to_owned();
        let data = file.tensor(&name).unwrap().data();
        let at = data.as_ptr().addr() - bytes.as_ptr().addr();
        bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        fs::write(&state, bytes).unwrap();
        let message = folder.failure(RESUME, 1);
        assert!(message.contains("expected a finite"), "{prefix}: {message}");
    }
}

/// A file that a killed save has left goes with the next run.
#[test]
fn a_run_removes_what_a_killed_one_left() {
    let folder = Folder::new();
    let out = folder.path("run");
    folder.stdout(&with(12, ""));
    fs::write(out.join(".flashcliff-aB3dE9"), "half a state").unwrap();
    fs::write(out.join(".flashcliff-notes.txt"), "of a user").unwrap();
    folder.stdout(RESUME);
    let mut expected = vec![".flashcliff-notes.txt"];
    expected.extend(RESULTS);
    assert_eq!(names_in(&out), expected);
}

#[test]
fn what_is_ignored_at_the_start_stays_ignored() {
    let folder = Folder::new();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP INT; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_flashcliff"));
    command
        .args(words(&with(100, "")))
        .current_dir(folder.path(""));
    let (child, mut messages) = begin(command);
    wait_for(&mut messages, "step 3 of 100");
    for name in ["HUP", "INT", "HUP"] {
        signal(&child, name);
    }
    // At this step a handler would have stopped the run.
    wait_for(&mut messages, "step 12 of 100");
    signal(&child, "TERM");
    let (status, results) = end(child, messages);
    assert_eq!(status, Some(0));
    assert!(results.contains("interrupted after"), "{results}");
}

#[test]
fn the_command_to_go_on_can_be_copied() {
    let folder = Folder::new();
    let name = "it's a $(run) & more";
    let (child, mut messages) = begin(folder.command(&tiny("hulls", name, "--steps 64")));
    wait_for(&mut messages, "step 2 of 64");
    signal(&child, "HUP");
    let (status, results) = end(child, messages);
    assert_eq!(status, Some(0));
    let command = results.lines().last().unwrap();
    assert!(
        command.starts_with("  flashcliff train hulls --resume '"),
        "{command}"
    );
    let program = Path::new(env!("CARGO_BIN_EXE_flashcliff"));
    let status = Command::new("/bin/sh")
        .args(["-c", command])
        .current_dir(folder.path(""))
        .env("PATH", program.parent().unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    assert_eq!(names_in(&folder.path(name)), RESULTS);
}
