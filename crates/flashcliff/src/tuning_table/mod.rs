//! Tuning tables: choices by key, for one GPU, in memory, in files and in layers.
//!
//! * `key`, `problem`, `precision` - what choices depend on.
//! * `algorithm`, `names` - the other parts of entries.
//! * `entries` - a table, from JSON and to JSON.
//! * `file` - the file of the user.
//! * `place` - the path of that file, and whether it is read at all.
//! * `layers` - the user's table before the built-in one.
//!
//! Devices and matrix products ask these tables, and [`Error`](crate::Error) has a [`FileError`] within, so nothing here
//! may use them: `tests/unit.rs` compiles this module without them.

mod algorithm;
mod entries;
mod file;
mod key;
mod layers;
mod names;
mod place;
mod precision;
mod problem;

pub(crate) use algorithm::REDUCTION_COMPUTE_TYPE;
pub use algorithm::{Algorithm, Configuration};
pub use entries::{Measured, Table};
pub use file::{FileError, check_save, forget, read, save};
pub use key::{Gpu, KnobKey};
pub use layers::{FileState, Ignored, Source, Tables};
pub use place::{CACHE_DIR_VARIABLE, Place, TUNING_VARIABLE};
pub use precision::MatmulPrecision;
pub(crate) use problem::Form;
pub use problem::Problem;
