//! Measures CUDA kernels that are compiled when they are first used: the wait of the first call, and their speed beside
//! kernels of the build.
//!
//! `cargo run --release -p flashcliff-benches --features cuda --bin compiled -- --out FILE`. `flashcliff bench --device cuda`
//! measures everything else on a GPU.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Parser;
use flashcliff::cuda::cudarc::driver::sys;
use flashcliff::cuda::{Array, Dtypes};
use flashcliff::ops::{self, ProductOptions};
use flashcliff::{Algebra, Device, Dims, Dtype, Signature};
use flashcliff_bench::cuda::Gpu;
use flashcliff_bench::machine::commit;
use flashcliff_bench::measure::{Effort, median};
use flashcliff_bench::{Case, Passes, Target};
use flashcliff_floor::values;
use serde_json::{Value, json};

/// The option by which the program starts itself for a first call.
const OPTION: &str = "--first-call";
/// The algebras of first calls: one that is built, and others of 4, 8, 16, 16 and 32 blades.
const FIRST_CALLS: [&str; 6] = ["3,0,0", "1,1,0", "1,1,1", "2,1,1", "1,3,0", "3,2,0"];
/// The algebras, batches and channels at which both kinds of kernels are timed.
const SPEEDS: [(Signature, [usize; 2]); 2] = [
    (Signature::of(3, 0, 0), [4096, 512]),
    (Signature::of(2, 0, 0), [4096, 1024]),
];

/// Measures kernels that are compiled when they are first used, on the first GPU.
#[derive(Parser)]
struct Arguments {
    /// Few samples: shows that everything runs.
    #[arg(long)]
    quick: bool,
    /// Writes the results as JSON.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Prints the seconds of a first call in an algebra, such as 2,1,1; the program starts itself with this.
    #[arg(long, value_name = "P,Q,R")]
    first_call: Option<Signature>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if let Some(signature) = arguments.first_call {
        println!("{}", first_call(signature)?);
        return Ok(());
    }
    let device = Device::cuda(0)?;
    let results = json!({
        "machine": { "gpu": device.name()?, "cuda": cuda_version()?, "commit": commit() },
        "quick": arguments.quick,
        "first_calls": first_calls()?,
        "speeds": speeds(&device, arguments.quick)?,
    });
    let text = format!("{results:#}\n");
    match &arguments.out {
        Some(path) => std::fs::write(path, text)?,
        None => print!("{text}"),
    }
    Ok(())
}

fn cuda_version() -> Result<String, Box<dyn Error>> {
    let mut version = 0;
    // SAFETY: the pointer is valid.
    let got = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    got.result()?;
    Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
}

/// The waits of first calls, each in its own process.
fn first_calls() -> Result<Vec<Value>, Box<dyn Error>> {
    let process = std::process::id();
    let folder = std::env::temp_dir().join(format!("flashcliff-first-calls-{process}"));
    let calls = FIRST_CALLS.map(|algebra| {
        let seconds = || in_a_process(algebra, &folder);
        let (empty, full) = (seconds()?, seconds()?);
        Ok(json!({ "algebra": algebra, "empty_cache": empty, "full_cache": full }))
    });
    // Nothing else uses the folder; if it stays, nothing is lost.
    let _ = std::fs::remove_dir_all(&folder);
    calls.into_iter().collect()
}

fn in_a_process(algebra: &str, folder: &Path) -> Result<f64, Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?)
        .args([OPTION, algebra])
        .env("FLASHCLIFF_CACHE_DIR", folder)
        .output()?;
    let seconds = String::from_utf8_lossy(&output.stdout).trim().parse();
    seconds.map_err(|_| {
        let reason = String::from_utf8_lossy(&output.stderr);
        format!("the first call of Cl({algebra}) failed: {reason}").into()
    })
}

/// The seconds of a first call, from the operator to its results, on an open device.
fn first_call(signature: Signature) -> Result<f64, Box<dyn Error>> {
    let device = Device::cuda(0)?;
    let stream = device.new_stream()?;
    let start = Instant::now();
    let algebra = Algebra::new(signature)?;
    let op = ops::sgp_norm(algebra, &ProductOptions::default())?;
    let gpu = op.on_cuda(&device)?;
    let dims = square([64, 32]);
    gpu.prepare(&dims, Dtypes::uniform(Dtype::F32))?;
    let mut inputs = Vec::new();
    for (seed, spec) in (1..).zip(op.inputs()) {
        let shape = spec.shape(&dims);
        let values = values(shape.iter().product(), seed);
        inputs.push(Array::from_host(&stream, &values, &shape)?);
    }
    let inputs = inputs.iter().map(Array::view);
    let results = gpu.evaluate(&stream, &inputs.collect::<Result<Vec<_>, _>>()?)?;
    let sum: f32 = results.output.to_host::<f32>(&stream)?.iter().sum();
    let seconds = start.elapsed().as_secs_f64();
    match sum.is_finite() {
        true => Ok(seconds),
        false => Err("the result is not finite".into()),
    }
}

/// The times of kernels compiled now and of kernels of the build, in turns.
fn speeds(device: &Device, quick: bool) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut gpu = Gpu::new(0, device.new_stream()?, quick)?;
    let effort = Effort::new(quick);
    let mut found = Vec::new();
    for (signature, shape) in SPEEDS {
        for passes in Passes::ALL {
            let built = Case::new("sgp_norm", signature, Dtype::F32, passes, square(shape));
            let compiled = Case {
                is_interpreted: true,
                ..built.clone()
            };
            let mut both = Vec::new();
            for case in [built, compiled] {
                let mut buffers = gpu.buffers(&case)?;
                buffers.check(&case)?;
                both.push((buffers, Vec::new()));
            }
            for _ in 0..effort.repeats {
                for (buffers, seconds) in &mut both {
                    let call = [buffers.call(passes)];
                    let (repeat, _) = gpu.repeat(&call, effort, || buffers.run(passes))?;
                    seconds.push(repeat.seconds);
                }
            }
            let medians: Vec<f64> = both.into_iter().map(|(_, list)| median(list)).collect();
            let [batch, channels] = shape;
            found.push(json!({
                "name": format!("{} {batch}x{channels} f32 {}", signature.name(), passes.name()),
                "built_seconds": medians[0],
                "seconds": medians[1],
            }));
        }
    }
    Ok(found)
}

fn square([batch, channels]: [usize; 2]) -> Dims {
    Dims {
        batch,
        in_channels: channels,
        out_channels: channels,
        scalar_channels: 0,
    }
}
