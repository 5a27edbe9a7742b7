//! Where others are ahead: computed, so that no lost point can be left out.

use std::path::Path;

use super::data::Data;
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

/// A table of what is lost in some sweeps.
pub(super) fn table(sweeps: &[&Sweep]) -> String {
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
pub(super) fn host(sweep: &Sweep) -> Result<String, Error> {
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
    pub(super) const NAME: &str = "gpu-h200-x2-ddp.json";

    pub(super) fn read(results: &Path) -> Result<Self, Error> {
        let data = Data::read(results, Self::NAME)?;
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
        let number = |key: &str| self.data.root().get(key)?.number();
        Ok(format!("{} x {}", number("rows")?, number("channels")?))
    }

    /// The machine.
    pub(super) fn machine(&self) -> Result<String, Error> {
        let root = self.data.root();
        let count = root.get("processes")?.number()?;
        let (gpu, torch) = (root.get("gpu")?.text()?, root.get("torch")?.text()?);
        Ok(format!("{count} x {gpu}, PyTorch {torch}"))
    }

    pub(super) fn table(&self) -> Result<String, Error> {
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
