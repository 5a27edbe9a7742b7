//! The groups that versors of an algebra form.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A group that acts on multivectors.
///
/// A vector `v` with `v² ≠ 0` acts by the reflection along it: `x ↦ v (x_even − x_odd) v⁻¹`, which negates `v`, keeps
/// the vectors orthogonal to it, and maps each grade to itself. A product of such vectors acts by its reflections, one
/// after the other. If `e0` is null, `e1 + c e0` has a reflection too, so translations are among the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// All products of vectors that are not null: reflections, rotations, boosts, translations.
    Pin,
    /// Products of an even number of such vectors: rotations, boosts, translations.
    Spin,
}

impl Group {
    /// Every group, in the order of the enum.
    pub const ALL: [Group; 2] = [Group::Pin, Group::Spin];

    /// Name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Pin => "pin",
            Group::Spin => "spin",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Group {
    type Err = Error;

    /// Reads a [`Group::name`].
    fn from_str(text: &str) -> Result<Group, Error> {
        Group::ALL
            .into_iter()
            .find(|group| group.name() == text)
            .ok_or_else(|| Error::UnknownGroup {
                found: text.to_owned(),
            })
    }
}
