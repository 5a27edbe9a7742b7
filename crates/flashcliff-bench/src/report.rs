//! The results of a run, as JSON.

use flashcliff::{Dtype, Tier};
use serde::{Deserialize, Serialize};

use crate::baseline::Comparison;
use crate::machine::{Kind, Rates, commit};
use crate::measure::{Repeat, median};
use crate::model::{Class, Model};
use crate::{Case, Error, Form, Passes};

/// The format that is written and read.
pub const FORMAT: u32 = 2;

/// All results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of the program.
    pub version: String,
    /// The commit of the program, or `unknown`.
    pub commit: String,
    /// Seconds since 1970.
    pub time: u64,
    /// Whether the effort was so small that the times mean little.
    pub quick: bool,
    /// The architecture of the host.
    pub architecture: String,
    /// The vectors that operators used.
    pub simd: String,
    /// The number of threads.
    pub threads: usize,
    /// The facts that two runs must share for their times to be compared.
    pub machine: Kind,
    /// The rates that the machine reached in this run.
    pub rates: Rates,
    /// The results.
    pub cases: Vec<Row>,
    /// The verdicts beside a stored run, if there was one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
}

/// The result of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The name, unique in a report.
    pub name: String,
    /// The operator at its size; a layer and a network have none.
    pub operator: Option<OperatorRow>,
    /// The layer or the network; an operator has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkRow>,
    /// The bytes that must be moved.
    pub bytes: Option<usize>,
    /// The operations.
    pub flops: Option<usize>,
    /// The median time.
    pub seconds: f64,
    /// The median wall time on a GPU, launched call by call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_seconds: Option<f64>,
    /// The median wall time on a GPU, replayed as a captured graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured_seconds: Option<f64>,
    /// The median time of moving as many bytes.
    pub floor_seconds: Option<f64>,
    /// Time over that of the floor.
    pub ratio: Option<f64>,
    /// The least time by the model, its class and the efficiency.
    pub roofline: Option<Roofline>,
    /// The largest time that is aimed at.
    pub target_seconds: Option<f64>,
    /// Whether the target is met.
    pub met: Option<bool>,
    /// The largest difference from the formula in f64, relative to the largest value of its row.
    pub relative_difference: f64,
    /// The memory of a layer or a network.
    pub memory: Option<Memory>,
    /// The medians of each repeat.
    pub repeats: Vec<Repeat>,
}

/// An operator at its size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorRow {
    /// The name in the table.
    pub name: String,
    /// The algebra, as `cl300`.
    pub algebra: String,
    /// Whether it is interpreted although its algebra is compiled.
    pub is_interpreted: bool,
    /// Whether its calls make what they write. Others write to memory of the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allocates: bool,
    /// The type of all tensors.
    pub dtype: String,
    /// The passes.
    pub passes: Passes,
    /// The batch.
    pub batch: usize,
    /// The channels of the input.
    pub in_channels: usize,
    /// The channels of the output.
    pub out_channels: usize,
}

/// A layer or a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkRow {
    /// The layer or the network.
    pub name: String,
    /// The algebra, as `cl300`.
    pub algebra: String,
    /// The part that is timed: `forward`, `forward+backward`, `inference` or `training step`.
    pub work: String,
    /// The batch: multivectors of a channel, or samples.
    pub batch: usize,
    /// The type of all tensors.
    #[serde(default = "single")]
    pub dtype: String,
    /// The number of parameters.
    pub parameters: usize,
    /// The calls of operators and functions, which bytes, operations and floors come from.
    pub calls: usize,
    /// The reason why the work was not captured as a CUDA graph on a GPU, if it was not. Its time is then that of single launches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_captured: Option<String>,
}

/// The type of layers and networks in reports that name none.
fn single() -> String {
    Dtype::F32.to_string()
}

/// The least time of a case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Roofline {
    /// The least time.
    pub seconds: f64,
    /// The resource that limits it.
    pub class: Class,
    /// The least time over the measured one.
    pub efficiency: f64,
    /// The efficiency that is aimed at.
    pub target_efficiency: f64,
}

/// The bytes that a layer or a network needs and takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// The bytes that must be held at once: parameters and data; for gradients also these and what the forward pass keeps for the backward
    /// pass; for a training step the state of the optimiser too.
    pub counted_bytes: usize,
    /// The largest number of bytes at once, on the heap or in the pool of the GPU.
    pub peak_bytes: usize,
    /// The bytes that a later run allocates, freed or not; 0 of a GPU.
    pub allocated_bytes: usize,
    /// The largest block among them.
    pub largest_block_bytes: usize,
    /// Peak over counted.
    pub ratio: f64,
    /// The largest ratio that is aimed at.
    pub target_ratio: Option<f64>,
    /// Whether the target is met.
    pub met: Option<bool>,
}

