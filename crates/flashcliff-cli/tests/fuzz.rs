//! Random input for everything that parses: signatures on the command line, and safetensors files through `op`, valid
//! ones with bytes changed.
//!
//! For any input the program must end with a result or with an error that says what was wrong: no panic, no signal, no file that remains.
//! The ordinary tests do this for a second; `cargo test -- --ignored` runs longer from a new seed. A failure prints the seed of its case.
//! `FLASHCLIFF_FUZZ_SEED=<seed>` runs that case alone; `FLASHCLIFF_FUZZ_SECONDS` is the length of the long tests.

mod common;

use std::env;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{Array, Folder, Tensors, flashcliff, tensors, text, write};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

const SEED: &str = "FLASHCLIFF_FUZZ_SEED";
const SECONDS: &str = "FLASHCLIFF_FUZZ_SECONDS";

const ORDINARY: Duration = Duration::from_secs(1);
const LONG: u64 = 30;

/// Prints how to repeat a case that fails.
struct Announce(u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to repeat the case: {SEED}={}", self.0);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}: expected a whole number, got `{text}`")),
    )
}

/// Runs cases for a while, or the one case that the environment names.
fn cases(long: bool, mut one: impl FnMut(SmallRng)) {
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs() << 20)
    };
    let (first, time) = match (number(SEED), long) {
        (Some(seed), _) => (seed, Duration::ZERO),
        (None, true) => (now(), Duration::from_secs(number(SECONDS).unwrap_or(LONG))),
        (None, false) => (1, ORDINARY),
    };
    let start = Instant::now();
    for seed in first.. {
        let announce = Announce(seed);
        one(SmallRng::seed_from_u64(seed));
        drop(announce);
        if start.elapsed() >= time {
            println!("{} cases from seed {first}", seed - first + 1);
            return;
        }
    }
}

/// The exit status of a run, which must have ended without a crash.
fn status(output: &Output, what: &dyn std::fmt::Debug) -> i32 {
    let message = String::from_utf8_lossy(&output.stderr);
    let status = output.status.code();
    assert!(!message.contains("panicked"), "{what:?}: {message}");
    match status {
        Some(0) => 0,
        Some(status @ (1 | 2)) if message.contains("error: ") => status,
        _ => panic!("{what:?}: status {status:?}: {message}"),
    }
}

/// A signature that the program must accept.
fn signature(random: &mut SmallRng) -> (String, [u64; 3]) {
    let p = random.random_range(0..=8);
    let q = random.random_range(0..=8 - p);
    let r = random.random_range(0..=8 - p - q);
    let text = match random.random_range(0..4) {
        0 => format!("{p},{q},{r}"),
        1 => format!("cl{p}{q}{r}"),
        2 => format!("Cl({p},{q},{r})"),
        _ => return (format!("{p},{q}"), [p, q, 0]),
    };
    (text, [p, q, r])
}

/// Text that looks like a signature, or is nearly one.
fn nearly_a_signature(random: &mut SmallRng) -> String {
    // A row for numbers, separators and names.
    #[rustfmt::skip]
    const PIECES: [&str; 22] = [
        "0", "1", "3", "8", "9", "256", "18446744073709551616", "-1", "+1",
        ",", ",,", " ", ".", ")",
        "cl", "Cl(", "CL", "e", "0x3", "é", "٣", "\u{0301}",
    ];
    if random.random_bool(0.5) {
        let count = random.random_range(0..7);
        return (0..count)
            .map(|_| *PIECES.choose(random).unwrap())
            .collect();
    }
    let mut text: Vec<char> = signature(random).0.chars().collect();
    let at = random.random_range(0..text.len());
    let piece = PIECES.choose(random).unwrap().chars();
    match random.random_range(0..3) {
        0 => drop(text.remove(at)),
        1 => drop(text.splice(at..at, piece)),
        _ => drop(text.splice(at..=at, piece)),
    }
    text.into_iter().collect()
}

fn read_signature(text: &str) -> Option<[u64; 3]> {
    // The text comes after `--`, so that it is not an option.
    let output = flashcliff()
        .args(["algebra", "--json", "--", text])
        .output()
        .unwrap();
    if status(&output, &text) != 0 {
        return None;
    }
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = json["signature"].as_array().unwrap();
    let counts: Vec<u64> = counts.iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!(
        json["blades"].as_array().unwrap().len(),
        1 << counts.iter().sum::<u64>()
    );
    Some(counts.try_into().unwrap())
}

fn signatures(long: bool) {
    cases(long, |mut random| {
        let (text, counts) = signature(&mut random);
        assert_eq!(read_signature(&text), Some(counts), "{text}");
        let text = nearly_a_signature(&mut random);
        if let Some([p, q, r]) = read_signature(&text) {
            // The signature that was read must be that of the text. Zeros may lead.
            let numbers: Vec<u64> = if text.contains(',') {
                let runs = text.split(|c: char| !c.is_ascii_digit());
                runs.filter_map(|run| run.parse().ok()).collect()
            } else {
                text.chars()
                    .filter_map(|c| c.to_digit(10).map(u64::from))
                    .collect()
            };
            assert!(
                numbers == [p, q, r] || (numbers == [p, q] && r == 0),
                "{text}"
            );
            let others = text
                .chars()
                .filter(|c| !c.is_ascii_digit() && !"clC(), ".contains(*c));
            assert_eq!(others.count(), 0, "{text}");
        }
    });
}

#[test]
fn a_second_of_signatures() {
    signatures(false);
}

#[test]
#[ignore = "takes half a minute, or what FLASHCLIFF_FUZZ_SECONDS says"]
fn signatures_from_a_new_seed() {
    signatures(true);
}

