//! Operators by name, and the two passes.

use std::collections::HashMap;
use std::sync::Arc;

use flashcliff::ops::{self, Setting};
use flashcliff::program::{Function, Id, Node, Program, Uniform, Width};
use flashcliff::{Dim, Dims, Pass, Symmetry, TensorSpec};
use flashcliff_network::file::{operator_from_json, operator_to_json};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::algebra::{Algebra, grade_set};
use crate::convert::{Space, View};
use crate::cuda::Devices;
use crate::error::{caught, detached, name_of};
use crate::host::{self, Given, Gradients};
use crate::options;
use crate::runs::{self, Run};
use crate::{threads, triton};

/// An operator, bound to an algebra and its options.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct Operator {
    pub(crate) inner: flashcliff::Operator,
    pub(crate) devices: Devices,
}

/// Grades that are not negative.
fn unsigned(grades: Option<&[i64]>) -> PyResult<Option<Vec<usize>>> {
    let grade = |&grade: &i64| {
        usize::try_from(grade).map_err(|_| {
            PyOverflowError::new_err(format!("expected grades from 0 on, got {grade}"))
        })
    };
    grades
        .map(|grades| grades.iter().map(grade).collect())
        .transpose()
}

/// The CPU, or a GPU: `(ordinal, address of the stream, whether matrix products of f32 may use TF32)`.
type Place = Option<(usize, usize, bool)>;

/// The value of a setting. Booleans come before numbers, which they are in Python too.
#[derive(FromPyObject)]
enum Value {
    Flag(bool),
    Number(f64),
    Name(String),
    Grades(Option<Vec<i64>>),
}

impl Value {
    fn setting(&self) -> PyResult<Setting<'_>> {
        Ok(match self {
            Value::Flag(flag) => Setting::Flag(*flag),
            Value::Number(number) => Setting::Number(*number),
            Value::Name(name) => Setting::Name(name),
            Value::Grades(grades) => Setting::Grades(grade_set(unsigned(grades.as_deref())?)?),
        })
    }
}

