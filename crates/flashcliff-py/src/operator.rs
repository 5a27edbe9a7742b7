//! Operators: a constructor for each of the library, and the two passes.

use flashcliff::ops::{self, LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};
use flashcliff::{Dim, Error, Pass, TensorSpec};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::algebra::{Algebra, grade_set, product_kind};
use crate::convert::{Space, View};
use crate::cuda::Devices;
use crate::error::{caught, detached, name_of};
use crate::host::{self, Given, Gradients};
use crate::options::{self, bias, named};
use crate::threads;

/// An operator, bound to an algebra and its options.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct Operator {
    inner: flashcliff::Operator,
    devices: Devices,
}

/// The CPU, or a GPU: `(ordinal, address of the stream, whether matrix products of f32 may use TF32)`.
type Place = Option<(usize, usize, bool)>;

type Grades = Option<Vec<usize>>;

#[pymethods]
impl Operator {
    #[staticmethod]
    fn sgp_norm(
        algebra: &Algebra,
        gate: &str,
        norm: &str,
        eps: f64,
        left: Grades,
        right: Grades,
    ) -> PyResult<Self> {
        let options = product_options(gate, norm, eps, left, right)?;
        Self::new(|| ops::sgp_norm(algebra.inner, &options))
    }

    #[staticmethod]
    #[allow(clippy::too_many_arguments, reason = "the options of the operator")]
    fn fcgp_norm(
        algebra: &Algebra,
        gate: &str,
        norm: &str,
        eps: f64,
        left: Grades,
        right: Grades,
        block_bytes: Option<i64>,
    ) -> PyResult<Self> {
        let options = product_options(gate, norm, eps, left, right)?;
        let devices = Devices::new(options::block_bytes(block_bytes)?);
        Ok(Self {
            devices,
            ..Self::new(|| ops::fcgp_norm(algebra.inner, &options))?
        })
    }

    #[staticmethod]
    fn mv_linear(
        algebra: &Algebra,
        per_grade: bool,
        bias_mode: Option<&str>,
        grades: Grades,
        weight_layout: &str,
    ) -> PyResult<Self> {
        let options = linear_options(per_grade, bias_mode, grades, weight_layout)?;
        Self::new(|| ops::mv_linear(algebra.inner, &options))
    }

    #[staticmethod]
    #[allow(clippy::too_many_arguments, reason = "the options of two operators")]
    fn mv_linear_sgp_norm(
        algebra: &Algebra,
        per_grade: bool,
        bias_mode: Option<&str>,
        grades: Grades,
        weight_layout: &str,
        gate: &str,
        norm: &str,
        eps: f64,
        recompute: bool,
    ) -> PyResult<Self> {
        let options = LinearSgpOptions {
            linear: linear_options(per_grade, bias_mode, grades, weight_layout)?,
            gate: named(gate)?,
            norm: named(norm)?,
            eps,
            recompute,
        };
        Self::new(|| ops::mv_linear_sgp_norm(algebra.inner, &options))
    }

    #[staticmethod]
    fn product(algebra: &Algebra, kind: &str, left: Grades, right: Grades) -> PyResult<Self> {
        let (left, right) = (grade_set(left)?, grade_set(right)?);
        let kind = product_kind(kind)?;
        Self::new(|| ops::product(algebra.inner, kind, left, right))
    }

    #[staticmethod]
    fn sandwich(algebra: &Algebra, left: Grades, right: Grades) -> PyResult<Self> {
        let (left, right) = (grade_set(left)?, grade_set(right)?);
        Self::new(|| ops::sandwich(algebra.inner, left, right))
    }

    #[staticmethod]
    fn steerable_product(algebra: &Algebra, normalize: bool, first_order: bool) -> PyResult<Self> {
        let options = SteerableOptions {
            first_order,
            normalize,
        };
        Self::new(|| ops::steerable_product(algebra.inner, &options))
    }

    #[staticmethod]
    fn mv_silu(algebra: &Algebra, invariant: &str) -> PyResult<Self> {
        let invariant = named(invariant)?;
        Self::new(|| ops::mv_silu(algebra.inner, invariant))
    }

    #[staticmethod]
    fn gate(algebra: &Algebra, gate: &str) -> PyResult<Self> {
        let gate = named(gate)?;
        Self::new(|| ops::gate(algebra.inner, gate))
    }

    #[staticmethod]
    fn grade_rms(algebra: &Algebra, norm: &str, eps: f64) -> PyResult<Self> {
        let norm = named(norm)?;
        Self::new(|| ops::grade_rms(algebra.inner, norm, eps))
    }

    #[staticmethod]
    fn grade_norm(algebra: &Algebra) -> PyResult<Self> {
        Self::new(|| ops::grade_norm(algebra.inner))
    }

    #[staticmethod]
    fn mv_layer_norm(algebra: &Algebra) -> PyResult<Self> {
        Self::new(|| ops::mv_layer_norm(algebra.inner))
    }

    #[staticmethod]
    fn reverse(algebra: &Algebra) -> PyResult<Self> {
        Self::new(|| ops::reverse(algebra.inner))
    }

    #[staticmethod]
    fn grade_involution(algebra: &Algebra) -> PyResult<Self> {
        Self::new(|| ops::grade_involution(algebra.inner))
    }

    #[staticmethod]
    fn clifford_conjugate(algebra: &Algebra) -> PyResult<Self> {
        Self::new(|| ops::clifford_conjugate(algebra.inner))
    }

    #[staticmethod]
    fn dual(algebra: &Algebra) -> PyResult<Self> {
        Self::new(|| ops::dual(algebra.inner))
    }

