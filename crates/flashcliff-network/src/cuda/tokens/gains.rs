//! Gains of heads or grades as nodes of their own. Those of norms are a part of the norm's kernel.

use flashcliff::Device;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::items::{Items, Pack};
use flashcliff::cuda::rows::{RowFactors, Rows};

use super::constants::{Constants, Table};
use super::{Given, Ready, Site, Sizes, To};
use crate::cuda::room::Room;
use crate::{Error, tokens};

#[derive(Debug)]
pub(super) struct Gains {
    rows: Rows,
    width: usize,
    /// The gain of each number of a row.
    of_row: Sums,
    /// The numbers of a row that have each gain.
    of_gains: Sums,
}

/// Tables of sums of a few numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    places: Table,
    factors: Table,
    count: usize,
    uses: usize,
}

impl Sums {
    /// Sums of the numbers at some places, times factors, for each result those that it adds.
    pub(super) fn new(
        terms: &[Vec<(usize, f64)>],
        sizes: &Sizes,
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let uses = terms.iter().map(Vec::len).max().unwrap_or(0);
        let of_use = |at: usize| terms.iter().map(move |own| own.get(at).copied());
        // A number whose factor is 0 is not read.
        let all = (0..uses)
            .flat_map(of_use)
            .map(|term| term.unwrap_or((0, 0.0)));
        let (places, factors): (Vec<usize>, Vec<f64>) = all.unzip();
        let places: Vec<i64> = places
            .into_iter()
            .map(|place| i64::try_from(place).unwrap_or(i64::MAX))
            .collect();
        Ok(Self {
            places: constants.indices(&places)?,
            factors: constants.numbers(sizes.dtype, &factors),
            count: terms.len(),
            uses,
        })
    }

    /// The call that reads numbers and writes the sums.
    pub(super) fn pack(&self, site: &Site<'_>, from: CUdeviceptr, to: CUdeviceptr) -> Pack {
        Pack {
            from,
            places: self.places.at(site.tables),
            factors: self.factors.at(site.tables),
            to,
            count: self.count,
            uses: self.uses,
            dtype: site.sizes.dtype,
        }
    }

    /// Writes the sums.
    ///
    /// # Safety
    /// The addresses are those of the numbers and of the sums.
    pub(super) unsafe fn write(
        &self,
        site: &Site<'_>,
        from: CUdeviceptr,
        to: CUdeviceptr,
    ) -> Result<(), Error> {
        // SAFETY: places are those of numbers, as the tables were made; the caller promises the rest.
        Ok(unsafe { Items::pack(site.target(), self.pack(site, from, to)) }?)
    }
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
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let sources = step.sources();
        let one = |&source: &usize| vec![(source, 1.0)];
        let of_row: Vec<Vec<(usize, f64)>> = sources.iter().map(one).collect();
        let mut of_gains = vec![Vec::new(); step.len()];
        for (place, &source) in sources.iter().enumerate() {
            of_gains[source].push((place, 1.0));
        }
        Ok(Self {
            rows: Rows::new(device, sizes.dtype)?,
            width: sources.len(),
            of_row: Sums::new(&of_row, sizes, constants)?,
            of_gains: Sums::new(&of_gains, sizes, constants)?,
        })
    }

    fn matrix(&self, sizes: &Sizes) -> [usize; 2] {
        [sizes.rows(), self.width]
    }

    /// Products of tokens and gradients, the partial sums of their columns, and the sums.
    fn room(&self, sizes: &Sizes) -> Room<3> {
        let matrix @ [rows, width] = self.matrix(sizes);
        Room::new([
            sizes.bytes(rows * width),
            sizes.partial_bytes(matrix, &[(0, width)]),
            sizes.bytes(width),
        ])
    }

    /// Writes tokens times the gains of a row.
    ///
    /// # Safety
    /// The contract of [`Ready::forward`] holds.
    unsafe fn scale(&self, site: &Site<'_>, [x, gains, to]: [CUdeviceptr; 3]) -> Result<(), Error> {
        let (target, matrix) = (site.target(), self.matrix(&site.sizes));
        let factors = RowFactors {
            fixed: gains,
            reference: 0,
            referred: 0,
        };
        // SAFETY: the caller promises it.
        Ok(unsafe { self.rows.scale(target, matrix, x, factors, to) }?)
    }
}

impl Ready for Gains {
    fn backward_bytes(&self, sizes: &Sizes, to: To) -> usize {
        to.parameters.map_or(0, |_| self.room(sizes).bytes())
    }

    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        // SAFETY: what is kept has the numbers of a row; the caller promises the rest.
        unsafe {
            self.of_row.write(site, given.parameters, given.kept)?;
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
        let Some(to) = to.parameters else {
            return Ok(());
        };
        let matrix @ [rows, width] = self.matrix(&site.sizes);
        let [products, partials, sums] = self.room(&site.sizes).at(given.workspace);
        // SAFETY: the room has the elements of all; the caller promises the rest.
        unsafe {
            let factors = [given.x, g];
            self.rows
                .multiply(site.target(), rows * width, factors, products)?;
            site.column_sums(matrix, &[(0, width)], [products, partials, sums])?;
            self.of_gains.write(site, sums, to)
        }
    }
}
