//! The maps of rotors as operators.

use flashcliff::rotor::{Parity, RotorMap, Rotors};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::algebra::Algebra;
use crate::cuda::Devices;
use crate::error::caught;
use crate::operator::Operator;

/// The operator of a map by its name, of odd versors or of even ones; `None` if the algebra has no blades of a grade
/// that it reads or writes.
#[pyfunction]
pub(crate) fn rotor_operator(
    algebra: &Algebra,
    map: &str,
    odd: bool,
) -> PyResult<Option<Operator>> {
    let rotors = caught(|| Rotors::new(algebra.inner))?;
    let parity = if odd { Parity::Odd } else { Parity::Even };
    let of = |map| caught(|| rotors.operator(map));
    let path = || caught(|| rotors.path(parity));
    let inner = match (map, parity) {
        ("exp", _) => of(RotorMap::Exp)?,
        ("log", _) => of(RotorMap::Log)?,
        ("inverse", Parity::Even) => of(RotorMap::Inverse)?,
        ("inverse", Parity::Odd) => of(RotorMap::InverseOdd)?,
        ("normalized", Parity::Even) => of(RotorMap::Normalized)?,
        ("normalized", Parity::Odd) => of(RotorMap::NormalizedOdd)?,
        ("between", _) => path()?.map(|[between, _]| between),
        ("along", _) => path()?.map(|[_, along]| along),
        _ => {
            return Err(PyValueError::new_err(format!(
                "expected exp, log, inverse, normalized, between or along, got {map}"
            )));
        }
    };
    Ok(inner.map(|inner| Operator {
        inner,
        devices: Devices::new(None),
    }))
}
