//! The rows of a profile: operations, with the time of their slices in one step.

use std::collections::HashMap;
use std::sync::Arc;

use flashcliff_bench::machine::Rates;
use flashcliff_bench::model::{Class, Model};
use flashcliff_bench::{Error as BenchError, Target};
use flashcliff_candle::timeline::{Operation, Timeline};
use serde::Serialize;

/// An operation, with its time in a step.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(super) operator: String,
    /// Whether it is ours.
    pub(super) ours: bool,
    pub(super) algebra: String,
    /// `forward`, `backward`, or empty.
    pub(super) phase: &'static str,
    /// The inputs whose gradients a backward pass computes.
    pub(super) gradients: Vec<&'static str>,
    pub(super) shapes: Vec<Vec<usize>>,
    /// The type of the tensors with a batch; empty if it is not known.
    pub(super) dtype: String,
    /// The number of calls in a step.
    pub(super) calls: f64,
    /// Seconds of all calls: of the device.
    pub(super) seconds: f64,
    /// Seconds of all calls on the host.
    pub(super) host_seconds: f64,
    /// The share of the step.
    pub(super) share: f64,
    /// The bytes that all calls move at least.
    pub(super) bytes: f64,
    /// The operations of all calls, if they are known.
    pub(super) flops: Option<f64>,
    pub(super) saved_bytes: f64,
    pub(super) held_bytes: f64,
    /// The least time over the time taken.
    pub(super) roofline: Option<f64>,
    /// The resource that sets the least time.
    pub(super) class: Option<Class>,
}

/// The calls and seconds of an operation in a step.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: usize,
    seconds: f64,
    host_seconds: f64,
}

/// The operations of a step with what they took, the largest share first and what nothing reports last.
pub(super) fn gather(timeline: &Timeline) -> Vec<(Arc<Operation>, Row)> {
    let mut sums: HashMap<Arc<Operation>, Sum> = HashMap::new();
    for slice in timeline.slices() {
        let sum = sums.entry(slice.operation.clone()).or_default();
        sum.calls += usize::from(slice.begins);
        sum.seconds += slice.seconds;
        sum.host_seconds += slice.host_seconds;
    }
    let total: f64 = sums.values().map(|sum| sum.seconds).sum();
    let rest = Operation::rest();
    let mut rows: Vec<(Arc<Operation>, Row)> = sums
        .into_iter()
        .map(|(operation, sum)| {
            let row = Row::new(&operation, sum, total);
            (operation, row)
        })
        .collect();
    rows.sort_by(|(a, first), (b, second)| {
        let is_rest = |operation: &Arc<Operation>| *operation == rest;
        let by_share = second.share.total_cmp(&first.share);
        is_rest(a).cmp(&is_rest(b)).then(by_share)
    });
    rows
}

impl Row {
    fn new(operation: &Operation, sum: Sum, total: f64) -> Self {
        let calls = sum.calls as f64;
        let of_calls = |one: usize| one as f64 * calls;
        Self {
            operator: operation.operator.clone(),
            ours: operation.is_ours,
            algebra: operation.algebra.clone(),
            phase: operation.phase.map_or("", flashcliff::Pass::name),
            gradients: operation.gradients.clone(),
            shapes: operation.shapes.clone(),
            dtype: operation.dtype.map_or(String::new(), |t| t.to_string()),
            calls,
            seconds: sum.seconds,
            host_seconds: sum.host_seconds,
            share: if total > 0.0 {
                sum.seconds / total
            } else {
                0.0
            },
            bytes: of_calls(operation.bytes),
            flops: operation.flops.map(of_calls),
            saved_bytes: of_calls(operation.saved_bytes),
            held_bytes: of_calls(operation.held_bytes),
            roofline: None,
            class: None,
        }
    }

    /// Compares the row with the least time of its operation.
    pub(super) fn compare(
        &mut self,
        operation: &Operation,
        target: &mut impl Target,
        rates: &Rates,
        rounds_to_tf32: bool,
    ) -> Result<(), BenchError> {
        let (Some(dtype), true) = (operation.dtype, operation.bytes > 0) else {
            return Ok(());
        };
        let rate = rates.flops(dtype, operation.has_matrix_products, rounds_to_tf32);
        let model = Model {
            bytes: operation.bytes,
            call_seconds: rates.call_seconds,
            memory_seconds: target.floor_seconds(operation.bytes)?,
            compute_seconds: operation.flops.unwrap_or(0) as f64 / rate,
            stream_rate: rates.add_bytes,
        };
        self.roofline = (self.seconds > 0.0).then(|| model.seconds() * self.calls / self.seconds);
        self.class = Some(model.class());
        Ok(())
    }
}
