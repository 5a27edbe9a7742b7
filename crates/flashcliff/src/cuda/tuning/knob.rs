//! Knobs: whole numbers that passes ask tuning tables for.

use super::KnobKey;
use crate::cuda::Device;
use crate::cuda::matmul::Knob;

impl Device {
    /// The value of a knob of a pass: the one in the tuning tables if it is one of `values`, else `default`. A
    /// [`Tuner`](super::Tuner) tries all values.
    pub fn knob(&self, key: &KnobKey, name: &str, default: i64, values: &[i64]) -> i64 {
        let tuned = self.tuning().knob(key, name);
        let value = tuned
            .filter(|value| values.contains(value))
            .unwrap_or(default);
        let Some(watch) = self.watch() else {
            return value;
        };
        let forced = watch.saw_knob(Knob {
            key: key.clone(),
            name: name.to_owned(),
            value,
            values: values.to_vec(),
        });
        forced.unwrap_or(value)
    }
}
