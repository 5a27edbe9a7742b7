//! The digest of a program: the key by which kernels are found.

use std::fmt;

use siphasher::sip128::{Hasher128, SipHasher24};

use super::node::{Function, Id, Node, Uniform, Width};
use super::program::{Argument, Program, Returned};

/// 128 bits that stand for what a program computes.
///
/// Two programs with one digest are equal but for their names, labels and formulas: they, and their derivatives, compute
/// the same numbers, bit for bit. The converse does not hold: programs that state one formula in two orders have two
/// digests. Expressions that no output needs count, because [`differentiate`](super::differentiate) may use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u128);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Program {
    /// The digest of what the program computes.
    pub fn digest(&self) -> Digest {
        let mut text = Text(b"flashcliff program 2".to_vec());
        text.number(self.graph.len());
        for id in self.graph.ids() {
            text.node(self.graph.node(id));
        }
        text.number(self.inputs.len());
        for input in &self.inputs {
            text.number(input.components.len());
        }
        text.number(self.params.len());
        for param in &self.params {
            text.number(param.count);
        }
        text.number(self.arguments.len());
        for argument in &self.arguments {
            text.numbers(match *argument {
                Argument::Input(at) => [0, at],
                Argument::Param(at) => [1, at],
                Argument::RowValue(at) => [2, at],
            });
        }
        text.number(self.outputs.len());
        for output in &self.outputs {
            text.values(&output.values);
        }
        text.number(self.cuts.len());
        for cut in &self.cuts {
            text.values(cut);
        }
        text.values(&self.row_sums);
        text.number(self.saved_row_sums);
        text.number(self.sums.len());
        for sum in &self.sums {
            text.values(&sum.values);
        }
        text.number(self.results.len());
        for result in &self.results {
            text.numbers(match *result {
                Returned::Output(at) => [0, at],
                Returned::Sum(at) => [1, at],
                Returned::Total(at) => [2, at],
            });
        }
        text.scalars(self);
        text.totals(self);
        let mut hasher = SipHasher24::new();
        std::hash::Hasher::write(&mut hasher, &text.0);
        Digest(hasher.finish128().as_u128())
    }
}

/// The bytes that are hashed. Every number has one width, and every list its length before it.
struct Text(Vec<u8>);

impl Text {
    fn number(&mut self, number: usize) {
        self.0.extend((number as u64).to_le_bytes());
    }

    fn numbers<const N: usize>(&mut self, numbers: [usize; N]) {
        for number in numbers {
            self.number(number);
        }
    }

    fn values(&mut self, ids: &[Id]) {
        self.number(ids.len());
        for id in ids {
            self.number(id.index());
        }
    }

    /// The tensors of scalar channels. Programs without them have the digests that they had before there were any.
    fn scalars(&mut self, program: &Program) {
        let all = program.tensor_widths().enumerate();
        for (at, _) in all.filter(|(_, width)| *width == Width::Scalars) {
            self.numbers([16, at]);
        }
    }

    /// The totals of rows. Programs without them have the digests that they had before there were any.
    fn totals(&mut self, program: &Program) {
        for total in &program.totals {
            let place = |summand: Option<Id>| summand.map_or(0, |id| 1 + id.index());
            let [channels, scalars] = total.summands.map(place);
            self.numbers([17, channels, scalars]);
        }
    }

    fn node(&mut self, node: Node) {
        let at = Id::index;
        match node {
            Node::Constant(bits) => {
                self.number(0);
                self.0.extend(bits.to_le_bytes());
            }
            Node::Lane { tensor, component } => self.numbers([1, tensor, component]),
            Node::Param { param, index } => self.numbers([2, param, index]),
            Node::Uniform(Uniform::Eps) => self.numbers([3, 0]),
            Node::Uniform(Uniform::InvChannels) => self.numbers([3, 1]),
            Node::Uniform(Uniform::Count(width)) => self.numbers([3, 2 + width.index()]),
            Node::RowSum(index) => self.numbers([4, index]),
            Node::RowValue(index) => self.numbers([16, index]),
            Node::Cut { cut, component } => self.numbers([5, cut, component]),
            Node::Add(a, b) => self.numbers([6, at(a), at(b)]),
            Node::Sub(a, b) => self.numbers([7, at(a), at(b)]),
            Node::Mul(a, b) => self.numbers([8, at(a), at(b)]),
            Node::Div(a, b) => self.numbers([9, at(a), at(b)]),
            Node::Damp(a, b) => self.numbers([10, at(a), at(b)]),
            Node::Hypot(a, b) => self.numbers([11, at(a), at(b)]),
            Node::Max(a, b) => self.numbers([14, at(a), at(b)]),
            Node::Greater(a, b) => self.numbers([15, at(a), at(b)]),
            Node::Neg(a) => self.numbers([12, at(a)]),
            Node::Call(function, a) => {
                let (function, order) = match function {
                    Function::Sqrt => (0, 0),
                    Function::Sigmoid => (1, 0),
                    Function::SigmoidSlope => (2, 0),
                    Function::Gate { order } => (3, usize::from(order)),
                    Function::Sin => (4, 0),
                    Function::Cos => (5, 0),
                    Function::Exp => (6, 0),
                };
                self.numbers([13, function, order, at(a)]);
            }
        }
    }
}
