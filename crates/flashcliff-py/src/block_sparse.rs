//! Products with block-sparse matrices on NVIDIA GPUs, over memory that Python owns.

use flashcliff::cuda::block_sparse::{self, Groups, Product, Rows, Weights};
use pyo3::prelude::*;

use crate::calls::{Placed, Places};
use crate::devices::{Devices, PyTarget};

/// The address and the stride of rows.
type PyRows = (usize, usize);

/// The addresses of groups on the device and in the memory of the host and of units, and the number of groups.
type PyGroups = (usize, usize, usize, usize);

/// Products with block-sparse matrices, on GPUs.
///
/// Not for users: memory is not checked. All addresses hold what `flashcliff::cuda::block_sparse` says, and nobody else uses what is
/// written until the stream is done.
#[pyclass(frozen, module = "flashcliff._core")]
#[derive(Default)]
pub(crate) struct BlockSparse {
    devices: Devices,
}

#[pymethods]
impl BlockSparse {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// The columns of a unit.
    #[classattr]
    const UNIT: usize = block_sparse::UNIT;

    /// The most output units of a group.
    #[classattr]
    const GROUP_UNITS: usize = block_sparse::GROUP_UNITS;

    /// The numbers that describe a group.
    #[classattr]
    const GROUP_NUMBERS: usize = block_sparse::GROUP_NUMBERS;

    /// The most input units of a group of `weights`.
    #[classattr]
    const GROUP_INPUTS: usize = block_sparse::GROUP_INPUTS;

    /// The numbers that `weights` writes between its steps.
    fn partials(&self, rows: usize, groups: usize) -> usize {
        block_sparse::partials(rows, groups)
    }

    /// `tensors` are the rows, the matrix and the result.
    fn product(
        &self,
        tensors: [PyRows; 3],
        bias: usize,
        rows: usize,
        transposed: bool,
        groups: PyGroups,
        target: PyTarget<'_>,
    ) -> PyResult<()> {
        let [x, weights, out] = tensors.map(rows_of);
        let product = Product {
            x,
            weights,
            bias: bias as u64,
            out,
            rows,
            transposed,
            groups: groups_of(groups),
        };
        // SAFETY: the caller's, who is the Python package itself.
        self.devices.on(target, move |places, target| unsafe {
            block_sparse::product(target, product.placed(places))
        })
    }

    /// `tensors` are the rows, the gradient and the result.
    fn weights(
        &self,
        tensors: [PyRows; 3],
        partials: usize,
        of_bias: usize,
        rows: usize,
        groups: PyGroups,
        target: PyTarget<'_>,
    ) -> PyResult<()> {
        let [x, gradient, to] = tensors.map(rows_of);
        let weights = Weights {
            x,
            gradient,
            partials: partials as u64,
            to,
            of_bias: of_bias as u64,
            rows,
            groups: groups_of(groups),
        };
        // SAFETY: the same holds as above.
        self.devices.on(target, move |places, target| unsafe {
            block_sparse::weights(target, weights.placed(places))
        })
    }
}

fn rows_of((elements, stride): PyRows) -> Rows {
    Rows {
        elements: elements as u64,
        stride,
    }
}

fn groups_of((groups, sizes, units, count): PyGroups) -> Groups {
    Groups {
        groups: groups as u64,
        sizes,
        units: units as u64,
        count,
    }
}

impl Placed for Rows {
    fn placed(self, places: &Places<'_>) -> Self {
        Self {
            elements: places.at(self.elements),
            ..self
        }
    }
}

impl Placed for Groups {
    fn placed(self, places: &Places<'_>) -> Self {
        Self {
            groups: places.at(self.groups),
            units: places.at(self.units),
            ..self
        }
    }
}

impl Placed for Product {
    fn placed(self, places: &Places<'_>) -> Self {
        Self {
            x: self.x.placed(places),
            weights: self.weights.placed(places),
            bias: places.at(self.bias),
            out: self.out.placed(places),
            groups: self.groups.placed(places),
            ..self
        }
    }
}

impl Placed for Weights {
    fn placed(self, places: &Places<'_>) -> Self {
        Self {
            x: self.x.placed(places),
            gradient: self.gradient.placed(places),
            partials: places.at(self.partials),
            to: self.to.placed(places),
            of_bias: places.at(self.of_bias),
            groups: self.groups.placed(places),
            ..self
        }
    }
}
