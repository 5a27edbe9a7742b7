//! The items of transformers on NVIDIA GPUs, over memory that Python owns.

use flashcliff::Dtype;
use flashcliff::cuda::items::{
    self, Activation, Columns, Distances, Features, ItemEps, ItemFactors, ItemGains, ItemPart,
    ItemSizes, ItemTensor, Pack, Split,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::algebra::Algebra;
use crate::calls::{Placed, Places};
use crate::convert::dtype_of;
use crate::devices::{Devices, PyTarget};
use crate::error::raise;

/// Rows, channels, scalars, and the type of elements.
type PySizes = (usize, usize, usize, String);

/// The address and the strides of blades and items of multivectors; the address and the stride of items of scalars.
type PyTensor = (usize, usize, usize, usize, usize);

/// Items, the address and the width of features, the addresses of weights and of their gradients and whether they are logarithms, heads,
/// taken and negated blades as sets of bits, and `query` or `key` for features of distances.
type PyPart = (
    PyTensor,
    (usize, usize),
    (usize, usize, bool),
    usize,
    u32,
    u32,
    Option<String>,
);

/// The address, the type, the items that are neighbours, heads, and the strides of the first three axes.
type PyFeatures = (usize, String, usize, usize, [usize; 3]);

/// The norm of each head, the points of distances - the blade of the first coordinate, the coordinates, the regularisation - and the
/// type of features.
type PySplit = (Option<(f64, f64)>, (usize, usize, f64), String);

/// The addresses of the gains of multivectors, of scalars, and of partial sums of their gradients; 0 for what there is not.
type PyGains = (usize, usize, usize);

/// The address, rows, columns, the stride of rows, the type, and the runs of columns.
type PyColumns = (usize, usize, usize, usize, String, Vec<(usize, usize)>);

/// Functions of the items of transformers over an algebra, on GPUs.
///
/// Not for users: memory is not checked. All addresses hold what `flashcliff::cuda::items` says, and nobody else uses what is
/// written until the stream is done.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct Items {
    inner: items::Items,
    devices: Devices,
}

#[pymethods]
impl Items {
    #[new]
    fn new(algebra: &Algebra) -> PyResult<Self> {
        Ok(Self {
            inner: items::Items::new(algebra.inner).map_err(raise)?,
            devices: Devices::default(),
        })
    }

    /// The most runs of columns of one call.
    #[classattr]
    const MOST_RUNS: usize = Columns::MOST;

    /// The most tensors of `pack_tensors`.
    #[classattr]
    const MOST_TENSORS: usize = items::Items::MOST_TENSORS;

    /// The bits of a place in a tensor.
    #[classattr]
    const PLACE_BITS: u32 = items::Items::PLACE_BITS;

