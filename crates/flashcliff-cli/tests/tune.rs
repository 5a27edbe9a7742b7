//! Tests of `flashcliff tune`: wrong command lines, and a GPU that does not exist. Tuning itself needs a GPU.

mod common;

use common::{Folder, stdout, text};

/// A GPU number that no machine has.
const BEYOND: &str = "cuda:100000";

const SMALL: &str = "tune --operator mv_linear --shape 8x4";

#[test]
fn a_gpu_that_is_not_there_leaves_no_file() {
    let folder = Folder::new();
    for more in ["--dry-run", "--clear", ""] {
        let line = format!("{SMALL} --device {BEYOND} --log log.jsonl {more}");
        let cache = folder.path("cache");
        let output = folder
            .command(&line)
            .env("FLASHCLIFF_CACHE_DIR", cache)
            .output();
        let output = output.unwrap();
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
    let output = folder
        .command("info --json")
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
    let help = stdout("tune --help");
    for part in ["FLASHCLIFF_CACHE_DIR", "FLASHCLIFF_TUNING", "--dry-run"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}
