//! The description of a network. Values and relations are numbers in Python.

use std::collections::HashMap;

use flashcliff::cayley::Group;
use flashcliff_network::tokens::{
    Attention, Channels, Components, Dropout, Frames, Gains, GateFunction, Geometry, Lanes, Linear,
    NormOptions, Reinserted, Rotary, Step,
};
use flashcliff_network::{Activation, Axis, Error, Relation, Rows, Value};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::plan::{NetworkFunction, OUTPUT};
use crate::algebra::Algebra;
use crate::error::{UnsupportedError, caught, raise};
use crate::operator::Operator;
use crate::segments::reduction_of;

/// Multivector channels and scalar channels.
type PyChannels = (usize, usize);

fn channels((multivectors, scalars): PyChannels) -> Channels {
    Channels::new(multivectors, scalars)
}

/// An axis of multivectors, and of what lies beside them: a size, or the name of rows.
#[derive(FromPyObject)]
enum PyAxis {
    Size(usize),
    Name(String),
}

impl PyAxis {
    fn axis(&self) -> PyResult<Axis> {
        match self {
            Self::Size(size) => Ok(Axis::Fixed(*size)),
            Self::Name(name) => axis_of(name),
        }
    }
}

/// The axis of rows with a name, which is that of the axis as text.
fn axis_of(name: &str) -> PyResult<Axis> {
    let named = [Axis::Rows, Axis::Edges, Axis::Graphs];
    let others = (0..Rows::MOST_OTHERS).map(Axis::Others);
    let found = named.into_iter().chain(others);
    let found = found.into_iter().find(|axis| axis.to_string() == name);
    found.ok_or_else(|| {
        PyValueError::new_err(format!(
            "axis: expected rows, edges, graphs, others with a number, or a size, got {name}"
        ))
    })
}

/// The choices of steps on tokens that an algebra leaves open.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct TokenGeometry(Geometry);

#[pymethods]
impl TokenGeometry {
    #[new]
    #[pyo3(signature = (algebra, group, *, vectors, unit_maps, join, distances, bivectors, head_norm))]
    #[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
    fn new(
        algebra: &Algebra,
        group: &str,
        vectors: bool,
        unit_maps: bool,
        join: bool,
        distances: bool,
        bivectors: bool,
        head_norm: bool,
    ) -> PyResult<Self> {
        let group = group.parse::<Group>();
        let geometry = Geometry {
            vectors,
            group: group.map_err(|error| raise(flashcliff::Error::from(error)))?,
            unit_maps,
            join,
            distances,
            bivectors,
            head_norm,
            ..Geometry::of(algebra.inner)
        };
        caught(|| geometry.check().map(|()| Self(geometry)))
    }
}

/// A network that is being described.
#[pyclass(module = "flashcliff._core")]
#[derive(Default)]
pub(crate) struct Network {
    inner: flashcliff_network::Network,
    values: Vec<Value>,
}

impl Network {
    fn add(&mut self, value: Value) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    fn value(&self, number: usize) -> PyResult<Value> {
        let found = self.values.get(number).copied();
        found.ok_or_else(|| {
            let count = self.values.len();
            PyValueError::new_err(format!("expected one of {count} values, got {number}"))
        })
    }

    fn relation_of(&self, number: usize) -> PyResult<Relation> {
        let mut relations = self.inner.relations();
        let count = relations.len();
        relations.nth(number).ok_or_else(|| {
            PyValueError::new_err(format!("expected one of {count} relations, got {number}"))
        })
    }

    fn all(&self, numbers: impl IntoIterator<Item = usize>) -> PyResult<Vec<Value>> {
        numbers.into_iter().map(|own| self.value(own)).collect()
    }

    /// A step on values, and on parameters that it takes one after another.
    fn step(
        &mut self,
        step: Step,
        mut inputs: Vec<Value>,
        parameters: &[Value],
    ) -> PyResult<usize> {
        let made = caught(|| {
            if !parameters.is_empty() {
                inputs.push(self.inner.concatenate(parameters)?);
            }
            self.inner.step(step, &inputs)
        })?;
        Ok(self.add(made))
    }
}

#[pymethods]
impl Network {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    #[pyo3(signature = (name, blades, channels, context=false))]
    fn tokens(&mut self, name: &str, blades: usize, channels: PyChannels, context: bool) -> usize {
        let channels = self::channels(channels);
        let rows = if context {
            Axis::ContextRows
        } else {
            Axis::Rows
        };
        let value = self
            .inner
            .features(name, &[rows, Axis::Token { blades, channels }]);
        self.add(value)
    }