    fn norm_partials(&self, sizes: PySizes) -> PyResult<usize> {
        Ok(self.inner.norm_partials(sizes_of(&sizes)?))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "each is a tensor or a choice of its own"
    )]
    fn norm(
        &self,
        sizes: PySizes,
        eps: (f64, f64),
        gains: PyGains,
        x: PyTensor,
        residual: Option<[PyTensor; 2]>,
        to: PyTensor,
        target: PyTarget<'_>,
    ) -> PyResult<()> {
        let (sizes, residual) = (sizes_of(&sizes)?, residual.map(|both| both.map(tensor)));
        let (eps, gains, [x, to]) = (eps_of(eps), gains_of(gains), [x, to].map(tensor));
        let items = self.inner.clone();
        // SAFETY: the caller's, who is the Python package itself.
        self.devices.on(target, move |places, target| unsafe {
            let (gains, residual) = (gains.placed(places), residual.placed(places));
            let [x, to] = [x, to].placed(places);
            items.norm(target, sizes, eps, gains, x, residual, to)
        })
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "each is a tensor or a choice of its own"
    )]
    fn norm_gradient(
        &self,
        sizes: PySizes,
        eps: (f64, f64),
        gains: PyGains,
        x: PyTensor,
        gradient: PyTensor,
        through: Option<PyTensor>,
        to: PyTensor,
        target: PyTarget<'_>,
    ) -> PyResult<()> {
        let (sizes, through) = (sizes_of(&sizes)?, through.map(tensor));
        let (eps, gains) = (eps_of(eps), gains_of(gains));
        let (items, given) = (self.inner.clone(), [x, gradient, to].map(tensor));
        // SAFETY: the same holds as above.
        self.devices.on(target, move |places, target| unsafe {
            let (gains, through) = (gains.placed(places), through.placed(places));
            let [x, g, to] = given.placed(places);
            items.norm_gradient(target, sizes, eps, gains, x, g, through, to)
        })
    }

    fn gate(
        &self,
        sizes: PySizes,
        activations: [String; 2],
        x: PyTensor,
        to: PyTensor,
        target: PyTarget<'_>,
    ) -> PyResult<()> {
        let (sizes, activations) = (sizes_of(&sizes)?, activations_of(&activations)?);
        let (items, given) = (self.inner.clone(), [x, to].map(tensor));
        // SAFETY: the same holds as above.
        self.devices.on(target, move |places, target| unsafe {
            let [x, to] = given.placed(places);
            items.gate(target, sizes, activations, x, to)
        })
    }

    fn gate_gradient(
        &self,
        sizes: PySizes,
        activations: [String; 2],
        x: PyTensor,
        gradient: PyTensor,
        to: PyTensor,
        target: PyTarget<'_>,
    ) -> PyResult<()> {
        let (sizes, activations) = (sizes_of(&sizes)?, activations_of(&activations)?);
        let (items, given) = (self.inner.clone(), [x, gradient, to].map(tensor));
        // SAFETY: the same holds as above.
        self.devices.on(target, move |places, target| unsafe {
            let [x, g, to] = given.placed(places);
            items.gate_gradient(target, sizes, activations, x, g, to)
        })
    }

    fn heads(
        &self,
        sizes: PySizes,
        split: PySplit,
        parts: Vec<PyPart>,
        target: PyTarget<'_>,
    ) -> PyResult<()> {
        let (sizes, parts, split) = (sizes_of(&sizes)?, parts_of(&parts)?, split_of(&split)?);
        let items = self.inner.clone();
        // SAFETY: the same holds as above.
        self.devices.on(target, move |places, target| unsafe {
            items.heads(target, sizes, split, &all_placed(&parts, places))
        })
    }

    fn heads_gradient(
        &self,
        sizes: PySizes,
        split: PySplit,
        parts: Vec<PyPart>,
        to: Vec<PyTensor>,
        target: PyTarget<'_>,
    ) -> PyResult<()> {
        let (sizes, parts, split) = (sizes_of(&sizes)?, parts_of(&parts)?, split_of(&split)?);
        let to: Vec<_> = to.into_iter().map(tensor).collect();
        let items = self.inner.clone();
        // SAFETY: the same holds as above.
        self.devices.on(target, move |places, target| unsafe {
            let (parts, to) = (all_placed(&parts, places), all_placed(&to, places));
            items.heads_gradient(target, sizes, split, &parts, &to)
        })
    }

    /// The rows of partial sums of columns.
    fn sum_partials(&self, columns: PyColumns) -> PyResult<usize> {
        Ok(items::Items::sum_partials(columns_of(&columns)?))
    }

    fn column_sums(
        &self,
        columns: PyColumns,
        partials: usize,
        to: usize,
        target: PyTarget<'_>,
    ) -> PyResult<()> {
        let dtype = dtype_of(&columns.4)?;
        // SAFETY: the same holds as above.
        self.devices.on(target, move |places, target| unsafe {
            let columns = with_dtype(&columns, dtype).placed(places);
            let [partials, to] = [partials, to].map(|at| places.at(at as u64));
            items::Items::column_sums(target, columns, partials, to)
        })
    }

    /// The addresses of numbers, places, factors and results; results, uses, and the type.
    fn pack(
        &self,
        addresses: [usize; 4],
        sizes: (usize, usize),
        dtype: String,
        target: PyTarget<'_>,
    ) -> PyResult<()> {
        let pack = pack_of(addresses, sizes, &dtype)?;
        // SAFETY: the same holds as above.
        self.devices.on(target, move |places, target| unsafe {
            items::Items::pack(target, pack.placed(places))
        })
    }

    /// `addresses` and `sizes` are those of `pack`; the address of numbers is not read.
    fn pack_tensors(
        &self,
        tensors: Vec<u64>,
        addresses: [usize; 4],
        sizes: (usize, usize),
        dtype: String,
        target: PyTarget<'_>,
    ) -> PyResult<()> {
        let pack = pack_of(addresses, sizes, &dtype)?;
        // SAFETY: the same holds as above.
        self.devices.on(target, move |places, target| unsafe {
            let tensors: Vec<_> = tensors.iter().map(|&at| places.at(at)).collect();
            items::Items::pack_tensors(target, pack.placed(places), &tensors)
        })
    }

    fn merge(
        &self,
        sizes: PySizes,
        features: PyFeatures,
        merged: PyTensor,
        back: bool,
        target: PyTarget<'_>,
    ) -> PyResult<()> {
        let (sizes, merged) = (sizes_of(&sizes)?, tensor(merged));
        let (address, dtype, inner, heads, strides) = features;
        let features = Features {
            features: address as u64,
            dtype: dtype_of(&dtype)?,
            inner,
            heads,
            strides,
        };
        let items = self.inner.clone();
        // SAFETY: the same holds as above.
        self.devices.on(target, move |places, target| unsafe {
            let (features, merged) = (features.placed(places), merged.placed(places));
            items.merge(target, sizes, features, merged, back)
        })
    }

    /// `factors` are an address, and the strides of blades and of rows.
    fn combine(
        &self,
        sizes: PySizes,
        x: Option<PyTensor>,
        factors: (usize, usize, usize),
        y: Option<PyTensor>,
        to: PyTensor,
        target: PyTarget<'_>,
    ) -> PyResult<()> {
        let (sizes, to) = (sizes_of(&sizes)?, tensor(to));
        let (address, blade_stride, row_stride) = factors;
        let factors = ItemFactors {
            factors: address as u64,
            blade_stride,
            row_stride,
        };
        let (items, given) = (self.inner.clone(), [x, y].map(|x| x.map(tensor)));
        // SAFETY: the same holds as above.
        self.devices.on(target, move |places, target| unsafe {
            let ([x, y], to) = (given.placed(places), to.placed(places));
            items.combine(target, sizes, x, factors.placed(places), y, to)
        })
    }
}

