//! Measures small tensors in CUDA graphs.

use flashcliff::cuda::cudarc::driver::CudaGraph;
use flashcliff::cuda::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use flashcliff::{Device, Dtype};

use crate::case::{Case, Subject, Which};
use crate::check::check;
use crate::error::{Error, driver};
use crate::report::{Entry, Report};
use crate::timing::Timer;

/// The goals in seconds, for the forward pass and for both passes.
const GOALS: [(&str, bool, f64); 2] = [("forward", false, 6e-6), ("forward+backward", true, 15e-6)];

/// The number of replays, or of calls in one graph, that are measured together when no cache is flushed.
const MANY: usize = 100;

pub(crate) fn measure(device: &Device, quick: bool, report: &mut Report) -> Result<(), Error> {
    let l2_bytes = report.machine().l2_bytes;
    let samples = if quick { 5 } else { 100 };
    let mut timer = Timer::new(device, l2_bytes, samples)?;
    let subject = Subject {
        which: Which::SgpNorm,
        signature: [3, 0, 0],
        batch: 1024,
        channels: 128,
        dtype: Dtype::F32,
    };
    let mut case = Case::new(device, &timer.stream, &subject)?;
    let difference = check(&mut case, &timer.stream)?;
    for (passes, both, goal) in GOALS {
        let once = capture(&timer, &mut case, both, 1)?;
        let many = capture(&timer, &mut case, both, MANY)?;
        let replay = |graph: &CudaGraph| graph.launch().map_err(driver("cuGraphLaunch"));
        let flushed = timer.take_turns(&mut [Box::new(|| replay(&once))])?[0];
        let warm = timer.back_to_back(MANY, || replay(&once))?;
        let inside = timer.back_to_back(1, || replay(&many))?.divided(MANY);
        let name = |how: &str| format!("{} {passes}, {how}", case.name);
        report.add(Entry {
            difference: Some(difference),
            ..Entry::time(name("a graph, L2 flushed"), flushed, Some(goal))
        });
        report.add(Entry::time(name("graphs one after another"), warm, None));
        report.add(Entry::time(name("one of many in a graph"), inside, None));
    }
    Ok(())
}

/// A graph of some calls.
fn capture(timer: &Timer, case: &mut Case, both: bool, calls: usize) -> Result<CudaGraph, Error> {
    let stream = &timer.stream;
    // The first call loads kernels, which must not be captured.
    case.forward(stream)?;
    case.backward(stream)?;
    timer.wait()?;
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream
        .begin_capture(mode)
        .map_err(driver("cuStreamBeginCapture"))?;
    let mut launched = Ok(());
    for _ in 0..calls {
        launched = launched.and_then(|()| case.forward(stream));
        if both {
            launched = launched.and_then(|()| case.backward(stream));
        }
    }
    let graph = stream.end_capture(CUgraphInstantiate_flags(0));
    launched?;
    let graph = graph.map_err(driver("cuStreamEndCapture"))?;
    let empty = || Error::EmptyGraph {
        name: case.name.clone(),
    };
    let graph = graph.ok_or_else(empty)?;
    graph.upload().map_err(driver("cuGraphUpload"))?;
    Ok(graph)
}
