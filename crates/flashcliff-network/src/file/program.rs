//! Programs as records of all their expressions, and back.
//!
//! Expressions are counted through, operands before users. A program is built anew by the functions that fold
//! expressions. Each must give a new expression, so no chain of signs or constants gets in that a program could not
//! have.

use flashcliff::program::{
    Argument, Function, Graph, Id, LaneTensor, Node, Parameter, Program, Returned, Uniform, Width,
};
use flashcliff::{Gate, ProgramOptions};
use serde::{Deserialize, Serialize, de};

use super::Error;
use super::graph::{MOST_CHANNELS, at_most, find, finite};

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramRecord {
    pub(super) name: String,
    formula: String,
    gate: String,
    #[serde(with = "finite")]
    eps: f64,
    inputs: Vec<LanesRecord>,
    parameters: Vec<ParameterRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    row_values: Vec<String>,
    arguments: Vec<ArgumentRecord>,
    expressions: Vec<Expression>,
    row_sums: Vec<usize>,
    cuts: Vec<Vec<usize>>,
    results: Vec<ResultRecord>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct LanesRecord {
    name: String,
    components: Vec<String>,
    width: WidthRecord,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ParameterRecord {
    name: String,
    count: usize,
    width: WidthRecord,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum ArgumentRecord {
    Input(usize),
    Parameter(usize),
    RowValue(usize),
}

/// A result, in the order in which the program declares them.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ResultRecord {
    Output {
        name: String,
        components: Vec<String>,
        width: WidthRecord,
        values: Vec<usize>,
    },
    Sum {
        name: String,
        width: WidthRecord,
        values: Vec<usize>,
    },
    Total {
        name: String,
        summands: [Option<usize>; 2],
    },
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum WidthRecord {
    Channels,
    Scalars,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum UniformRecord {
    Eps,
    InvChannels,
    Count(WidthRecord),
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum FunctionRecord {
    Sqrt,
    Sigmoid,
    SigmoidSlope,
    Gate(u8),
    Sin,
    Cos,
    Exp,
}

/// An expression. Operands are numbers of expressions before it.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Expression {
    /// The bits of an `f64`, as a number of 16 hexadecimal digits.
    Constant(String),
    /// A component of an input.
    Lane(usize, usize),
    /// An element of a parameter.
    Parameter(usize, usize),
    Uniform(UniformRecord),
    RowSum(usize),
    RowValue(usize),
    /// A component of a cut.
    Cut(usize, usize),
    Add(usize, usize),
    Sub(usize, usize),
    Mul(usize, usize),
    Div(usize, usize),
    Damp(usize, usize),
    Hypot(usize, usize),
    Max(usize, usize),
    Greater(usize, usize),
    Neg(usize),
    Call(FunctionRecord, usize),
}

impl From<Width> for WidthRecord {
    fn from(width: Width) -> Self {
        match width {
            Width::Channels => Self::Channels,
            Width::Scalars => Self::Scalars,
        }
    }
}

impl From<WidthRecord> for Width {
    fn from(width: WidthRecord) -> Self {
        match width {
            WidthRecord::Channels => Self::Channels,
            WidthRecord::Scalars => Self::Scalars,
        }
    }
}

impl From<Node> for Expression {
    fn from(node: Node) -> Self {
        let at = Id::index;
        match node {
            Node::Constant(bits) => Self::Constant(format!("{bits:016x}")),
            Node::Lane { tensor, component } => Self::Lane(tensor, component),
            Node::Param { param, index } => Self::Parameter(param, index),
            Node::Uniform(Uniform::Eps) => Self::Uniform(UniformRecord::Eps),
            Node::Uniform(Uniform::InvChannels) => Self::Uniform(UniformRecord::InvChannels),
            Node::Uniform(Uniform::Count(width)) => {
                Self::Uniform(UniformRecord::Count(width.into()))
            }
            Node::RowSum(sum) => Self::RowSum(sum),
            Node::RowValue(at) => Self::RowValue(at),
            Node::Cut { cut, component } => Self::Cut(cut, component),
            Node::Add(a, b) => Self::Add(at(a), at(b)),
            Node::Sub(a, b) => Self::Sub(at(a), at(b)),
            Node::Mul(a, b) => Self::Mul(at(a), at(b)),
            Node::Div(a, b) => Self::Div(at(a), at(b)),
            Node::Damp(a, b) => Self::Damp(at(a), at(b)),
            Node::Hypot(a, b) => Self::Hypot(at(a), at(b)),
            Node::Max(a, b) => Self::Max(at(a), at(b)),
            Node::Greater(a, b) => Self::Greater(at(a), at(b)),
            Node::Neg(a) => Self::Neg(at(a)),
            Node::Call(function, a) => Self::Call(function.into(), at(a)),
        }
    }
}

impl From<Function> for FunctionRecord {
    fn from(function: Function) -> Self {
        match function {
            Function::Sqrt => Self::Sqrt,
            Function::Sigmoid => Self::Sigmoid,
            Function::SigmoidSlope => Self::SigmoidSlope,
            Function::Gate { order } => Self::Gate(order),
            Function::Sin => Self::Sin,
            Function::Cos => Self::Cos,
            Function::Exp => Self::Exp,
        }
    }
}

impl From<&FunctionRecord> for Function {
    fn from(function: &FunctionRecord) -> Self {
        match *function {
            FunctionRecord::Sqrt => Self::Sqrt,
            FunctionRecord::Sigmoid => Self::Sigmoid,
            FunctionRecord::SigmoidSlope => Self::SigmoidSlope,
            FunctionRecord::Gate(order) => Self::Gate { order },
            FunctionRecord::Sin => Self::Sin,
            FunctionRecord::Cos => Self::Cos,
            FunctionRecord::Exp => Self::Exp,
        }
    }
}

impl From<&UniformRecord> for Uniform {
    fn from(uniform: &UniformRecord) -> Self {
        match *uniform {
            UniformRecord::Eps => Self::Eps,
            UniformRecord::InvChannels => Self::InvChannels,
            UniformRecord::Count(width) => Self::Count(width.into()),
        }
    }
}

impl Expression {
    /// The expression in a graph; `None` if a part of it is not there.
    fn add(&self, graph: &mut Graph, ids: &[Id]) -> Option<Id> {
        let of = |at: &usize| ids.get(*at).copied();
        Some(match self {
            Self::Constant(bits) => {
                graph.constant(f64::from_bits(u64::from_str_radix(bits, 16).ok()?))
            }
            Self::Lane(tensor, component) => graph.lane(*tensor, *component),
            Self::Parameter(param, index) => graph.param(*param, *index),
            Self::Uniform(uniform) => graph.uniform(uniform.into()),
            Self::RowSum(sum) => graph.intern(Node::RowSum(*sum)),
            Self::RowValue(at) => graph.row_value(*at),
            Self::Cut(cut, component) => graph.intern(Node::Cut {
                cut: *cut,
                component: *component,
            }),
            Self::Add(a, b) => graph.add(of(a)?, of(b)?),
            Self::Sub(a, b) => graph.sub(of(a)?, of(b)?),
            Self::Mul(a, b) => graph.mul(of(a)?, of(b)?),
            Self::Div(a, b) => graph.div(of(a)?, of(b)?),
            Self::Damp(a, b) => graph.damp(of(a)?, of(b)?),
            Self::Hypot(a, b) => graph.hypot(of(a)?, of(b)?),
            Self::Max(a, b) => graph.max(of(a)?, of(b)?),
            Self::Greater(a, b) => graph.greater(of(a)?, of(b)?),
            Self::Neg(a) => graph.neg(of(a)?),
            Self::Call(function, a) => graph.call(function.into(), of(a)?),
        })
    }
}

fn numbers(ids: &[Id]) -> Vec<usize> {
    ids.iter().map(|id| id.index()).collect()
}

fn values(ids: &[Id], numbers: &[usize]) -> Result<Vec<Id>, Error> {
    let values = numbers.iter();
    values
        .map(|&at| find("expressions", ids, at).copied())
        .collect()
}

impl ProgramRecord {
    /// # Errors
    /// [`Error::Expression`] for a graph whose expressions were not made by the functions that fold them;
    /// [`Error::NotStored`] for results in another order than that of outputs and sums.
    pub(super) fn new(program: &Program, options: ProgramOptions) -> Result<Self, Error> {
        let record = Self {
            name: program.name.clone(),
            formula: program.formula.clone(),
            gate: options.gate.name().to_owned(),
            eps: options.eps,
            inputs: program.inputs.iter().map(LanesRecord::from).collect(),
            parameters: program.params.iter().map(ParameterRecord::from).collect(),
            row_values: program.row_values.clone(),
            arguments: program.arguments.iter().map(ArgumentRecord::from).collect(),
            expressions: expressions(program),
            row_sums: numbers(&program.row_sums),
            cuts: program.cuts.iter().map(|cut| numbers(cut)).collect(),
            results: results(program),
        };
        match record.program()?.0.digest() == program.digest() {
            true => Ok(record),
            false => Err(Error::NotStored {
                what: format!("the program `{}`", program.name),
                reason: "its results are in another order than its outputs",
            }),
        }
    }

    /// The program, and the options of its operator. The operator checks the program.
    pub(super) fn program(&self) -> Result<(Program, ProgramOptions), Error> {
        let (graph, ids) = self.graph()?;
        let mut program = Program::new(&*self.name, &*self.formula);
        program.graph = graph;
        program.inputs = self.inputs.iter().map(LaneTensor::from).collect();
        program.params = self.parameters()?;
        program.row_values.clone_from(&self.row_values);
        program.arguments = self.arguments.iter().map(Argument::from).collect();
        program.row_sums = values(&ids, &self.row_sums)?;
        let cuts = self.cuts.iter().map(|cut| values(&ids, cut));
        program.cuts = cuts.collect::<Result<_, Error>>()?;
        for result in &self.results {
            result.declare(&mut program, &ids)?;
        }
        let gate = self.gate.parse::<Gate>();
        let options = ProgramOptions {
            gate: gate.map_err(|error| Error::Graph(de::Error::custom(error)))?,
            eps: self.eps,
        };
        Ok((program, options))
    }

    fn parameters(&self) -> Result<Vec<Parameter>, Error> {
        let parameters = self.parameters.iter().map(|parameter| {
            Ok(Parameter {
                name: parameter.name.clone(),
                count: at_most("elements of a parameter", MOST_CHANNELS, parameter.count)?,
                width: parameter.width.into(),
            })
        });
        parameters.collect()
    }

    /// The expressions, built anew.
    fn graph(&self) -> Result<(Graph, Vec<Id>), Error> {
        let mut graph = Graph::default();
        let mut ids = Vec::with_capacity(self.expressions.len());
        for (expression, record) in self.expressions.iter().enumerate() {
            let id = record.add(&mut graph, &ids);
            let new = id.filter(|id| id.index() == expression);
            ids.push(new.ok_or_else(|| Error::Expression {
                program: self.name.clone(),
                expression,
            })?);
        }
        Ok((graph, ids))
    }
}

fn expressions(program: &Program) -> Vec<Expression> {
    let graph = &program.graph;
    graph.ids().map(|id| graph.node(id).into()).collect()
}

fn results(program: &Program) -> Vec<ResultRecord> {
    let results = program.results.iter().map(|result| match *result {
        Returned::Output(at) => {
            let output = &program.outputs[at];
            ResultRecord::Output {
                name: output.tensor.name.clone(),
                components: output.tensor.components.clone(),
                width: output.tensor.width.into(),
                values: numbers(&output.values),
            }
        }
        Returned::Sum(at) => {
            let sum = &program.sums[at];
            ResultRecord::Sum {
                name: sum.tensor.name.clone(),
                width: sum.tensor.width.into(),
                values: numbers(&sum.values),
            }
        }
        Returned::Total(at) => {
            let total = &program.totals[at];
            ResultRecord::Total {
                name: total.name.clone(),
                summands: total.summands.map(|id| id.map(Id::index)),
            }
        }
    });
    results.collect()
}

impl ResultRecord {
    /// Declares the result.
    fn declare(&self, program: &mut Program, ids: &[Id]) -> Result<(), Error> {
        match self {
            Self::Output {
                name,
                components,
                width,
                values: of,
            } => {
                if components.len() != of.len() {
                    return Err(Error::Length {
                        what: format!("the components of `{name}`"),
                        expected: of.len(),
                        got: components.len(),
                    });
                }
                program.output_of((*width).into(), name, components.clone(), values(ids, of)?);
            }
            Self::Sum {
                name,
                width,
                values: of,
            } => program.sum_of((*width).into(), name, values(ids, of)?),
            Self::Total { name, summands } => {
                let [channels, scalars] = summands.map(|at| values(ids, at.as_slice()));
                let first = |of: Vec<Id>| of.first().copied();
                program.total(name, [first(channels?), first(scalars?)]);
            }
        }
        Ok(())
    }
}

impl From<&LaneTensor> for LanesRecord {
    fn from(tensor: &LaneTensor) -> Self {
        Self {
            name: tensor.name.clone(),
            components: tensor.components.clone(),
            width: tensor.width.into(),
        }
    }
}

impl From<&LanesRecord> for LaneTensor {
    fn from(record: &LanesRecord) -> Self {
        Self {
            name: record.name.clone(),
            components: record.components.clone(),
            width: record.width.into(),
        }
    }
}

impl From<&Parameter> for ParameterRecord {
    fn from(parameter: &Parameter) -> Self {
        Self {
            name: parameter.name.clone(),
            count: parameter.count,
            width: parameter.width.into(),
        }
    }
}

impl From<&Argument> for ArgumentRecord {
    fn from(argument: &Argument) -> Self {
        match *argument {
            Argument::Input(at) => Self::Input(at),
            Argument::Param(at) => Self::Parameter(at),
            Argument::RowValue(at) => Self::RowValue(at),
        }
    }
}

impl From<&ArgumentRecord> for Argument {
    fn from(record: &ArgumentRecord) -> Self {
        match *record {
            ArgumentRecord::Input(at) => Self::Input(at),
            ArgumentRecord::Parameter(at) => Self::Param(at),
            ArgumentRecord::RowValue(at) => Self::RowValue(at),
        }
    }
}
