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
