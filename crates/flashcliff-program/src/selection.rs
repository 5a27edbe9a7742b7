//! The choice of what a build generates: the algebras of the enabled features and those that a variable names, and groups of
//! operators.

use std::collections::BTreeSet;
use std::fmt;

use cayley::Signature;

use crate::spec::{Group, shipped};

/// The variable that adds algebras by signature, such as `1,1,1;6,0,0`.
pub const VARIABLE: &str = "FLASHCLIFF_ALGEBRAS";

/// A part of [`VARIABLE`] that is not a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSelection {
    /// The text of the part.
    pub part: String,
    /// The mistake in it, if it is known.
    pub reason: Option<String>,
}

impl fmt::Display for BadSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{VARIABLE}: expected signatures `p,q,r` with `;` between them, such as `1,1,1;6,0,0` (p vectors that square \
             to +1, q to -1, r to 0; at most {} in all), got `{}`",
            Signature::MAX_DIM,
            self.part
        )?;
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for BadSelection {}

/// The signatures that a build script must generate: the signatures of features, by the variables that cargo sets for
/// features, and the signatures in [`VARIABLE`]. `variable` reads the environment.
///
/// # Errors
/// A part of [`VARIABLE`] that is not a signature.
pub fn of_build_script(
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Signature>, BadSelection> {
    let list = variable(VARIABLE).unwrap_or_default();
    select(|name| is_enabled(&variable, name), &list)
}

/// The groups of operators that a build script must generate, by the variables that cargo sets for features.
pub fn groups_of_build_script(variable: impl Fn(&str) -> Option<String>) -> Vec<Group> {
    let is_wanted = |group: &Group| {
        let feature = group.feature();
        feature.is_none_or(|feature| is_enabled(&variable, feature))
    };
    Group::ALL.into_iter().filter(is_wanted).collect()
}

/// Whether a build script must generate second derivatives, by the variable that cargo sets for the feature.
pub fn second_order_of_build_script(variable: impl Fn(&str) -> Option<String>) -> bool {
    is_enabled(variable, "second-order")
}

/// Whether cargo sets the variable of a feature for a build script.
fn is_enabled(variable: impl Fn(&str) -> Option<String>, feature: &str) -> bool {
    let name = feature.to_uppercase().replace('-', "_");
    variable(&format!("CARGO_FEATURE_{name}")).is_some()
}

/// The signatures to generate, each once, in order: every shipped one whose feature `is_enabled`, and the signatures in
/// `list`, which is the value of [`VARIABLE`] or empty.
fn select(is_enabled: impl Fn(&str) -> bool, list: &str) -> Result<Vec<Signature>, BadSelection> {
    let mut selected: BTreeSet<Signature> = shipped().filter(|s| is_enabled(&s.name())).collect();
    for part in list
        .split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        selected.insert(signature(part)?);
    }
    Ok(selected.into_iter().collect())
}

/// Reads a signature `p,q,r`.
///
/// # Errors
/// Text that is not three numbers, or more than [`Signature::MAX_DIM`] vectors.
pub fn signature(part: &str) -> Result<Signature, BadSelection> {
    let bad = |reason| BadSelection {
        part: part.to_owned(),
        reason,
    };
    let numbers: Result<Vec<usize>, _> = part.split(',').map(|n| n.trim().parse()).collect();
    match numbers.as_deref() {
        Ok(&[p, q, r]) => Signature::new(p, q, r).map_err(|error| bad(Some(error.to_string()))),
        _ => Err(bad(None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(enabled: &[&str], list: &str) -> Result<Vec<String>, BadSelection> {
        let selected = select(|name| enabled.contains(&name), list)?;
        Ok(selected
            .into_iter()
            .map(|signature| signature.name())
            .collect())
    }

    #[test]
    fn features_and_the_list_add_up_and_repeat_nothing() -> Result<(), BadSelection> {
        assert_eq!(names(&[], "")?, [""; 0]);
        assert_eq!(names(&["cl300", "cl999"], " ")?, ["cl300"]);
        assert_eq!(
            names(&["cl300"], "1,1,1; 6, 0,0;3,0,0;")?,
            ["cl111", "cl300", "cl600"]
        );
        Ok(())
    }

    #[test]
    fn features_add_groups() {
        let groups = |features: &[&str]| {
            groups_of_build_script(|name| features.contains(&name).then(String::new))
        };
        assert_eq!(groups(&["CARGO_FEATURE_CL300"]), [Group::Layers]);
        assert_eq!(
            groups(&["CARGO_FEATURE_PLAIN_PRODUCTS"]),
            [Group::Layers, Group::PlainProducts]
        );
        let all = [
            "CARGO_FEATURE_FULLY_CONNECTED",
            "CARGO_FEATURE_PLAIN_PRODUCTS",
        ];
        assert_eq!(groups(&all), Group::ALL);
    }

    #[test]
    fn what_is_no_signature_is_named() {
        for part in ["3", "3,0", "3,0,0,0", "a,0,0", "-1,0,0", "cl300"] {
            let error = names(&[], &format!("1,0,0;{part}")).unwrap_err();
            assert_eq!(error.part, part);
            assert!(
                error.to_string().contains(&format!("got `{part}`")),
                "{error}"
            );
        }
        let error = names(&[], "5,4,0").unwrap_err().to_string();
        assert!(
            error.contains("5,4,0") && error.contains("at most 8"),
            "{error}"
        );
    }
}
