//! What a check says of itself: which program found the errors, and where.

use flashcliff_bench::machine::{Kind, commit};
use serde::Serialize;

/// The program and the machine of a check.
#[derive(Debug, Serialize)]
pub(super) struct Origin {
    version: &'static str,
    commit: String,
    machine: Kind,
}

impl Origin {
    /// This program, on a machine of this kind.
    pub(super) fn of(machine: Kind) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
            machine,
        }
    }
}
