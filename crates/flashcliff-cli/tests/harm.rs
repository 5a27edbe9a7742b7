//! The program does no harm to an existing file with the name of an output: links, modes, FIFOs, devices, streams.

#![cfg(unix)]

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use common::{Array, Folder, arg, flashcliff, stdout, tensors, write};
use safetensors::{Dtype, SafeTensors};

/// A folder with an input for `reverse`.
fn folder() -> Folder {
    let folder = Folder::new();
    let x = Array::integers(&[8, 2, 3], 1);
    write(&folder.path("in"), &tensors([("x", x)]), Dtype::F32);
    folder
}

/// The arguments of an operator whose output may replace a file.
fn reverse<'a>(input: &'a Path, output: &'a str) -> Vec<&'a str> {
    let input = arg(input);
    let mut args = new_reverse(input, output).to_vec();
    args.push("--overwrite");
    args
}

fn new_reverse<'a>(input: &'a str, output: &'a str) -> [&'a str; 8] {
    [
        "op",
        "reverse",
        "--algebra",
        "cl300",
        "--in",
        input,
        "--out",
        output,
    ]
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
    stdout(&reverse(&folder.path("in"), arg(&folder.path("link"))));
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
        let output = folder.path(output);
        let message = common::failure(&new_reverse(arg(&input), arg(&output)), 1);
        let expected = format!("{} exists", output.display());
        assert!(
            message.contains(&expected) && message.contains("--overwrite"),
            "{message}"
        );
    }
    let out = arg(&input);
    for args in [
        &["data", "volumes", out, "--samples", "4"][..],
        &["bench", "--quick", "--only", "nothing", "--json", out],
        &["bench", "--quick", "--only", "nothing", "--report", out],
        &["profile", "volumes", "--json", out],
        &["profile", "volumes", "--trace", out],
    ] {
        assert!(common::failure(args, 1).contains("--overwrite"), "{args:?}");
    }
    assert_eq!(fs::read(&input).unwrap(), before);
    stdout(&new_reverse(out, "/dev/null"));
    stdout(&new_reverse(out, arg(&folder.path("new"))));
    stdout(&reverse(&input, out));
    assert!(is_output(&fs::read(&input).unwrap()));
    let small = [
        "--samples",
        "4",
        "--val-samples",
        "4",
        "--test-samples",
        "4",
    ];
    let data = |more: &[&'static str]| [&["data", "volumes", out][..], &small, more].concat();
    assert!(common::failure(&data(&[]), 1).contains("--overwrite"));
    stdout(&data(&["--overwrite"]));
    assert!(SafeTensors::deserialize(&fs::read(&input).unwrap()).is_ok());
    for command in ["op reverse", "data", "bench", "profile", "tune"] {
        let mut args: Vec<&str> = command.split(' ').collect();
        args.push("--help");
        assert!(stdout(&args).contains("--overwrite"), "{command}");
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
    stdout(&reverse(&folder.path("in"), arg(&fifo)));
    assert!(is_output(&reader.join().unwrap()));
    assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
    assert_eq!(folder.names(), ["fifo", "in"]);
}

#[cfg(target_os = "linux")]
#[test]
fn streams_and_devices_are_written_to() {
    let folder = folder();
    let input = folder.path("in");
    stdout(&reverse(&input, "/dev/null"));
    assert!(
        fs::metadata("/dev/null")
            .unwrap()
            .file_type()
            .is_char_device()
    );
    // The output goes to a pipe.
    let output = flashcliff()
        .args(reverse(&input, "/dev/stdout"))
        .output()
        .unwrap();
    assert!(output.status.success() && is_output(&output.stdout));
    let output = flashcliff()
        .args(reverse(&input, "/dev/stderr"))
        .output()
        .unwrap();
    assert!(output.status.success() && is_output(&output.stderr));
    // The output goes into an open file at its current position, not into a new file.
    let path = folder.path("whole");
    let script = r#"{ printf before; "$0" "$@"; printf after; } > "$FILE""#;
    let status = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_flashcliff")])
        .args(reverse(&input, "/dev/stdout"))
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
    let (input, output) = (folder.path("in"), folder.path("out"));
    let status = flashcliff()
        .args(reverse(Path::new("/dev/stdin"), arg(&output)))
        .stdin(fs::File::open(&input).unwrap())
        .status()
        .unwrap();
    assert!(status.success());
    let expected = fs::read(&output).unwrap();
    let status = Command::new("sh")
        .args([
            "-c",
            r#"cat "$FILE" | "$0" "$@""#,
            env!("CARGO_BIN_EXE_flashcliff"),
        ])
        .args(reverse(Path::new("/dev/stdin"), arg(&output)))
        .env("FILE", &input)
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(fs::read(&output).unwrap(), expected);
}

#[test]
fn the_report_of_a_benchmark_goes_where_it_is_sent() {
    let folder = folder();
    let (target, link) = (folder.path("target"), folder.path("link"));
    fs::write(&target, "old").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&target, &link).unwrap();
    stdout(&[
        "bench",
        "--quick",
        "--only",
        "mv_silu",
        "--json",
        arg(&link),
        "--overwrite",
    ]);
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&target).unwrap()).unwrap();
    // Two types, and in each the forward pass and both passes; and a call that allocates.
    assert_eq!(report["cases"].as_array().unwrap().len(), 5);
    assert_eq!(fs::metadata(&target).unwrap().mode() & 0o7777, 0o640);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

/// Messages have colours on a terminal only, and not with `NO_COLOR`.
#[test]
fn colours_are_for_terminals_that_want_them() {
    let folder = folder();
    let messages = |variable: Option<(&str, &str)>| {
        let terminal = nix::pty::openpty(None, None).unwrap();
        let mut command = flashcliff();
        command
            .args([
                "bench",
                "--quick",
                "--only",
                "mv_silu cl300 128x16 forward+",
            ])
            .current_dir(folder.0.path())
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
    let plain = common::run(&[
        "bench",
        "--quick",
        "--only",
        "mv_silu cl300 128x16 forward+",
    ]);
    assert!(!common::text(&plain.stderr).contains('\x1b'));
}
