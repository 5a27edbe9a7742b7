//! Tests of the environment variables and threads of the program.

mod common;

use std::process::Output;

use common::{flashcliff, text, words};

/// Runs a command that starts threads, with variables and options.
fn run(variables: &[(&str, &str)], options: &str) -> Output {
    let mut command = flashcliff();
    for name in ["RAYON_NUM_THREADS", "OMP_NUM_THREADS", "RUST_MIN_STACK"] {
        command.env_remove(name);
    }
    let command = command.envs(variables.iter().copied());
    command
        .args(words(&format!("algebra 2,0,0 {options}")))
        .output()
        .unwrap()
}

#[test]
fn values_that_mean_something() {
    for variables in [
        &[][..],
        &[("RAYON_NUM_THREADS", "2"), ("OMP_NUM_THREADS", "3,1")],
        &[("RAYON_NUM_THREADS", "0"), ("OMP_NUM_THREADS", "")],
        &[("FLASHCLIFF_SIMD", "scalar")],
    ] {
        let output = run(variables, "");
        assert!(output.status.success(), "{variables:?}");
        assert_eq!(text(&output.stderr), "", "{variables:?}");
    }
}

#[test]
fn values_that_mean_nothing() {
    for (name, value) in [
        ("RAYON_NUM_THREADS", "many"),
        ("OMP_NUM_THREADS", "0"),
        ("OMP_NUM_THREADS", "2,x"),
        ("FLASHCLIFF_SIMD", "sse9"),
    ] {
        for options in ["", "--threads 1"] {
            let output = run(&[(name, value)], options);
            assert_eq!(output.status.code(), Some(1), "{name}={value}");
            let message = text(&output.stderr);
            assert!(
                message.starts_with(&format!("error: the environment variable {name} must be ")),
                "{message}"
            );
            assert!(message.ends_with(&format!("got `{value}`\n")), "{message}");
        }
    }
}

#[test]
fn too_many_threads() {
    let output = run(&[], "--threads 100000");
    assert!(output.status.success());
    let message = text(&output.stderr);
    assert!(
        message.contains("100000 threads asked for by the program"),
        "{message}"
    );
    assert!(message.contains("at most 8 for each CPU"), "{message}");
}

/// The variable asks for a stack that no address space has room for, so every thread is refused.
#[test]
fn no_thread_allowed() {
    let output = run(&[("RUST_MIN_STACK", "1125899906842624")], "--threads 2");
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(
        message.starts_with("error: cannot start 2 threads: "),
        "{message}"
    );
}

#[test]
fn ranks_by_variables_that_fit_no_run() {
    let all = [
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "1"),
    ];
    for (without, value, options, parts) in [
        (
            "WORLD_SIZE",
            None,
            "",
            ["WORLD_SIZE: expected a number from 1", "got nothing"],
        ),
        (
            "RANK",
            Some("2"),
            "",
            ["RANK: expected a number from 0 to 1", "got `2`"],
        ),
        (
            "MASTER_ADDR",
            None,
            "",
            ["MASTER_ADDR: expected", "got nothing"],
        ),
        ("", None, "", ["--device cuda", "got cpu"]),
        (
            "",
            None,
            "--device cuda --gpus 2",
            ["--gpus 2", "one of 2 ranks"],
        ),
    ] {
        let mut command = flashcliff();
        command.args(words(&format!("train hulls {options}")));
        for (name, usual) in all {
            match name == without {
                false => command.env(name, usual),
                true => command
                    .env_remove(name)
                    .envs(value.map(|value| (name, value))),
            };
        }
        let output = command.output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}
