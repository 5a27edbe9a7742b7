//! Stages as data: what the interpreter runs where no kernel was compiled.
//!
//! A stage is a list of instructions on *places*. A place is a component of a tensor or a register, and holds
//! values for a block of channels, one vector after the other. A value that is the same for a whole row fills a
//! register too. Instructions are few and do much each: a running sum with all its terms is one of them, so the
//! cost of reading an instruction is shared by many multiplications.

/// A stage.
#[derive(Debug, Default)]
pub struct Code {
    /// The components of tensors that are places. They have the first numbers, in order.
    pub components: Vec<Components>,
    /// The number of registers, whose places follow.
    pub registers: usize,
    /// The number of sums over channels that the stage forms.
    pub row_sums: usize,
    /// The instructions that run once a row, on the first vector of registers.
    pub once: Vec<Op>,
    /// The instructions that run for each block of channels.
    pub each: Vec<Op>,
    /// The terms of all sums.
    pub terms: Vec<Term>,
}

/// The lists of tensors of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum List {
    /// The tensors that it reads.
    Inputs,
    /// The tensors that it writes.
    Outputs,
    /// The parameters that it reads.
    Params,
    /// The sums over the batch to which it adds.
    Sums,
}

/// Consecutive components of a tensor. Each is a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Components {
    /// The list.
    pub list: List,
    /// The number of the tensor in the list.
    pub slot: usize,
    /// The number of the first component.
    pub first: usize,
    /// The number of components.
    pub count: usize,
}

/// The number of a place: components come first, then registers.
pub type PlaceId = u32;

/// An instruction. The first place is the one that it writes.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A constant.
    Constant(PlaceId, f64),
    /// A row sum, by its slot.
    RowSum(PlaceId, usize),
    /// The constant that norms add.
    Eps(PlaceId),
    /// `1 / channels`.
    InvChannels(PlaceId),
    /// `to = the number of channels`, or of scalar channels.
    Count(PlaceId, usize),
    /// The start and the terms from the first number up to the second, in order.
    Sum(PlaceId, Start, u32, u32),
    /// `a b - c`, rounded once.
    MulSub(PlaceId, PlaceId, PlaceId, PlaceId),
    /// A function of two values.
    Binary(Binary, PlaceId, PlaceId, PlaceId),
    /// A function of one value.
    Unary(Unary, PlaceId, PlaceId),
    /// The gate and its slope.
    GateAndSlope(PlaceId, PlaceId, PlaceId),
    /// Adds a value to a sum over channels, by its number.
    AddToRow(usize, PlaceId),
    /// Asks for the block in a later row of an input, by its place and its slot.
    Prefetch(PlaceId, usize),
    /// Copies the first vector of a register to the rest of its block: instructions for a block read all of it.
    Spread(PlaceId),
}

/// The start of a sum.
#[derive(Clone, Copy, Debug)]
pub enum Start<P = PlaceId> {
    /// A value.
    Value(P),
    /// A product, rounded.
    Product(P, P),
}

impl<P> Start<P> {
    /// The start with other places.
    pub fn map<Q>(self, place: impl Fn(P) -> Q) -> Start<Q> {
        match self {
            Self::Value(a) => Start::Value(place(a)),
            Self::Product(a, b) => Start::Product(place(a), place(b)),
        }
    }
}

/// A term of a sum, `+ a b` or `- a b`. The product is not rounded before it is added.
#[derive(Clone, Copy, Debug)]
pub struct Term<P = PlaceId> {
    /// Whether the product is subtracted.
    pub is_negative: bool,
    /// A factor.
    pub a: P,
    /// The other factor.
    pub b: P,
}

impl<P> Term<P> {
    /// The term with other places.
    pub fn map<Q>(self, place: impl Fn(P) -> Q) -> Term<Q> {
        Term {
            is_negative: self.is_negative,
            a: place(self.a),
            b: place(self.b),
        }
    }
}

/// A function of two values.
#[derive(Clone, Copy, Debug)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a b`
    Mul,
    /// `a / b`
    Div,
    /// `a b`, and 0 where `a` is 0
    Damp,
    /// `sqrt(a^2 + b^2)`
    Hypot,
    /// The larger of both.
    Max,
    /// 1 where `a > b`, else 0
    Greater,
}

/// A function of one value.
#[derive(Clone, Copy, Debug)]
pub enum Unary {
    /// `a`
    Copy,
    /// `-a`
    Neg,
    /// The square root.
    Sqrt,
    /// The sine.
    Sin,
    /// The cosine.
    Cos,
    /// e to the power of `a`.
    Exp,
    /// `1 / (1 + exp(-a))`
    Sigmoid,
    /// The derivative of the sigmoid.
    SigmoidSlope,
    /// The gate of the call.
    Gate,
    /// The derivative of the gate.
    GateSlope,
}
