//! Measures kernels that are compiled when they are first used: the wait of the first call, and their speed beside built kernels.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use flashcliff::cuda::{Array, Dtypes};
use flashcliff::ops::{self, ProductOptions};
use flashcliff::{Algebra, Device, Dims, Dtype, Signature};
use flashcliff_floor::values;

use crate::case::{Case, Subject, Which};
use crate::check::check;
use crate::error::Error;
use crate::report::{Entry, Floor, Report};
use crate::timing::{Timer, Times, Variant};

/// The option by which the program starts itself for a first call.
pub(crate) const OPTION: &str = "--first-call";

/// The algebras of first calls: one that is built, and others of 4, 8, 16, 16 and 32 blades.
const FIRST_CALLS: [&str; 6] = ["3,0,0", "1,1,0", "1,1,1", "2,1,1", "1,3,0", "3,2,0"];
/// The goals in seconds: of an empty cache, and of a full one.
const GOALS: [f64; 2] = [5.0, 0.05];
/// The goal for the time of a compiled kernel, in times of the built one.
const SLOWDOWN: f64 = 1.05;

pub(crate) fn measure(device: &Device, quick: bool, report: &mut Report) -> Result<(), Error> {
    first_calls(report)?;
    let samples = if quick { 5 } else { 100 };
    let mut timer = Timer::new(device, report.machine().l2_bytes, samples)?;
    for (signature, channels) in [([3, 0, 0], 512), ([2, 0, 0], 1024)] {
        beside_built(device, &mut timer, signature, channels, report)?;
    }
    Ok(())
}

/// The waits of first calls, each in a process of its own.
fn first_calls(report: &mut Report) -> Result<(), Error> {
    let folder =
        std::env::temp_dir().join(format!("flashcliff-first-calls-{}", std::process::id()));
    for signature in FIRST_CALLS {
        for (state, goal) in ["empty cache", "full cache"].into_iter().zip(GOALS) {
            let seconds = in_a_process(signature, &folder)?;
            let name = format!("first sgp_norm of Cl({signature}), both passes, {state}");
            // The goals are of a signature of 16 blades that is not built.
            let goal = (signature == "2,1,1").then_some(goal);
            report.add(Entry::time(name, Times::of(vec![seconds]), goal));
        }
    }
    // Nothing else uses the folder; if it stays, nothing is lost.
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}

fn in_a_process(signature: &str, folder: &Path) -> Result<f64, Error> {
    let failed = |reason: String| Error::Child {
        signature: signature.to_owned(),
        reason,
    };
    let own = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let output = Command::new(own)
        .args([OPTION, signature])
        .env("FLASHCLIFF_CACHE_DIR", folder)
        .output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let seconds = text.trim().parse();
    seconds.map_err(|_| failed(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Prints the seconds of a first call, from the operator to its results, on an open device.
pub(crate) fn first_call(signature: &str) -> Result<(), Error> {
    let device = Device::cuda(0)?;
    let stream = device.new_stream()?;
    let signature: Signature = signature.parse().map_err(flashcliff::Error::from)?;
    let dims = Dims {
        batch: 64,
        in_channels: 32,
        out_channels: 32,
        scalar_channels: 0,
    };
    let start = Instant::now();
    let algebra = Algebra::new(signature)?;
    let op = ops::sgp_norm(algebra, &ProductOptions::default())?;
    let gpu = op.on_cuda(&device)?;
    gpu.prepare(&dims, Dtypes::uniform(Dtype::F32))?;
    let mut inputs = Vec::new();
    for (seed, spec) in (1..).zip(op.inputs()) {
        let shape = spec.shape(&dims);
        let values = values(shape.iter().product(), seed);
        inputs.push(Array::from_host(&stream, &values, &shape)?);
    }
    let inputs = inputs
        .iter()
        .map(Array::view)
        .collect::<Result<Vec<_>, _>>()?;
    let results = gpu.evaluate(&stream, &inputs)?;
    let sum: f32 = results.output.to_host::<f32>(&stream)?.iter().sum();
    let seconds = start.elapsed().as_secs_f64();
    if !sum.is_finite() {
        return Err(Error::Child {
            signature: signature.to_string(),
            reason: "the result is not finite".to_owned(),
        });
    }
    println!("{seconds}");
    Ok(())
}

/// The times of kernels compiled now, in times of the built ones.
fn beside_built(
    device: &Device,
    timer: &mut Timer,
    signature: [usize; 3],
    channels: usize,
    report: &mut Report,
) -> Result<(), Error> {
    let subject = Subject {
        which: Which::SgpNorm,
        signature,
        batch: 4096,
        channels,
        dtype: Dtype::F32,
    };
    let [p, q, r] = signature;
    let other = Signature::new(p, q, r).map_err(flashcliff::Error::from)?;
    let stream = timer.stream.clone();
    let mut built = Case::new(device, &stream, &subject)?;
    let mut compiled = Case::of_algebra(Algebra::interpreted(other)?, device, &stream, &subject)?;
    let difference = check(&mut compiled, &stream)?;
    check(&mut built, &stream)?;
    for backward in [false, true] {
        let times = {
            let run = |case: &mut Case| match backward {
                false => case.forward(&stream),
                true => case.backward(&stream),
            };
            let mut variants: [Variant<'_>; 2] = [
                Box::new(|| run(&mut built)),
                Box::new(|| run(&mut compiled)),
            ];
            timer.take_turns(&mut variants)?
        };
        let floor = Floor {
            name: "built",
            seconds: times[0].median,
        };
        let pass = if backward { "backward" } else { "forward" };
        let name = format!("{} {pass}, compiled when used", compiled.name);
        report.add(Entry {
            difference: Some(difference),
            ..Entry::ratio(name, times[1], floor, Some(SLOWDOWN))
        });
    }
    Ok(())
}
