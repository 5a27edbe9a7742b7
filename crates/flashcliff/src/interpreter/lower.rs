//! From the body of a stage to code, with the operations of compiled stages in their order, so that results
//! are the same bit for bit.

use std::collections::BTreeMap;

use flashcliff_kernels::code::{Binary, Code, List, Start, Term, Unary};
use flashcliff_program::ir::{Function, Id, Node, Uniform};
use flashcliff_program::plan::{Body, Fusion, Source, Stage, Values};

use super::registers::{self, Component, Draft, Place};

/// Sums are written down with this many terms at the latest: the values that they wait for take registers.
const MAX_WAITING: usize = 16;

pub(super) fn stage(stage: &Stage) -> Code {
    let mut lowering = Lowering {
        body: &stage.body,
        values: Values::new(&stage.body),
        places: BTreeMap::new(),
        waiting: BTreeMap::new(),
        sinks: sinks(&stage.body),
        ones: None,
        registers: 0,
        uniforms: 0,
        once: Vec::new(),
        each: Vec::new(),
    };
    lowering.all();
    let in_memory = |slot: usize| matches!(stage.sources[slot], Source::Input(_));
    registers::assign(
        in_memory,
        lowering.once,
        lowering.each,
        stage.body.row_sums.len(),
    )
}

/// A use of a value outside the stage.
enum Sink {
    /// A component of a tensor that the stage writes: slot, index.
    Output(usize, usize),
    /// A summand of a row sum.
    RowSum(usize),
    /// A summand of a sum over the batch: slot, index.
    Sum(usize, usize),
}

fn sinks(body: &Body) -> BTreeMap<Id, Vec<Sink>> {
    let mut sinks: BTreeMap<Id, Vec<Sink>> = BTreeMap::new();
    for (slot, write) in body.writes.iter().enumerate() {
        for (index, &id) in write.values.iter().enumerate() {
            sinks.entry(id).or_default().push(Sink::Output(slot, index));
        }
    }
    for (index, &id) in body.row_sums.iter().enumerate() {
        sinks.entry(id).or_default().push(Sink::RowSum(index));
    }
    for &(slot, index, id) in &body.sums {
        sinks.entry(id).or_default().push(Sink::Sum(slot, index));
    }
    sinks
}

/// A sum that is not written down yet.
struct Waiting {
    start: Start<Place>,
    terms: Vec<Term<Place>>,
}

