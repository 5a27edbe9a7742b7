//! The rates of a machine, measured once and kept in a file.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use flashcliff::{Dtype, Operator, files};
use serde::{Deserialize, Serialize};

use crate::grid::{Node, Point};
use crate::machine::Kind;
use crate::steps::StepRates;
use crate::{Error, Passes};

/// The format that is written and read.
pub const FORMAT: u32 = 3;

/// The rates of a device, for predictions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of the program that measured.
    pub version: String,
    /// Seconds since 1970.
    pub time: u64,
    /// The machine, and the device.
    pub machine: Kind,
    /// The vectors that operators used.
    pub simd: String,
    /// Seconds of a call with next to no work.
    pub call_seconds: f64,
    /// Seconds of handing work to all threads and waiting for them.
    pub pool_seconds: f64,
    /// Operations a second by the name of an element type: of multiply-adds on a CPU, of products of matrices on a GPU.
    pub flops: BTreeMap<String, f64>,
    /// The rates of moving bytes, by the bytes that are worked on, ascending.
    pub levels: Vec<Level>,
    /// The rates of the operators.
    pub operators: Vec<OperatorRate>,
    /// The training steps of networks. Files of before have none.
    #[serde(default)]
    pub steps: Vec<StepRates>,
}

/// The rates of moving bytes of a working set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// The bytes of the working set of the addition: three tensors.
    pub bytes: usize,
    /// Bytes a second of an addition of two tensors.
    pub add: f64,
    /// Bytes a second of a copy of one of them.
    pub copy: f64,
}

/// The rate of an operator at a size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorRate {
    /// The name in the table.
    pub operator: String,
    /// The algebra, as `cl300`.
    pub algebra: String,
    /// The number of its blades.
    pub blades: usize,
    /// Whether the kernels are interpreted.
    pub is_interpreted: bool,
    /// The type of all tensors.
    pub dtype: String,
    /// The passes.
    pub passes: Passes,
    /// Whether the planes of blades lie whole pages apart, so that they compete for the same places in the caches.
    pub is_aligned: bool,
    /// Whether multivectors are written past the caches.
    pub is_streamed: bool,
    /// The bytes that the passes move.
    pub bytes: usize,
    /// The elements of the multivectors of the input.
    pub elements: usize,
    /// The channels of the input.
    pub channels: usize,
    /// The starts of a row for each of its channels; see [`flashcliff::Operator::parts_of_row`].
    pub starts: f64,
    /// Seconds for each unit of work, without the call; [`crate::work::Work::units`] counts them.
    pub unit_seconds: f64,
}

impl OperatorRate {
    /// The node of the grid of sizes.
    pub(crate) fn node(&self) -> Node {
        Node {
            point: Point {
                elements: self.elements,
                channels: self.channels,
                starts: self.starts,
            },
            unit_seconds: self.unit_seconds,
        }
    }
}

impl Calibration {
    /// The file for a machine: in the folder `rates` of `$FLASHCLIFF_CACHE_DIR`, or of `flashcliff` in the cache folder of the system.
    ///
    /// # Errors
    /// [`Error::NoFolder`].
    pub fn place(machine: &Kind) -> Result<PathBuf, Error> {
        let folder = files::cache_folder("rates").ok_or(Error::NoFolder)?;
        let words = [&machine.device, &machine.processor, &machine.widest_simd];
        let name = words.map(|word| plain(word)).join("-");
        Ok(folder.join(format!("{name}-{}.json", machine.threads)))
    }

