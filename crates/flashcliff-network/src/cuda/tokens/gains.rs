//! Gains of heads or grades as separate nodes. The gains of a norm are a part of the norm's kernel.

use flashcliff::Device;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::rows::Rows;

use super::constants::Constants;
use super::sums::{self, Sums, Ways};
use super::{Given, Ready, Site, Sizes, To};
use crate::cuda::room::Room;
use crate::{Error, tokens};

#[derive(Debug)]
pub(super) struct Gains {
    rows: Rows,
    width: usize,
    /// The gain of each number of a row; the numbers of a row that have each gain.
    ways: Ways,
    /// Whether the gains of a row are there when the step runs.
    is_made: bool,
}

/// The numbers of a row.
pub(super) fn width(step: &tokens::Gains) -> usize {
    step.geometry.width(step.channels)
}

impl Gains {
    pub(super) fn new(
        step: &tokens::Gains,
        device: &Device,
        sizes: &Sizes,
        parts: Option<&[usize]>,
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let sources = step.sources();
        let places = sums::places(parts.unwrap_or(&[step.len()]));
        let of_row = sources.iter().map(|&source| (places[source], 1.0));
        let mut of_gains = vec![Vec::new(); step.len()];
        for (place, &source) in sources.iter().enumerate() {
            of_gains[source].push((place, 1.0));
        }
        Ok(Self {
            rows: Rows::new(device, sizes.dtype)?,
            width: sources.len(),
            ways: Ways {
                matrix: Sums::of(of_row, [sources.len(), 1], sizes, constants)?,
                gradients: Sums::new(&of_gains, sizes, constants)?,
            },
            is_made: parts.is_some(),
        })
    }

    fn matrix(&self, sizes: &Sizes) -> [usize; 2] {
        [sizes.rows(), self.width]
    }

    /// Products of tokens and gradients, the partial sums of their columns, and the sums, unless these are a value of the plan.
    fn room(&self, sizes: &Sizes, to: To) -> Room<3> {
        let matrix @ [rows, width] = self.matrix(sizes);
        let sums = if to.of_matrix { 0 } else { width };
        Room::new([
            sizes.bytes(rows * width),
            sizes.partial_bytes(matrix, &[(0, width)]),
            sizes.bytes(sums),
        ])
    }

    /// Writes tokens times the gains of a row.
    ///
    /// # Safety
    /// The contract of [`Ready::forward`] holds.
    unsafe fn scale(&self, site: &Site<'_>, [x, gains, to]: [CUdeviceptr; 3]) -> Result<(), Error> {
        let (target, matrix) = (site.target(), self.matrix(&site.sizes));
        // SAFETY: the caller promises it.
        Ok(unsafe { self.rows.scale(target, matrix, x, gains, to) }?)
    }
}

impl Ready for Gains {
    fn ways(&self) -> Option<Ways> {
        Some(self.ways)
    }

    fn backward_bytes(&self, sizes: &Sizes, to: To) -> usize {
        to.parameters.map_or(0, |_| self.room(sizes, to).bytes())
    }

    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        // SAFETY: what is kept has the numbers of a row; the caller promises the rest.
        unsafe {
            if !self.is_made {
                let gains = given.parameters;
                self.ways.matrix.write(site, gains, given.kept)?;
            }
            self.scale(site, [given.x, given.kept, y])
        }
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        if let Some(to) = to.x {
            // SAFETY: the caller promises it.
            unsafe { self.scale(site, [g, given.kept, to]) }?;
        }
        let Some(parameters) = to.parameters else {
            return Ok(());
        };
        let matrix @ [rows, width] = self.matrix(&site.sizes);
        let [products, partials, own] = self.room(&site.sizes, to).at(given.workspace);
        let sums = if to.of_matrix { parameters } else { own };
        // SAFETY: the room has the elements of all; the caller promises the rest.
        unsafe {
            let factors = [given.x, g];
            self.rows
                .multiply(site.target(), rows * width, factors, products)?;
            site.column_sums(matrix, &[(0, width)], [products, partials, sums])?;
            match to.of_matrix {
                true => Ok(()),
                false => self.ways.gradients.write(site, sums, parameters),
            }
        }
    }
}