struct Lowering<'a> {
    body: &'a Body,
    values: Values<'a>,
    /// Where values are that have been computed.
    places: BTreeMap<Id, Place>,
    /// Sums that are not written down yet, by their variable.
    waiting: BTreeMap<Id, Waiting>,
    /// The values that leave the stage and are not written yet.
    sinks: BTreeMap<Id, Vec<Sink>>,
    /// Ones, by which values that are no products are multiplied in sums.
    ones: Option<Place>,
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
            Node::Uniform(Uniform::Count(width)) => Draft::Count(to, width.index()),
            node => self.plain(node, to),
        };
        self.once.push(draft);
        self.places.insert(id, to);
    }

    fn register(&mut self) -> Place {
        self.registers += 1;
        Place::Register(self.registers - 1)
    }

    /// Gives a value its own place, if it has one.
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
        let term = Term {
            is_negative: fusion == Fusion::NegMulAdd,
            a: self.operand(a),
            b: self.operand(b),
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
        if let Some(place) = self.place(id) {
            return place;
        }
        // Values that are used once may be nested as deep as a program is long: no recursion.
        let mut pending = vec![(id, self.operands(id).into_iter())];
        while let Some((own, left)) = pending.last_mut() {
            if let Some(next) = left.next() {
                if self.place(next).is_none() {
                    pending.push((next, self.operands(next).into_iter()));
                }
                continue;
            }
            let own = *own;
            let place = self.compute(own);
            self.places.insert(own, place);
            pending.pop();
        }
        self.places[&self.values.variable(id)]
    }

    /// The place that a value has where it is used, after what waits of its sum.
    fn place(&mut self, id: Id) -> Option<Place> {
        let variable = self.values.variable(id);
        if self.values.is_named(id) {
            self.write_down(variable);
        }
        self.places.get(&variable).copied()
    }

    /// Computes a value into a register.
    fn expression(&mut self, id: Id) -> Place {
        for operand in self.operands(id) {
            self.operand(operand);
        }
        self.compute(id)
    }

    /// The product of two values in a sum with a third, if a value is that.
    fn fused(&self, id: Id) -> Option<(Fusion, [Id; 3])> {
        let (fusion, product, other) = self.values.fusion(id)?;
        match self.body.graph.node(product) {
            Node::Mul(a, b) => Some((fusion, [a, b, other])),
            _ => None,
        }
    }

    /// The values that a value is computed from.
    fn operands(&self, id: Id) -> Vec<Id> {
        match self.fused(id) {
            Some((_, operands)) => operands.to_vec(),
            None => self.body.graph.node(id).operands().collect(),
        }
    }

    /// Computes a value, whose operands have places, into a register.
    fn compute(&mut self, id: Id) -> Place {
        let to = self.register();
        let draft = match self.fused(id) {
            None => self.plain(self.body.graph.node(id), to),
            Some((fusion, operands)) => {
                let at = |id: Id| self.places[&self.values.variable(id)];
                let [a, b, other] = operands.map(at);
                let is_negative = fusion == Fusion::NegMulAdd;
                match fusion {
                    Fusion::MulSub => Draft::MulSub(to, a, b, other),
                    Fusion::MulAdd | Fusion::NegMulAdd => {
                        let term = Term { is_negative, a, b };
                        Draft::Sum(to, Start::Value(other), vec![term])
                    }
                }
            }
        };
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
            Node::Max(a, b) => binary(Binary::Max, a, b),
            Node::Greater(a, b) => binary(Binary::Greater, a, b),
            Node::Neg(a) => unary(Unary::Neg, a),
            Node::Call(Function::Sqrt, a) => unary(Unary::Sqrt, a),
            Node::Call(Function::Sin, a) => unary(Unary::Sin, a),
            Node::Call(Function::Cos, a) => unary(Unary::Cos, a),
            Node::Call(Function::Exp, a) => unary(Unary::Exp, a),
            Node::Call(Function::Sigmoid, a) => unary(Unary::Sigmoid, a),
            Node::Call(Function::SigmoidSlope, a) => unary(Unary::SigmoidSlope, a),
            Node::Call(Function::Gate { order: 0 }, a) => unary(Unary::Gate, a),
            Node::Call(Function::Gate { order: 1 }, a) => unary(Unary::GateSlope, a),
            Node::Call(Function::Gate { order }, _) => {
                unreachable!("kernels have no derivative of order {order} of a gate")
            }
            Node::Constant(_)
            | Node::Lane { .. }
            | Node::Param { .. }
            | Node::RowSum(_)
            | Node::RowValue(_)
            | Node::Uniform(_)
            | Node::Cut { .. } => {
                unreachable!("a leaf has a place of its own, and stages have no cuts or row values")
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
            },
            Node::Lane { tensor, component } => Component {
                list: List::Inputs,
                slot: tensor,
                index: component,
            },
            node => unreachable!("{node:?} is no operand of a stage"),
        };
        Place::Component(component)
    }

    /// Everything that leaves the stage with this value.
    fn sinks(&mut self, id: Id) {
        for sink in self.sinks.remove(&id).unwrap_or_default() {
            let draft = match sink {
                Sink::Output(slot, index) => {
                    let to = Place::Component(Component {
                        list: List::Outputs,
                        slot,
                        index,
                    });
                    Draft::Unary(Unary::Copy, to, self.operand(id))
                }
                Sink::RowSum(index) => Draft::AddToRow(index, self.operand(id)),
                Sink::Sum(slot, index) => {
                    let to = Place::Component(Component {
                        list: List::Sums,
                        slot,
                        index,
                    });
                    let term = self.added(id);
                    Draft::Sum(to, Start::Value(to), vec![term])
                }
            };
            self.each.push(draft);
        }
    }

    /// A value as a term of a sum over the batch; a product is not rounded before.
    fn added(&mut self, id: Id) -> Term<Place> {
        let graph = &self.body.graph;
        let product = |id: Id, values: &Values<'_>| match graph.node(id) {
            Node::Mul(a, b) if !values.is_named(id) => Some((a, b)),
            _ => None,
        };
        let (is_negative, id) = match graph.node(id) {
            Node::Neg(negated) if !self.values.is_named(id) => (true, negated),
            _ => (false, id),
        };
        let (a, b) = match product(id, &self.values) {
            Some((a, b)) => (self.operand(a), self.operand(b)),
            None => (self.operand(id), self.ones()),
        };
        Term { is_negative, a, b }
    }

    fn ones(&mut self) -> Place {
        if let Some(ones) = self.ones {
            return ones;
        }
        let to = Place::Uniform(self.uniforms);
        self.uniforms += 1;
        self.once.push(Draft::Constant(to, 1.0));
        self.ones = Some(to);
        to
    }
}
