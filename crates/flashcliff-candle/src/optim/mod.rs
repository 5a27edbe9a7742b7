//! Optimisers whose whole state can be saved, so that a resumed run repeats an uninterrupted one
//! bit for bit.

mod adam;

pub use adam::{Adam, AdamOptions};
