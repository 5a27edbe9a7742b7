//! Equivariant linear layers on the CPU, over memory that Python owns.

use flashcliff::Error;
use flashcliff::cayley::Group;
use flashcliff::equivariant::{
    EquivariantLinear as Layer, InvariantNorm as Norm, Matrices, MatricesMut, NormSizes, Side,
    SideMut, Sizes,
};
use pyo3::prelude::*;

use crate::algebra::Algebra;
use crate::error::{caught, raise};
use crate::host::{slice, slice_mut};
use crate::threads;

/// Runs a body without the interpreter's lock, with `T` as the element type: `f64` if `double`, else `f32`.
macro_rules! typed {
    ($py:expr, $double:expr, $type:ident => $body:expr) => {
        threads::detached($py, || match $double {
            true => {
                type $type = f64;
                $body
            }
            false => {
                type $type = f32;
                $body
            }
        })
    };
}

/// A linear layer that commutes with the group of an algebra.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct EquivariantLinear {
    inner: Layer,
    blades: usize,
}

/// The sizes `(rows, in_channels, out_channels, in_scalars, out_scalars)`.
type PySizes = (usize, usize, usize, usize, usize);

/// The addresses of weight, scalars to blades, blades to scalars, scalars to scalars, bias of blades, bias of scalars; 0
/// for a tensor that is not there.
type Addresses = [usize; 6];

/// The addresses of multivectors and scalars.
type Pair = (usize, usize);

#[pymethods]
impl EquivariantLinear {
    #[new]
    fn new(algebra: &Algebra, group: &str, unit: bool) -> PyResult<Self> {
        let group = group.parse::<Group>();
        let group = group.map_err(|error| raise(Error::from(error)))?;
        let inner = caught(|| Layer::new(algebra.inner, group, unit))?;
        Ok(Self {
            inner,
            blades: algebra.inner.cayley().blade_count(),
        })
    }

    /// Writes the output of the layer.
    ///
    /// Not for users: memory is not checked. All addresses hold contiguous tensors of the shapes of
    /// `flashcliff::equivariant::EquivariantLinear`, of f64 if `double`, else of f32. Nobody else uses what is written
    /// during the call.
    fn output(
        &self,
        py: Python<'_>,
        double: bool,
        sizes: PySizes,
        matrices: Addresses,
        input: Pair,
        output: Pair,
    ) -> PyResult<()> {
        let lens = self.lens(sizes);
        // SAFETY: the caller's, who is the Python package itself.
        typed!(py, double, T => unsafe {
            let matrices = lens.matrices::<T>(matrices);
            let (input, output) = (lens.side(input, true), lens.side_mut(output, false));
            self.inner.output(lens.sizes, &matrices, input, output)
        })
    }

    /// Writes the gradient of the input. Not for users, as `output`.
    fn input_gradient(
        &self,
        py: Python<'_>,
        double: bool,
        sizes: PySizes,
        matrices: Addresses,
        gradient: Pair,
        output: Pair,
    ) -> PyResult<()> {
        let lens = self.lens(sizes);
        // SAFETY: the same holds as above.
        typed!(py, double, T => unsafe {
            let matrices = lens.matrices::<T>(matrices);
            let (gradient, output) = (lens.side(gradient, false), lens.side_mut(output, true));
            self.inner.input_gradient(lens.sizes, &matrices, gradient, output)
        })
    }

    /// Writes the gradients of the parameters that have an address. Not for users, as `output`.
    fn weight_gradient(
        &self,
        py: Python<'_>,
        double: bool,
        sizes: PySizes,
        gradient: Pair,
        input: Pair,
        output: Addresses,
    ) -> PyResult<()> {
        let lens = self.lens(sizes);
        // SAFETY: the same holds as above.
        typed!(py, double, T => unsafe {
            let output = lens.matrices_mut::<T>(output);
            let (gradient, input) = (lens.side(gradient, false), lens.side(input, true));
            self.inner.weight_gradient(lens.sizes, gradient, input, output)
        })
    }
}

impl EquivariantLinear {
    fn lens(&self, sizes: PySizes) -> Lens {
        Lens::new(&self.inner, self.blades, sizes)
    }
}

/// The lengths of all tensors of a call.
struct Lens {
    sizes: Sizes,
    blades: usize,
    matrices: Addresses,
}

impl Lens {
    fn new(layer: &Layer, blades: usize, sizes: PySizes) -> Self {
        let (rows, in_channels, out_channels, in_scalars, out_scalars) = sizes;
        let mixed = layer.invariant().len();
        Self {
            sizes: Sizes {
                rows,
                in_channels,
                out_channels,
                in_scalars,
                out_scalars,
            },
            blades,
            matrices: [
                out_channels * in_channels * layer.maps(),
                out_channels * mixed * in_scalars,
                out_scalars * in_channels * mixed,
                out_scalars * in_scalars,
                out_channels * mixed,
                out_scalars,
            ],
        }
    }

