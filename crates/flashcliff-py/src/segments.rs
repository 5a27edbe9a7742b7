//! Rows by their relations, over memory that Python owns.

use flashcliff::segments::{self, Lists, Reduction, Related};
use flashcliff::{Element, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::detached;
use crate::host::{slice, slice_mut};

/// The addresses of the targets, starts and order of a relation, all `u32`.
pub(crate) type PyRelation = (usize, usize, usize);

/// A relation, and one that subtracts.
type PyRelations = (PyRelation, Option<PyRelation>);

/// The sizes of the axes before rows, of rows, of targets, and of the axes after rows.
type PySizes = (usize, usize, usize, usize);

/// Gathers rows, or sums segments, on the CPU: from the first address to the second, in `f64` or else `f32`.
///
/// Not for users: memory is not checked. All addresses hold the elements that the sizes state, and what is written overlaps nothing.
#[pyfunction]
pub(crate) fn run_segments(
    py: Python<'_>,
    sums: bool,
    places: (usize, usize),
    relations: PyRelations,
    sizes: PySizes,
    reduction: &str,
    is_f64: bool,
) -> PyResult<()> {
    let reduction = reduction_of(reduction)?;
    detached(py, || {
        // SAFETY: the caller's, who is the Python package itself: it checked that these are tensors of the sizes and
        // the type, whose memory is there and, where it is written, that of no other.
        unsafe {
            match is_f64 {
                true => run::<f64>(sums, places, relations, sizes, reduction),
                false => run::<f32>(sums, places, relations, sizes, reduction),
            }
        }
        Ok::<_, Error>(())
    })
}

/// # Safety
/// The addresses hold what the sizes say, of type `T`, and what is written overlaps nothing.
unsafe fn run<T: Element>(
    sums: bool,
    (x, o): (usize, usize),
    (of, minus): PyRelations,
    (outer, rows, targets, inner): PySizes,
    reduction: Reduction,
) {
    let [of_rows, of_targets] = [rows, targets].map(|count| outer * count * inner);
    // SAFETY: the caller promises it.
    unsafe {
        let lists = |(target, starts, order): PyRelation| Lists {
            targets: slice(target, rows),
            starts: slice(starts, targets + 1),
            order: slice(order, rows),
        };
        let related = Related {
            of: lists(of),
            minus: minus.map(lists),
            reduction,
            inner,
        };
        match sums {
            true => {
                segments::segment_sum(&related, slice::<T>(x, of_rows), slice_mut(o, of_targets))
            }
            false => segments::gather(&related, slice::<T>(x, of_targets), slice_mut(o, of_rows)),
        }
    }
}

/// What is done with the rows that targets keep.
#[derive(Clone, Copy)]
enum Kept {
    /// The row with the largest value of each target.
    Largest,
    /// What targets keep of their rows.
    Pick,
    /// What rows get of the targets that keep them.
    Place,
}

impl Kept {
    fn of(name: &str) -> PyResult<Self> {
        match name {
            "largest" => Ok(Self::Largest),
            "pick" => Ok(Self::Pick),
            "place" => Ok(Self::Place),
            _ => Err(PyValueError::new_err(format!(
                "kept: expected largest, pick or place, got {name}"
            ))),
        }
    }
}

/// The addresses of what is read and written, 0 if it is rows, and of the rows that targets keep, `u32`.
type PyKept = (usize, usize, usize);

/// Finds the rows with the largest values of segments, or follows the rows that targets keep, on the CPU: in `f64` or else `f32`.
///
/// Not for users: memory is not checked. All addresses hold the elements that the sizes state, and what is written overlaps nothing.
#[pyfunction]
pub(crate) fn run_kept(
    py: Python<'_>,
    what: &str,
    places: PyKept,
    relation: PyRelation,
    sizes: PySizes,
    is_f64: bool,
) -> PyResult<()> {
    let what = Kept::of(what)?;
    detached(py, || {
        // SAFETY: the caller's, as in `run_segments`.
        unsafe {
            match is_f64 {
                true => follow::<f64>(what, places, relation, sizes),
                false => follow::<f32>(what, places, relation, sizes),
            }
        }
        Ok::<_, Error>(())
    })
}

/// # Safety
/// The addresses hold what the sizes say, of type `T` and `u32`, and what is written overlaps nothing.
unsafe fn follow<T: Element>(
    what: Kept,
    (x, o, kept): PyKept,
    (target, starts, order): PyRelation,
    (outer, rows, targets, inner): PySizes,
) {
    let [of_rows, of_targets] = [rows, targets].map(|count| outer * count * inner);
    // SAFETY: the caller promises it.
    unsafe {
        let of = Lists {
            targets: slice(target, rows),
            starts: slice(starts, targets + 1),
            order: slice(order, rows),
        };
        match what {
            Kept::Largest => {
                let (x, kept) = (slice::<T>(x, of_rows), slice_mut(kept, of_targets));
                segments::largest(of, inner, x, kept);
            }
            Kept::Pick => {
                let (x, o) = (slice::<T>(x, of_rows), slice_mut(o, of_targets));
                segments::pick(of, inner, slice(kept, of_targets), x, o);
            }
            Kept::Place => {
                let (x, o) = (slice::<T>(x, of_targets), slice_mut(o, of_rows));
                segments::place(of, inner, slice(kept, of_targets), x, o);
            }
        }
    }
}

/// What a sum is divided by, by its name.
pub(crate) fn reduction_of(name: &str) -> PyResult<Reduction> {
    match name {
        "sum" => Ok(Reduction::Sum),
        "mean" => Ok(Reduction::Mean),
        "root_count" => Ok(Reduction::RootCount),
        _ => Err(PyValueError::new_err(format!(
            "reduce: expected sum, mean or root_count, got {name}"
        ))),
    }
}

/// The kernels on GPUs.
#[cfg(feature = "cuda")]
pub(crate) mod on_cuda {
    use flashcliff::cuda::segments::{self, Addresses, Related};
    use flashcliff::segments::Reduction;
    use pyo3::prelude::*;

    use super::{Kept, PyKept, PyRelation, PyRelations, PySizes, reduction_of};
    use crate::convert::dtype_of;
    use crate::devices::{Devices, PyStream};
    use crate::error::caught;

    /// Gatherings and sums of segments, on GPUs.
    ///
    /// Not for users: memory is not checked. All addresses hold what `flashcliff::cuda::segments` says, and nobody
    /// else uses what is written until the stream is done.
    #[pyclass(frozen, module = "flashcliff._core")]
    #[derive(Default)]
    pub(crate) struct Segments {
        devices: Devices,
    }

    #[pymethods]
    impl Segments {
        #[new]
        fn new() -> Self {
            Self::default()
        }

        /// Gathers rows, or sums segments, from the first address to the second. The kind is the reduction and the type.
        fn run(
            &self,
            sums: bool,
            places: (usize, usize),
            relations: PyRelations,
            sizes: PySizes,
            kind: (String, String),
            stream: PyStream,
        ) -> PyResult<()> {
            let ((x, o), (of, minus), (reduction, dtype)) = (places, relations, kind);
            let (outer, rows, targets, inner) = sizes;
            let addresses = |(target, starts, order): PyRelation| Addresses {
                target: target as u64,
                starts: starts as u64,
                order: order as u64,
                rows,
                targets,
            };
            let call = Related {
                of: addresses(of),
                minus: minus.map(addresses),
                reduction: reduction_of(&reduction)?,
                x: x as u64,
                o: o as u64,
                outer,
                inner,
                dtype: dtype_of(&dtype)?,
            };
            caught(|| {
                self.devices.with(stream, |target| {
                    // SAFETY: the caller's, who is the Python package itself.
                    unsafe {
                        match sums {
                            true => segments::segment_sum(target, &call),
                            false => segments::gather(target, &call),
                        }
                    }
                })
            })
        }

        /// Finds the rows with the largest values of segments, or follows the rows that targets keep.
        fn run_kept(
            &self,
            what: String,
            places: PyKept,
            relation: PyRelation,
            sizes: PySizes,
            dtype: String,
            stream: PyStream,
        ) -> PyResult<()> {
            let ((x, o, kept), what) = (places, Kept::of(&what)?);
            let ((target, starts, order), (outer, rows, targets, inner)) = (relation, sizes);
            let call = Related {
                of: Addresses {
                    target: target as u64,
                    starts: starts as u64,
                    order: order as u64,
                    rows,
                    targets,
                },
                minus: None,
                reduction: Reduction::Sum,
                x: x as u64,
                o: o as u64,
                outer,
                inner,
                dtype: dtype_of(&dtype)?,
            };
            let kept = kept as u64;
            caught(|| {
                self.devices.with(stream, |target| {
                    // SAFETY: the caller's, who is the Python package itself.
                    unsafe {
                        match what {
                            Kept::Largest => segments::largest(target, &call, kept),
                            Kept::Pick => segments::pick(target, &call, kept),
                            Kept::Place => segments::place(target, &call, kept),
                        }
                    }
                })
            })
        }
    }
}
