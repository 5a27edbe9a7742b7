//! The names of types of the crate in tuning tables.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// Reads a value by its name.
fn named<'de, D: Deserializer<'de>, T: Copy>(
    deserializer: D,
    what: &str,
    all: &[(&'static str, T)],
) -> Result<T, D::Error> {
    let got = String::deserialize(deserializer)?;
    let found = all.iter().find(|(name, _)| *name == got);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let expected = names.join(", ");
        D::Error::custom(format!(
            "unknown {what} `{got}`: expected one of {expected}"
        ))
    })
}

/// An element type.
pub(super) mod dtype {
    use super::{Deserializer, Serializer, named};
    use crate::Dtype;

    pub(in crate::tuning_table) fn serialize<S: Serializer>(
        dtype: &Dtype,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(dtype)
    }

    pub(in crate::tuning_table) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Dtype, D::Error> {
        let all = [
            ("f32", Dtype::F32),
            ("f64", Dtype::F64),
            ("bf16", Dtype::Bf16),
            ("f16", Dtype::F16),
        ];
        named(deserializer, "element type", &all)
    }
}

/// A pass.
pub(super) mod pass {
    use super::{Deserializer, Serializer, named};
    use crate::Pass;

    pub(in crate::tuning_table) fn serialize<S: Serializer>(
        pass: &Pass,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(pass)
    }

    pub(in crate::tuning_table) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Pass, D::Error> {
        let all = [Pass::Forward, Pass::Backward].map(|pass| (pass.name(), pass));
        named(deserializer, "pass", &all)
    }
}