    fn rows(&mut self, name: &str) -> usize {
        let value = self.inner.features(name, &[Axis::Rows]);
        self.add(value)
    }

    #[pyo3(signature = (name, heads, ones, context=false))]
    fn mask(&mut self, name: &str, heads: usize, ones: [bool; 3], context: bool) -> usize {
        let of = |axis, is_one| if is_one { Axis::Fixed(1) } else { axis };
        let keys = if context {
            Axis::ContextItems
        } else {
            Axis::Items
        };
        let axes = [
            of(Axis::Samples, ones[0]),
            of(Axis::Fixed(heads), ones[1]),
            of(Axis::Items, ones[2]),
            keys,
        ];
        let value = self.inner.input(name, &axes);
        self.add(value)
    }

    fn parameter(&mut self, name: &str, shape: Vec<usize>) -> usize {
        let value = self.inner.parameter(name, &shape);
        self.add(value)
    }

    #[pyo3(signature = (geometry, x, input, layers, parameters, keeps_scalars=false))]
    fn linear(
        &mut self,
        geometry: &TokenGeometry,
        x: usize,
        input: PyChannels,
        layers: Vec<PyChannels>,
        parameters: Vec<HashMap<String, usize>>,
        keeps_scalars: bool,
    ) -> PyResult<usize> {
        let step = caught(|| {
            let mut step = match keeps_scalars {
                true => {
                    let layers: Vec<usize> = layers.iter().map(|own| own.0).collect();
                    Linear::beside_scalars(geometry.0, channels(input), &layers)?
                }
                false => {
                    let layers = layers.iter().copied().map(channels).collect();
                    Linear::new(geometry.0, channels(input), layers)?
                }
            };
            let is_bias = |name: &String| name.ends_with("bias");
            if !parameters.iter().any(|own| own.keys().any(is_bias)) {
                step = step.without_bias();
            }
            Ok::<_, Error>(step)
        })?;
        let names = step.names();
        let refused = || not_described(&names.concat());
        let given: usize = parameters.iter().map(HashMap::len).sum();
        let wanted: usize = names.iter().map(Vec::len).sum();
        if parameters.len() != names.len() || given != wanted {
            return Err(refused());
        }
        let mut found = Vec::with_capacity(wanted);
        for (names, own) in names.iter().zip(&parameters) {
            for &name in names {
                found.push(own.get(name).copied().ok_or_else(refused)?);
            }
        }
        let ordered = self.all(step.order().into_iter().map(|at| found[at]))?;
        let x = self.value(x)?;
        self.step(Step::Linear(step), vec![x], &ordered)
    }

    /// The norm, with gains of multivectors and of scalars where there are some.
    fn norm(
        &mut self,
        geometry: &TokenGeometry,
        x: usize,
        channels: PyChannels,
        eps: f64,
        gains: [Option<usize>; 2],
    ) -> PyResult<usize> {
        let options = NormOptions {
            eps,
            gains: gains.map(|gain| gain.is_some()),
        };
        let step = caught(|| Lanes::norm(geometry.0, self::channels(channels), options))?;
        let gains: Vec<usize> = gains.into_iter().flatten().collect();
        let (x, gains) = (self.value(x)?, self.all(gains)?);
        self.step(Step::Lanes(step), vec![x], &gains)
    }

    fn gate(
        &mut self,
        geometry: &TokenGeometry,
        x: usize,
        channels: PyChannels,
        functions: [String; 2],
    ) -> PyResult<usize> {
        let functions = functions.map(|name| GateFunction::of_name(&name));
        let [Some(of_multivectors), Some(of_scalars)] = functions else {
            return Err(PyValueError::new_err("expected names of activations"));
        };
        let functions = [of_multivectors, of_scalars];
        let step = caught(|| Lanes::gated(geometry.0, self::channels(channels), functions))?;
        let x = self.value(x)?;
        self.step(Step::Lanes(step), vec![x], &[])
    }

    /// Dropout of grades. `place` is its number among the dropouts of a call.
    fn dropout(
        &mut self,
        geometry: &TokenGeometry,
        x: usize,
        channels: PyChannels,
        p: f64,
        place: u64,
    ) -> PyResult<usize> {
        let step = caught(|| Dropout::new(geometry.0, self::channels(channels), p, &[place]))?;
        let x = self.value(x)?;
        self.step(Step::Dropout(step), vec![x], &[])
    }

