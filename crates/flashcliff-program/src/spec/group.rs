//! Groups of operators, which a build compiles or leaves out together.

/// A group of operators. Operators that a build leaves out are interpreted on the CPU, with the same results, slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Gated and steerable products, gates, norms and involutions: the operators of layers. Every build compiles them.
    Layers,
    /// Products without weights, and the sandwich product.
    PlainProducts,
    /// The programs around the matrix products of the fully connected product.
    FullyConnected,
}

impl Group {
    /// All groups.
    pub const ALL: [Self; 3] = [Self::Layers, Self::PlainProducts, Self::FullyConnected];

    /// The cargo feature that adds the group to a build, if not every build has it.
    pub fn feature(self) -> Option<&'static str> {
        match self {
            Self::Layers => None,
            Self::PlainProducts => Some("plain-products"),
            Self::FullyConnected => Some("fully-connected"),
        }
    }
}
