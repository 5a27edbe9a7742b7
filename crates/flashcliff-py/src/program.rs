//! Programs that Python writes: a graph of expressions over the components of multivectors.

use std::sync::{Mutex, MutexGuard, PoisonError};

use flashcliff::program::{Function, Id, Multivector, Node, Program as Ir, Uniform, Width};
use flashcliff::{Gate, GradeSet, Operator as Core, ProgramOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::algebra::{Algebra, grade_set, product_kind};
use crate::cuda::Devices;
use crate::error::caught;
use crate::operator::Operator;

/// The components of a multivector, as handles of values, and its grades.
type Components = (Vec<usize>, Vec<usize>);

/// A program under construction. Values have handles.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct Program {
    algebra: flashcliff::Algebra,
    state: Mutex<State>,
}

struct State {
    program: Ir,
    values: Vec<Id>,
    /// The channels of each expression of the program, as far as they were asked for.
    widths: Vec<Option<Width>>,
}

impl State {
    fn handle(&mut self, id: Id) -> usize {
        self.values.push(id);
        self.values.len() - 1
    }

    fn handles(&mut self, ids: Vec<Id>) -> Vec<usize> {
        ids.into_iter().map(|id| self.handle(id)).collect()
    }

    fn id(&self, handle: usize) -> PyResult<Id> {
        self.values.get(handle).copied().ok_or_else(|| {
            PyValueError::new_err(format!(
                "expected a value of this program, got the number {handle} of {}",
                self.values.len()
            ))
        })
    }

    /// The channels of a value; `None` for one that is the same for all channels.
    fn width(&mut self, id: Id) -> Option<Width> {
        self.program.add_widths(&mut self.widths);
        self.widths[id.index()]
    }

    /// The channels of the first value that has some, if all others have the same.
    fn one_width(&mut self, ids: &[Id]) -> PyResult<Width> {
        let mut found = None;
        for &id in ids {
            match (found, self.width(id)) {
                (Some(one), Some(other)) if one != other => {
                    return Err(PyValueError::new_err(
                        "expected values of the channels or of the scalar channels, got some of both; the `sum()` or `mean()` of one of them over \
                         its channels may meet the other",
                    ));
                }
                (None, width) => found = width,
                _ => {}
            }
        }
        Ok(found.unwrap_or_default())
    }

    fn ids(&self, handles: &[usize]) -> PyResult<Vec<Id>> {
        handles.iter().map(|&handle| self.id(handle)).collect()
    }
}

impl Program {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A multivector of some values, one for each blade of its grades.
    fn multivector(&self, state: &State, (values, grades): &Components) -> PyResult<Multivector> {
        let grades = self.grades(grades)?;
        let expected = grades.blade_count(self.algebra.cayley());
        if values.len() != expected {
            return Err(PyValueError::new_err(format!(
                "expected {expected} components, one for each blade of the grades, got {}",
                values.len()
            )));
        }
        Ok(Multivector {
            grades,
            components: state.ids(values)?,
        })
    }

    fn grades(&self, grades: &[usize]) -> PyResult<GradeSet> {
        let grades = grade_set(Some(grades.to_vec()))?.unwrap_or(GradeSet::full(0));
        let checked = self.algebra.check_grades(grades);
        checked.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(grades)
    }

    fn components(state: &mut State, of: Multivector) -> Components {
        let grades = of.grades.iter().collect();
        (state.handles(of.components), grades)
    }
}

fn width_of(of_scalars: bool) -> Width {
    match of_scalars {
        true => Width::Scalars,
        false => Width::Channels,
    }
}

#[pymethods]
impl Program {
    #[new]
    fn new(algebra: &Algebra, name: &str, formula: &str) -> Self {
        Self {
            algebra: algebra.inner,
            state: Mutex::new(State {
                program: Ir::new(name, formula),
                values: Vec::new(),
                widths: Vec::new(),
            }),
        }
    }

