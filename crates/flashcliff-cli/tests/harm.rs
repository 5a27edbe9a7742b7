//! The program does no harm to an existing file with the name of an output: links, modes, FIFOs, devices, streams.

#![cfg(unix)]

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use common::{Array, Folder, flashcliff, tensors, words, write};
use safetensors::{Dtype, SafeTensors};

/// A folder with an input for `reverse`.
fn folder() -> Folder {
    let folder = Folder::new();
    let x = Array::integers(&[8, 2, 3], 1);
    write(&folder.path("in"), &tensors([("x", x)]), Dtype::F32);
    folder
}

/// The line of an operator whose output may replace a file.
fn reverse(input: &str, output: &str) -> String {
    new_reverse(input, output) + " --overwrite"
}

fn new_reverse(input: &str, output: &str) -> String {
    format!("op reverse --algebra cl300 --in {input} --out {output}")
}

/// Whether bytes are the output of the operator, and nothing else.
fn is_output(bytes: &[u8]) -> bool {
    SafeTensors::deserialize(bytes).is_ok_and(|file| file.names() == ["o"])
}

#[test]
fn files_keep_mode_links_and_names() {
    let folder = folder();
    let target = folder.path("target");
    fs::write(&target, "old").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(&target, folder.path("name")).unwrap();
    symlink("target", folder.path("link")).unwrap();
    folder.stdout(&reverse("in", "link"));
    let found = fs::metadata(&target).unwrap();
    assert_eq!((found.mode() & 0o7777, found.nlink()), (0o600, 2));
    assert!(is_output(&fs::read(folder.path("name")).unwrap()));
    assert!(
        fs::symlink_metadata(folder.path("link"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(folder.names(), ["in", "link", "name", "target"]);
}

/// A file that exists, the input itself too, is lost only to those who say so. FIFOs and devices lose nothing.
#[test]
fn no_command_replaces_a_file_unasked() {
    let folder = folder();
    let input = folder.path("in");
    let before = fs::read(&input).unwrap();
    symlink("in", folder.path("link")).unwrap();
    fs::write(folder.path("empty"), "").unwrap();
    for output in ["in", "link", "empty"] {
        let message = folder.failure(&new_reverse("in", output), 1);
        let expected = format!("{output} exists");
        assert!(
            message.contains(&expected) && message.contains("--overwrite"),
            "{message}"
        );
    }
    for line in [
        "data volumes in --samples 4",
        "bench --quick --only nothing --json in",
        "profile volumes --json in",
        "profile volumes --trace in",
        "eval volumes in --json in",
        "rollout nbody in --out in",
        "rollout nbody in --out new --json in",
        "dynamics in --json in",
    ] {
        assert!(folder.failure(line, 1).contains("--overwrite"), "{line}");
    }
    for line in [
        "profile volumes --json both --trace ./both",
        "rollout nbody in --out link --json in --overwrite",
    ] {
        let message = folder.failure(line, 1);
        assert!(message.contains("got one name for both"), "{message}");
    }
    assert_eq!(fs::read(&input).unwrap(), before);
    folder.stdout(&new_reverse("in", "/dev/null"));
    folder.stdout(&new_reverse("in", "new"));
    folder.stdout(&reverse("in", "in"));
    assert!(is_output(&fs::read(&input).unwrap()));
    let data = "data volumes in --samples 4 --val-samples 4 --test-samples 4";
    assert!(folder.failure(data, 1).contains("--overwrite"));
    folder.stdout(&format!("{data} --overwrite"));
    assert!(SafeTensors::deserialize(&fs::read(&input).unwrap()).is_ok());
    for command in [
        "op reverse",
        "data",
        "bench",
        "profile",
        "tune",
        "eval",
        "rollout",
        "dynamics",
    ] {
        let help = folder.stdout(&format!("{command} --help"));
        assert!(help.contains("--overwrite"), "{command}");
    }
}

/// The runtime opens `/dev/null` in place of a closed standard output; results would be lost with status 0.
#[cfg(any(target_os = "linux", target_os = "macos"))]
#[test]
fn a_closed_standard_output_is_an_error() {
    for command in ["info", "info --json", "algebra cl200"] {
        let line = format!("exec \"$0\" {command} >&-");
        let output = Command::new("sh")
            .args(["-c", &line, env!("CARGO_BIN_EXE_flashcliff")])
            .output()
            .unwrap();
        let message = common::text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {message}");
        assert!(
            message.contains("cannot write standard output"),
            "{message}"
        );
    }
    // Who sends results to nowhere wants them there.
    let status = flashcliff()
        .arg("info")
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn a_fifo_is_written_through() {
    let folder = folder();
    let fifo = folder.path("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let reader = {
        let fifo = fifo.clone();
        std::thread::spawn(move || fs::read(fifo).unwrap())
    };
    folder.stdout(&reverse("in", "fifo"));
    assert!(is_output(&reader.join().unwrap()));
    assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
    assert_eq!(folder.names(), ["fifo", "in"]);
}

#[cfg(target_os = "linux")]
#[test]
fn streams_and_devices_are_written_to() {
    let folder = folder();
    folder.stdout(&reverse("in", "/dev/null"));
    assert!(
        fs::metadata("/dev/null")
            .unwrap()
            .file_type()
            .is_char_device()
    );
    // The output goes to a pipe.
    let output = folder.command(&reverse("in", "/dev/stdout")).output();
    let output = output.unwrap();
    assert!(output.status.success() && is_output(&output.stdout));
    let output = folder.command(&reverse("in", "/dev/stderr")).output();
    let output = output.unwrap();
    assert!(output.status.success() && is_output(&output.stderr));
    // The output goes into an open file at its current position, not into a new file.
    let path = folder.path("whole");
    let script = r#"{ printf before; "$0" "$@"; printf after; } > "$FILE""#;
    let status = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_flashcliff")])
        .args(words(&reverse("in", "/dev/stdout")))
        .current_dir(folder.path(""))
        .env("FILE", &path)
        .status()
        .unwrap();
    assert!(status.success());
    let bytes = fs::read(&path).unwrap();
    let inner = bytes.strip_prefix(b"before").unwrap();
    assert!(is_output(inner.strip_suffix(b"after").unwrap()));
}

/// The input may come through a pipe too.
#[cfg(target_os = "linux")]
#[test]
fn an_input_may_be_a_pipe() {
    let folder = folder();
    let through = reverse("/dev/stdin", "out");
    let status = folder
        .command(&through)
        .stdin(fs::File::open(folder.path("in")).unwrap())
        .status();
    assert!(status.unwrap().success());
    let expected = fs::read(folder.path("out")).unwrap();
    let status = Command::new("sh")
        .args(["-c", r#"cat in | "$0" "$@""#])
        .arg(env!("CARGO_BIN_EXE_flashcliff"))
        .args(words(&through))
        .current_dir(folder.path(""))
        .status();
    assert!(status.unwrap().success());
    assert_eq!(fs::read(folder.path("out")).unwrap(), expected);
}

#[test]
fn the_report_of_a_benchmark_goes_where_it_is_sent() {
    let folder = folder();
    let (target, link) = (folder.path("target"), folder.path("link"));
    fs::write(&target, "old").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&target, &link).unwrap();
    folder.stdout("bench --quick --only mv_silu --json link --overwrite");
    let report = folder.json("target");
    // Two types, and in each the forward pass and both passes; and a call that allocates.
    assert_eq!(report["cases"].as_array().unwrap().len(), 5);
    assert_eq!(fs::metadata(&target).unwrap().mode() & 0o7777, 0o640);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

/// Messages have colours on a terminal only, and not with `NO_COLOR`.
#[test]
fn colours_are_for_terminals_that_want_them() {
    let folder = folder();
    let line = "bench --quick --only \"mv_silu cl300 128x16 forward+\"";
    let messages = |variable: Option<(&str, &str)>| {
        let terminal = nix::pty::openpty(None, None).unwrap();
        let mut command = folder.command(line);
        command
            .env_remove("NO_COLOR")
            .env("TERM", "xterm")
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::from(terminal.slave));
        command.envs(variable);
        let status = command.status().unwrap();
        // The command holds an end of the terminal; reading only ends after this drop.
        drop(command);
        let mut bytes = Vec::new();
        // On Linux, reading from a terminal whose other end is closed is an error.
        let _ = fs::File::from(terminal.master).read_to_end(&mut bytes);
        assert!(status.success(), "{}", String::from_utf8_lossy(&bytes));
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("mv_silu"), "{text}");
        text.contains('\x1b')
    };
    assert!(messages(None));
    assert!(messages(Some(("NO_COLOR", ""))));
    assert!(!messages(Some(("NO_COLOR", "1"))));
    assert!(!messages(Some(("TERM", "dumb"))));
    let plain = common::run(line);
    assert!(!common::text(&plain.stderr).contains('\x1b'));
}
