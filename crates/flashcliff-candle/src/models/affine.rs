//! A model of hulls that follows every affine map.

use candle_core::{Result, Tensor};
use candle_nn::{Module, VarBuilder};
use flashcliff_network::messages;

use super::on_graphs::{OnGraphs, Predicts};
use crate::Error;
use crate::objective::description::{Described, OfGraphs};
use crate::op::graphs::Graphs;

/// Volume of the convex hull of 16 points in 5 dimensions. It follows every affine map: the volume of `A x + b` is `|det A|` times that
/// of `x`. It does not depend on the order of the points.
///
/// [`messages::AffineHulls`] describes the network: 32 channels, 4,385 parameters, where CGENN's [`Hulls`](super::Hulls) has 58,849.
///
/// Source: flashcliff; the task is that of CGENN (arXiv 2305.11141).
///
/// ```
/// use candle_core::{DType, Device, Module, Tensor};
/// use candle_nn::{VarBuilder, VarMap};
/// use flashcliff_candle::models::AffineHulls;
///
/// let parameters = VarMap::new();
/// let model = AffineHulls::new(VarBuilder::from_varmap(&parameters, DType::F64, &Device::Cpu))?;
/// let points = Tensor::randn(0.0, 1.0, (2, 16, 5), &Device::Cpu)?;
/// let (small, large) = (model.forward(&points)?, model.forward(&((points * 2.0)? + 1.0)?)?);
/// for (small, large) in small.to_vec1::<f64>()?.into_iter().zip(large.to_vec1::<f64>()?) {
///     assert!((large / small - 32.0).abs() < 1e-9);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AffineHulls(OnGraphs);

impl AffineHulls {
    /// The model with parameters from `vb`.
    ///
    /// # Errors
    /// The errors of the core and of the builder.
    pub fn new(vb: VarBuilder) -> std::result::Result<Self, Error> {
        let options = messages::AffineHulls::default();
        let (layers, ends) = options.layers()?;
        let of = OfGraphs {
            graphs: Graphs::complete,
            nodes: options.points,
            numbers: options.dim,
            targets: 1,
        };
        let output = (ends.volumes, Predicts::Number);
        Ok(Self(OnGraphs::new(
            "affine hulls",
            layers,
            output,
            of,
            &vb,
        )?))
    }

    /// The model as a network, to its prediction and the target.
    pub(super) fn described(&self) -> std::result::Result<Described, Error> {
        self.0.described()
    }
}

impl Module for AffineHulls {
    /// Volumes `[samples]` of points `[samples, 16, 5]`.
    fn forward(&self, points: &Tensor) -> Result<Tensor> {
        self.0.forward(points)
    }
}