fn sizes_of((rows, channels, scalars, dtype): &PySizes) -> PyResult<ItemSizes> {
    let dtype: Dtype = dtype_of(dtype)?;
    Ok(ItemSizes {
        rows: *rows,
        channels: *channels,
        scalars: *scalars,
        dtype,
    })
}

fn eps_of((multivectors, scalars): (f64, f64)) -> ItemEps {
    ItemEps {
        multivectors,
        scalars,
    }
}

fn gains_of((multivectors, scalars, partials): PyGains) -> ItemGains {
    ItemGains {
        multivectors: multivectors as u64,
        scalars: scalars as u64,
        partials: partials as u64,
    }
}

fn tensor(
    (multivectors, blade_stride, row_stride, scalars, scalar_stride): PyTensor,
) -> ItemTensor {
    ItemTensor {
        multivectors: multivectors as u64,
        blade_stride,
        row_stride,
        scalars: scalars as u64,
        scalar_stride,
    }
}

fn pack_of(addresses: [usize; 4], (count, uses): (usize, usize), dtype: &str) -> PyResult<Pack> {
    let [from, places, factors, to] = addresses.map(|address| address as u64);
    let dtype = dtype_of(dtype)?;
    Ok(Pack {
        from,
        places,
        factors,
        to,
        count,
        uses,
        dtype,
    })
}