/// An expression of a program: its name, its operands, the names of an argument, and a number.
type Expression = (&'static str, Vec<usize>, String, f64);

fn expression(program: &Program, id: Id) -> Expression {
    let node = program.graph.node(id);
    let of = |name| {
        (
            name,
            node.operands().map(Id::index).collect(),
            String::new(),
            0.0,
        )
    };
    let leaf = |name, argument: &str, number: usize| {
        (name, Vec::new(), argument.to_owned(), number as f64)
    };
    match node {
        Node::Constant(bits) => ("constant", Vec::new(), String::new(), f64::from_bits(bits)),
        Node::Lane { tensor, component } => leaf("lane", &program.inputs[tensor].name, component),
        Node::Param { param, index } => leaf("param", &program.params[param].name, index),
        Node::Uniform(Uniform::Eps) => of("eps"),
        Node::Uniform(Uniform::InvChannels) => of("inverse of channels"),
        Node::Uniform(Uniform::Count(Width::Channels)) => of("channels"),
        Node::Uniform(Uniform::Count(Width::Scalars)) => of("scalar channels"),
        Node::RowValue(at) => leaf("row", &program.row_values[at], 0),
        Node::RowSum(sum) => (
            "sum",
            vec![program.row_sums[sum].index()],
            String::new(),
            0.0,
        ),
        Node::Cut { cut, component } => {
            let definition = program.cuts[cut][component].index();
            ("same", vec![definition], String::new(), 0.0)
        }
        Node::Add(..) => of("add"),
        Node::Sub(..) => of("sub"),
        Node::Mul(..) => of("mul"),
        Node::Div(..) => of("div"),
        Node::Damp(..) => of("damp"),
        Node::Hypot(..) => of("hypot"),
        Node::Max(..) => of("max"),
        Node::Greater(..) => of("greater"),
        Node::Neg(_) => of("neg"),
        Node::Call(Function::Sqrt, _) => of("sqrt"),
        Node::Call(Function::Sin, _) => of("sin"),
        Node::Call(Function::Cos, _) => of("cos"),
        Node::Call(Function::Exp, _) => of("exp"),
        Node::Call(Function::Sigmoid, _) => of("sigmoid"),
        Node::Call(Function::Gate { order: 0 }, _) => of("gate"),
        Node::Call(..) => of("slope"),
    }
}

#[pymethods]
impl Operator {
    /// The operator of a name in the table, with settings by name.
    #[new]
    #[pyo3(signature = (name, algebra, settings, block_bytes=None))]
    fn new(
        name: &str,
        algebra: &Algebra,
        settings: HashMap<String, Value>,
        block_bytes: Option<i64>,
    ) -> PyResult<Self> {
        let mut given = Vec::new();
        for (name, value) in &settings {
            given.push((name.as_str(), value.setting()?));
        }
        Ok(Self {
            inner: caught(|| ops::by_name(algebra.inner, name, &given))?,
            devices: Devices::new(options::block_bytes(block_bytes)?),
        })
    }

    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// The inputs: a name and axes each, where an axis is a size, `batch`, `in` or `out`.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<(&str, Bound<'py, PyTuple>)>> {
        let specs = self.inner.inputs().iter();
        let named = specs.map(|spec| Ok((name_of(self.inner.name(), spec.name), axes(py, spec)?)));
        named.collect()
    }

    /// The outputs, as the inputs.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<(&str, Bound<'py, PyTuple>)>> {
        let specs = self.inner.outputs().iter();
        let named = specs.map(|spec| Ok((name_of(self.inner.name(), spec.name), axes(py, spec)?)));
        named.collect()
    }

    /// The floating-point operations of a forward and of a backward pass, as the kernels do them.
    fn flops(&self, batch: usize, inputs: usize, outputs: usize) -> (usize, usize) {
        let cost = self.inner.cost(&Dims {
            batch,
            in_channels: inputs,
            out_channels: outputs,
            scalar_channels: 0,
        });
        (cost.forward, cost.backward)
    }

    /// The expressions of the program, operands first, as `(name, positions of operands, number)`, and the positions of the
    /// output's expressions. The number is a constant, or says which element of which argument. `None` for operators that are not programs.
    fn expressions(&self) -> Option<(Vec<Expression>, Vec<usize>)> {
        let program = self.inner.program()?;
        let nodes = program.graph.ids().map(|id| expression(program, id));
        let output = program.outputs.first()?;
        let of_output = output.values.iter().map(|id| id.index()).collect();
        Some((nodes.collect(), of_output))
    }

    /// The transformations that the operator is found to commute with, in words.
    fn measured_symmetry(&self, py: Python<'_>) -> PyResult<&'static str> {
        threads::detached(py, || self.inner.measured_symmetry().map(Symmetry::name))
    }

    /// The gradient: from the inputs and the gradients of the outputs to the gradients of the inputs.
    fn gradient(&self, py: Python<'_>) -> PyResult<Self> {
        self.derived(py, flashcliff::Operator::gradient)
    }

    /// The directional derivative: from the inputs and their tangents to the tangents of the outputs.
    fn tangent(&self, py: Python<'_>) -> PyResult<Self> {
        self.derived(py, flashcliff::Operator::tangent)
    }

    /// The operator with those outputs that are wanted.
    fn selecting(&self, py: Python<'_>, wanted: Vec<bool>) -> PyResult<Self> {
        self.derived(py, |operator| operator.selecting(&wanted))
    }

    /// The needs of a run over tensors: the shape of each output, and the bytes of workspace.
    fn plan_run<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<View>,
        place: Place,
    ) -> PyResult<(Vec<Bound<'py, PyTuple>>, usize)> {
        let plan = match place {
            None => threads::detached(py, || runs::plan(&self.inner, &inputs))?,
            Some(place) => detached(py, || {
                self.devices.plan_run(&self.inner, &inputs, place.into())
            })?,
        };
        let shapes = plan.outputs.iter().map(|shape| PyTuple::new(py, shape));
        Ok((shapes.collect::<PyResult<_>>()?, plan.workspace))
    }

    /// Writes those outputs that have an address.
    ///
    /// Not for users: memory is not checked, as for `forward`.
    fn run(
        &self,
        py: Python<'_>,
        inputs: Vec<View>,
        outputs: Vec<Option<usize>>,
        workspace: Space,
        place: Place,
    ) -> PyResult<()> {
        let run = Run {
            inputs,
            outputs,
            workspace,
        };
        match place {
            None => threads::detached(py, || {
                // SAFETY: the caller's, who is the Python package itself.
                unsafe { runs::run(&self.inner, &run) }
            }),
            Some(place) => detached(py, || {
                // SAFETY: the same holds as above.
                unsafe { self.devices.run(&self.inner, &run, place.into()) }
            }),
        }
    }

    /// The needs of [`Self::run_strided`]: the shape of each output, and the bytes of workspace.
    #[cfg(feature = "cuda")]
    fn plan_strided<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<View>,
        place: (usize, usize, bool),
    ) -> PyResult<(Vec<Bound<'py, PyTuple>>, usize)> {
        let plan = detached(py, || {
            self.devices
                .plan_strided(&self.inner, &inputs, place.into())
        })?;
        let shapes = plan.outputs.iter().map(|shape| PyTuple::new(py, shape));
        Ok((shapes.collect::<PyResult<_>>()?, plan.workspace))
    }

    /// Does the same as [`Self::run`] on a GPU, on tensors with their own strides: of components and of rows for
    /// each input; outputs are an address, the stride of components and the stride of rows.
    ///
    /// Not for users: memory is not checked, as for `forward`.
    #[cfg(feature = "cuda")]
    fn run_strided(
        &self,
        py: Python<'_>,
        inputs: Vec<View>,
        strides: Vec<(usize, usize)>,
        outputs: Vec<crate::cuda::Strided>,
        workspace: Space,
        place: (usize, usize, bool),
    ) -> PyResult<()> {
        detached(py, || {
            let run = crate::cuda::StridedRun {
                inputs: &inputs,
                strides: &strides,
                outputs: &outputs,
                workspace,
            };
            // SAFETY: the caller's, who is the Python package itself.
            unsafe { self.devices.run_strided(&self.inner, &run, place.into()) }
        })
    }

    /// The operator as Triton kernels, if it is a program of lanes.
    fn triton(&self, py: Python<'_>) -> Option<triton::Source> {
        py.detach(|| triton::source(&self.inner))
    }

    /// The operator as text: what it computes, without this process.
    #[getter]
    fn content(&self) -> PyResult<String> {
        caught(|| operator_to_json(&self.inner))
    }

    /// The operator of such a text.
    #[staticmethod]
    fn of_content(content: &str) -> PyResult<Self> {
        let inner = caught(|| operator_from_json(content))?;
        Ok(Self {
            inner: Arc::unwrap_or_clone(inner),
            devices: Devices::new(None),
        })
    }

    /// Whether most operations belong to matrix products over channels.
    #[getter]
    fn has_matrix_products(&self) -> bool {
        self.inner.has_matrix_products()
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

    /// The needs of a pass over tensors: (shape of the output, elements to save, bytes of
    /// workspace). On the CPU it is an error if there is no room for them. `wanted` says which gradients are made; all if absent.
    #[pyo3(signature = (inputs, backward, place, wanted=None))]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<View>,
        backward: bool,
        place: Place,
        wanted: Option<Vec<bool>>,
    ) -> PyResult<(Bound<'py, PyTuple>, usize, usize)> {
        let pass = pass(backward);
        let plan = match place {
            // Another thread may be starting those that this counts, and its Python thread must get on.
            None => threads::detached(py, || {
                host::plan(&self.inner, &inputs, pass, wanted.as_deref())
            })?,
            Some(place) => detached(py, || {
                self.devices.plan(&self.inner, &inputs, pass, place.into())
            })?,
        };
        let shape = PyTuple::new(py, &plan.output)?;
        Ok((shape, plan.saved, plan.workspace))
    }

    /// The message for a pass on a GPU that found no memory while so many bytes were available; if absent, the device is asked.
    #[pyo3(signature = (inputs, backward, place, wanted=None, available=None))]
    fn no_room(
        &self,
        py: Python<'_>,
        inputs: Vec<View>,
        backward: bool,
        place: (usize, usize, bool),
        wanted: Option<Vec<bool>>,
        available: Option<u64>,
    ) -> PyResult<String> {
        let (pass, wanted) = (pass(backward), wanted.as_deref());
        let error = detached(py, || {
            let gpu = place.into();
            self.devices
                .no_room(&self.inner, &inputs, pass, wanted, available, gpu)
        })?;
        Ok(error.to_string())
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

    /// The address by which C functions know the operator. It is valid as long as the operator lives.
    #[getter]
    fn native(slf: &Bound<'_, Self>) -> usize {
        std::ptr::from_ref(slf.get()).expose_provenance()
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
    /// An operator that is made of this one.
    fn derived(
        &self,
        py: Python<'_>,
        make: impl FnOnce(&flashcliff::Operator) -> Result<flashcliff::Operator, flashcliff::Error>
        + Send,
    ) -> PyResult<Self> {
        Ok(Self {
            inner: detached(py, || make(&self.inner))?,
            devices: Devices::new(None),
        })
    }
}

fn pass(backward: bool) -> Pass {
    match backward {
        false => Pass::Forward,
        true => Pass::Backward,
    }
}

fn axes<'py>(py: Python<'py>, spec: &TensorSpec) -> PyResult<Bound<'py, PyTuple>> {
    let axes = spec.dims.iter().map(|dim| match dim {
        Dim::Fixed(size) => Ok(size.into_pyobject(py)?.into_any()),
        other => Ok(PyString::new(py, &other.to_string()).into_any()),
    });
    PyTuple::new(py, axes.collect::<PyResult<Vec<_>>>()?)
}
