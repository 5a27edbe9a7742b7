//! Stages as data: what the interpreter runs where no kernel was compiled.
//!
//! A stage is a list of instructions on *places*. A place is a component of a tensor, a register that holds
//! a value for a block of channels, or a value that is the same for a whole row. Instructions are few and do
//! much each: a running sum with all its terms is one of them, so what it costs to read an instruction is
//! shared by many multiplications.

/// A stage.
#[derive(Debug, Default)]
pub struct Code {
    /// The places of components of tensors; instructions name them by number.
    pub components: Vec<Component>,
    /// How many places follow that hold a value for a block of channels.
    pub registers: usize,
    /// How many places follow that hold a value for a row.
    pub uniforms: usize,
    /// How many sums over channels the stage forms.
    pub row_sums: usize,
    /// What is computed once a row, on values for a row.
    pub once: Vec<Op>,
    /// What is computed for each block of channels.
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
    /// The gradients of parameters to which it adds.
    ParamGrads,
}

/// A component of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Component {
    /// The list.
    pub list: List,
    /// The number of the tensor in the list.
    pub slot: usize,
    /// The number of the component.
    pub index: usize,
    /// The components of a packed tensor; 0 for one that is not.
    pub packed: usize,
}

/// The number of a place: components come first, then registers, then values for a row.
pub type PlaceId = u32;

/// An instruction. The first place is the one that it writes.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A constant.
    Constant(PlaceId, f64),
    /// A row sum, by its slot.
    RowSum(PlaceId, usize),
    /// What norms add.
    Eps(PlaceId),
    /// `1 / channels`.
    InvChannels(PlaceId),
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
}

/// What a sum starts with.
#[derive(Clone, Copy, Debug)]
pub enum Start<P = PlaceId> {
    /// A value.
    Value(P),
    /// A product, rounded.
    Product(P, P),
}

impl<P> Start<P> {
    /// The same of other places.
    pub fn map<Q>(self, place: impl Fn(P) -> Q) -> Start<Q> {
        match self {
            Self::Value(a) => Start::Value(place(a)),
            Self::Product(a, b) => Start::Product(place(a), place(b)),
        }
    }
}

/// A term of a sum. Products are not rounded before they are added.
#[derive(Clone, Copy, Debug)]
pub enum Term<P = PlaceId> {
    /// `+ a b`
    MulAdd(P, P),
    /// `- a b`
    NegMulAdd(P, P),
    /// `+ a`
    Add(P),
    /// `- a`
    Sub(P),
}

impl<P> Term<P> {
    /// The same of other places.
    pub fn map<Q>(self, place: impl Fn(P) -> Q) -> Term<Q> {
        match self {
            Self::MulAdd(a, b) => Term::MulAdd(place(a), place(b)),
            Self::NegMulAdd(a, b) => Term::NegMulAdd(place(a), place(b)),
            Self::Add(a) => Term::Add(place(a)),
            Self::Sub(a) => Term::Sub(place(a)),
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
    /// `1 / (1 + exp(-a))`
    Sigmoid,
    /// The derivative of the sigmoid.
    SigmoidSlope,
    /// The gate of the call.
    Gate,
    /// The derivative of the gate.
    GateSlope,
}
