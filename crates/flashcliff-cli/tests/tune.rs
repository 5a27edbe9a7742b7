//! Tests of `flashcliff tune`: wrong command lines, and a GPU that does not exist. Tuning itself needs a GPU.

mod common;

use common::{Folder, arg, failure, flashcliff, stdout, text};

/// A GPU number that no machine has.
const BEYOND: &str = "cuda:100000";

const SMALL: [&str; 5] = ["tune", "--operator", "mv_linear", "--shape", "8x4"];

/// The arguments of a small call with more arguments.
fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut args: Vec<&str> = SMALL.to_vec();
    args.extend(more);
    args
}

#[test]
fn wrong_options_say_what_is_expected() {
    for (more, parts) in [
        (["--shape", "8"], ["BATCHxCHANNELS", "`8`"]),
        (["--shape", "8x0x4"], ["BATCHxINxOUT", "`8x0x4`"]),
        (["--operator", "sgp_norm"], ["mv_linear", "fcgp_norm"]),
        (["--dtype", "f8"], ["bf16", "f8"]),
        (["--precision", "low"], ["highest", "tf32"]),
        (["--candidates", "0"], ["--candidates", "0"]),
        (["--device", "gpu"], ["cuda:N", "gpu"]),
    ] {
        let message = failure(&with(&more), 2);
        for part in parts {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    for args in [&["tune"][..], &["tune", "--operator", "all"]] {
        let message = failure(args, 2);
        assert!(message.contains("--shape"), "{message}");
    }
}

#[test]
fn the_cpu_has_nothing_to_tune() {
    let message = failure(&with(&["--device", "cpu"]), 1);
    assert!(message.contains("--device: expected cuda"), "{message}");
}

#[test]
fn what_cannot_be_computed_is_refused() {
    let message = failure(&with(&["--algebra", "cl700"]), 1);
    assert!(
        message.contains("no CUDA kernels for Cl(7,0,0)"),
        "{message}"
    );
    let huge = "4611686018427387904x4611686018427387904";
    let message = failure(&with(&["--shape", huge]), 1);
    assert!(message.contains("too large"), "{message}");
}

#[test]
fn a_gpu_that_is_not_there_leaves_no_file() {
    let folder = Folder::new();
    let log = folder.path("log.jsonl");
    let cache = folder.path("cache");
    for more in [&["--dry-run"][..], &["--clear"], &[]] {
        let mut args = with(&["--device", BEYOND, "--log", arg(&log)]);
        args.extend(more);
        let output = flashcliff()
            .args(&args)
            .env("FLASHCLIFF_CACHE_DIR", &cache)
            .output()
            .unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        let expected: &[&str] = match cfg!(feature = "cuda") {
            true => &[
                "no CUDA driver",
                "no GPU",
                "no CUDA device",
                "100000",
                "older",
            ],
            false => &["built without CUDA"],
        };
        let said = expected.iter().any(|part| message.contains(part));
        assert!(said && !message.contains("panicked"), "{message}");
        assert_eq!(folder.names(), Vec::<String>::new());
    }
}

#[test]
fn a_broken_table_does_not_stop_a_program() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("tuning")).unwrap();
    for name in ["nvidia-h200-sm90.json", "nvidia-h100-80gb-hbm3-sm90.json"] {
        std::fs::write(folder.path("tuning").join(name), "{").unwrap();
    }
    let output = flashcliff()
        .args(["info", "--json"])
        .env("FLASHCLIFF_CACHE_DIR", folder.path(""))
        .env("FLASHCLIFF_TUNING", "nonsense")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let info: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    for gpu in info["gpus"]["found"].as_array().unwrap() {
        assert!(gpu["tuning"]["state"].is_string(), "{info}");
        let ignored = gpu["tuning"]["ignored"].to_string();
        assert!(ignored.contains("`nonsense`"), "{info}");
    }
}

#[test]
fn the_help_says_where_results_go() {
    let help = stdout(&["tune", "--help"]);
    for part in ["FLASHCLIFF_CACHE_DIR", "FLASHCLIFF_TUNING", "--dry-run"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}