    #[staticmethod]
    fn undual(algebra: &Algebra) -> PyResult<Self> {
        Self::new(|| ops::undual(algebra.inner))
    }

    #[staticmethod]
    fn norm(algebra: &Algebra) -> PyResult<Self> {
        Self::new(|| ops::norm(algebra.inner))
    }

    #[staticmethod]
    fn grade_norms(algebra: &Algebra) -> PyResult<Self> {
        Self::new(|| ops::grade_norms(algebra.inner))
    }

    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// The inputs: a name and axes each, where an axis is a size, `batch`, `in` or `out`.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<(&str, Bound<'py, PyTuple>)>> {
        let specs = self.inner.inputs().iter();
        let named = specs.map(|spec| Ok((name_of(spec.name), axes(py, spec)?)));
        named.collect()
    }

    /// The axes of the output.
    #[getter]
    fn output<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        axes(py, self.inner.output())
    }

    /// The sums that the forward pass saves for each batch element.
    #[getter]
    fn row_sums(&self) -> usize {
        self.inner.row_sums()
    }

    /// The axes of the tensor that the forward pass keeps at the start of what it saves, if there is one.
    #[getter]
    fn kept<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.inner.kept().map(|spec| axes(py, spec)).transpose()
    }

    /// What a pass over tensors needs: (shape of the output, elements to save, bytes of
    /// workspace).
    fn plan<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<View>,
        backward: bool,
        place: Place,
    ) -> PyResult<(Bound<'py, PyTuple>, usize, usize)> {
        let pass = match backward {
            false => Pass::Forward,
            true => Pass::Backward,
        };
        let plan = match place {
            // Another thread may be starting those that this counts, and its Python thread must get on.
            None => threads::detached(py, || host::plan(&self.inner, &inputs, pass))?,
            Some(place) => detached(py, || {
                self.devices.plan(&self.inner, &inputs, pass, place.into())
            })?,
        };
        let shape = PyTuple::new(py, &plan.output)?;
        Ok((shape, plan.saved, plan.workspace))
    }

    /// Writes the output, and what is saved for the backward pass.
    ///
    /// Not for users: memory is not checked. All addresses hold what `plan` asked for; nobody else
    /// uses what is written during the call (on a GPU: not unless ordered after it on the stream).
    fn forward(
        &self,
        py: Python<'_>,
        inputs: Vec<View>,
        output: usize,
        saved: usize,
        workspace: Space,
        place: Place,
    ) -> PyResult<()> {
        let given = Given {
            inputs,
            output,
            saved,
            workspace,
        };
        match place {
            None => threads::detached(py, || {
                // SAFETY: the caller's, who is the Python package itself.
                unsafe { host::forward(&self.inner, &given) }
            }),
            Some(place) => detached(py, || {
                // SAFETY: as above.
                unsafe { self.devices.forward(&self.inner, &given, place.into()) }
            }),
        }
    }

    /// Writes those gradients of the inputs that have an address.
    ///
    /// Not for users: memory is not checked, as for `forward`.
    #[allow(clippy::too_many_arguments, reason = "one for each role of memory")]
    fn backward(
        &self,
        py: Python<'_>,
        inputs: Vec<View>,
        output: usize,
        saved: usize,
        grad_output: usize,
        grads: Vec<Option<usize>>,
        workspace: Space,
        place: Place,
    ) -> PyResult<()> {
        let given = Given {
            inputs,
            output,
            saved,
            workspace,
        };
        let gradients = Gradients { grad_output, grads };
        match place {
            None => threads::detached(py, || {
                // SAFETY: the caller's, who is the Python package itself.
                unsafe { host::backward(&self.inner, &given, &gradients) }
            }),
            Some(place) => detached(py, || {
                // SAFETY: as above.
                unsafe {
                    self.devices
                        .backward(&self.inner, &given, &gradients, place.into())
                }
            }),
        }
    }

    fn __repr__(&self) -> String {
        let inputs = self.inner.inputs().iter().map(TensorSpec::to_string);
        let inputs: Vec<String> = inputs.collect();
        let algebra = self.inner.algebra().signature();
        format!(
            "<flashcliff operator {} of {algebra}: {}>",
            self.inner.name(),
            inputs.join(", ")
        )
    }
}

impl Operator {
    fn new(make: impl FnOnce() -> Result<flashcliff::Operator, Error>) -> PyResult<Self> {
        Ok(Self {
            inner: caught(make)?,
            devices: Devices::new(None),
        })
    }
}

fn product_options(
    gate: &str,
    norm: &str,
    eps: f64,
    left: Grades,
    right: Grades,
) -> PyResult<ProductOptions> {
    Ok(ProductOptions {
        gate: named(gate)?,
        norm: named(norm)?,
        eps,
        left: grade_set(left)?,
        right: grade_set(right)?,
    })
}

fn linear_options(
    per_grade: bool,
    bias_mode: Option<&str>,
    grades: Grades,
    weight_layout: &str,
) -> PyResult<LinearOptions> {
    Ok(LinearOptions {
        per_grade,
        bias: bias(bias_mode)?,
        grades: grade_set(grades)?,
        layout: named(weight_layout)?,
    })
}

fn axes<'py>(py: Python<'py>, spec: &TensorSpec) -> PyResult<Bound<'py, PyTuple>> {
    let axes = spec.dims.iter().map(|dim| match dim {
        Dim::Fixed(size) => Ok(size.into_pyobject(py)?.into_any()),
        other => Ok(PyString::new(py, &other.to_string()).into_any()),
    });
    PyTuple::new(py, axes.collect::<PyResult<Vec<_>>>()?)
}
