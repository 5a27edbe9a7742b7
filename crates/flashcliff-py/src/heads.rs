//! Features of heads on the CPU, over memory that Python owns.

use flashcliff::attention::{
    HeadDistances, HeadFeatures as Features, HeadItems, HeadItemsMut, HeadSizes, HeadStrides,
};
use pyo3::prelude::*;

use crate::equivariant::typed;
use crate::host::{slice, slice_mut};
use crate::threads;

/// The features of queries, keys or values of heads.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct HeadFeatures {
    inner: Features,
}

/// The sizes `(rows, channels, scalars, heads, width)`.
type PySizes = (usize, usize, usize, usize, usize);

/// The addresses of multivectors and of scalars, and the elements from a blade, a row of multivectors and a row of scalars to the next.
type PyItems = (usize, usize, usize, usize, usize);

/// Whether features are of queries, the blade of the first coordinate, the coordinates, and the regularisation.
type PyDistances = (bool, usize, usize, f64);

#[pymethods]
impl HeadFeatures {
    /// Sets of bits say which blades are features, and which of them are negated.
    #[new]
    fn new(blades: usize, taken: u32, negative: u32, distances: Option<PyDistances>) -> Self {
        let is_in = |set: u32, blade: usize| set.checked_shr(blade as u32).unwrap_or(0) & 1 == 1;
        let taken = (0..blades).filter(|&blade| is_in(taken, blade));
        let distances = distances.map(|(of_queries, first, coordinates, eps)| HeadDistances {
            of_queries,
            first,
            coordinates,
            eps,
        });
        Self {
            inner: Features {
                blades,
                taken: taken.map(|blade| (blade, is_in(negative, blade))).collect(),
                distances,
            },
        }
    }

    /// Writes the features. `weights` is the address of the weights of distances, or 0.
    ///
    /// Not for users: memory is not checked. All addresses hold what `flashcliff::attention::HeadFeatures` says, of f64 if `double`, else of f32.
    /// Nobody else uses what is written during the call.
    fn forward(
        &self,
        py: Python<'_>,
        double: bool,
        sizes: PySizes,
        items: PyItems,
        weights: usize,
        features: usize,
    ) -> PyResult<()> {
        let sizes = head_sizes(sizes);
        // SAFETY: the caller's, who is the Python package itself.
        typed!(py, double, T => unsafe {
            let x = self.items::<T>(sizes, items);
            let features = slice_mut(features, features_len(sizes));
            self.inner.forward(sizes, x, weights_of(sizes, weights), features)
        })
    }

    /// Writes the gradients of the items and, unless their address is 0, of the weights. Not for users, as `forward`.
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of `forward`, and their gradients"
    )]
    fn backward(
        &self,
        py: Python<'_>,
        double: bool,
        sizes: PySizes,
        items: PyItems,
        weights: usize,
        gradient: usize,
        to: PyItems,
        of_weights: usize,
    ) -> PyResult<()> {
        let sizes = head_sizes(sizes);
        // SAFETY: the same holds as above.
        typed!(py, double, T => unsafe {
            let x = self.items::<T>(sizes, items);
            let (mv, s) = self.lens(sizes, to);
            let to = HeadItemsMut {
                multivectors: slice_mut(to.0, mv),
                scalars: slice_mut(to.1, s),
                strides: strides(to),
            };
            let gradient = slice(gradient, features_len(sizes));
            let count = if of_weights == 0 { 0 } else { sizes.channels * sizes.heads };
            let of_weights = slice_mut(of_weights, count);
            self.inner.backward(sizes, x, weights_of(sizes, weights), gradient, to, of_weights)
        })
    }
}

impl HeadFeatures {
    /// The elements from the first multivector and from the first scalar to the last.
    fn lens(&self, sizes: HeadSizes, items: PyItems) -> (usize, usize) {
        let strides = strides(items);
        let last = sizes.rows.saturating_sub(1);
        let reach = |of_row: usize, from: usize| match sizes.rows * of_row {
            0 => 0,
            _ => from + of_row,
        };
        let last_blade = self.inner.blades.saturating_sub(1) * strides.blade;
        (
            reach(
                sizes.channels * sizes.heads,
                last_blade + last * strides.row,
            ),
            reach(sizes.scalars * sizes.heads, last * strides.scalars),
        )
    }

    /// # Safety
    /// The addresses hold the items, and nobody writes them during `'a`.
    unsafe fn items<'a, T>(&self, sizes: HeadSizes, items: PyItems) -> HeadItems<'a, T> {
        let (mv, s) = self.lens(sizes, items);
        // SAFETY: the caller promises it.
        unsafe {
            HeadItems {
                multivectors: slice(items.0, mv),
                scalars: slice(items.1, s),
                strides: strides(items),
            }
        }
    }
}

/// # Safety
/// The address is 0, or holds the weights of distances, and nobody writes them during `'a`.
unsafe fn weights_of<'a, T>(sizes: HeadSizes, weights: usize) -> &'a [T] {
    let count = if weights == 0 {
        0
    } else {
        sizes.channels * sizes.heads
    };
    // SAFETY: the caller promises it.
    unsafe { slice(weights, count) }
}

fn features_len(sizes: HeadSizes) -> usize {
    sizes.rows * sizes.heads * sizes.width
}

fn strides((_, _, blade, row, scalars): PyItems) -> HeadStrides {
    HeadStrides {
        blade,
        row,
        scalars,
    }
}

fn head_sizes((rows, channels, scalars, heads, width): PySizes) -> HeadSizes {
    HeadSizes {
        rows,
        channels,
        scalars,
        heads,
        width,
    }
}
