//! `flashcliff info`: shows this program and the machine it runs on.

use clap::Args;
use flashcliff::{Algebra, Tier};
use serde::Serialize;

#[cfg(feature = "cuda")]
use crate::device::DeviceName;
use crate::error::Error;
use crate::output::{Align, Table, print};

/// Show version, SIMD tier, threads, GPUs with their tuning tables, and the algebras with compiled kernels.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Info {
    version: &'static str,
    architecture: &'static str,
    simd: &'static str,
    simd_available: Vec<&'static str>,
    threads: usize,
    gpus: Gpus,
    algebras: Vec<AlgebraInfo>,
}

#[derive(Debug, Serialize)]
struct AlgebraInfo {
    name: String,
    signature: [usize; 3],
    blades: usize,
    grades: usize,
    paths: usize,
}

/// The GPUs, or the reason why there is none.
#[derive(Debug, Default, Serialize)]
struct Gpus {
    found: Vec<Gpu>,
    /// The GPUs that cannot be used, with the reasons.
    unusable: Vec<String>,
    /// The reason why there is no GPU at all.
    none_because: Option<String>,
}

#[derive(Debug, Serialize)]
struct Gpu {
    device: String,
    name: String,
    compute_capability: [i32; 2],
    memory_bytes: usize,
    tuning: Tuning,
}

/// The tuning tables of a GPU.
#[derive(Debug, Serialize)]
struct Tuning {
    /// The file of the user.
    file: Option<String>,
    /// The state of the user's file, in words.
    state: String,
    /// The number of entries of the user's file, if it was read.
    entries: Option<usize>,
    /// The number of entries of the built-in table, if there is one.
    built_in_entries: Option<usize>,
    /// The entries that are not used, with the reasons.
    ignored: Vec<String>,
}

impl Gpus {
    #[cfg(feature = "cuda")]
    fn find() -> Self {
        let gpu = |ordinal| {
            let device = flashcliff::Device::cuda(ordinal)?;
            let (major, minor) = device.compute_capability();
            Ok(Gpu {
                device: DeviceName::Cuda(ordinal).to_string(),
                name: device.name()?,
                compute_capability: [major, minor],
                memory_bytes: device.total_memory()?,
                tuning: Tuning::of(&device),
            })
        };
        let count = match flashcliff::Device::count() {
            Ok(count) => count,
            Err(error) => return Self::none(&error),
        };
        let mut gpus = Self::default();
        for ordinal in 0..count {
            let found: Result<Gpu, flashcliff::Error> = gpu(ordinal);
            match found {
                Ok(gpu) => gpus.found.push(gpu),
                Err(error) => {
                    let device = DeviceName::Cuda(ordinal);
                    gpus.unusable.push(format!("{device}: {error}"));
                }
            }
        }
        gpus
    }

    #[cfg(not(feature = "cuda"))]
    fn find() -> Self {
        Self::none(&flashcliff_candle::Error::BuiltWithoutCuda)
    }

    fn none(reason: &dyn std::error::Error) -> Self {
        Self {
            none_because: Some(reason.to_string()),
            ..Self::default()
        }
    }

    fn text(&self) -> String {
        if let Some(reason) = &self.none_because {
            return format!("GPUs: none: {reason}\n");
        }
        let line = |gpu: &Gpu| {
            let [major, minor] = gpu.compute_capability;
            let gib = gpu.memory_bytes as f64 / f64::from(1 << 30);
            format!(
                "{}: {}, compute capability {major}.{minor}, {gib:.1} GiB\n{}",
                gpu.device,
                gpu.name,
                gpu.tuning.text()
            )
        };
        let unusable = self.unusable.iter();
        let unusable = unusable.map(|reason| format!("not used: {reason}\n"));
        self.found.iter().map(line).chain(unusable).collect()
    }
}

impl Tuning {
    #[cfg(feature = "cuda")]
    fn of(device: &flashcliff::Device) -> Self {
        use flashcliff::cuda::tuning::{FileState, check};

        // The check finds out for every entry whether it is used. Without cuBLASLt none is.
        let unchecked = check(device).err().map(|error| error.to_string());
        let tables = device.tuning();
        let (state, entries) = match tables.file_state() {
            FileState::Off => ("not to be read".to_owned(), None),
            FileState::Missing => ("not there".to_owned(), None),
            FileState::Read { entries } => ("read".to_owned(), Some(*entries)),
            FileState::Broken(error) => (format!("not used: {error}"), None),
            _ => ("unknown".to_owned(), None),
        };
        let ignored = tables.ignored().into_iter();
        let ignored = ignored.map(|ignored| format!("{}: {}", ignored.source, ignored.reason));
        let unknown =
            tables.place().unknown.as_ref().map(|got| {
                format!("FLASHCLIFF_TUNING: expected all, builtin or none, got `{got}`")
            });
        Self {
            file: tables.file().map(|path| path.display().to_string()),
            state,
            entries,
            built_in_entries: tables.built_in_entries(),
            ignored: unknown
                .into_iter()
                .chain(unchecked)
                .chain(ignored)
                .collect(),
        }
    }

    fn text(&self) -> String {
        let count = |entries: Option<usize>| {
            entries.map_or(String::new(), |entries| format!(", {entries} entries"))
        };
        let file = self.file.as_deref().unwrap_or("none");
        let mut text = format!(
            "  tuning table of the user: {file}: {}{}\n",
            self.state,
            count(self.entries)
        );
        text += &match self.built_in_entries {
            Some(entries) => format!("  tuning table built in: {entries} entries\n"),
            None => "  tuning table built in: none\n".to_owned(),
        };
        for ignored in &self.ignored {
            text += &format!("  ignored: {ignored}\n");
        }
        text
    }
}

/// Runs the command.
///
/// # Errors
/// Standard output that cannot be written.
pub(crate) fn run(args: &InfoArgs) -> Result<(), Error> {
    let info = Info::collect();
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&info)?))
    } else {
        print(&info.text())
    }
}

impl Info {
    fn collect() -> Self {
        let algebra = |algebra: Algebra| {
            let signature = algebra.signature();
            AlgebraInfo {
                name: algebra.name(),
                signature: [signature.p(), signature.q(), signature.r()],
                blades: algebra.blade_count(),
                grades: algebra.grade_count(),
                paths: algebra.path_count(),
            }
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            architecture: std::env::consts::ARCH,
            simd: Tier::best().name(),
            simd_available: Tier::available().map(Tier::name).collect(),
            threads: rayon::current_num_threads(),
            gpus: Gpus::find(),
            algebras: Algebra::shipped().map(algebra).collect(),
        }
    }

    fn text(&self) -> String {
        let mut table = Table::new(&[
            ("algebra", Align::Left),
            ("signature", Align::Left),
            ("blades", Align::Right),
            ("grades", Align::Right),
            ("paths", Align::Right),
        ]);
        for algebra in &self.algebras {
            let [p, q, r] = algebra.signature;
            table.row([
                algebra.name.clone(),
                format!("Cl({p},{q},{r})"),
                algebra.blades.to_string(),
                algebra.grades.to_string(),
                algebra.paths.to_string(),
            ]);
        }
        format!(
            "flashcliff {} on {}\nSIMD tier: {} (available: {})\nthreads: {}\n{}\n{}",
            self.version,
            self.architecture,
            self.simd,
            self.simd_available.join(", "),
            self.threads,
            self.gpus.text(),
            table.render()
        )
    }
}
