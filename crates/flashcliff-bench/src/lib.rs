//! The parts of `flashcliff bench`: cases, formulas, times beside floors, models, verdicts, reports. The program is their host.
//!
//! * `case`, `selection` - which operators, at which sizes; derived from the table of operators.
//! * `reference` - the formulas of all operators in f64, without kernels.
//! * `check` - the comparison with the formulas, before anything is timed.
//! * [`Target`] - a device that measures: [`cpu`], and with the feature `cuda` a GPU.
//! * [`measure`] - times in turns with floors, medians.
//! * [`machine`] - what the machine is, and the rates that it reaches.
//! * [`model`] - from bytes, operations and rates to the least time of a case, and its size class.
//! * [`work`] - calls with their bytes and operations, and operators with their tensors.
//! * [`report`] - the results, as JSON.
//! * [`stats`], [`baseline`] - the interval of a ratio, and the verdict on a case beside a stored run.

pub mod baseline;
mod case;
mod check;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod error;
pub mod machine;
pub mod measure;
pub mod model;
mod reference;
pub mod report;
mod selection;
pub mod stats;
mod target;
pub mod work;

pub use case::{Case, Form, Passes};
pub use error::Error;
pub use selection::Selection;
pub use target::Target;
