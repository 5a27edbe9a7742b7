//! Lion on the CPU, over memory that Python owns.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::slice;

use flashcliff::lion::{Member, Step};
use flashcliff::{Element, Error};
use pyo3::prelude::*;

use crate::error::detached;

/// The addresses of a parameter, its gradient and its mean, and their elements.
type PyMember = (usize, usize, usize, usize);

/// A step of parameters of one type, `f64` or else `f32`. Numbers are the learning rate, the factor of gradients, and the decay.
///
/// Not for users: memory is not checked. All addresses hold the elements that are stated, and what is written overlaps nothing.
#[pyfunction]
pub(crate) fn lion_step(
    py: Python<'_>,
    members: Vec<PyMember>,
    is_f64: bool,
    numbers: (f64, f64, f64),
    betas: (f64, f64),
) -> PyResult<()> {
    let ((rate, unscale, weight_decay), (beta1, beta2)) = (numbers, betas);
    let step = Step {
        unscale,
        keep: 1.0 - rate * weight_decay,
        rate,
        beta1,
        beta2,
        ..Step::default()
    };
    detached(py, || match is_f64 {
        true => run::<f64>(&step, &members),
        false => run::<f32>(&step, &members),
    })
}

fn run<T: Element>(step: &Step, members: &[PyMember]) -> Result<(), Error> {
    let there = members.iter().filter(|(.., count)| *count > 0);
    let borrowed = there.map(|&(parameter, gradient, mean, count)| {
        // SAFETY: the caller's, who is the Python package itself: it checked that these are tensors of so many elements of this type, whose
        // memory is there and, where it is written, that of no other.
        unsafe {
            Member::new(
                slice::from_raw_parts_mut(with_exposed_provenance_mut::<T>(parameter), count),
                slice::from_raw_parts(with_exposed_provenance::<T>(gradient), count),
                slice::from_raw_parts_mut(with_exposed_provenance_mut::<T>(mean), count),
            )
        }
    });
    step.run(borrowed.collect::<Result<_, _>>()?);
    Ok(())
}