    /// Reads the file of a machine.
    ///
    /// # Errors
    /// [`Error::NotCalibrated`] if there is none, or if it is of another machine, format or version; [`Error::File`].
    pub fn read(machine: &Kind) -> Result<Self, Error> {
        let path = Self::place(machine)?;
        let missing = |reason: String| Error::NotCalibrated {
            path: path.clone(),
            reason,
            command: match machine.is_gpu() {
                true => "flashcliff calibrate --device cuda".to_owned(),
                false => "flashcliff calibrate".to_owned(),
            },
        };
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(missing("there is no such file".to_owned()));
            }
            Err(source) => return Err(Error::File { path, source }),
        };
        Self::parse(&text, machine).map_err(missing)
    }

    /// Reads the text of a file. An error is the reason.
    fn parse(text: &[u8], machine: &Kind) -> Result<Self, String> {
        let value: serde_json::Value =
            serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let format = value.get("format").and_then(serde_json::Value::as_u64);
        if format != Some(u64::from(FORMAT)) {
            let got = format.map_or("none".to_owned(), |format| format.to_string());
            return Err(format!("expected format {FORMAT}, got {got}"));
        }
        let read: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let version = env!("CARGO_PKG_VERSION");
        match (read.machine == *machine, read.version == version) {
            (true, true) => read.checked(),
            (true, false) => Err(format!("expected version {version}, got {}", read.version)),
            _ => Err("it is of another machine".to_owned()),
        }
    }

    /// Refuses rates with which nothing can be computed.
    fn checked(self) -> Result<Self, String> {
        let levels = self.levels.iter().flat_map(|level| [level.add, level.copy]);
        let units = self.operators.iter().map(|rate| rate.unit_seconds);
        let mut all = levels.chain(units).chain(self.flops.values().copied());
        let are_rates = all.all(|rate| rate.is_finite() && rate > 0.0);
        let latencies = [self.call_seconds, self.pool_seconds];
        let are_times = latencies
            .iter()
            .all(|time| time.is_finite() && *time >= 0.0);
        let are_steps = self.steps.iter().all(StepRates::is_sound);
        let has_flops = self.flops.contains_key(&Dtype::F32.to_string());
        let are_sound = are_rates && are_times && are_steps && has_flops;
        // Between two levels a rate is interpolated by the logarithm of their bytes.
        let are_levels = self.levels.first().is_some_and(|level| level.bytes > 0)
            && self.levels.is_sorted_by_key(|level| level.bytes);
        match (are_sound, are_levels) {
            (true, true) => Ok(self),
            (false, _) => Err("expected rates above 0".to_owned()),
            (true, false) => Err("expected levels of ascending bytes, above 0".to_owned()),
        }
    }

    /// Writes the file of the machine, whole or not at all.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::NoFolder`].
    pub fn store(&self) -> Result<PathBuf, Error> {
        let path = Self::place(&self.machine)?;
        let of_file = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { path, source }
        };
        if let Some(folder) = path.parent() {
            files::make_folder(folder).map_err(of_file(folder))?;
        }
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::other);
        let written = text.and_then(|text| files::replace(&path, (text + "\n").as_bytes()));
        written.map_err(of_file(&path))?;
        Ok(path)
    }

    /// The training step of a task.
    ///
    /// # Errors
    /// [`Error::NoSteps`] if it was not measured.
    pub fn step(&self, task: &str) -> Result<&StepRates, Error> {
        let found = self.steps.iter().find(|step| step.task == task);
        found.ok_or_else(|| Error::NoSteps {
            task: task.to_owned(),
        })
    }

    /// Operations a second of an operator. Sums of 16-bit types are in f32; products of matrices have rates of their own on a GPU.
    pub fn flops_rate(&self, operator: &Operator, dtype: Dtype) -> f64 {
        let counts = if operator.has_matrix_products() {
            dtype
        } else {
            dtype.arithmetic()
        };
        let of = |dtype: Dtype| self.flops.get(&dtype.to_string()).copied();
        // A file without the type of f32 is refused.
        of(counts)
            .or_else(|| of(Dtype::F32))
            .unwrap_or(f64::INFINITY)
    }

    /// Bytes a second of an addition that works on so many bytes, between the levels by the logarithm of the bytes.
    pub fn bandwidth(&self, bytes: usize) -> f64 {
        let above = self.levels.partition_point(|level| level.bytes <= bytes);
        let at = |place: usize| &self.levels[place.min(self.levels.len() - 1)];
        let (low, high) = (at(above.saturating_sub(1)), at(above));
        if low.bytes == high.bytes {
            return low.add;
        }
        let [from, to, here] = [low.bytes, high.bytes, bytes].map(|bytes| (bytes as f64).ln());
        let share = ((here - from) / (to - from)).clamp(0.0, 1.0);
        low.add + share * (high.add - low.add)
    }
}

