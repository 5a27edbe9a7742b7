//! Helpers to run the program, and to read and write safetensors files.

#![allow(dead_code, reason = "every test program uses its own part")]

pub(crate) mod coverage;
pub(crate) mod runs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

/// The program with its messages in plain text, and with no signal ignored.
pub(crate) fn flashcliff() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashcliff"));
    command.env_remove("RUST_LOG").env_remove("FLASHCLIFF_SIMD");
    // A child inherits ignored signals, and a job in the background may ignore Ctrl-C.
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;

        use nix::sys::signal::{SigHandler, Signal, signal};

        let reset = || {
            for number in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
                // SAFETY: the default action runs no code.
                unsafe { signal(number, SigHandler::SigDfl) }?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec only `signal` is called, which is allowed there.
        unsafe { command.pre_exec(reset) };
    }
    command
}

/// Sends a signal to a child, by its name.
#[cfg(unix)]
pub(crate) fn signal(child: &std::process::Child, name: &str) {
    let pid = child.id().to_string();
    let status = Command::new("kill")
        .args([&format!("-{name}"), &pid])
        .status();
    assert!(status.unwrap().success());
}

/// The words of a command line. Text between quotes is one word.
pub(crate) fn words(line: &str) -> Vec<String> {
    let words = line.split('"').enumerate().flat_map(|(k, part)| {
        let words: Vec<&str> = match k % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        };
        words.into_iter().map(str::to_owned).collect::<Vec<_>>()
    });
    words.collect()
}

/// Runs the program with the arguments of a line.
pub(crate) fn run(line: &str) -> Output {
    flashcliff().args(words(line)).output().unwrap()
}

/// The standard output of a run that must succeed.
pub(crate) fn stdout(line: &str) -> String {
    successful(run(line), line)
}

/// The standard error of a run that must fail with this status.
pub(crate) fn failure(line: &str, status: i32) -> String {
    failed(&run(line), line, status)
}

fn successful(output: Output, line: &str) -> String {
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn failed(output: &Output, line: &str, status: i32) -> String {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{line}: {message}");
    assert!(message.contains("error: "), "{message}");
    assert!(!message.contains("panicked"), "{message}");
    message
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A tensor in f64, whatever its type in the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<f64>,
}

impl Array {
    pub(crate) fn new(shape: &[usize], data: Vec<f64>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), data.len());
        Self {
            shape: shape.to_vec(),
            data,
        }
    }

    /// Small integers, different for every seed.
    pub(crate) fn integers(shape: &[usize], seed: u64) -> Self {
        Self::filled(shape, seed, |random| (random % 7) as f64 - 3.0)
    }

    /// Random values in (-1, 1).
    pub(crate) fn reals(shape: &[usize], seed: u64) -> Self {
        Self::filled(shape, seed, |random| {
            (random % 20_001) as f64 / 10_000.0 - 1.0
        })
    }

    fn filled(shape: &[usize], seed: u64, value: impl Fn(u64) -> f64) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            value(state >> 33)
        };
        Self::new(shape, (0..shape.iter().product()).map(|_| next()).collect())
    }
}

pub(crate) type Tensors = BTreeMap<String, Array>;

pub(crate) fn tensors<const N: usize>(named: [(&str, Array); N]) -> Tensors {
    named
        .into_iter()
        .map(|(name, array)| (name.to_owned(), array))
        .collect()
}

/// Writes tensors, all of the same type.
pub(crate) fn write(path: &Path, tensors: &Tensors, dtype: Dtype) {
    let bytes: Vec<(String, Vec<u8>, Vec<usize>)> = tensors
        .iter()
        .map(|(name, array)| {
            let bytes = array.data.iter();
            let bytes = match dtype {
                Dtype::F64 => bytes.flat_map(|v| v.to_le_bytes()).collect(),
                Dtype::F32 => bytes.flat_map(|v| (*v as f32).to_le_bytes()).collect(),
                Dtype::I32 => bytes.flat_map(|v| (*v as i32).to_le_bytes()).collect(),
                _ => panic!("{dtype:?}"),
            };
            (name.clone(), bytes, array.shape.clone())
        })
        .collect();
    let views = bytes
        .iter()
        .map(|(name, bytes, shape)| (name, TensorView::new(dtype, shape.clone(), bytes).unwrap()));
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// Reads tensors of type f32 or f64.
pub(crate) fn read(path: &Path, dtype: Dtype) -> Tensors {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let array = |view: &TensorView| {
        assert_eq!(view.dtype(), dtype);
        let data = match dtype {
            Dtype::F64 => view
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|b| f64::from_le_bytes(*b))
                .collect(),
            _ => view
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b).into())
                .collect(),
        };
        Array::new(view.shape(), data)
    };
    file.tensors()
        .iter()
        .map(|(name, view)| (name.clone(), array(view)))
        .collect()
}

/// The names of all files in a folder, in order.
pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A folder for the files of one test.
pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The names of all files, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        names_in(self.0.path())
    }

    /// The program, started in the folder with the arguments of a line.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = flashcliff();
        command.current_dir(self.0.path()).args(words(line));
        command
    }

    /// The standard output of a run in the folder that must succeed.
    pub(crate) fn stdout(&self, line: &str) -> String {
        successful(self.command(line).output().unwrap(), line)
    }

    /// The standard error of a run in the folder that must fail with this status.
    pub(crate) fn failure(&self, line: &str, status: i32) -> String {
        failed(&self.command(line).output().unwrap(), line, status)
    }

    /// The JSON in a file.
    pub(crate) fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(self.path(name)).unwrap()).unwrap()
    }

    /// Runs an operator on tensors.
    pub(crate) fn op(&self, line: &str, inputs: &Tensors, dtype: Dtype) -> Tensors {
        write(&self.path("in"), inputs, dtype);
        self.stdout(&format!("op {line} --in in --out out --overwrite"));
        assert_eq!(self.names(), ["in", "out"]);
        read(&self.path("out"), dtype)
    }
}
