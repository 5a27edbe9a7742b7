//! A program: an expression graph with its inputs, outputs and reductions.

use super::graph::Graph;
use super::node::{Id, Node, Uniform, Width};

/// A lane input: one value per component, batch element and channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneTensor {
    /// The name of the tensor, as users see it.
    pub name: String,
    /// A label for each component (a blade name, or a grade).
    pub components: Vec<String>,
    /// The lanes that it has.
    pub width: Width,
}

impl LaneTensor {
    /// Gives the tensor a name, and its components their numbers.
    fn rename(&mut self, name: String) {
        self.name = name;
        for (at, component) in self.components.iter_mut().enumerate() {
            *component = at.to_string();
        }
    }
}

/// A per-channel parameter: `count` values for each channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name of the parameter, as users see it.
    pub name: String,
    /// The number of values that a channel has.
    pub count: usize,
    /// The channels that it is about.
    pub width: Width,
}

/// An argument of an operator, by its number among the lane inputs, the parameters or the row values of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A lane input.
    Input(usize),
    /// A per-channel parameter.
    Param(usize),
    /// A value of rows.
    RowValue(usize),
}

/// A lane output.
#[derive(Clone, Debug)]
pub struct Output {
    /// The name and the component labels.
    pub tensor: LaneTensor,
    /// The value of each component.
    pub values: Vec<Id>,
}

/// Sums over the batch, channel by channel, as the gradient of a parameter is one.
#[derive(Clone, Debug)]
pub struct BatchSum {
    /// The name of the result, and the number of sums that a channel has.
    pub tensor: Parameter,
    /// The summand of each sum.
    pub values: Vec<Id>,
}

/// A sum over the lanes of a row that is a result, as the gradient of a row value is one: one number for each row.
#[derive(Clone, Debug)]
pub struct Total {
    /// The name of the result, as users see it.
    pub name: String,
    /// The summand of the lanes of each width, by its [index](Width::index); `None` adds nothing.
    pub summands: [Option<Id>; 2],
}

/// A result of an operator, by its number among the lane outputs, the sums over the batch or the totals of rows of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// A lane output.
    Output(usize),
    /// Sums over the batch.
    Sum(usize),
    /// Totals of rows.
    Total(usize),
}

/// An operator: its inputs, the values that it computes for every lane, and its sums.
///
/// A program itself has no order of execution; [`plan`](crate::plan) gives it one.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The name, in snake case.
    pub name: String,
    /// The formula, for headers and documentation.
    pub formula: String,
    /// The expressions.
    pub graph: Graph,
    /// The lane inputs.
    pub inputs: Vec<LaneTensor>,
    /// The per-channel parameters.
    pub params: Vec<Parameter>,
    /// The names of the row values: of each the caller gives one number for each row, which all lanes of the row share.
    pub row_values: Vec<String>,
    /// The order in which a caller gives inputs, parameters and row values: that in which the program declares them.
    pub arguments: Vec<Argument>,
    /// The lane outputs.
    pub outputs: Vec<Output>,
    /// The sums over the batch.
    pub sums: Vec<BatchSum>,
    /// The totals of rows.
    pub totals: Vec<Total>,
    /// The order in which a caller takes outputs, sums and totals: that in which the program declares them.
    pub results: Vec<Returned>,
    /// The definitions of the cuts: places where a value may be stored for the length of a row
    /// instead of staying in registers. A cut changes no value; a plan may ignore it.
    pub cuts: Vec<Vec<Id>>,
    /// The summands of the sums over channels.
    pub row_sums: Vec<Id>,
    /// The number of row sums, from the first on, that an earlier pass has computed and saved.
    pub saved_row_sums: usize,
}

/// A part of a summand that is the same for the whole row, and stands outside of the sum.
enum Outside {
    Factor(Id),
    Divisor(Id),
    Sign,
}

