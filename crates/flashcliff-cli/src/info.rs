//! `flashcliff info`: what this program is and what it runs on.

use clap::Args;
use flashcliff::Algebra;
use flashcliff::simd::Tier;
use serde::Serialize;

use crate::error::Error;
use crate::output::{Align, Table, print};

/// Show version, SIMD tier, threads and the algebras that have kernels.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// As JSON.
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
            "flashcliff {} on {}\nSIMD tier: {} (available: {})\nthreads: {}\n\n{}",
            self.version,
            self.architecture,
            self.simd,
            self.simd_available.join(", "),
            self.threads,
            table.render()
        )
    }
}
