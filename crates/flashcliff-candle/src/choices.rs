//! Choices of a layer that its weights belong to, beside their shapes: its algebra and its norm.
//!
//! Weights of one algebra or norm fit another, and give wrong results there. So layers say what they are, checkpoints
//! keep it, and loading compares it. A choice is a name with a value, such as `norm` with `invariant`.

use std::collections::BTreeMap;

use candle_nn::VarBuilder;
use flashcliff::{Algebra, Norm};

use crate::Error;

/// The choice of an algebra. Its values are names of algebras.
pub(crate) const ALGEBRA: &str = "algebra";
/// The choice of a norm. Its values are the names of [`Norm`], and `grade_norm` for CGENN's normalisation.
pub(crate) const NORM: &str = "norm";
/// The choice of an invariant of [`MVSiLU`](crate::layers::MVSiLU).
pub(crate) const INVARIANT: &str = "invariant";

/// The choices of a layer, by name.
pub(crate) type Choices = BTreeMap<String, String>;

/// The character between the name of a choice and its value.
const IS: char = '=';

/// Tells the backend of a builder a choice of the layer that the builder is for.
///
/// A builder hides its backend and passes on nothing but names. So the backend is asked for a tensor whose name is the
/// choice: [`Parameters`](crate::init::Parameters) understands it, and any other backend has no such tensor.
pub(crate) fn note(vb: &VarBuilder, choice: &str, value: &str) {
    vb.contains_tensor(&format!("{choice}{IS}{value}"));
}

/// Tells the backend of a builder the algebra of a layer.
pub(crate) fn note_algebra(vb: &VarBuilder, algebra: Algebra) {
    note(vb, ALGEBRA, &algebra.name());
}

/// The layer, the choice and its value, if a name that a backend is asked for is a choice.
pub(crate) fn noted(name: &str) -> Option<(&str, &str, &str)> {
    let (path, value) = name.split_once(IS)?;
    let (layer, choice) = path.rsplit_once('.').unwrap_or(("", path));
    Some((layer, choice, value))
}

/// Checks the choices of a layer against those that were stored with its weights. Choices that were not stored are not
/// compared.
///
/// # Errors
/// [`Error::StoredChoice`].
pub(crate) fn check(layer: &str, own: &Choices, stored: &Choices) -> Result<(), Error> {
    for (choice, expected) in own {
        let Some(got) = stored.get(choice) else {
            continue;
        };
        if got != expected && !(choice == NORM && are_one_norm(own, expected, got)) {
            return Err(Error::StoredChoice {
                layer: layer.to_owned(),
                choice: choice.clone(),
                expected: expected.clone(),
                got: got.clone(),
            });
        }
    }
    Ok(())
}

/// Whether two norms are the same in the algebra of a layer. The Euclidean and the invariant one are, if all vectors
/// square to one sign.
fn are_one_norm(own: &Choices, one: &str, other: &str) -> bool {
    let algebra = own.get(ALGEBRA).map(|name| name.parse::<Algebra>());
    let is_definite = matches!(algebra, Some(Ok(algebra)) if algebra.has_euclidean_norms());
    let norms = [Norm::Rms, Norm::Invariant].map(Norm::name);
    is_definite && norms.contains(&one) && norms.contains(&other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_a_name_with_a_value() {
        assert_eq!(noted("net.1.norm=rms"), Some(("net.1", "norm", "rms")));
        assert_eq!(noted("norm=none"), Some(("", "norm", "none")));
        assert_eq!(noted("net.1.weight"), None);
    }

    #[test]
    fn a_definite_metric_has_one_norm() {
        let of = |algebra: &str, norm: &str| -> Choices {
            let both = [(ALGEBRA, algebra), (NORM, norm)];
            both.map(|(choice, value)| (choice.to_owned(), value.to_owned()))
                .into()
        };
        let fits =
            |algebra, own, stored| check("l", &of(algebra, own), &of(algebra, stored)).is_ok();
        assert!(fits("cl300", "invariant", "rms") && fits("cl300", "rms", "invariant"));
        assert!(!fits("cl130", "invariant", "rms") && !fits("cl130", "rms", "invariant"));
        assert!(!fits("cl300", "none", "rms") && !fits("cl300", "rms", "none"));
        assert!(fits("cl301", "none", "none") && !fits("cl301", "rms", "another"));
        assert!(check("l", &of("cl300", "rms"), &Choices::new()).is_ok());
        assert!(check("l", &of("cl300", "none"), &of("cl210", "none")).is_err());
    }
}