    #[pyo3(signature = (geometry, x, each, scalars, reference=None))]
    fn products(
        &mut self,
        geometry: &TokenGeometry,
        x: usize,
        each: usize,
        scalars: usize,
        reference: Option<usize>,
    ) -> PyResult<usize> {
        let step = caught(|| Lanes::products(geometry.0, each, scalars))?;
        let inputs = self.all([x].into_iter().chain(reference))?;
        self.step(Step::Lanes(step), inputs, &[])
    }

    #[pyo3(signature = (operator, x, blades, each, parameters=Vec::new()))]
    fn lanes(
        &mut self,
        operator: &Operator,
        x: usize,
        blades: usize,
        each: PyChannels,
        parameters: Vec<usize>,
    ) -> PyResult<usize> {
        let step = caught(|| Lanes::new(operator.inner.clone(), blades, channels(each)))?;
        let (x, parameters) = (self.value(x)?, self.all(parameters)?);
        self.step(Step::Lanes(step), vec![x], &parameters)
    }

    #[pyo3(signature = (geometry, x, heads, head, *, shared, context=None, mask=None, log_weights=None, rotary_base=None))]
    #[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
    fn attention(
        &mut self,
        geometry: &TokenGeometry,
        x: usize,
        heads: usize,
        head: PyChannels,
        shared: bool,
        context: Option<usize>,
        mask: Option<usize>,
        log_weights: Option<usize>,
        rotary_base: Option<u32>,
    ) -> PyResult<usize> {
        let mut step = Attention::new(geometry.0, heads, channels(head), shared);
        let mut x = self.value(x)?;
        if let Some(base) = rotary_base {
            let turn = Step::Rotary(Rotary::new(&step, base));
            x = caught(|| self.inner.step(turn, &[x]))?;
        }
        if context.is_some() {
            step = step.crossing();
        }
        if mask.is_some() {
            step = step.masked();
        }
        let mut inputs = vec![x];
        inputs.extend(self.all(context.into_iter().chain(mask))?);
        inputs.extend(self.all(log_weights)?);
        self.step(Step::Attention(step), inputs, &[])
    }

    fn head_gains(
        &mut self,
        geometry: &TokenGeometry,
        x: usize,
        channels: PyChannels,
        heads: usize,
        gains: usize,
    ) -> PyResult<usize> {
        let step = Gains::of_heads(geometry.0, self::channels(channels), heads);
        let (x, gains) = (self.value(x)?, self.value(gains)?);
        self.step(Step::Gains(step), vec![x], &[gains])
    }

    fn beside(
        &mut self,
        blades: usize,
        x: usize,
        channels: PyChannels,
        extra: usize,
        extra_channels: PyChannels,
    ) -> PyResult<usize> {
        let step = Reinserted::new(
            blades,
            self::channels(channels),
            self::channels(extra_channels),
        );
        let inputs = self.all([x, extra])?;
        self.step(Step::Reinserted(step), inputs, &[])
    }

    /// The multivectors of tokens in the frames of these, or taken out of them.
    fn frames(
        &mut self,
        geometry: &TokenGeometry,
        x: usize,
        channels: PyChannels,
        frames: usize,
        inverse: bool,
    ) -> PyResult<usize> {
        let channels = self::channels(channels);
        let step = caught(|| match inverse {
            true => Frames::inverse(geometry.0, channels),
            false => Ok(Frames::new(geometry.0, channels)),
        })?;
        let inputs = self.all([x, frames])?;
        self.step(Step::Frames(step), inputs, &[])
    }

    /// Multivectors as scalars; with `inverse` scalars as multivectors of these channels.
    fn components(
        &mut self,
        blades: usize,
        x: usize,
        channels: PyChannels,
        inverse: bool,
    ) -> PyResult<usize> {
        let channels = self::channels(channels);
        let step = match inverse {
            true => Components::inverse(blades, channels),
            false => Components::new(blades, channels),
        };
        let x = self.value(x)?;
        self.step(Step::Components(step), vec![x], &[])
    }

    /// The sum of two values times a factor.
    #[pyo3(signature = (a, b, scale=1.0))]
    fn sum(&mut self, a: usize, b: usize, scale: f64) -> PyResult<usize> {
        let (a, b) = (self.value(a)?, self.value(b)?);
        let made = caught(|| self.inner.scaled_sum([a, b], scale))?;
        Ok(self.add(made))
    }

    /// An input of any axes.
    fn input(&mut self, name: &str, axes: Vec<PyAxis>) -> PyResult<usize> {
        let axes: PyResult<Vec<Axis>> = axes.iter().map(PyAxis::axis).collect();
        let value = self.inner.features(name, &axes?);
        Ok(self.add(value))
    }

