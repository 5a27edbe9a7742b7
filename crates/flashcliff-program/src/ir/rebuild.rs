//! Copies of programs in which some nodes are replaced, and results or arguments are left out.

use super::graph::Graph;
use super::node::{Id, Node, Uniform, Width};
use super::program::{Argument, BatchSum, Output, Program, Returned, Total};
use super::shallow::Shallow;

impl Program {
    /// A copy with the results that `keeps` names, and with all that they need. `replace` may give another value for a node,
    /// whose operands are already the operands of the copy; `None` keeps the node. Constants are folded again, through sums and cuts too.
    /// Arguments stay, whether or not the copy reads them.
    ///
    /// # Panics
    /// If the program has saved sums, whose definitions may be missing.
    pub fn rebuilt(
        &self,
        keeps: impl Fn(Returned) -> bool,
        replace: impl FnMut(&mut Graph, Node) -> Option<Id>,
    ) -> Self {
        self.copied(keeps, replace, None)
    }

    /// A copy whose row sums need no other row sums, as far as they can be written so.
    ///
    /// # Panics
    /// If the program has saved sums.
    #[must_use]
    pub fn with_sums_at_once(&self) -> Self {
        let copy = self.copied(|_| true, |_, _| None, Some(Shallow::default()));
        // Values that only the former sums needed are left out.
        copy.rebuilt(|_| true, |_, _| None)
    }

    fn copied(
        &self,
        keeps: impl Fn(Returned) -> bool,
        mut replace: impl FnMut(&mut Graph, Node) -> Option<Id>,
        shallow: Option<Shallow>,
    ) -> Self {
        assert_eq!(self.saved_row_sums, 0, "saved sums cannot be rebuilt");
        let kept = self.with_results(keeps);
        let mut copy = Copy {
            from: &kept,
            to: Self {
                name: self.name.clone(),
                formula: self.formula.clone(),
                inputs: self.inputs.clone(),
                params: self.params.clone(),
                row_values: self.row_values.clone(),
                arguments: self.arguments.clone(),
                ..Self::default()
            },
            widths: kept.widths(),
            ids: vec![None; self.graph.len()],
            cuts: vec![None; self.cuts.len()],
            shallow,
        };
        for id in kept.graph.reachable(kept.roots()) {
            copy.node(id, &mut replace);
        }
        copy.results();
        copy.to
    }

    /// The program with fewer results.
    fn with_results(&self, keeps: impl Fn(Returned) -> bool) -> Self {
        let mut program = self.clone();
        (program.outputs, program.sums, program.totals) = <_>::default();
        program.results = Vec::new();
        for &result in self.results.iter().filter(|result| keeps(**result)) {
            match result {
                Returned::Output(at) => {
                    let Output { tensor, values } = self.outputs[at].clone();
                    program.output_of(tensor.width, &tensor.name, tensor.components, values);
                }
                Returned::Sum(at) => {
                    let BatchSum { tensor, values } = self.sums[at].clone();
                    program.sum_of(tensor.width, &tensor.name, values);
                }
                Returned::Total(at) => {
                    let Total { name, summands } = &self.totals[at];
                    program.total(name, *summands);
                }
            }
        }
        program
    }

    /// Whether a result needs an argument.
    pub fn reads(&self, argument: Argument) -> bool {
        let mut nodes = self.graph.reachable(self.roots()).into_iter();
        nodes.any(|id| match self.graph.node(id) {
            Node::Lane { tensor, .. } => argument == Argument::Input(tensor),
            Node::Param { param, .. } => argument == Argument::Param(param),
            Node::RowValue(at) => argument == Argument::RowValue(at),
            _ => false,
        })
    }

    /// The argument whose shape says how many channels of a width there are, if results need their number but the
    /// numbers of no tensor with these channels: the first such argument.
    pub fn reads_count_from(&self, width: Width) -> Option<Argument> {
        let has_width = |argument: &Argument| match *argument {
            Argument::Input(at) => self.inputs[at].width == width,
            Argument::Param(at) => self.params[at].width == width,
            Argument::RowValue(_) => false,
        };
        let own = || self.arguments.iter().copied().filter(has_width);
        let is_read = own().any(|argument| self.reads(argument));
        own().next().filter(|_| !is_read && self.needs_count(width))
    }

