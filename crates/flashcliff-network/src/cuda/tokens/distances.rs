//! Features of distances as separate steps, and their derivatives.

use flashcliff::Device;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::rows::{RowJets, RowPoints};

use super::constants::{Constants, Table};
use super::{Given, Ready, Site, Sizes, To};
use crate::cuda::room::Room;
use crate::tokens::features::EPS;
use crate::{Error, tokens};

#[derive(Debug)]
pub(super) struct Distances {
    jets: RowJets,
    step: tokens::Distances,
    units: Table,
    slots: Table,
    count: usize,
}

impl Distances {
    pub(super) fn new(
        step: &tokens::Distances,
        device: &Device,
        sizes: &Sizes,
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let units = step.units();
        let of_units = units.iter().flat_map(|unit| {
            let (kind, weight) = match unit.point {
                None => (0, 0),
                Some((true, weight)) => (1, weight),
                Some((false, weight)) => (2, weight),
            };
            [unit.column as i64, kind, weight as i64]
        });
        let slots: Vec<i64> = step.slots().iter().map(|&slot| slot as i64).collect();
        Ok(Self {
            jets: RowJets::new(device, sizes.dtype, step.components)?,
            units: constants.indices(&of_units.collect::<Vec<i64>>())?,
            slots: constants.indices(&slots)?,
            count: units.len(),
            step: step.clone(),
        })
    }

    fn points(&self, site: &Site<'_>, given: Given) -> RowPoints {
        let (own, points) = (self.step.channels(), self.step.points());
        RowPoints {
            units: self.units.at(site.tables),
            slots: self.slots.at(site.tables),
            logarithms: given.parameters,
            count: self.count,
            blades: self.step.attention.head.blades,
            channels: [own.multivectors, own.scalars],
            first: points.first,
            coordinates: points.coordinates,
            weights: self.step.len(),
            eps: EPS,
        }
    }

    /// The shares of rows in the gradients of logarithms, and the partial sums.
    fn room(&self, sizes: &Sizes, to: To) -> Room<2> {
        let (rows, count) = (sizes.rows(), self.step.parameter_len());
        Room::new(match to.parameters {
            Some(_) => [
                sizes.bytes(rows * count),
                sizes.partial_bytes([rows, count], &[(0, count)]),
            ],
            None => [0; 2],
        })
    }
}

impl Ready for Distances {
    fn backward_bytes(&self, sizes: &Sizes, to: To) -> usize {
        self.room(sizes, to).bytes()
    }

    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        let (target, count, points) = (site.target(), site.sizes.rows(), self.points(site, given));
        // SAFETY: tables name columns, blades and weights of the step; the caller promises the rest.
        Ok(unsafe {
            self.jets
                .point_features(target, points, count, [given.x, y])
        }?)
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        let (sizes, points) = (&site.sizes, self.points(site, given));
        let [own, partials] = self.room(sizes, to).at(given.workspace);
        let shares = to.parameters.map_or(0, |_| own);
        let (rows, count) = (sizes.rows(), self.step.parameter_len());
        let written = [to.x.unwrap_or_default(), shares];
        // SAFETY: the room has the elements of all; as in `forward`.
        unsafe {
            let (target, read) = (site.target(), [given.x, g]);
            self.jets
                .point_features_gradient(target, points, rows, read, written)?;
            match to.parameters {
                Some(to) => site.column_sums([rows, count], &[(0, count)], [shares, partials, to]),
                None => Ok(()),
            }
        }
    }
}
