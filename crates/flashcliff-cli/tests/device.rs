//! Tests of `--device`: names that no device has, a GPU that does not exist, and, with the feature `cuda`, a program that starts without a
//! driver.

mod common;

use common::{Array, Folder, stdout, tensors, write};
use safetensors::Dtype;

/// A GPU number that no machine has.
const BEYOND: &str = "cuda:100000";

const SMALL: &str = "--samples 16 --steps 2 --batch 8 --val-samples 8 --test-samples 8 --out run";

/// Whether a message explains why a GPU is not there.
fn reason(message: &str) -> bool {
    match cfg!(feature = "cuda") {
        true => ["no CUDA driver", "no CUDA device", "100000", "older"]
            .iter()
            .any(|part| message.contains(part)),
        false => message.contains("built without CUDA") && message.contains("--features cuda"),
    }
}

#[test]
fn training_on_a_gpu_that_is_not_there_leaves_no_folder() {
    let folder = Folder::new();
    let line = format!("train hulls --device {BEYOND} {SMALL}");
    let message = folder.failure(&line, 1);
    assert!(reason(&message), "{message}");
    assert!(!folder.path("run").exists());
}

#[test]
fn an_operator_on_a_gpu_that_is_not_there_leaves_no_file() {
    let folder = Folder::new();
    let x = Array::integers(&[8, 2, 3], 1);
    write(&folder.path("in"), &tensors([("x", x)]), Dtype::F32);
    let line = |device| format!("op reverse --algebra cl300 --device {device} --in in --out out");
    let message = folder.failure(&line(BEYOND), 1);
    assert!(reason(&message), "{message}");
    assert!(!folder.path("out").exists());
    folder.stdout(&line("cpu"));
    assert!(folder.path("out").exists());
}

#[test]
fn info_lists_gpus_or_says_why_there_is_none() {
    let text = stdout("info");
    assert!(
        text.contains("cuda:0") || text.contains("GPUs: none: "),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&stdout("info --json")).unwrap();
    let found = json["gpus"]["found"].as_array().unwrap().len();
    assert_eq!(
        found == 0,
        json["gpus"]["none_because"].is_string(),
        "{json}"
    );
}

#[test]
fn the_cpu_trains_also_where_cuda_was_built_in() {
    let folder = Folder::new();
    folder.stdout(&format!("train hulls --device cpu --quiet {SMALL}"));
    let metrics = folder.json("run/metrics.json");
    assert_eq!(metrics["program"]["device"], "cpu");
}

/// The program needs no library of CUDA to start.
#[cfg(all(feature = "cuda", target_os = "linux"))]
#[test]
fn the_program_needs_no_library_of_cuda() {
    let ldd = std::process::Command::new("ldd")
        .arg(env!("CARGO_BIN_EXE_flashcliff"))
        .output()
        .unwrap();
    assert!(ldd.status.success());
    let text = common::text(&ldd.stdout);
    assert!(text.contains("libc.so"), "{text}");
    for library in ["libcuda", "libcublas", "libcurand", "libnvrtc"] {
        assert!(!text.contains(library), "{text}");
    }
}
