//! Features of distances of points in place of blades, and their derivatives.

use cudarc::driver::sys::CUdeviceptr;

use super::functions::JetFunction;
use super::{Argument, Arguments, RowJets};
use crate::Error;
use crate::cuda::items::Target;

/// Features of distances, as [`DistancePoint`](crate::attention::DistancePoint) has them, in place of some blades of packed rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowPoints {
    /// The address of the multivector channels, `[count, 3]` `i32`: the column, whether it is of queries (1), of keys
    /// (2) or neither (0), and the number of its weight.
    pub units: CUdeviceptr,
    /// The address of the blades in whose place features are, `[coordinates + 2]` `i32`.
    pub slots: CUdeviceptr,
    /// The address of the logarithms of weights, `[components, weights]`.
    pub logarithms: CUdeviceptr,
    /// The channels of units.
    pub count: usize,
    /// The blades.
    pub blades: usize,
    /// The multivector channels and the scalars of a row of results. Rows of tokens have these for each component, one
    /// after another, in the channels of each blade and in the scalars.
    pub channels: [usize; 2],
    /// The first blade of a point.
    pub first: usize,
    /// The coordinates of a point, at most seven. Its weight follows them.
    pub coordinates: usize,
    /// The weights.
    pub weights: usize,
    /// Regularises points without weight.
    pub eps: f64,
}

/// The numbers of [`RowPoints`], as the kernels take them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawPoints {
    tables: [CUdeviceptr; 2],
    sizes: [i64; 7],
    eps: f64,
}

impl RowPoints {
    fn raw(&self) -> RawPoints {
        let [channels, scalars] = self.channels;
        let sizes = [
            self.count,
            self.blades,
            channels,
            scalars,
            self.first,
            self.coordinates,
            self.weights,
        ];
        RawPoints {
            tables: [self.units, self.slots],
            sizes: sizes.map(|size| i64::try_from(size).unwrap_or(i64::MAX)),
            eps: self.eps,
        }
    }

    fn threads(&self, rows: usize) -> usize {
        rows * (self.count + self.channels[1])
    }
}

impl RowJets {
    /// Writes tokens with features in place of some blades, or their derivatives along the directions of tokens.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds, and columns, blades and weights are there.
    pub unsafe fn point_features(
        &self,
        target: Target<'_>,
        points: RowPoints,
        rows: usize,
        [x, y]: [CUdeviceptr; 2],
    ) -> Result<(), Error> {
        let mut raw = points.raw();
        let [x, logarithms, y] = [x, points.logarithms, y].map(Argument::Address);
        let [raw, of_rows] = [Argument::Points(&mut raw), Argument::count(rows)];
        let arguments = Arguments([x, logarithms, y, raw, of_rows]);
        let threads = points.threads(rows);
        // SAFETY: the caller promises it.
        unsafe { self.launch(target, JetFunction::PointFeatures, threads, arguments) }
    }

    /// Writes the gradient of tokens, and the shares of rows in the gradients of logarithms, `[rows, components,
    /// weights]`. The address of a gradient that is not wanted is 0.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of [`Self::point_features`] holds.
    pub unsafe fn point_features_gradient(
        &self,
        target: Target<'_>,
        points: RowPoints,
        rows: usize,
        [x, g]: [CUdeviceptr; 2],
        [to, shares]: [CUdeviceptr; 2],
    ) -> Result<(), Error> {
        let mut raw = points.raw();
        let addresses = [x, points.logarithms, g, to, shares];
        let [x, logarithms, g, to, shares] = addresses.map(Argument::Address);
        let [raw, of_rows] = [Argument::Points(&mut raw), Argument::count(rows)];
        let arguments = Arguments([x, logarithms, g, to, shares, raw, of_rows]);
        let threads = points.threads(rows);
        // SAFETY: the caller promises it.
        unsafe {
            self.launch(
                target,
                JetFunction::PointFeaturesGradient,
                threads,
                arguments,
            )
        }
    }
}
