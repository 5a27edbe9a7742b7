//! Options of the steps that change no result, and how the steps of a run were run.

use std::num::NonZero;

use clap::{Args, ValueEnum};
use flashcliff_candle::capture::{Capture, Feed, Step};
use serde::Serialize;

use super::optimiser::name;
use crate::cli::from_one;
use crate::error::Error;

/// Options of steps that change no result.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct StepArgs {
    /// Capture steps on a GPU as a CUDA graph; results are the same.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(super) capture: CaptureName,

    /// Keep only the values between the blocks of the network, and compute the others again in the backward pass:
    /// less memory, more time, the same results.
    #[arg(long)]
    pub(super) gradient_checkpointing: bool,

    /// Buckets in which several GPUs average gradients during the backward pass. 1 averages after it; more buckets help networks with many
    /// parameters.
    #[arg(long, value_name = "N", default_value = "1", value_parser = from_one::<NonZero<usize>>)]
    gradient_buckets: NonZero<usize>,
}

impl StepArgs {
    /// The buckets in which ranks average gradients.
    pub(super) fn buckets(self) -> usize {
        self.gradient_buckets.get()
    }

    /// The options as ranks compare them.
    pub(super) fn agreement(self) -> String {
        format!(
            "--capture {}\n--gradient-buckets {}\n",
            name(self.capture),
            self.gradient_buckets
        )
    }
}

/// Whether steps are captured as a CUDA graph. Results are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum CaptureName {
    /// On a GPU, where it is possible.
    #[default]
    Auto,
    /// Always: it is an error if they cannot be.
    On,
    /// Never.
    Off,
}

impl From<CaptureName> for Capture {
    fn from(name: CaptureName) -> Self {
        match name {
            CaptureName::Auto | CaptureName::On => Self::Auto,
            CaptureName::Off => Self::Off,
        }
    }
}

/// How the steps of a session were run.
#[derive(Debug, Serialize)]
pub(super) struct CapturedSteps {
    /// Whether they were captured.
    captured: bool,
    /// The reason why they were not.
    not_captured_because: Option<String>,
    /// The number of nodes of the captured step, and of the kernels among them.
    nodes: Option<[usize; 2]>,
    /// The median over intervals of the milliseconds of a step, without validations.
    pub(super) median_milliseconds: Option<f64>,
    /// Whether the values within blocks were computed again in the backward pass.
    gradient_checkpointing: bool,
    /// The bytes of the buffers of values and of their gradients, where steps run without candle's graph.
    buffer_bytes: Option<usize>,
    /// The bytes that the memory pools of the GPU held.
    device_memory: Option<DeviceMemory>,
}

/// The most that pools held at once, in bytes.
#[derive(Debug, Serialize)]
struct DeviceMemory {
    used_peak: u64,
    reserved_peak: u64,
    graph_used_peak: u64,
    graph_reserved_peak: u64,
}

impl CapturedSteps {
    pub(super) fn new(
        step: &Step<'_>,
        feed: &Feed,
        (args, buffer_bytes): (StepArgs, Option<usize>),
        intervals: &[f64],
    ) -> Result<Self, Error> {
        let mut sorted = intervals.to_vec();
        sorted.sort_by(f64::total_cmp);
        Ok(Self {
            captured: step.is_captured(),
            not_captured_because: step.fallback().map(ToString::to_string),
            nodes: nodes(step),
            median_milliseconds: sorted.get(sorted.len() / 2).copied(),
            gradient_checkpointing: args.gradient_checkpointing,
            buffer_bytes,
            device_memory: device_memory(feed)?,
        })
    }
}

#[cfg(feature = "cuda")]
fn nodes(step: &Step<'_>) -> Option<[usize; 2]> {
    step.nodes().map(|nodes| [nodes.all, nodes.kernels])
}

#[cfg(not(feature = "cuda"))]
fn nodes(_: &Step<'_>) -> Option<[usize; 2]> {
    None
}

#[cfg(feature = "cuda")]
fn device_memory(feed: &Feed) -> Result<Option<DeviceMemory>, Error> {
    Ok(feed.pool_memory()?.map(|memory| DeviceMemory {
        used_peak: memory.used_peak,
        reserved_peak: memory.reserved_peak,
        graph_used_peak: memory.graph_used_peak,
        graph_reserved_peak: memory.graph_reserved_peak,
    }))
}

#[cfg(not(feature = "cuda"))]
fn device_memory(_: &Feed) -> Result<Option<DeviceMemory>, Error> {
    Ok(None)
}
