//! Validation: whether a program that somebody wrote by hand is a program.

use std::fmt;

use super::node::{Function, Id, Node, Width};
use super::program::{Argument, Program, Returned};

/// The highest derivative of a gate that a program may call; its gradient calls the next one.
const GATE_ORDER: u8 = 0;

/// The reason why a program cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    program: String,
    reason: String,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the program `{}`: {}", self.program, self.reason)
    }
}

impl std::error::Error for Flaw {}

impl Program {
    /// Checks that every expression refers to what the program declares, and that every argument is given once.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), Flaw> {
        let checks = [
            self.check_arguments(),
            self.check_expressions(),
            self.check_cuts(),
            self.check_results(),
            self.check_widths(),
        ];
        let found: Result<(), String> = checks.into_iter().collect();
        found.map_err(|reason| Flaw {
            program: self.name.clone(),
            reason,
        })
    }

    fn check_arguments(&self) -> Result<(), String> {
        let mut given = self.arguments.clone();
        let mut declared: Vec<Argument> = (0..self.inputs.len()).map(Argument::Input).collect();
        declared.extend((0..self.params.len()).map(Argument::Param));
        declared.extend((0..self.row_values.len()).map(Argument::RowValue));
        let order = |argument: &Argument| match *argument {
            Argument::Input(at) => (0, at),
            Argument::Param(at) => (1, at),
            Argument::RowValue(at) => (2, at),
        };
        given.sort_by_key(order);
        if given == declared {
            return Ok(());
        }
        Err(format!(
            "expected each input, each parameter and each row value once among the arguments, got {given:?}"
        ))
    }

    fn check_expressions(&self) -> Result<(), String> {
        for id in self.graph.ids() {
            let node = self.graph.node(id);
            if node.operands().any(|operand| operand >= id) {
                return Err(format!(
                    "expected operands before their users, got {node:?}"
                ));
            }
            if !self.declares(id, node) {
                return Err(format!(
                    "expected an input, a parameter, a row value, a sum or a cut that the program declares before it is read, got {node:?}"
                ));
            }
            if let Node::Call(Function::Gate { order }, _) = node
                && order > GATE_ORDER
            {
                return Err(format!(
                    "expected gates, got the derivative of order {order} of one"
                ));
            }
        }
        Ok(())
    }

    /// Whether the program declares what a node reads. Sums and cuts are of expressions before the node.
    fn declares(&self, id: Id, node: Node) -> bool {
        let before = |summand: &Id| *summand < id;
        match node {
            Node::Lane { tensor, component } => {
                let input = self.inputs.get(tensor);
                input.is_some_and(|input| component < input.components.len())
            }
            Node::Param { param, index } => {
                let param = self.params.get(param);
                param.is_some_and(|param| index < param.count)
            }
            Node::RowValue(index) => index < self.row_values.len(),
            Node::RowSum(index) => self.row_sums.get(index).is_some_and(before),
            Node::Cut { cut, component } => {
                let values = self.cuts.get(cut);
                values
                    .and_then(|values| values.get(component))
                    .is_some_and(before)
            }
            _ => true,
        }
    }

    /// Checks that the components of a cut are expressions one after another, after all that the cut holds. Copies make a cut where its
    /// first component is read, and adjoints differentiate it where its last one is.
    fn check_cuts(&self) -> Result<(), String> {
        let mut is_made = vec![false; self.cuts.len()];
        let mut last = None;
        for id in self.graph.ids() {
            let node = self.graph.node(id);
            let Node::Cut { cut, .. } = node else {
                last = None;
                continue;
            };
            let mut values = self.cuts.get(cut).into_iter().flatten();
            let is_first = is_made.get(cut).is_none_or(|is_made| !is_made);
            // Values before the first component of a cut come before its other components.
            let is_there = match is_first {
                true => values.all(|&value| value < id),
                false => last == Some(cut),
            };
            if !is_there {
                return Err(format!(
                    "expected the components of a cut one after another, after all values of the cut, as `Program::cut` makes them, got {node:?} \
                     elsewhere"
                ));
            }
            if let Some(is_made) = is_made.get_mut(cut) {
                *is_made = true;
            }
            last = Some(cut);
        }
        Ok(())
    }

    fn check_results(&self) -> Result<(), String> {
        let count = self.graph.len();
        let is_there = |id: &Id| id.index() < count;
        for output in &self.outputs {
            let (name, labels) = (&output.tensor.name, output.tensor.components.len());
            if labels != output.values.len() {
                return Err(format!(
                    "expected a label for each component of `{name}`, got {labels} of {}",
                    output.values.len()
                ));
            }
        }
        for sum in &self.sums {
            let (name, count) = (&sum.tensor.name, sum.tensor.count);
            if count != sum.values.len() {
                return Err(format!(
                    "expected {count} sums over the batch for each channel of `{name}`, got {}",
                    sum.values.len()
                ));
            }
        }
        let values = self.outputs.iter().flat_map(|output| &output.values);
        let mut values = values
            .chain(self.sums.iter().flat_map(|sum| &sum.values))
            .chain(self.cuts.iter().flatten())
            .chain(&self.row_sums)
            .copied()
            .chain(self.total_summands());
        if !values.all(|id| is_there(&id)) {
            return Err(
                "expected expressions of this program's graph, got one of another graph".to_owned(),
            );
        }
        if self.saved_row_sums > self.row_sums.len() {
            return Err(format!(
                "expected at most {} saved sums, as many as there are, got {}",
                self.row_sums.len(),
                self.saved_row_sums
            ));
        }
        self.check_order_of_results()
    }

    /// Checks that no expression mixes channels and scalar channels, whose numbers differ, but by way of a sum over the row.
    fn check_widths(&self) -> Result<(), String> {
        let widths = self.widths();
        let of = |id: &Id| widths.get(id.index()).copied().flatten();
        let is_one = |values: &mut dyn Iterator<Item = Id>| {
            let mut found = values.filter_map(|id| of(&id));
            let first = found.next();
            found.all(|width| Some(width) == first)
        };
        let mut nodes = self.graph.ids().map(|id| self.graph.node(id));
        let mixed = nodes.find(|node| !is_one(&mut node.operands()));
        if let Some(node) = mixed {
            return Err(format!(
                "expected operands that are all of the channels or all of the scalar channels, got {node:?}: a sum over the row of one of them \
                 may meet the other"
            ));
        }
        if self
            .cuts
            .iter()
            .any(|cut| !is_one(&mut cut.iter().copied()))
        {
            return Err(
                "expected cuts of the channels or of the scalar channels, got one of both"
                    .to_owned(),
            );
        }
        let outputs = self.outputs.iter();
        let outputs =
            outputs.map(|output| (&output.tensor.name, output.tensor.width, &output.values));
        let sums = self.sums.iter();
        let sums = sums.map(|sum| (&sum.tensor.name, sum.tensor.width, &sum.values));
        let values = outputs.chain(sums);
        let values = values.map(|(name, width, values)| (name, width, &values[..]));
        let totals = self.totals.iter().flat_map(|total| {
            let summands = total.summands.iter().map(Option::as_slice);
            let of_widths = Width::ALL.into_iter().zip(summands);
            of_widths.map(|(width, summand)| (&total.name, width, summand))
        });
        for (name, width, values) in values.chain(totals) {
            if values
                .iter()
                .filter_map(of)
                .any(|of_value| of_value != width)
            {
                let [declared, got] = match width {
                    Width::Channels => ["channels", "scalar channels"],
                    Width::Scalars => ["scalar channels", "channels"],
                };
                return Err(format!(
                    "expected values of the {declared} for `{name}`, got values of the {got}"
                ));
            }
        }
        Ok(())
    }

    fn check_order_of_results(&self) -> Result<(), String> {
        let mut given = self.results.clone();
        let mut declared: Vec<Returned> = (0..self.outputs.len()).map(Returned::Output).collect();
        declared.extend((0..self.sums.len()).map(Returned::Sum));
        declared.extend((0..self.totals.len()).map(Returned::Total));
        given.sort_by_key(|result| match *result {
            Returned::Output(at) => (0, at),
            Returned::Sum(at) => (1, at),
            Returned::Total(at) => (2, at),
        });
        if given == declared {
            return Ok(());
        }
        Err(format!(
            "expected each output, each sum over the batch and each total once among the results, got {given:?}"
        ))
    }
}