    /// Whether results depend on the number of channels of a width.
    fn needs_count(&self, width: Width) -> bool {
        let of_results = self.outputs.iter().map(|output| output.tensor.width);
        let of_sums = self.sums.iter().map(|sum| sum.tensor.width);
        let mut of_totals = self
            .totals
            .iter()
            .map(|total| total.summands[width.index()]);
        let counts = |id: Id| match self.graph.node(id) {
            Node::Uniform(Uniform::Count(of)) => of == width,
            // A sum of numbers that are the same for all channels.
            Node::Uniform(Uniform::InvChannels) | Node::RowSum(_) => width == Width::Channels,
            _ => false,
        };
        of_results.chain(of_sums).any(|of| of == width)
            || of_totals.any(|summand| summand.is_some())
            || self.graph.reachable(self.roots()).into_iter().any(counts)
    }

    /// A copy without the arguments that no result needs, among those that `may_go` names.
    #[must_use]
    pub fn without_unread(&self, may_go: impl Fn(Argument) -> bool) -> Self {
        let stays = |argument: &Argument| !may_go(*argument) || self.reads(*argument);
        let mut copy = self.rebuilt(|_| true, |_, _| None);
        (copy.inputs, copy.params, copy.row_values) = <_>::default();
        copy.arguments = Vec::new();
        let mut numbers = Numbers {
            inputs: vec![0; self.inputs.len()],
            params: vec![0; self.params.len()],
            row_values: vec![0; self.row_values.len()],
        };
        for &argument in self.arguments.iter().filter(|argument| stays(argument)) {
            match argument {
                Argument::Input(tensor) => {
                    numbers.inputs[tensor] = copy.inputs.len();
                    copy.arguments.push(Argument::Input(copy.inputs.len()));
                    copy.inputs.push(self.inputs[tensor].clone());
                }
                Argument::Param(param) => {
                    numbers.params[param] = copy.params.len();
                    copy.arguments.push(Argument::Param(copy.params.len()));
                    copy.params.push(self.params[param].clone());
                }
                Argument::RowValue(at) => {
                    numbers.row_values[at] = copy.row_values.len();
                    copy.arguments
                        .push(Argument::RowValue(copy.row_values.len()));
                    copy.row_values.push(self.row_values[at].clone());
                }
            }
        }
        // Operands keep their order, so the graph folds to itself.
        copy.rebuilt(
            |_| true,
            |graph, node| match node {
                Node::Lane { tensor, component } => {
                    Some(graph.lane(numbers.inputs[tensor], component))
                }
                Node::Param { param, index } => Some(graph.param(numbers.params[param], index)),
                Node::RowValue(at) => Some(graph.row_value(numbers.row_values[at])),
                _ => None,
            },
        )
    }

    /// The inputs whose zeros make every sum over the batch zero. `None` if some sum does not vanish with all inputs.
    ///
    /// A kernel in which some threads may have no row reads zeros there. Gradients are linear in the gradients of the results, which come
    /// last, so zeros are asked of as few inputs as possible: a program may divide by the others.
    pub fn vanishes_from(&self) -> Option<Vanishing> {
        let mut pure = self.clone();
        pure.saved_row_sums = 0;
        let vanishes = |from: Vanishing| {
            let sums = |result| matches!(result, Returned::Sum(_));
            let with_zeros = pure.rebuilt(sums, |graph, node| match node {
                Node::Lane { tensor, .. } if tensor >= from.inputs => Some(graph.constant(0.0)),
                Node::RowValue(at) if at >= from.row_values => Some(graph.constant(0.0)),
                _ => None,
            });
            let mut values = with_zeros.sums.iter().flat_map(|sum| &sum.values);
            values.all(|&value| with_zeros.graph.constant_value(value) == Some(0.0))
        };
        // The first of each kind among the arguments from a place on.
        let first = |place: usize| {
            let mut from = Vanishing {
                inputs: self.inputs.len(),
                row_values: self.row_values.len(),
            };
            for argument in &self.arguments[place..] {
                match *argument {
                    Argument::Input(at) => from.inputs = from.inputs.min(at),
                    Argument::RowValue(at) => from.row_values = from.row_values.min(at),
                    Argument::Param(_) => {}
                }
            }
            from
        };
        let mut all = (0..=self.arguments.len()).rev().map(first);
        all.find(|&from| vanishes(from))
    }
}