fn split_of((norm, points, features): &PySplit) -> PyResult<Split> {
    let (first, count, distance_eps) = *points;
    Ok(Split {
        features: dtype_of(features)?,
        norm: norm.map(eps_of),
        points: (first, count),
        distance_eps,
    })
}

fn columns_of(columns: &PyColumns) -> PyResult<Columns<'_>> {
    Ok(with_dtype(columns, dtype_of(&columns.4)?))
}

fn with_dtype(
    (elements, rows, width, row_stride, _, runs): &PyColumns,
    dtype: Dtype,
) -> Columns<'_> {
    Columns {
        elements: *elements as u64,
        rows: *rows,
        width: *width,
        row_stride: *row_stride,
        dtype,
        runs,
    }
}

fn parts_of(parts: &[PyPart]) -> PyResult<Vec<ItemPart>> {
    let part = |part: &PyPart| {
        let (items, features, weights, heads, taken, negative, distances) = part;
        let (weights, of_weights, logarithms) = *weights;
        let distances = match distances.as_deref() {
            None => None,
            Some("query") => Some(Distances::Query),
            Some("key") => Some(Distances::Key),
            Some(other) => {
                let message = format!("expected query, key or None, got {other}");
                return Err(PyValueError::new_err(message));
            }
        };
        Ok(ItemPart {
            items: tensor(*items),
            features: features.0 as u64,
            width: features.1,
            weights: weights as u64,
            of_weights: of_weights as u64,
            logarithms,
            heads: *heads,
            taken: *taken,
            negative: *negative,
            distances,
        })
    };
    parts.iter().map(part).collect()
}

fn activations_of(names: &[String; 2]) -> PyResult<[Activation; 2]> {
    let find = |name: &str| {
        let found = Activation::NAMES.iter().find(|(known, _)| *known == name);
        let names = || Activation::NAMES.map(|(name, _)| name).join(", ");
        let error = || PyValueError::new_err(format!("expected one of {}, got {name}", names()));
        found.map(|&(_, found)| found).ok_or_else(error)
    };
    Ok([find(&names[0])?, find(&names[1])?])
}

fn all_placed<T: Placed>(given: &[T], places: &Places<'_>) -> Vec<T> {
    given.iter().map(|x| x.placed(places)).collect()
}

impl Placed for ItemTensor {
    fn placed(self, places: &Places<'_>) -> Self {
        Self {
            multivectors: places.at(self.multivectors),
            scalars: places.at(self.scalars),
            ..self
        }
    }
}

impl Placed for ItemGains {
    fn placed(self, places: &Places<'_>) -> Self {
        Self {
            multivectors: places.at(self.multivectors),
            scalars: places.at(self.scalars),
            partials: places.at(self.partials),
        }
    }
}

impl Placed for ItemFactors {
    fn placed(self, places: &Places<'_>) -> Self {
        Self {
            factors: places.at(self.factors),
            ..self
        }
    }
}

impl Placed for ItemPart {
    fn placed(self, places: &Places<'_>) -> Self {
        Self {
            items: self.items.placed(places),
            features: places.at(self.features),
            weights: places.at(self.weights),
            of_weights: places.at(self.of_weights),
            ..self
        }
    }
}

impl Placed for Features {
    fn placed(self, places: &Places<'_>) -> Self {
        Self {
            features: places.at(self.features),
            ..self
        }
    }
}

impl Placed for Columns<'_> {
    fn placed(self, places: &Places<'_>) -> Self {
        Self {
            elements: places.at(self.elements),
            ..self
        }
    }
}

impl Placed for Pack {
    fn placed(self, places: &Places<'_>) -> Self {
        Self {
            from: places.at(self.from),
            places: places.at(self.places),
            factors: places.at(self.factors),
            to: places.at(self.to),
            ..self
        }
    }
}
