//! The signed volume model.

use candle_core::{Result, Tensor};
use candle_nn::{Module, VarBuilder};
use flashcliff::{Algebra, Invariant, Signature};
use flashcliff_network::Value;

use crate::Error;
use crate::layers::{FullyConnectedSteerableGeometricProduct, MVSiLU, SteerableLayerOptions};
use crate::objective::description::Description;
use crate::op::network::Applied;

pub(super) const POINTS: usize = 3;
const CHANNELS: usize = 96;
const GATES: usize = 3;

/// A pseudoscalar of three vectors in 3 dimensions: it changes sign under reflections.
///
/// [`FullyConnectedSteerableGeometricProduct`] `(3 -> 96)`, three [`MVSiLU`], the product layer
/// again `(96 -> 1)`, and the pseudoscalar of its channel. 48,913 parameters, named as in CGENN:
/// `net.0`, ..., `net.4`.
///
/// Source: CGENN, `O3CGMLP` with 96 hidden features and 4 layers.
#[derive(Debug, Clone)]
pub struct Volumes {
    algebra: Algebra,
    first: FullyConnectedSteerableGeometricProduct,
    gates: Vec<MVSiLU>,
    last: FullyConnectedSteerableGeometricProduct,
    applied: Applied,
}

impl Volumes {
    /// The model with parameters from `vb`.
    ///
    /// # Errors
    /// The errors of the core and of the builder.
    pub fn new(vb: VarBuilder) -> std::result::Result<Self, Error> {
        let algebra = Algebra::new(Signature::new(3, 0, 0).map_err(flashcliff::Error::from)?)?;
        let net = vb.pp("net");
        let product = |from, to, vb| {
            let options = SteerableLayerOptions::default();
            FullyConnectedSteerableGeometricProduct::new(algebra, from, to, options, vb)
        };
        let first = product(POINTS, CHANNELS, net.pp(0))?;
        let gates = (1..=GATES)
            .map(|i| MVSiLU::new(algebra, CHANNELS, Invariant::Mag2, net.pp(i)))
            .collect::<std::result::Result<_, _>>()?;
        let last = product(CHANNELS, 1, net.pp(GATES + 1))?;
        Ok(Self {
            algebra,
            first,
            gates,
            last,
            applied: Applied::default(),
        })
    }
}

impl Volumes {
    /// The model as a network, to its prediction.
    pub(super) fn describe(&self, network: &mut Description) -> std::result::Result<Value, Error> {
        let (blades, dim) = (self.algebra.blade_count(), self.algebra.signature().dim());
        let points = network.points(POINTS, dim);
        let points = network.network.points(points)?;
        let points = network.network.extend_blades(points, blades)?;
        let mut x = self.first.describe(network, points)?;
        network.network.block();
        for gate in &self.gates {
            x = gate.describe(network, x)?;
        }
        network.network.block();
        let x = self.last.describe(network, x)?;
        Ok(network.network.blade(x, blades - 1)?)
    }
}

impl Module for Volumes {
    fn forward(&self, points: &Tensor) -> Result<Tensor> {
        let describe = |network: &mut Description| self.describe(network);
        let prediction = self.applied.apply("volumes", &[points], describe)?;
        prediction.flatten_all()
    }
}
