//! A step in the format that Chrome's tracing and Perfetto read.

use flashcliff_candle::timeline::{Slice, Timeline};
use serde_json::{Value, json};

use crate::device::DeviceName;
use crate::error::Error;

/// The slices of a step as complete events: the slices of the host, and on a GPU the slices of its stream below.
///
/// # Errors
/// It does not fail in practice.
pub(super) fn chrome(timeline: &Timeline, device: DeviceName) -> Result<String, Error> {
    let mut events = vec![process(0, "host")];
    let slices = timeline.slices();
    events.extend(slices.iter().map(|slice| {
        let span = [slice.host_start, slice.host_seconds];
        event(slice, "host", 0, span)
    }));
    if device != DeviceName::Cpu {
        events.push(process(1, &device.to_string()));
        events.extend(slices.iter().map(|slice| {
            let span = [slice.start, slice.seconds];
            event(slice, "gpu", 1, span)
        }));
    }
    let trace = json!({ "traceEvents": events, "displayTimeUnit": "ms" });
    Ok(serde_json::to_string(&trace)? + "\n")
}

fn process(number: usize, title: &str) -> Value {
    json!({ "name": "process_name", "ph": "M", "pid": number, "args": { "name": title } })
}

fn event(slice: &Slice, kind: &str, process: usize, [start, seconds]: [f64; 2]) -> Value {
    let operation = &slice.operation;
    let title = match operation.phase {
        None => operation.operator.clone(),
        Some(pass) => format!("{} {pass}", operation.operator),
    };
    json!({
        "name": title,
        "cat": kind,
        "ph": "X",
        "pid": process,
        "tid": 0,
        // Microseconds.
        "ts": 1e6 * start,
        "dur": 1e6 * seconds,
        "args": {
            "shapes": operation.shapes,
            "dtype": operation.dtype.map_or(String::new(), |dtype| dtype.to_string()),
            "bytes": operation.bytes,
            "flops": operation.flops,
        },
    })
}