/// The first lane input and the first row value from which on a thread without a row reads zeros, so that it adds nothing to sums over the
/// batch. The numbers of inputs and of row values if it reads none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vanishing {
    /// The place of the first lane input.
    pub inputs: usize,
    /// The place of the first row value.
    pub row_values: usize,
}

/// The new numbers of arguments.
struct Numbers {
    inputs: Vec<usize>,
    params: Vec<usize>,
    row_values: Vec<usize>,
}

struct Copy<'a> {
    from: &'a Program,
    to: Program,
    /// The lanes of each node.
    widths: Vec<Option<Width>>,
    /// The value that stands for each node.
    ids: Vec<Option<Id>>,
    /// The new number of each cut, once a component of it is read.
    cuts: Vec<Option<usize>>,
    /// Where sums become sums that need no others.
    shallow: Option<Shallow>,
}

impl Copy<'_> {
    fn node(&mut self, id: Id, replace: &mut impl FnMut(&mut Graph, Node) -> Option<Id>) {
        let from = self.from;
        let new = match from.graph.node(id) {
            Node::RowSum(index) => {
                let of = from.row_sums[index];
                let (summand, width) = (self.of(of), self.widths[of.index()]);
                match self.is_zero(summand) {
                    true => summand,
                    // A lane of scalar channels may have become a number.
                    false if width == Some(Width::Scalars) && !self.to.graph.varies(summand) => {
                        self.to.row_sum_of(Width::Scalars, summand)
                    }
                    false => self.row_sum(summand),
                }
            }
            Node::Cut { cut, component } => self.cut(cut, component),
            node => {
                let node = node.with_operands(|operand| self.of(operand));
                let replaced = replace(&mut self.to.graph, node);
                replaced.unwrap_or_else(|| self.to.graph.fold(node))
            }
        };
        self.ids[id.index()] = Some(new);
    }

    /// The value that stands for a node, which comes before its users.
    fn of(&self, id: Id) -> Id {
        match self.ids[id.index()] {
            Some(new) => new,
            None => unreachable!("an operand comes before its users"),
        }
    }

    fn is_zero(&self, id: Id) -> bool {
        self.to.graph.constant_value(id) == Some(0.0)
    }

    fn row_sum(&mut self, summand: Id) -> Id {
        let shallow = self.shallow.as_mut();
        let at_once = shallow.and_then(|shallow| shallow.sum(&mut self.to, summand));
        at_once.unwrap_or_else(|| self.own_row_sum(summand))
    }

    /// A sum over a row whose factors were taken out when the program was written.
    fn own_row_sum(&mut self, summand: Id) -> Id {
        let known = self.to.row_sums.iter().position(|&known| known == summand);
        let index = known.unwrap_or_else(|| {
            self.to.row_sums.push(summand);
            self.to.row_sums.len() - 1
        });
        self.to.graph.intern(Node::RowSum(index))
    }

    /// A component of a cut; its value where all lanes share it.
    fn cut(&mut self, cut: usize, component: usize) -> Id {
        let values = &self.from.cuts[cut];
        let value = self.of(values[component]);
        if !self.to.graph.varies(value) {
            return value;
        }
        let number = self.cuts[cut].unwrap_or_else(|| {
            let values = values.iter().map(|&id| self.of(id)).collect();
            self.to.cuts.push(values);
            self.to.cuts.len() - 1
        });
        self.cuts[cut] = Some(number);
        self.to.graph.intern(Node::Cut {
            cut: number,
            component,
        })
    }

    fn results(&mut self) {
        for &result in &self.from.results {
            match result {
                Returned::Output(at) => {
                    let Output { tensor, values } = &self.from.outputs[at];
                    let values = values.iter().map(|&id| self.of(id)).collect();
                    let components = tensor.components.clone();
                    self.to
                        .output_of(tensor.width, &tensor.name, components, values);
                }
                Returned::Sum(at) => {
                    let BatchSum { tensor, values } = &self.from.sums[at];
                    let values = values.iter().map(|&id| self.of(id)).collect();
                    self.to.sum_of(tensor.width, &tensor.name, values);
                }
                Returned::Total(at) => {
                    let Total { name, summands } = &self.from.totals[at];
                    let summand = |id: &Id| Some(self.of(*id)).filter(|&id| !self.is_zero(id));
                    let summands = summands.map(|id| id.as_ref().and_then(summand));
                    self.to.total(name, summands);
                }
            }
        }
    }
}
