//! From the body of a stage to code, with the operations of compiled stages in their order, so that results
//! are the same bit for bit.

use std::collections::BTreeMap;

use flashcliff_kernels::code::{Binary, Code, Component, List, Start, Term, Unary};
use flashcliff_program::ir::{Function, Id, Node, Program, Uniform};
use flashcliff_program::plan::{Body, Fusion, Packing, Stage, Values};

use super::registers::{self, Draft, Place};

/// Sums are written down with this many terms at the latest: the values that they wait for take registers.
const MAX_WAITING: usize = 8;

pub(super) fn stage(program: &Program, stage: &Stage) -> Code {
    let mut lowering = Lowering {
        body: &stage.body,
        values: Values::new(&stage.body),
        packing: Packing::of(program, stage),
        places: BTreeMap::new(),
        waiting: BTreeMap::new(),
        registers: 0,
        uniforms: 0,
        once: Vec::new(),
        each: Vec::new(),
    };
    lowering.all();
    registers::assign(
        lowering.once,
        lowering.each,
        lowering.uniforms,
        stage.body.row_sums.len(),
    )
}

/// A sum that is not written down yet.
struct Waiting {
    start: Start<Place>,
    terms: Vec<Term<Place>>,
}

struct Lowering<'a> {
    body: &'a Body,
    values: Values<'a>,
    packing: Packing,
    /// Where values are that have been computed.
    places: BTreeMap<Id, Place>,
    /// Sums that are not written down yet, by their variable.
    waiting: BTreeMap<Id, Waiting>,
    registers: usize,
    uniforms: usize,
    once: Vec<Draft>,
    each: Vec<Draft>,
}