impl Program {
    /// An empty program.
    pub fn new(name: impl Into<String>, formula: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            formula: formula.into(),
            ..Self::default()
        }
    }

    /// A copy of the program with names that say positions alone, so that programs of one digest are equal.
    pub fn without_names(&self) -> Self {
        let mut program = self.clone();
        program.name = "program".to_owned();
        program.formula = String::new();
        let inputs = program.inputs.iter_mut();
        let outputs = program.outputs.iter_mut().map(|output| &mut output.tensor);
        for (at, tensor) in inputs.enumerate() {
            tensor.rename(format!("x{at}"));
        }
        for (at, tensor) in outputs.enumerate() {
            tensor.rename(format!("o{at}"));
        }
        for (at, param) in program.params.iter_mut().enumerate() {
            // Emitters write the number of a value after the name: the mark keeps value 11 of 1 and value 1 of 11 apart.
            param.name = format!("w{at}_");
        }
        for (at, sum) in program.sums.iter_mut().enumerate() {
            sum.tensor.name = format!("s{at}");
        }
        for (at, name) in program.row_values.iter_mut().enumerate() {
            *name = format!("r{at}");
        }
        for (at, total) in program.totals.iter_mut().enumerate() {
            total.name = format!("t{at}");
        }
        program
    }

    /// Declares a lane input, the next argument, and returns its components.
    pub fn input(&mut self, name: &str, components: Vec<String>) -> Vec<Id> {
        self.input_of(Width::Channels, name, components)
    }

    /// Declares a lane input of a width, the next argument, and returns its components.
    pub fn input_of(&mut self, width: Width, name: &str, components: Vec<String>) -> Vec<Id> {
        let tensor = self.inputs.len();
        let count = components.len();
        self.arguments.push(Argument::Input(tensor));
        self.inputs.push(LaneTensor {
            name: name.to_owned(),
            components,
            width,
        });
        (0..count).map(|k| self.graph.lane(tensor, k)).collect()
    }

    /// Declares a per-channel parameter, the next argument, and returns its elements.
    pub fn param(&mut self, name: &str, count: usize) -> Vec<Id> {
        self.param_of(Width::Channels, name, count)
    }

    /// Declares a parameter of the channels of a width, the next argument, and returns its elements.
    pub fn param_of(&mut self, width: Width, name: &str, count: usize) -> Vec<Id> {
        let param = self.params.len();
        self.arguments.push(Argument::Param(param));
        self.params.push(Parameter {
            name: name.to_owned(),
            count,
            width,
        });
        (0..count).map(|k| self.graph.param(param, k)).collect()
    }

    /// Declares a value of rows, the next argument.
    pub fn row_value(&mut self, name: &str) -> Id {
        let at = self.row_values.len();
        self.arguments.push(Argument::RowValue(at));
        self.row_values.push(name.to_owned());
        self.graph.row_value(at)
    }

    /// Declares a lane output, the next result.
    pub fn output(&mut self, name: &str, components: Vec<String>, values: Vec<Id>) {
        self.output_of(Width::Channels, name, components, values);
    }

    /// Declares a lane output of a width, the next result.
    pub fn output_of(
        &mut self,
        width: Width,
        name: &str,
        components: Vec<String>,
        values: Vec<Id>,
    ) {
        let tensor = LaneTensor {
            name: name.to_owned(),
            components,
            width,
        };
        self.results.push(Returned::Output(self.outputs.len()));
        self.outputs.push(Output { tensor, values });
    }

    /// Declares sums over the batch, the next result: a number for each channel and each summand.
    pub fn sum(&mut self, name: &str, values: Vec<Id>) {
        self.sum_of(Width::Channels, name, values);
    }

    /// Declares sums over the batch for the channels of a width, the next result.
    pub fn sum_of(&mut self, width: Width, name: &str, values: Vec<Id>) {
        let tensor = Parameter {
            name: name.to_owned(),
            count: values.len(),
            width,
        };
        self.results.push(Returned::Sum(self.sums.len()));
        self.sums.push(BatchSum { tensor, values });
    }

    /// Declares a total of each row, the next result: the sum of a summand of the lanes of each width.
    pub fn total(&mut self, name: &str, summands: [Option<Id>; 2]) {
        self.results.push(Returned::Total(self.totals.len()));
        self.totals.push(Total {
            name: name.to_owned(),
            summands,
        });
    }

    /// The summands of all totals.
    pub(crate) fn total_summands(&self) -> impl Iterator<Item = Id> {
        self.totals
            .iter()
            .flat_map(|total| total.summands)
            .flatten()
    }

    /// Whether the caller gives or takes numbers of rows.
    pub fn has_row_tensors(&self) -> bool {
        !self.row_values.is_empty() || !self.totals.is_empty()
    }

    /// Whether each item, a lane of a row, is computed on its own: no argument, result or expression is about a row,
    /// about a channel of all rows, or about their number.
    pub fn is_of_items(&self) -> bool {
        let is_of_item = |id| {
            !matches!(
                self.graph.node(id),
                Node::Param { .. }
                    | Node::RowValue(_)
                    | Node::RowSum(_)
                    | Node::Uniform(Uniform::InvChannels | Uniform::Count(_))
            )
        };
        let mut inputs = self.inputs.iter();
        inputs.all(|input| input.width == Width::Channels)
            && self.arguments.len() == self.inputs.len()
            && self.results.len() == self.outputs.len()
            && self.graph.ids().all(is_of_item)
    }

    /// Marks a place where a plan may store `values` and read them back.
    pub fn cut(&mut self, values: Vec<Id>) -> Vec<Id> {
        let cut = self.cuts.len();
        let count = values.len();
        self.cuts.push(values);
        (0..count)
            .map(|component| self.graph.intern(Node::Cut { cut, component }))
            .collect()
    }

    /// The sum of a value over the channels of a row that have this width. The value is one of their lanes, or the same for all of them.
    pub fn row_sum_of(&mut self, width: Width, value: Id) -> Id {
        if width == Width::Channels || self.graph.varies(value) {
            return self.row_sum(value);
        }
        let count = self.graph.uniform(Uniform::Count(width));
        self.graph.mul(value, count)
    }

    /// The sum of `value` over the channels of a row.
    ///
    /// Factors that are the same for the whole row are taken out of the sum.
    pub fn row_sum(&mut self, value: Id) -> Id {
        // A loop: a product may have more factors than a stack has room for calls.
        let (mut summand, mut outside) = (value, Vec::new());
        loop {
            let g = &self.graph;
            let (part, rest) = match g.node(summand) {
                Node::Mul(a, b) if !g.varies(a) => (Outside::Factor(a), b),
                Node::Mul(a, b) if !g.varies(b) => (Outside::Factor(b), a),
                Node::Div(a, b) if !g.varies(b) => (Outside::Divisor(b), a),
                Node::Neg(a) => (Outside::Sign, a),
                _ => break,
            };
            outside.push(part);
            summand = rest;
        }
        let existing = self.row_sums.iter().position(|&known| known == summand);
        let index = existing.unwrap_or_else(|| {
            self.row_sums.push(summand);
            self.row_sums.len() - 1
        });
        let g = &mut self.graph;
        let sum = g.intern(Node::RowSum(index));
        let parts = outside.into_iter().rev();
        parts.fold(sum, |sum, part| match part {
            Outside::Factor(factor) => g.mul(sum, factor),
            Outside::Divisor(divisor) => g.div(sum, divisor),
            Outside::Sign => g.neg(sum),
        })
    }

    /// Whether some argument or result is of scalar channels.
    pub fn has_scalars(&self) -> bool {
        let mut all = self.tensor_widths();
        all.any(|width| width == Width::Scalars)
    }

    /// The channels of all tensors: lane inputs, lane outputs, parameters, sums over the batch.
    pub(super) fn tensor_widths(&self) -> impl Iterator<Item = Width> {
        let inputs = self.inputs.iter().map(|tensor| tensor.width);
        let outputs = self.outputs.iter().map(|output| output.tensor.width);
        let params = self.params.iter().map(|param| param.width);
        let sums = self.sums.iter().map(|sum| sum.tensor.width);
        inputs.chain(outputs).chain(params).chain(sums)
    }

    /// The lanes that each value of the program is about; `None` for a value that is the same for a whole row. Where an expression mixes
    /// lanes of two widths, which [`validate`](Self::validate) refuses, it has the width of one of them.
    pub fn widths(&self) -> Vec<Option<Width>> {
        let mut widths = Vec::with_capacity(self.graph.len());
        self.add_widths(&mut widths);
        widths
    }

    /// Adds the [`widths`](Self::widths) of those values that have come since.
    pub fn add_widths(&self, widths: &mut Vec<Option<Width>>) {
        for id in self.graph.ids().skip(widths.len()) {
            let of = |id: Id| widths.get(id.index()).copied().flatten();
            widths.push(match self.graph.node(id) {
                Node::Lane { tensor, .. } => self.inputs.get(tensor).map(|input| input.width),
                Node::Param { param, .. } => self.params.get(param).map(|param| param.width),
                Node::Cut { cut, .. } => {
                    let values = self.cuts.get(cut).into_iter().flatten();
                    // A cut is stored for each lane, whatever it holds.
                    let width = values.copied().find_map(of);
                    Some(width.unwrap_or_default())
                }
                Node::RowSum(_) => None,
                node => node.operands().find_map(of),
            });
        }
    }

    /// The values that a program must compute: outputs, totals, sums that are not saved, and the cuts that these read.
    pub fn roots(&self) -> Vec<Id> {
        let outputs = self.outputs.iter().flat_map(|o| o.values.iter().copied());
        let sums = self.sums.iter().flat_map(|sum| sum.values.iter().copied());
        let mut roots: Vec<Id> = outputs.chain(sums).chain(self.total_summands()).collect();
        let mut cuts = vec![false; self.cuts.len()];
        let mut sums = vec![false; self.row_sums.len()];
        sums[..self.saved_row_sums].fill(true);
        let mut is_seen = vec![false; self.graph.len()];
        let mut left = roots.clone();
        while let Some(id) = left.pop() {
            if std::mem::replace(&mut is_seen[id.index()], true) {
                continue;
            }
            let node = self.graph.node(id);
            left.extend(node.operands());
            let found = match node {
                Node::Cut { cut, .. } if !cuts[cut] => {
                    cuts[cut] = true;
                    &self.cuts[cut][..]
                }
                Node::RowSum(index) if !sums[index] => {
                    sums[index] = true;
                    &self.row_sums[index..=index]
                }
                _ => &[],
            };
            roots.extend(found);
            left.extend(found);
        }
        roots
    }
}