/// An operator with a valid file.
fn operator(random: &mut SmallRng) -> (&'static str, Tensors, Dtype) {
    let (b, c) = (random.random_range(0..4), random.random_range(1..4));
    let x = |seed| Array::reals(&[8, b, c], seed);
    let dtype = *[Dtype::F32, Dtype::F64].choose(random).unwrap();
    let grad_o = ("grad_o", x(9));
    match random.random_range(0..4) {
        0 => {
            let w = Array::reals(&[c, 20], 3);
            (
                "sgp_norm --grad",
                tensors([("x", x(1)), ("y", x(2)), ("w", w), grad_o]),
                dtype,
            )
        }
        1 => {
            let w = Array::reals(&[20, c, c], 3);
            (
                "fcgp_norm --grad",
                tensors([("x", x(1)), ("y", x(2)), ("w", w), grad_o]),
                dtype,
            )
        }
        2 => {
            let (weight, bias) = (Array::reals(&[c, c, 4], 3), Array::reals(&[c], 4));
            let inputs = tensors([("x", x(1)), ("weight", weight), ("bias", bias), grad_o]);
            ("mv_linear --grad", inputs, dtype)
        }
        _ => ("reverse", tensors([("x", x(1))]), dtype),
    }
}

/// Changes some bytes, mostly bytes of the header.
fn mutate(bytes: &mut Vec<u8>, random: &mut SmallRng) {
    let header = 8 + usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    for _ in 0..random.random_range(1..4) {
        let near = if random.random_bool(0.8) {
            header.min(bytes.len())
        } else {
            bytes.len()
        };
        if near == 0 {
            return;
        }
        let at = random.random_range(0..near);
        let digit = b"0123456789"[random.random_range(0..10)];
        match random.random_range(0..8) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at] = random.random(),
            2 => bytes.truncate(at),
            3 => drop(bytes.remove(at)),
            4 => bytes.insert(at, random.random()),
            5 => bytes[at] = *b"\"{}[],:0-9.eF\\".choose(random).unwrap(),
            // Changes numbers of the header: shapes and offsets.
            6 => match (at..near).find(|&i| bytes[i].is_ascii_digit()) {
                Some(i) => bytes[i] = digit,
                None => bytes[at] = digit,
            },
            _ => {
                let end = (at + random.random_range(0..40)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
}

/// The number of outputs that were written.
fn file(folder: &Folder, whole: bool, random: &mut SmallRng) -> usize {
    let (input, output) = (folder.path("in"), folder.path("out"));
    let (operator, inputs, dtype) = operator(random);
    write(&input, &inputs, dtype);
    if !whole {
        let mut bytes = std::fs::read(&input).unwrap();
        mutate(&mut bytes, random);
        std::fs::write(&input, bytes).unwrap();
    }
    let line = format!("op {operator} --algebra cl300 --in in --out out");
    let outcome = folder.command(&line).output().unwrap();
    if status(&outcome, &line) != 0 {
        assert!(!whole, "{}", text(&outcome.stderr));
        assert_eq!(folder.names(), ["in"], "{line}");
        return 0;
    }
    assert_eq!(folder.names(), ["in", "out"]);
    check_results(&input, &output, operator.contains("--grad"));
    std::fs::remove_file(&output).unwrap();
    1
}

/// Checks that every result has the shape and the type of its tensor.
fn check_results(input: &Path, output: &Path, grad: bool) {
    let (input, output) = (
        std::fs::read(input).unwrap(),
        std::fs::read(output).unwrap(),
    );
    let input = SafeTensors::deserialize(&input).unwrap();
    let output = SafeTensors::deserialize(&output).unwrap();
    let x = input.tensor("x").unwrap();
    let o = output.tensor("o").unwrap();
    assert_eq!(o.dtype(), x.dtype());
    assert_eq!(o.shape()[..2], x.shape()[..2]);
    for (name, tensor) in input.tensors() {
        if grad && name != "grad_o" {
            let gradient = output.tensor(&format!("grad_{name}")).unwrap();
            assert_eq!(
                (gradient.shape(), gradient.dtype()),
                (tensor.shape(), tensor.dtype())
            );
        }
    }
}

fn files(long: bool) {
    let folder = Folder::new();
    let (mut written, mut all) = (0, 0);
    cases(long, |mut random| {
        assert_eq!(file(&folder, true, &mut random.clone()), 1);
        written += file(&folder, false, &mut random);
        all += 1;
    });
    println!("{written} of {all} changed files were still valid");
    assert!(written < all || all < 5, "no change was noticed");
}

#[test]
fn a_second_of_changed_files() {
    files(false);
}

#[test]
#[ignore = "takes half a minute, or what FLASHCLIFF_FUZZ_SECONDS says"]
fn changed_files_from_a_new_seed() {
    files(true);
}

/// Shows that the tests above would report a crash.
#[cfg(unix)]
#[test]
fn a_crash_is_found() {
    let output = |status: i32, message: &str| Output {
        status: std::os::unix::process::ExitStatusExt::from_raw(status),
        stdout: Vec::new(),
        stderr: message.into(),
    };
    assert_eq!(status(&output(0, ""), &""), 0);
    assert_eq!(status(&output(1 << 8, "error: no"), &""), 1);
    let bad = [
        output(101 << 8, "thread 'main' panicked at"),
        output(1 << 8, ""),
        output(0, "panicked"),
        output(11, "error: "),
    ];
    for bad in bad {
        assert!(
            std::panic::catch_unwind(|| status(&bad, &"")).is_err(),
            "{bad:?}"
        );
    }
}