    /// Declares a multivector, the next argument.
    fn input(&self, name: &str, grades: Vec<usize>) -> PyResult<Vec<usize>> {
        let grades = self.grades(&grades)?;
        let state = &mut *self.state();
        let of = Multivector::input(&mut state.program, &self.algebra, name, grades);
        Ok(state.handles(of.components))
    }

    /// Declares a number for each scalar channel, the next argument.
    fn scalars(&self, name: &str) -> usize {
        let state = &mut *self.state();
        let ids = state
            .program
            .input_of(Width::Scalars, name, vec!["1".to_owned()]);
        state.handle(ids[0])
    }

    /// Declares `count` numbers for each batch element and channel, the next argument.
    fn numbers(&self, name: &str, count: usize) -> Vec<usize> {
        let state = &mut *self.state();
        let names = (0..count).map(|at| at.to_string()).collect();
        let ids = state.program.input_of(Width::Channels, name, names);
        state.handles(ids)
    }

    /// Declares a parameter with `count` numbers for each channel, or each scalar channel, the next argument.
    fn param(&self, name: &str, count: usize, of_scalars: bool) -> Vec<usize> {
        let state = &mut *self.state();
        let ids = state.program.param_of(width_of(of_scalars), name, count);
        state.handles(ids)
    }

    fn constant(&self, value: f64) -> usize {
        let state = &mut *self.state();
        let id = state.program.graph.constant(value);
        state.handle(id)
    }

    /// The epsilon of the operator.
    fn eps(&self) -> usize {
        let state = &mut *self.state();
        let id = state.program.graph.uniform(Uniform::Eps);
        state.handle(id)
    }

    /// A function of values: `add`, `sub`, `mul`, `div`, `damp`, `neg`, `sqrt`, `sigmoid`, `gate`, `max`, `select`.
    fn apply(&self, function: &str, of: Vec<usize>) -> PyResult<usize> {
        let state = &mut *self.state();
        let ids = state.ids(&of)?;
        state.one_width(&ids)?;
        let g = &mut state.program.graph;
        let id = match (function, &ids[..]) {
            ("add", &[a, b]) => g.add(a, b),
            ("sub", &[a, b]) => g.sub(a, b),
            ("mul", &[a, b]) => g.mul(a, b),
            ("div", &[a, b]) => g.div(a, b),
            // A closed gate lets nothing through.
            ("damp", &[a, b]) => g.damp(a, b),
            ("max", &[a, b]) => g.max(a, b),
            ("select", &[a, b, yes, no]) => g.select(a, b, yes, no),
            ("neg", &[a]) => g.neg(a),
            ("sqrt", &[a]) => g.call(Function::Sqrt, a),
            ("sigmoid", &[a]) => g.call(Function::Sigmoid, a),
            ("gate", &[a]) => g.call(Function::Gate { order: 0 }, a),
            _ => {
                return Err(PyValueError::new_err(format!(
                    "expected a function of values, got {function} of {}",
                    of.len()
                )));
            }
        };
        Ok(state.handle(id))
    }

    /// The sum of a value over its channels.
    fn sum(&self, of: usize) -> PyResult<usize> {
        let state = &mut *self.state();
        let of = state.id(of)?;
        let width = state.width(of).unwrap_or_default();
        let sum = state.program.row_sum_of(width, of);
        Ok(state.handle(sum))
    }

    /// The number of channels of a value.
    fn count(&self, of: usize) -> PyResult<usize> {
        let state = &mut *self.state();
        let of = state.id(of)?;
        let width = state.width(of).unwrap_or_default();
        let count = state.program.graph.uniform(Uniform::Count(width));
        Ok(state.handle(count))
    }

    /// The mean of a value over its channels.
    fn mean(&self, of: usize) -> PyResult<usize> {
        let state = &mut *self.state();
        let of = state.id(of)?;
        let width = state.width(of).unwrap_or_default();
        let sum = state.program.row_sum_of(width, of);
        let graph = &mut state.program.graph;
        let mean = match width {
            Width::Channels => {
                let share = graph.uniform(Uniform::InvChannels);
                graph.mul(sum, share)
            }
            Width::Scalars => {
                let count = graph.uniform(Uniform::Count(width));
                graph.div(sum, count)
            }
        };
        Ok(state.handle(mean))
    }

