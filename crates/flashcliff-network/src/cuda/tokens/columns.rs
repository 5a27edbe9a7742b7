//! Steps that move or turn columns of packed rows: channels of other tokens, positions, and components, which stay where they are.

use flashcliff::Device;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::rows::{RowTurns, Rows};

use super::constants::{Constants, Table};
use super::{Given, Ready, Site, Sizes, To};
use crate::Error;
use crate::tokens::{self, Channels};

/// Channels of other tokens after the channels of each token.
#[derive(Debug)]
pub(super) struct Reinserted {
    rows: Rows,
    /// The widths of the result, of the tokens and of the others.
    widths: [usize; 3],
    /// For each number of the result, its source; for the numbers of both inputs, where they are in the result.
    places: [Table; 3],
}

impl Reinserted {
    pub(super) fn new(
        step: &tokens::Reinserted,
        device: &Device,
        sizes: &Sizes,
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let (blades, parts) = (step.blades, [step.channels, step.extra]);
        let widths = [step.output(), step.channels, step.extra];
        let all = columns(blades, parts);
        let of = |part: usize| -> Vec<i64> {
            let own = all.iter().enumerate().filter(|(_, own)| own.0 == part);
            own.map(|(at, _)| at as i64).collect()
        };
        // A column of the second matrix is -1 less its number.
        let place = |&(part, column): &(usize, usize)| match part {
            0 => column as i64,
            _ => -1 - column as i64,
        };
        let sources: Vec<i64> = all.iter().map(place).collect();
        Ok(Self {
            rows: Rows::new(device, sizes.dtype)?,
            widths: widths.map(|channels| channels.width_over(blades)),
            places: [
                constants.indices(&sources)?,
                constants.indices(&of(0))?,
                constants.indices(&of(1))?,
            ],
        })
    }
}

/// For each column of two parts side by side its part, and its column there, which ascend.
fn columns(blades: usize, parts: [Channels; 2]) -> Vec<(usize, usize)> {
    let mut next = [0; 2];
    let mut all = Vec::new();
    let mut take = |part: usize, count: usize| {
        all.extend((next[part]..next[part] + count).map(|column| (part, column)));
        next[part] += count;
    };
    for _ in 0..blades {
        (0..2).for_each(|part| take(part, parts[part].multivectors));
    }
    (0..2).for_each(|part| take(part, parts[part].scalars));
    all
}

impl Ready for Reinserted {
    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        let [width, own, extra] = self.widths;
        let (matrix, both) = (
            [site.sizes.rows(), width],
            [(given.x, own), (given.other, extra)],
        );
        let places = self.places[0].at(site.tables);
        let target = site.target();
        // SAFETY: the places name columns of both matrices; the caller promises the rest.
        Ok(unsafe { self.rows.take_columns(target, matrix, both, places, y) }?)
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        _: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        for (part, to) in [to.x, to.other].into_iter().enumerate() {
            let Some(to) = to else { continue };
            let matrix = [site.sizes.rows(), self.widths[1 + part]];
            let places = self.places[1 + part].at(site.tables);
            let from = [(g, self.widths[0]), (0, 0)];
            let target = site.target();
            // SAFETY: the places name columns of the gradient; the caller promises the rest.
            unsafe { self.rows.take_columns(target, matrix, from, places, to) }?;
        }
        Ok(())
    }
}

/// Positions of items among the scalars of queries and keys.
#[derive(Debug)]
pub(super) struct Rotary {
    rows: Rows,
    width: usize,
    partners: Table,
    pairs: Table,
    signs: Table,
    frequencies: Table,
}

impl Rotary {
    pub(super) fn new(
        step: &tokens::Rotary,
        device: &Device,
        sizes: &Sizes,
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let first = step.blades * step.channels.multivectors;
        let width = step.channels.width_over(step.blades);
        let (mut partners, mut pairs, mut signs) =
            (vec![-1; width], vec![0; width], vec![0.0; width]);
        for (scalar, turn) in step.pairs().enumerate() {
            let Some((partner, sign, pair)) = turn else {
                continue;
            };
            partners[first + scalar] = (first + partner) as i64;
            pairs[first + scalar] = pair as i64;
            signs[first + scalar] = sign;
        }
        Ok(Self {
            rows: Rows::new(device, sizes.dtype)?,
            width,
            partners: constants.indices(&partners)?,
            pairs: constants.indices(&pairs)?,
            signs: constants.numbers(sizes.dtype, &signs),
            frequencies: constants.numbers(flashcliff::Dtype::F64, step.frequencies()),
        })
    }

    /// # Safety
    /// The contract of [`Ready::forward`] holds.
    unsafe fn turn(
        &self,
        site: &Site<'_>,
        [x, to]: [CUdeviceptr; 2],
        back: bool,
    ) -> Result<(), Error> {
        let (sizes, tables) = (&site.sizes, site.tables);
        let turns = RowTurns {
            partners: self.partners.at(tables),
            pairs: self.pairs.at(tables),
            signs: self.signs.at(tables),
            frequencies: self.frequencies.at(tables),
            // The items of a ragged batch are counted through.
            items: sizes.batch.items,
            back,
        };
        let matrix = [sizes.rows(), self.width];
        // SAFETY: tables name columns of the rows; the caller promises the rest.
        Ok(unsafe { self.rows.turn(site.target(), matrix, x, turns, to) }?)
    }
}

impl Ready for Rotary {
    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { self.turn(site, [given.x, y], false) }
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        _: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        match to.x {
            // SAFETY: the caller promises it.
            Some(to) => unsafe { self.turn(site, [g, to], true) },
            None => Ok(()),
        }
    }
}

/// Multivectors as scalars, or back: a copy, of a result alone. A plan has others in one memory.
#[derive(Debug)]
pub(super) struct Components {
    width: usize,
}

impl Components {
    pub(super) fn new(step: &tokens::Components) -> Self {
        Self {
            width: step.components().scalars,
        }
    }

    /// # Safety
    /// The contract of [`Ready::forward`] holds.
    unsafe fn copy(&self, site: &Site<'_>, [from, to]: [CUdeviceptr; 2]) -> Result<(), Error> {
        // SAFETY: both are packed rows of this width; the caller promises the rest.
        unsafe { site.copy(from, to, site.sizes.rows() * self.width) }
    }
}

impl Ready for Components {
    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { self.copy(site, [given.x, y]) }
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        _: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        match to.x {
            // SAFETY: the caller promises it.
            Some(to) => unsafe { self.copy(site, [g, to]) },
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_two_parts_alternate_by_blade() {
        let parts = [Channels::new(2, 1), Channels::new(1, 2)];
        let expected = [
            // Two blades, then the scalars.
            (0, 0),
            (0, 1),
            (1, 0),
            (0, 2),
            (0, 3),
            (1, 1),
            (0, 4),
            (1, 2),
            (1, 3),
        ];
        assert_eq!(columns(2, parts), expected);
    }
}