impl Lowering<'_> {
    fn all(&mut self) {
        let graph = &self.body.graph;
        for id in graph.ids().filter(|&id| !graph.varies(id)) {
            self.uniform(id);
        }
        for id in graph.ids().filter(|&id| graph.varies(id)) {
            self.statement(id);
            self.sinks(id);
        }
        for id in graph.ids().filter(|&id| !graph.varies(id)) {
            self.sinks(id);
        }
    }

    /// A value that is the same for a row.
    fn uniform(&mut self, id: Id) {
        let to = Place::Uniform(self.uniforms);
        self.uniforms += 1;
        let draft = match self.body.graph.node(id) {
            Node::Constant(bits) => Draft::Constant(to, f64::from_bits(bits)),
            Node::RowSum(slot) => Draft::RowSum(to, slot),
            Node::Uniform(Uniform::Eps) => Draft::Eps(to),
            Node::Uniform(Uniform::InvChannels) => Draft::InvChannels(to),
            node => self.plain(node, to),
        };
        self.once.push(draft);
        self.places.insert(id, to);
    }

    fn register(&mut self) -> Place {
        self.registers += 1;
        Place::Register(self.registers - 1)
    }

    /// Gives a value its place, if it has one of its own.
    fn statement(&mut self, id: Id) {
        let graph = &self.body.graph;
        if graph.node(id).is_leaf() {
            let place = self.component(id);
            self.places.insert(id, place);
            return;
        }
        if !self.values.is_named(id) || self.values.is_paired_slope(id) {
            return;
        }
        if let Some((gate, slope)) = self.values.gate_pair(id) {
            let operand = graph.node(id).operands().next();
            let argument = operand.map(|operand| self.operand(operand));
            let (to, derivative) = (self.register(), self.register());
            self.places.extend([(gate, to), (slope, derivative)]);
            if let Some(argument) = argument {
                self.each
                    .push(Draft::GateAndSlope(to, derivative, argument));
            }
            return;
        }
        if self.values.is_step(id) {
            self.step(id);
            return;
        }
        if self.values.starts_sum(id) {
            let start = match (self.values.fusion(id), graph.node(id)) {
                (None, Node::Mul(a, b)) => Start::Product(self.operand(a), self.operand(b)),
                _ => Start::Value(self.expression(id)),
            };
            let to = match start {
                // The sum goes on where it started.
                Start::Value(place @ Place::Register(_)) => place,
                _ => self.register(),
            };
            self.places.insert(id, to);
            let terms = Vec::new();
            self.waiting.insert(id, Waiting { start, terms });
            return;
        }
        let place = self.expression(id);
        self.places.insert(id, place);
    }

    /// A later step of a running sum.
    fn step(&mut self, id: Id) {
        let variable = self.values.variable(id);
        let Some((fusion, product, _)) = self.values.fusion(id) else {
            return;
        };
        let Node::Mul(a, b) = self.body.graph.node(product) else {
            return;
        };
        let (a, b) = (self.operand(a), self.operand(b));
        let term = match fusion {
            Fusion::NegMulAdd => Term::NegMulAdd(a, b),
            Fusion::MulAdd | Fusion::MulSub => Term::MulAdd(a, b),
        };
        let to = self.places[&variable];
        let start = Start::Value(to);
        let waiting = self.waiting.entry(variable).or_insert(Waiting {
            start,
            terms: Vec::new(),
        });
        waiting.terms.push(term);
        if waiting.terms.len() >= MAX_WAITING {
            self.write_down(variable);
        }
    }

    /// Writes down what waits of a sum.
    fn write_down(&mut self, variable: Id) {
        let Some(Waiting { start, terms }) = self.waiting.remove(&variable) else {
            return;
        };
        let to = self.places[&variable];
        let is_there = matches!(start, Start::Value(place) if place == to);
        if !(is_there && terms.is_empty()) {
            self.each.push(Draft::Sum(to, start, terms));
        }
    }

    /// The place of a value where it is used.
    fn operand(&mut self, id: Id) -> Place {
        let variable = self.values.variable(id);
        if self.values.is_named(id) {
            self.write_down(variable);
        }
        match self.places.get(&variable) {
            Some(&place) => place,
            None => {
                let place = self.expression(id);
                self.places.insert(id, place);
                place
            }
        }
    }

    /// Computes a value into a register.
    fn expression(&mut self, id: Id) -> Place {
        let node = self.body.graph.node(id);
        if let Some((fusion, product, other)) = self.values.fusion(id)
            && let Node::Mul(a, b) = self.body.graph.node(product)
        {
            let (a, b, other) = (self.operand(a), self.operand(b), self.operand(other));
            let to = self.register();
            let start = Start::Value(other);
            self.each.push(match fusion {
                Fusion::MulAdd => Draft::Sum(to, start, vec![Term::MulAdd(a, b)]),
                Fusion::NegMulAdd => Draft::Sum(to, start, vec![Term::NegMulAdd(a, b)]),
                Fusion::MulSub => Draft::MulSub(to, a, b, other),
            });
            return to;
        }
        for operand in node.operands() {
            self.operand(operand);
        }
        let to = self.register();
        let draft = self.plain(node, to);
        self.each.push(draft);
        to
    }

    /// An instruction of operands that have places.
    fn plain(&self, node: Node, to: Place) -> Draft {
        let at = |id: Id| self.places[&self.values.variable(id)];
        let binary = |kind, a, b| Draft::Binary(kind, to, at(a), at(b));
        let unary = |kind, a| Draft::Unary(kind, to, at(a));
        match node {
            Node::Add(a, b) => binary(Binary::Add, a, b),
            Node::Sub(a, b) => binary(Binary::Sub, a, b),
            Node::Mul(a, b) => binary(Binary::Mul, a, b),
            Node::Div(a, b) => binary(Binary::Div, a, b),
            Node::Damp(a, b) => binary(Binary::Damp, a, b),
            Node::Hypot(a, b) => binary(Binary::Hypot, a, b),
            Node::Neg(a) => unary(Unary::Neg, a),
            Node::Call(Function::Sqrt, a) => unary(Unary::Sqrt, a),
            Node::Call(Function::Sigmoid, a) => unary(Unary::Sigmoid, a),
            Node::Call(Function::SigmoidSlope, a) => unary(Unary::SigmoidSlope, a),
            Node::Call(Function::Gate { order: 0 }, a) => unary(Unary::Gate, a),
            Node::Call(Function::Gate { .. }, a) => unary(Unary::GateSlope, a),
            Node::Constant(_)
            | Node::Lane { .. }
            | Node::Param { .. }
            | Node::RowSum(_)
            | Node::Uniform(_)
            | Node::Cut { .. } => {
                unreachable!("a leaf has a place of its own, and stages have no cuts")
            }
        }
    }

    /// The place of an input or a parameter.
    fn component(&self, id: Id) -> Place {
        let component = match self.body.graph.node(id) {
            Node::Param { param, index } => Component {
                list: List::Params,
                slot: param,
                index,
                packed: self.packing.params[param].unwrap_or(0),
            },
            Node::Lane { tensor, component } => Component {
                list: List::Inputs,
                slot: tensor,
                index: component,
                packed: self.packing.sources[tensor].unwrap_or(0),
            },
            node => unreachable!("{node:?} is no operand of a stage"),
        };
        Place::Component(component)
    }

    /// Everything that leaves the stage with this value.
    fn sinks(&mut self, id: Id) {
        let body = self.body;
        for (slot, write) in body.writes.iter().enumerate() {
            for index in (0..write.values.len()).filter(|&index| write.values[index] == id) {
                let to = Place::Component(Component {
                    list: List::Outputs,
                    slot,
                    index,
                    packed: self.packing.targets[slot].unwrap_or(0),
                });
                let from = self.operand(id);
                self.each.push(Draft::Unary(Unary::Copy, to, from));
            }
        }
        for index in (0..body.row_sums.len()).filter(|&index| body.row_sums[index] == id) {
            let from = self.operand(id);
            self.each.push(Draft::AddToRow(index, from));
        }
        for &(slot, index, _) in body.column_sums.iter().filter(|(_, _, value)| *value == id) {
            let to = Place::Component(Component {
                list: List::ParamGrads,
                slot,
                index,
                packed: self.packing.grads[slot].unwrap_or(0),
            });
            let term = self.added(id);
            self.each.push(Draft::Sum(to, Start::Value(to), vec![term]));
        }
    }

    /// A value as a term of a sum over the batch; a product is not rounded before.
    fn added(&mut self, id: Id) -> Term<Place> {
        let graph = &self.body.graph;
        let product = |id: Id, values: &Values<'_>| match graph.node(id) {
            Node::Mul(a, b) if !values.is_named(id) => Some((a, b)),
            _ => None,
        };
        if let Some((a, b)) = product(id, &self.values) {
            return Term::MulAdd(self.operand(a), self.operand(b));
        }
        if let Node::Neg(negated) = graph.node(id)
            && !self.values.is_named(id)
        {
            if let Some((a, b)) = product(negated, &self.values) {
                return Term::NegMulAdd(self.operand(a), self.operand(b));
            }
            return Term::Sub(self.operand(negated));
        }
        Term::Add(self.operand(id))
    }
}
