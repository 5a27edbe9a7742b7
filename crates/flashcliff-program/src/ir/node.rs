//! The nodes of an expression graph.

/// A node of a [`Graph`](crate::ir::Graph), by position. Operands always come before their users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(crate) u32);

impl Id {
    /// The position of the node in its graph.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The lanes of a row: a program may have two kinds, each with its own number of channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// The channels.
    #[default]
    Channels,
    /// Scalar channels beside them, as transformers have them beside the channels of multivectors.
    Scalars,
}

impl Width {
    /// Both of them, by [index](Self::index).
    pub const ALL: [Self; 2] = [Self::Channels, Self::Scalars];

    /// The place in arrays with an element for each width.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// A value that is one number for a whole call of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Uniform {
    /// The epsilon of a normalisation.
    Eps,
    /// One over the number of channels of a row.
    InvChannels,
    /// The number of channels of a row that lanes of a width have.
    Count(Width),
}

/// A function of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Function {
    /// The square root.
    Sqrt,
    /// The sine. Kernels have it for angles up to some 2^17 (f32) or 2^27 (f64), and give NaN beyond.
    Sin,
    /// The cosine, of the same angles.
    Cos,
    /// e to the power of the argument.
    Exp,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The derivative of [`Self::Sigmoid`].
    SigmoidSlope,
    /// The derivative of order `order` of the gate that the call chooses at run time.
    Gate {
        /// The order: 0 for the gate itself, 1 for its slope, 2 for its curvature.
        order: u8,
    },
}

/// One value of an expression graph.
///
/// A *lane* is one (batch, channel) pair and a *row* all channels of one batch element: `Lane` and
/// `Cut` differ from lane to lane, `Param` from channel to channel, `RowSum` and `RowValue` from row to row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A constant, by the bits of an `f64`.
    Constant(u64),
    /// A component of a lane input.
    Lane {
        /// Which input.
        tensor: usize,
        /// Which of its components.
        component: usize,
    },
    /// An element of a per-channel parameter.
    Param {
        /// Which parameter.
        param: usize,
        /// Which of its elements.
        index: usize,
    },
    /// A value that is the same for all lanes of a call.
    Uniform(Uniform),
    /// A sum over the channels of a row; [`Program::row_sums`](crate::ir::Program) holds the summand.
    RowSum(usize),
    /// A number that the caller gives for each row.
    RowValue(usize),
    /// A component of a cut; [`Program::cuts`](crate::ir::Program) holds its definition.
    Cut {
        /// Which cut.
        cut: usize,
        /// Which of its components.
        component: usize,
    },
    /// `a + b`
    Add(Id, Id),
    /// `a - b`
    Sub(Id, Id),
    /// `a * b`
    Mul(Id, Id),
    /// `a / b`
    Div(Id, Id),
    /// `a b`, or 0 if `a` is 0, whatever `b` is. A closed gate lets nothing through, not even an infinity.
    Damp(Id, Id),
    /// `sqrt(a^2 + b^2)`; no square overflows or underflows.
    Hypot(Id, Id),
    /// The larger of both; `b` if they are equal. NaN if one of them is.
    Max(Id, Id),
    /// 1 if `a > b`, else 0. Its derivative is 0.
    Greater(Id, Id),
    /// `-a`
    Neg(Id),
    /// `f(a)`
    Call(Function, Id),
}

impl Node {
    /// The operands, in order.
    pub fn operands(&self) -> impl Iterator<Item = Id> {
        let (a, b) = match *self {
            Node::Add(a, b)
            | Node::Sub(a, b)
            | Node::Mul(a, b)
            | Node::Div(a, b)
            | Node::Damp(a, b)
            | Node::Hypot(a, b)
            | Node::Max(a, b)
            | Node::Greater(a, b) => (Some(a), Some(b)),
            Node::Neg(a) | Node::Call(_, a) => (Some(a), None),
            _ => (None, None),
        };
        a.into_iter().chain(b)
    }

    /// The node with other operands, which `f` gives for each.
    #[must_use]
    pub fn with_operands(self, mut f: impl FnMut(Id) -> Id) -> Self {
        match self {
            Self::Add(a, b) => Self::Add(f(a), f(b)),
            Self::Sub(a, b) => Self::Sub(f(a), f(b)),
            Self::Mul(a, b) => Self::Mul(f(a), f(b)),
            Self::Div(a, b) => Self::Div(f(a), f(b)),
            Self::Damp(a, b) => Self::Damp(f(a), f(b)),
            Self::Hypot(a, b) => Self::Hypot(f(a), f(b)),
            Self::Max(a, b) => Self::Max(f(a), f(b)),
            Self::Greater(a, b) => Self::Greater(f(a), f(b)),
            Self::Neg(a) => Self::Neg(f(a)),
            Self::Call(function, a) => Self::Call(function, f(a)),
            leaf => leaf,
        }
    }

    /// Whether the node has no operands.
    pub fn is_leaf(&self) -> bool {
        self.operands().next().is_none()
    }
}