    /// Marks a multivector that may be stored instead of being computed again.
    fn cut(&self, of: Vec<usize>) -> PyResult<Vec<usize>> {
        let state = &mut *self.state();
        let ids = state.ids(&of)?;
        state.one_width(&ids)?;
        let is_constant = |&id: &Id| matches!(state.program.graph.node(id), Node::Constant(_));
        if ids.iter().any(is_constant) {
            return Ok(of);
        }
        let ids = state.program.cut(ids);
        Ok(state.handles(ids))
    }

    /// A product of multivectors of a kind.
    fn product(&self, kind: &str, x: Components, y: Components) -> PyResult<Components> {
        let kind = product_kind(kind)?;
        let state = &mut *self.state();
        let (x, y) = (self.multivector(state, &x)?, self.multivector(state, &y)?);
        state.one_width(&[&x.components[..], &y.components].concat())?;
        let product = x.product(&mut state.program.graph, &self.algebra, kind, &y);
        Ok(Self::components(state, product))
    }

    /// The geometric product in which each path carries a weight.
    fn weighted_product(
        &self,
        x: Components,
        y: Components,
        w: Vec<usize>,
    ) -> PyResult<Components> {
        let state = &mut *self.state();
        let (x, y) = (self.multivector(state, &x)?, self.multivector(state, &y)?);
        let paths = self.algebra.paths_between(x.grades, y.grades).len();
        if w.len() != paths {
            return Err(PyValueError::new_err(format!(
                "expected {paths} weights for each channel, one for each path, got {}",
                w.len()
            )));
        }
        let w = state.ids(&w)?;
        state.one_width(&[&x.components[..], &y.components, &w].concat())?;
        let product = x.weighted_product(&mut state.program.graph, &self.algebra, &w, &y);
        Ok(Self::components(state, product))
    }

    /// The signs by which an involution multiplies the components: `reverse`, `involute` or `conjugate`.
    fn signs(&self, involution: &str, grades: Vec<usize>) -> PyResult<Vec<i8>> {
        let (algebra, grades) = (self.algebra.cayley(), self.grades(&grades)?);
        let sign = |blade: usize| match involution {
            "reverse" => algebra.reverse_sign(blade),
            "involute" => algebra.grade_involution_sign(blade),
            _ => algebra.clifford_conjugate_sign(blade),
        };
        Ok(algebra.blades_in(grades).into_iter().map(sign).collect())
    }

    /// The dual of each blade, or its inverse: the blade and the sign.
    fn duals(&self, inverse: bool) -> Vec<(usize, i8)> {
        let algebra = self.algebra.cayley();
        let image = |blade| match inverse {
            true => algebra.undual(blade),
            false => algebra.dual(blade),
        };
        (0..algebra.blade_count()).map(image).collect()
    }

    /// Declares an output, the next one. A multivector of values of scalar channels is one of these channels.
    fn output(&self, name: &str, of: Components) -> PyResult<()> {
        let state = &mut *self.state();
        let of = self.multivector(state, &of)?;
        let width = state.one_width(&of.components)?;
        let algebra = self.algebra.cayley();
        let blades = algebra.blades_in(of.grades).into_iter();
        let labels = blades.map(|blade| algebra.blade_name(blade)).collect();
        state.program.output_of(width, name, labels, of.components);
        Ok(())
    }

    /// The digest of what the program computes.
    fn digest(&self) -> String {
        self.state().program.digest().to_string()
    }

    /// The operator of the program.
    fn operator(&self, gate: &str, eps: f64) -> PyResult<Operator> {
        let gate: Gate = gate
            .parse()
            .map_err(|error: flashcliff::UnknownOption| PyValueError::new_err(error.to_string()))?;
        let program = self.state().program.clone();
        let options = ProgramOptions { gate, eps };
        Ok(Operator {
            inner: caught(|| Core::of(self.algebra, &program, &options))?,
            devices: Devices::new(None),
        })
    }
}