    /// A relation between rows, by its number.
    fn relation(&mut self, name: &str, start: &str, end: &str) -> PyResult<usize> {
        let (start, end) = (axis_of(start)?, axis_of(end)?);
        Ok(caught(|| self.inner.relation(name, start, end))?.number())
    }

    /// For each row what it belongs to, less what it belongs to by a second relation.
    #[pyo3(signature = (x, relation, minus=None))]
    fn gather(&mut self, x: usize, relation: usize, minus: Option<usize>) -> PyResult<usize> {
        let (x, relation) = (self.value(x)?, self.relation_of(relation)?);
        let minus = minus.map(|own| self.relation_of(own)).transpose()?;
        let made = caught(|| match minus {
            Some(minus) => self.inner.difference(x, [relation, minus]),
            None => self.inner.gather(x, relation),
        })?;
        Ok(self.add(made))
    }

    /// The sum over the rows of each target, divided by what the reduction says.
    fn segment_sum(&mut self, x: usize, relation: usize, reduce: &str) -> PyResult<usize> {
        let (x, relation) = (self.value(x)?, self.relation_of(relation)?);
        let reduction = reduction_of(reduce)?;
        let made = caught(|| self.inner.segment_sum(x, relation, reduction))?;
        Ok(self.add(made))
    }

    /// An operator on values in the order of its inputs.
    fn operator(&mut self, operator: &Operator, inputs: Vec<usize>) -> PyResult<usize> {
        let inputs = self.all(inputs)?;
        let made = caught(|| self.inner.operator(&operator.inner, &inputs))?;
        Ok(self.add(made))
    }

    /// Points `[rows, points, dim]` as multivectors `[1 + dim, rows, points]`, whose scalars are 0.
    fn points(&mut self, x: usize) -> PyResult<usize> {
        let x = self.value(x)?;
        let made = caught(|| self.inner.points(x))?;
        Ok(self.add(made))
    }

    /// Values side by side along an axis.
    fn join(&mut self, parts: Vec<usize>, axis: usize) -> PyResult<usize> {
        let parts = self.all(parts)?;
        let made = caught(|| self.inner.join(&parts, axis))?;
        Ok(self.add(made))
    }

    /// The parts of a value along an axis.
    fn split(&mut self, x: usize, axis: usize, sizes: Vec<usize>) -> PyResult<Vec<usize>> {
        let x = self.value(x)?;
        let made = caught(|| self.inner.split(x, axis, &sizes))?;
        Ok(made.into_iter().map(|own| self.add(own)).collect())
    }

    /// Multivectors with further blades, which are 0.
    fn extend_blades(&mut self, x: usize, blades: usize) -> PyResult<usize> {
        let x = self.value(x)?;
        let made = caught(|| self.inner.extend_blades(x, blades))?;
        Ok(self.add(made))
    }

    /// The Euclidean norm over blades, `[1, rows, channels]`.
    fn blade_norm(&mut self, x: usize) -> PyResult<usize> {
        let x = self.value(x)?;
        let made = caught(|| self.inner.blade_norm(x))?;
        Ok(self.add(made))
    }

    /// An activation of each element: `silu` or `relu`.
    fn activation(&mut self, x: usize, name: &str) -> PyResult<usize> {
        let kind = match name {
            "silu" => Activation::Silu,
            "relu" => Activation::Relu,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "activation: expected silu or relu, got {name}"
                )));
            }
        };
        let x = self.value(x)?;
        let made = caught(|| self.inner.activation(x, kind))?;
        Ok(self.add(made))
    }

    /// Three axes without rows in reverse order.
    fn reverse_axes(&mut self, x: usize) -> PyResult<usize> {
        let x = self.value(x)?;
        let made = caught(|| self.inner.reverse_axes(x))?;
        Ok(self.add(made))
    }

    /// Begins a block.
    fn block(&mut self) {
        self.inner.block();
    }

    /// The network as a function of its inputs and then its parameters. What is added later is not in it.
    fn function(&self, output: usize) -> PyResult<NetworkFunction> {
        let output = self.value(output)?;
        Ok(NetworkFunction::new(self.inner.clone(), output, OUTPUT))
    }

    fn __str__(&self) -> String {
        self.inner.to_string()
    }
}

fn not_described(names: &[&str]) -> PyErr {
    let names = names.join(", ");
    UnsupportedError::new_err(format!(
        "linear: expected the parameters {names}, layer by layer, with all biases or none"
    ))
}
