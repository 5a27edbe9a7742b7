//! Tuning tables: choices by key, for one GPU, in memory, in files and in layers.
//!
//! * `key`, `algorithm`, `names` - the parts of entries.
//! * `entries` - a table, from JSON and to JSON.
//! * `file` - the file of the user.
//! * `place` - the path of that file, and whether it is read at all.
//! * `layers` - the user's table before the built-in one.
//!
//! Nothing here needs a GPU.

pub(in crate::cuda) mod algorithm;
mod entries;
mod file;
mod key;
mod layers;
pub(in crate::cuda) mod names;
mod place;

pub use algorithm::{Algorithm, Configuration};
pub use entries::Table;
pub(in crate::cuda) use entries::{MatmulEntry, Measured};
pub(in crate::cuda) use file::check;
pub use file::{FileError, forget, read, save};
pub use key::{Gpu, KnobKey};
pub use layers::{FileState, Ignored, Source, Tables};
pub(in crate::cuda) use place::FOLDERS;
pub use place::{CACHE_DIR_VARIABLE, Place, TUNING_VARIABLE};