    /// The lengths of multivectors and scalars of the input or the output.
    fn of_side(&self, is_input: bool) -> (usize, usize) {
        let (channels, scalars) = match is_input {
            true => (self.sizes.in_channels, self.sizes.in_scalars),
            false => (self.sizes.out_channels, self.sizes.out_scalars),
        };
        (
            self.blades * self.sizes.rows * channels,
            self.sizes.rows * scalars,
        )
    }

    /// # Safety
    /// The addresses hold the tensors of the side, and nobody writes them during `'a`.
    unsafe fn side<'a, T>(&self, at: Pair, is_input: bool) -> Side<'a, T> {
        let (multivectors, scalars) = self.of_side(is_input);
        // SAFETY: the caller promises it.
        unsafe {
            Side {
                multivectors: slice(at.0, multivectors),
                scalars: slice(at.1, scalars),
            }
        }
    }

    /// # Safety
    /// The addresses hold the tensors of the side, and nobody else uses them during `'a`.
    unsafe fn side_mut<'a, T>(&self, at: Pair, is_input: bool) -> SideMut<'a, T> {
        let (multivectors, scalars) = self.of_side(is_input);
        // SAFETY: the caller promises it.
        unsafe {
            SideMut {
                multivectors: slice_mut(at.0, multivectors),
                scalars: slice_mut(at.1, scalars),
            }
        }
    }

    /// The length of a parameter, which is 0 if it is not there.
    fn parameter(&self, at: &Addresses, index: usize) -> usize {
        if at[index] == 0 {
            0
        } else {
            self.matrices[index]
        }
    }

    /// # Safety
    /// The addresses hold the parameters, and nobody writes them during `'a`.
    unsafe fn matrices<'a, T>(&self, at: Addresses) -> Matrices<'a, T> {
        // SAFETY: the caller promises it.
        let get = |index: usize| unsafe { slice(at[index], self.parameter(&at, index)) };
        Matrices {
            weight: get(0),
            scalars_to_blades: get(1),
            blades_to_scalars: get(2),
            scalars_to_scalars: get(3),
            blade_bias: get(4),
            scalar_bias: get(5),
        }
    }

    /// # Safety
    /// The addresses hold the parameters, and nobody else uses them during `'a`.
    unsafe fn matrices_mut<'a, T>(&self, at: Addresses) -> MatricesMut<'a, T> {
        // SAFETY: the caller promises it.
        let get = |index: usize| unsafe { slice_mut(at[index], self.parameter(&at, index)) };
        MatricesMut {
            weight: get(0),
            scalars_to_blades: get(1),
            blades_to_scalars: get(2),
            scalars_to_scalars: get(3),
            blade_bias: get(4),
            scalar_bias: get(5),
        }
    }
}

/// The invariant layer norm of an algebra.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct InvariantNorm {
    inner: Norm,
    blades: usize,
}

#[pymethods]
impl InvariantNorm {
    #[new]
    fn new(algebra: &Algebra) -> Self {
        Self {
            inner: Norm::new(algebra.inner),
            blades: algebra.inner.cayley().blade_count(),
        }
    }

    /// Writes the normalised multivectors. `sizes` are rows, channels, groups.
    ///
    /// Not for users, as `EquivariantLinear::output`.
    fn forward(
        &self,
        py: Python<'_>,
        double: bool,
        sizes: (usize, usize, usize),
        eps: f64,
        x: usize,
        y: usize,
    ) -> PyResult<()> {
        let (sizes, len) = self.sizes(sizes);
        // SAFETY: the caller's, who is the Python package itself.
        typed!(py, double, T => unsafe {
            self.inner.forward::<T>(sizes, eps, slice(x, len), slice_mut(y, len))
        })
    }

    /// Writes the gradient of the input. Not for users, as `forward`.
    #[allow(clippy::too_many_arguments, reason = "one for each role of memory")]
    fn backward(
        &self,
        py: Python<'_>,
        double: bool,
        sizes: (usize, usize, usize),
        eps: f64,
        x: usize,
        g: usize,
        to: usize,
    ) -> PyResult<()> {
        let (sizes, len) = self.sizes(sizes);
        // SAFETY: the same holds as above.
        typed!(py, double, T => unsafe {
            self.inner.backward::<T>(sizes, eps, slice(x, len), slice(g, len), slice_mut(to, len))
        })
    }
}

impl InvariantNorm {
    /// The sizes, and the number of elements.
    fn sizes(&self, (rows, channels, groups): (usize, usize, usize)) -> (NormSizes, usize) {
        let sizes = NormSizes {
            rows,
            channels,
            groups,
        };
        (sizes, self.blades * rows * channels * groups)
    }
}
