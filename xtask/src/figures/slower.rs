//! Where others are ahead: computed, so that no lost point can be left out.

use std::path::Path;

use super::data::{Data, source};
use super::markdown::{Table, digits, milliseconds, small, times};
use super::sweep::{Pass, Point, Sweep};
use crate::Error;

/// A pass or the memory of a point in which another is ahead.
pub(super) struct Lost<'a> {
    pub(super) point: &'a Point,
    other: &'a str,
    /// The measured quantity.
    what: &'static str,
    /// The pass, or nothing for memory.
    pub(super) pass: Option<Pass>,
    /// Our time or memory over theirs, above 1.
    pub(super) factor: f64,
}

/// All that is lost at some points, by more than what two digits after the point show.
pub(super) fn lost<'a>(points: &[&'a Point]) -> Vec<Lost<'a>> {
    let mut found = Vec::new();
    for point in points {
        for other in point.others() {
            let passes = Pass::ALL.map(|pass| {
                let factor = point.ratio(other, pass).map(|ratio| 1.0 / ratio);
                (factor, pass.name(), Some(pass))
            });
            let memory = (point.memory(other), "peak memory", None);
            for (factor, what, pass) in passes.into_iter().chain([memory]) {
                if let Some(factor) = factor.filter(|factor| *factor >= 1.005) {
                    found.push(Lost {
                        point,
                        other,
                        what,
                        pass,
                        factor,
                    });
                }
            }
        }
    }
    found
}

pub(super) fn section(sweeps: &[&Sweep], results: &Path) -> Result<String, Error> {
    let two = TwoGpus::read(results)?;
    Ok(format!(
        "\
## Where flashcliff is slower or needs more memory

Every point of the sweeps on this page at which another library is ahead, in GPU time (on the CPU: wall time) or in peak
memory:

{lost}
A small operator called from Python with its gradients costs more time on the host than on the GPU. CUDA graphs avoid this, and
the compiled call path, which is not used here, costs less (below). Where the host has issued a call before the write of the large buffer
ends, both times are of the same work of the GPU, in different samples, and their ratio may be below 1.
`sgp_norm`, 3-D, f32, shape 1024 x 128, on one H200 ([data](results/{sweep}.json)):

{host}
A small network on two GPUs takes longer for a step than on one. The batch is {shape}, halved between two processes;
wall time, least of three steps, after three steps that are not counted. Losses and parameters after six steps are
compared with the results of one process. {source}
{table}",
        lost = table(sweeps),
        sweep = sweeps[0].name,
        host = host(sweeps[0])?,
        shape = two.shape()?,
        source = source(&two.data.link(), &two.machine()?, "python3 benches/peers/ddp_gpu.py"),
        table = two.table()?,
    ))
}

/// A table of what is lost in some sweeps.
fn table(sweeps: &[&Sweep]) -> String {
    let heads = [
        "operator",
        "shape",
        "other",
        "what",
        "ours, as a multiple of theirs",
        "data",
    ];
    let mut table = Table::new(&heads);
    for sweep in sweeps {
        for lost in lost(&sweep.points()) {
            table.row(&[
                lost.point.operator_name(),
                lost.point.shape(),
                lost.other.to_owned(),
                lost.what.to_owned(),
                times(lost.factor),
                format!("[{name}](results/{name}.json)", name = sweep.name),
            ]);
        }
    }
    table.text()
}

/// The cost of a small call beside the work of the GPU.
fn host(sweep: &Sweep) -> Result<String, Error> {
    let mut table = Table::new(&[
        "pass",
        "who",
        "GPU time, ms",
        "call time, ms",
        "call over GPU",
    ]);
    let point = sweep.point("sgp", 3.0, "1024 x 128")?;
    for pass in Pass::ALL {
        for variant in ["flashcliff"].into_iter().chain(point.others()) {
            let Some(time) = point.time(variant, pass) else {
                continue;
            };
            table.row(&[
                pass.name().to_owned(),
                variant.to_owned(),
                milliseconds(time.seconds()),
                milliseconds(time.called),
                digits(time.called / time.seconds()),
            ]);
        }
    }
    Ok(table.text())
}

/// The step of a small network on one GPU and on two.
pub(super) struct TwoGpus {
    data: Data,
}

const WAYS: [(&str, &str); 2] = [("ddp", "DDP"), ("fsdp", "FSDP")];

impl TwoGpus {
    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        let data = Data::read(results, "gpu-h200-x2-ddp.json")?;
        Ok(Self { data })
    }

    /// How many times as long as one GPU two take for a step of the same batch in f32, by DDP.
    pub(super) fn factor(&self) -> Result<f64, Error> {
        let step = self.data.root().get("ddp")?.get("float32")?;
        let seconds = step.get("step_seconds")?.number()?;
        Ok(seconds / step.get("step_seconds_of_one")?.number()?)
    }

    /// The shape of the batch.
    pub(super) fn shape(&self) -> Result<String, Error> {
        self.data.root().shape(["rows", "channels"])
    }

    /// The machine.
    fn machine(&self) -> Result<String, Error> {
        let root = self.data.root();
        let count = root.get("processes")?.number()?;
        let (gpu, torch) = (root.get("gpu")?.text()?, root.get("torch")?.text()?);
        Ok(format!("{count} x {gpu}, PyTorch {torch}"))
    }

    fn table(&self) -> Result<String, Error> {
        let mut table = Table::new(&[
            "way",
            "type",
            "step on two, ms",
            "step on one, ms",
            "two over one",
            "losses differ by",
            "parameters differ by",
        ]);
        for (key, way) in WAYS {
            for dtype in ["float64", "float32"] {
                let step = self.data.root().get(key)?.get(dtype)?;
                let number = |key: &str| step.get(key)?.number();
                let (two, one) = (number("step_seconds")?, number("step_seconds_of_one")?);
                table.row(&[
                    way.to_owned(),
                    dtype.to_owned(),
                    milliseconds(two),
                    milliseconds(one),
                    times(two / one),
                    small(number("losses_off")?),
                    small(number("parameters_off")?),
                ]);
            }
        }
        Ok(table.text())
    }
}