impl Report {
    /// An empty report.
    pub fn new(machine: Kind, rates: Rates, quick: bool) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit(),
            time: now.map_or(0, |now| now.as_secs()),
            quick,
            architecture: machine.architecture.clone(),
            simd: Tier::best().name().to_owned(),
            threads: machine.threads,
            machine,
            rates,
            cases: Vec::new(),
            comparisons: Vec::new(),
        }
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// It does not fail in practice.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Reads a report.
    ///
    /// # Errors
    /// [`Error::NotReport`].
    pub fn read(text: &[u8]) -> Result<Self, Error> {
        let wrong = |reason: String| Error::NotReport {
            expected: FORMAT,
            reason,
        };
        let value: serde_json::Value =
            serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(format) => return Err(wrong(format!("got format {format}"))),
            None => return Err(wrong("got no format".to_owned())),
        }
        serde_json::from_value(value).map_err(|error| wrong(error.to_string()))
    }
}

impl Row {
    /// The row of an operator, from its repeats.
    pub fn of_operator(case: &Case, counts: Counts, repeats: Vec<Repeat>, rates: &Rates) -> Self {
        let call_seconds = rates.call_seconds * case.passes.calls() as f64;
        let operator = OperatorRow {
            name: case.operator.to_owned(),
            algebra: case.signature.name(),
            is_interpreted: case.is_interpreted,
            allocates: case.form == Form::Made,
            dtype: case.dtype.to_string(),
            passes: case.passes,
            batch: case.dims.batch,
            in_channels: case.dims.in_channels,
            out_channels: case.dims.out_channels,
        };
        Self {
            operator: Some(operator),
            ..Self::of_repeats(case.name(), counts, call_seconds, repeats)
        }
    }

    /// The row of a layer or a network, from its repeats.
    pub fn of_network(
        name: String,
        network: NetworkRow,
        (counts, memory): (Counts, Memory),
        repeats: Vec<Repeat>,
        rates: &Rates,
    ) -> Self {
        // On a GPU the launches of as many calls were measured.
        let launches = median(repeats.iter().map(|repeat| repeat.launch_seconds).collect());
        let call_seconds = match launches > 0.0 {
            true => launches,
            false => rates.call_seconds * network.calls as f64,
        };
        Self {
            network: Some(network),
            memory: Some(memory),
            ..Self::of_repeats(name, counts, call_seconds, repeats)
        }
    }

    /// The times, the least time by the model, and its class.
    fn of_repeats(name: String, counts: Counts, call_seconds: f64, repeats: Vec<Repeat>) -> Self {
        let middle = |part: fn(&Repeat) -> f64| median(repeats.iter().map(part).collect());
        let seconds = middle(|repeat| repeat.seconds);
        let floor = middle(|repeat| repeat.floor_seconds);
        let known = |part: fn(&Repeat) -> Option<f64>| {
            let times: Option<Vec<f64>> = repeats.iter().map(part).collect();
            times.filter(|times| !times.is_empty()).map(median)
        };
        let model = Model {
            bytes: counts.bytes,
            call_seconds,
            memory_seconds: floor - middle(|repeat| repeat.launch_seconds).min(floor),
            compute_seconds: middle(|repeat| repeat.compute_seconds),
            stream_rate: middle(|repeat| repeat.stream_bytes),
        };
        let class = model.class();
        let roofline = Roofline {
            seconds: model.seconds(),
            class,
            efficiency: model.seconds() / seconds,
            target_efficiency: class.target(),
        };
        Self {
            name,
            bytes: Some(counts.bytes),
            flops: Some(counts.flops),
            seconds,
            wall_seconds: known(|repeat| repeat.wall_seconds),
            captured_seconds: known(|repeat| repeat.captured_seconds),
            floor_seconds: Some(floor),
            ratio: Some(seconds / floor),
            roofline: Some(roofline),
            met: Some(roofline.efficiency >= roofline.target_efficiency),
            relative_difference: counts.difference,
            repeats,
            ..Self::default()
        }
    }
}

/// The facts of a case that are known without timing it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counts {
    /// The bytes that must be moved.
    pub bytes: usize,
    /// The operations.
    pub flops: usize,
    /// The largest relative difference from the formula.
    pub difference: f64,
}

impl Memory {
    /// The memory of a layer or a network, with the largest ratio that is aimed at.
    pub fn new(counted_bytes: usize, peak_bytes: usize, target_ratio: Option<f64>) -> Self {
        let ratio = peak_bytes as f64 / counted_bytes as f64;
        Self {
            counted_bytes,
            peak_bytes,
            allocated_bytes: 0,
            largest_block_bytes: 0,
            ratio,
            target_ratio,
            met: target_ratio.map(|limit| ratio <= limit),
        }
    }

    /// Adds what a later step allocates: all bytes, and the largest block.
    #[must_use]
    pub fn with_step(self, allocated_bytes: usize, largest_block_bytes: usize) -> Self {
        Self {
            allocated_bytes,
            largest_block_bytes,
            ..self
        }
    }
}
