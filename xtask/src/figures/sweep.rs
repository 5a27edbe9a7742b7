//! Sweeps: one operator at many shapes, computed by flashcliff and by others (`benches/peers/sweep_results.py` writes them).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::data::{Data, Place};
use crate::Error;

/// The measurement that was timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// The operator alone.
    Forward,
    /// The operator and all of its gradients.
    Both,
}

impl Pass {
    pub(super) const ALL: [Self; 2] = [Self::Forward, Self::Both];

    /// The key in the data.
    fn key(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Both => "forward+backward",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Both => "with backward",
        }
    }
}

pub(super) const OWN: &str = "flashcliff";

/// The sweep on a GPU beside all others.
pub(super) const GPU: &str = "gpu-h200-sweep";

/// The time of a variant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    /// The time of a call that follows a finished one, with the work of the host.
    pub(super) called: f64,
    /// The time of the GPU alone.
    pub(super) queued: Option<f64>,
    /// The share of samples of `queued` in which the GPU had to wait for the host.
    late: f64,
}

impl Time {
    /// The time of the GPU where there is one.
    pub(super) fn seconds(self) -> f64 {
        self.queued.unwrap_or(self.called)
    }
}

/// The times of one variant, both passes.
type Times = [Time; 2];

/// One operator at one shape.
pub(super) struct Point {
    pub(super) operator: String,
    pub(super) dim: f64,
    pub(super) batch: f64,
    pub(super) channels: f64,
    times: BTreeMap<String, Times>,
    /// Bytes at the peak of forward and backward.
    peaks: BTreeMap<String, f64>,
    /// The rates of the matrix products of both passes, beside that of a large matrix product.
    flops: Option<([f64; 2], f64)>,
    /// How far tensors are from float64, by variant and tensor, relative to the largest.
    pub(super) differences: BTreeMap<String, Vec<(String, f64)>>,
}

impl Point {
    fn new(place: &Place<'_>) -> Result<Self, Error> {
        let seconds = place.get("seconds")?;
        let passes = Pass::ALL.map(|pass| seconds.get(pass.key()));
        let [forward, both] = passes;
        let (forward, both) = (forward?, both?);
        let mut times = BTreeMap::new();
        for (variant, one) in forward.entries()? {
            times.insert(
                variant.to_owned(),
                [time(&one)?, time(&both.get(variant)?)?],
            );
        }
        let mut peaks = BTreeMap::new();
        if let Some(bytes) = place.find("peak_bytes") {
            for (variant, peak) in bytes.entries()? {
                peaks.insert(variant.to_owned(), peak.number()?);
            }
        }
        let flops = match place.find("flops") {
            Some(flops) => {
                let [forward, both] = Pass::ALL.map(|pass| flops.get(pass.key()));
                let both = [forward?.number()?, both?.number()?];
                Some((both, place.get("matmul_flops_per_second")?.number()?))
            }
            None => None,
        };
        let mut differences = BTreeMap::new();
        for (variant, tensors) in place.get("differences")?.entries()? {
            let tensors = tensors.entries()?.into_iter();
            let tensors = tensors.map(|(name, off)| Ok((name.to_owned(), off.number()?)));
            let tensors: Result<_, Error> = tensors.collect();
            differences.insert(variant.to_owned(), tensors?);
        }
        Ok(Self {
            operator: place.get("operator")?.text()?.to_owned(),
            dim: place.get("dim")?.number()?,
            batch: place.get("batch")?.number()?,
            channels: place.get("channels")?.number()?,
            times,
            peaks,
            flops,
            differences,
        })
    }

    pub(super) fn time(&self, variant: &str, pass: Pass) -> Option<Time> {
        Some(self.times.get(variant)?[pass as usize])
    }

    /// How many times as long as flashcliff a variant takes.
    pub(super) fn ratio(&self, variant: &str, pass: Pass) -> Option<f64> {
        let [other, own] = [variant, OWN].map(|name| self.time(name, pass).map(Time::seconds));
        Some(other? / own?)
    }

    /// Whether the time of a variant holds waits for the host in most samples.
    pub(super) fn waits(&self, variant: &str, pass: Pass, samples: f64) -> bool {
        let time = self.time(variant, pass);
        time.is_some_and(|time| time.late > samples / 2.0)
    }

    /// Bytes of flashcliff at the peak of forward and backward.
    pub(super) fn peak(&self) -> Option<f64> {
        self.peaks.get(OWN).copied()
    }

    /// The peak of flashcliff as a part of that of a variant.
    pub(super) fn memory(&self, variant: &str) -> Option<f64> {
        Some(self.peak()? / self.peaks.get(variant)?)
    }

    /// The share of the rate of a large matrix product.
    pub(super) fn share(&self, pass: Pass) -> Option<f64> {
        let (flops, rate) = self.flops?;
        let seconds = self.time(OWN, pass)?.seconds();
        Some(flops[pass as usize] / seconds / rate)
    }

    /// The operator as readers know it.
    pub(super) fn operator_name(&self) -> String {
        let name = match self.operator.as_str() {
            "sgp" => "`sgp_norm`",
            "fcgp" => "`fcgp_norm`",
            "steerable" => "CGENN's layer",
            other => other,
        };
        format!("{name}, {}-D", self.dim)
    }