/// A text with letters and digits only.
fn plain(text: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    text.chars().map(letter).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use cayley::Signature;
    use flashcliff::{Algebra, ops};

    use super::*;

    pub(crate) fn machine() -> Kind {
        Kind {
            device: "cpu".to_owned(),
            processor: "A (test)".to_owned(),
            architecture: "none".to_owned(),
            widest_simd: "scalar".to_owned(),
            threads: 2,
        }
    }

    /// A machine with two levels, and a rate of `sgp_norm` in each.
    pub(crate) fn calibration() -> Calibration {
        let rate = |bytes, unit_seconds| OperatorRate {
            operator: "sgp_norm".to_owned(),
            algebra: "cl300".to_owned(),
            blades: 8,
            is_interpreted: false,
            dtype: "f32".to_owned(),
            passes: Passes::Forward,
            is_aligned: false,
            is_streamed: false,
            bytes,
            // Three tensors of four bytes an element, nearly.
            elements: bytes / 12,
            channels: 16,
            starts: 1.0 / 16.0,
            unit_seconds,
        };
        Calibration {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time: 0,
            machine: machine(),
            simd: "scalar".to_owned(),
            call_seconds: 1e-6,
            pool_seconds: 5e-6,
            flops: BTreeMap::from([("f32".to_owned(), 1e10), ("f64".to_owned(), 5e9)]),
            levels: vec![
                Level {
                    bytes: 1000,
                    add: 4e10,
                    copy: 4e10,
                },
                Level {
                    bytes: 100_000,
                    add: 1e10,
                    copy: 1e10,
                },
            ],
            operators: vec![rate(1000, 1e-10), rate(100_000, 4e-10)],
            steps: vec![crate::steps::tests::rates()],
        }
    }

    #[test]
    fn bandwidths_lie_between_the_levels() {
        let rates = calibration();
        assert_eq!(rates.bandwidth(1), 4e10);
        assert_eq!(rates.bandwidth(1000), 4e10);
        assert!((rates.bandwidth(10_000) - 2.5e10).abs() < 1.0);
        assert_eq!(rates.bandwidth(usize::MAX), 1e10);
    }

    #[test]
    fn products_of_matrices_have_the_rate_of_their_type() {
        let operator = |name| {
            let algebra = Algebra::new(Signature::of(3, 0, 0)).unwrap();
            ops::by_name(algebra, name, &[]).unwrap()
        };
        let mut rates = calibration();
        rates.flops.insert("bf16".to_owned(), 8e10);
        assert_eq!(rates.flops_rate(&operator("mv_linear"), Dtype::Bf16), 8e10);
        assert_eq!(rates.flops_rate(&operator("sgp_norm"), Dtype::Bf16), 1e10);
        assert_eq!(rates.flops_rate(&operator("sgp_norm"), Dtype::F64), 5e9);
        assert_eq!(rates.flops_rate(&operator("mv_linear"), Dtype::F16), 1e10);
    }

    #[test]
    fn files_of_other_machines_formats_and_versions_are_refused() {
        let text = |rates: &Calibration| serde_json::to_vec(rates).unwrap();
        let rates = calibration();
        assert_eq!(
            Calibration::parse(&text(&rates), &machine()),
            Ok(rates.clone())
        );
        let reason = |change: fn(&mut Calibration)| {
            let mut other = rates.clone();
            change(&mut other);
            Calibration::parse(&text(&other), &machine()).unwrap_err()
        };
        assert!(reason(|r| r.format = 9).contains("format 3, got 9"));
        assert!(reason(|r| r.version = "0".to_owned()).contains("got 0"));
        assert!(reason(|r| r.machine.threads = 3).contains("another machine"));
        assert!(reason(|r| r.operators[1].unit_seconds = 0.0).contains("above 0"));
        assert!(reason(|r| r.levels.clear()).contains("above 0"));
        assert!(reason(|r| r.levels[0].bytes = 0).contains("ascending"));
        assert!(reason(|r| r.levels.swap(0, 1)).contains("ascending"));
        assert!(reason(|r| r.steps[0].batches.clear()).contains("above 0"));
        assert!(reason(|r| r.flops.clear()).contains("above 0"));
        assert!(Calibration::parse(b"{", &machine()).is_err());
    }
}
