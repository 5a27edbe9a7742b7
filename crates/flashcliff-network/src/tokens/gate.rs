//! Gated nonlinearities.

use super::compiled::operator;
use super::programs::gate;
use super::{Channels, GateFunction, Geometry, Lanes};
use crate::Error;

impl Lanes {
    /// Multivectors times a function of their scalar blade, and a function of scalars: the functions are given in this order.
    ///
    /// Source: GATr (arXiv 2305.18415, section 3).
    ///
    /// # Errors
    /// [`Error::Geometry`] for channels of [vectors](Geometry::slim).
    pub fn gated(
        geometry: Geometry,
        channels: Channels,
        functions: [GateFunction; 2],
    ) -> Result<Self, Error> {
        if channels.multivectors > 0 {
            geometry.check_multivectors("a gate by the scalar blade")?;
        }
        let algebra = geometry.algebra;
        let p = gate::gated(algebra.cayley(), channels.kinds(), functions);
        Self::new(operator(algebra, &p)?, geometry.blades(), channels)
    }
}