    pub(super) fn shape(&self) -> String {
        format!("{} x {}", self.batch, self.channels)
    }

    /// The variants beside flashcliff, numbers in order of size.
    pub(super) fn others(&self) -> Vec<&str> {
        let names = self.times.keys().map(String::as_str);
        let mut names: Vec<&str> = names.filter(|name| *name != OWN).collect();
        names.sort_by_key(|name| {
            let number = name.split(' ').find_map(|word| word.parse::<u64>().ok());
            (number, *name)
        });
        names
    }
}

fn time(place: &Place<'_>) -> Result<Time, Error> {
    let number = |key: &str| place.find(key).map(|one| one.number()).transpose();
    Ok(Time {
        called: place.get("eager")?.number()?,
        queued: number("queued")?,
        late: number("late")?.unwrap_or(0.0),
    })
}

/// All points of a file, and how it was made.
pub(super) struct Sweep {
    pub(super) name: &'static str,
    pub(super) command: String,
    pub(super) commit: String,
    /// The commits of others.
    pub(super) peers: Option<String>,
    /// The machine and the versions of its software.
    pub(super) machine: String,
    pub(super) samples: f64,
    points: Vec<Point>,
}

impl Sweep {
    /// Reads `NAME.json`.
    pub(super) fn read(results: &Path, name: &'static str) -> Result<Self, Error> {
        let data = Data::read(results, &format!("{name}.json"))?;
        let root = data.root();
        let environment = root.get("environment")?;
        let text = |key: &str| Ok::<_, Error>(environment.get(key)?.text()?.to_owned());
        let points = root.get("points")?.list()?;
        let points: Result<Vec<Point>, Error> = points.iter().map(Point::new).collect();
        let machine = match environment.find("gpu") {
            Some(gpu) => format!(
                "{}, driver {}, PyTorch {}, Triton {}",
                gpu.text()?,
                text("driver")?,
                text("torch")?,
                text("triton")?
            ),
            None => format!(
                "{}, {} threads, {}, PyTorch {}",
                text("cpu")?,
                environment.get("threads")?.number()?,
                environment.get("flashcliff")?.get("simd")?.text()?,
                text("torch")?
            ),
        };
        let peers = environment.find("peer_commits");
        Ok(Self {
            name,
            command: text("command")?,
            commit: text("flashcliff_commit")?,
            peers: peers
                .map(|peers| Ok::<_, Error>(peers.text()?.to_owned()))
                .transpose()?,
            machine,
            samples: environment.get("samples")?.number()?,
            points: points?,
        })
    }

    /// The points in order: operators as they were named first, 3-D before 2-D, rising shapes.
    pub(super) fn points(&self) -> Vec<&Point> {
        let mut operators: Vec<&str> = Vec::new();
        for point in &self.points {
            if !operators.contains(&point.operator.as_str()) {
                operators.push(&point.operator);
            }
        }
        let mut points: Vec<&Point> = self.points.iter().collect();
        let order = |point: &Point| operators.iter().position(|name| *name == point.operator);
        points.sort_by(|a, b| {
            order(a)
                .cmp(&order(b))
                .then(b.dim.total_cmp(&a.dim))
                .then(a.batch.total_cmp(&b.batch))
                .then(a.channels.total_cmp(&b.channels))
        });
        points
    }

    /// The libraries beside flashcliff.
    pub(super) fn variants(&self) -> BTreeSet<&str> {
        let points = self.points.iter();
        points.flat_map(Point::others).collect()
    }

    /// The points of every operator and dimension.
    pub(super) fn groups(&self) -> Vec<Vec<&Point>> {
        let mut groups: Vec<Vec<&Point>> = Vec::new();
        for point in self.points() {
            match groups.last_mut() {
                Some(group) if group[0].operator_name() == point.operator_name() => {
                    group.push(point)
                }
                _ => groups.push(vec![point]),
            }
        }
        groups
    }

    /// The point of an operator at a shape.
    pub(super) fn point(&self, operator: &str, dim: f64, shape: &str) -> Result<&Point, Error> {
        let is_it = |point: &&Point| {
            point.operator == operator && point.dim == dim && point.shape() == shape
        };
        self.points.iter().find(is_it).ok_or_else(|| Error::Data {
            path: format!("{}.json", self.name).into(),
            expected: format!("{operator} in {dim} dimensions at {shape}"),
        })
    }

    /// The origin of the file: where it is, and how and on what machine it was made.
    pub(super) fn source(&self) -> String {
        let peers = match &self.peers {
            Some(peers) => format!(" Others: {peers}."),
            None => String::new(),
        };
        format!(
            "Data: [{name}.json](results/{name}.json). Machine: {machine}. Commit: {commit}.{peers} Medians of {samples} samples.\n\
             Command, in `benches/peers`:\n\n```sh\npython3 {command}\n```\n",
            name = self.name,
            machine = self.machine,
            commit = self.commit,
            samples = self.samples,
            command = self.command,
        )
    }
}
