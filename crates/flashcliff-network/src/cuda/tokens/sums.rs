//! Sums of a few numbers: how parameters become the matrix of a step, and how the gradient of the matrix becomes the
//! gradients of parameters.

use std::ops::Range;

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::items::{Items, Pack};

use super::constants::{Constants, Table};
use super::{Site, Sizes};
use crate::Error;

/// The sums of both ways.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct Ways {
    /// The matrix from parameters, whose places [`places`] gives.
    pub(super) matrix: Sums,
    /// Gradients of parameters, one after another, from the gradient of the matrix.
    pub(super) gradients: Sums,
}

impl Ways {
    /// Parameters one after another, of these lengths.
    pub(super) fn of_parameters(
        lens: &[usize],
        sizes: &Sizes,
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let count = lens.iter().sum();
        let mut identity = |places: &[usize]| {
            let terms = places[..count].iter().map(|&place| (place, 1.0));
            Sums::of(terms, [count, 1], sizes, constants)
        };
        Ok(Self {
            matrix: identity(&places(lens))?,
            gradients: identity(&places(&[count]))?,
        })
    }
}

/// Tables of sums of a few numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    pub(super) places: Table,
    pub(super) factors: Table,
    pub(super) count: usize,
    pub(super) uses: usize,
    /// The place of each sum among the results, of which others stay as they are. Without it sums are neighbours.
    pub(super) results: Option<Table>,
}

/// For each element of tensors of some lengths, one after another, its place as [`Items::pack_tensors`] takes it; at
/// the end that of the first element of a further tensor.
pub(super) fn places(lens: &[usize]) -> Vec<usize> {
    let lens = lens.iter().copied().chain([1]).enumerate();
    let of =
        |(tensor, len): (usize, usize)| (0..len).map(move |at| (tensor << Items::PLACE_BITS) + at);
    lens.flat_map(of).collect()
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
        Self::of(all, [terms.len(), uses], sizes, constants)
    }

    /// Sums of places and factors `[uses, count]`.
    pub(super) fn of(
        all: impl Iterator<Item = (usize, f64)>,
        [count, uses]: [usize; 2],
        sizes: &Sizes,
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let (places, factors): (Vec<usize>, Vec<f64>) = all.unzip();
        Ok(Self {
            places: constants.counts(places)?,
            factors: constants.numbers(sizes.dtype, &factors),
            count,
            uses,
            results: None,
        })
    }

    /// Writes each sum to its own place among the results, in launches of many tensors, and then some that are rounded
    /// to TF32. [`Self::pack`] knows no such places.
    pub(super) fn at_places(
        self,
        results: &[usize],
        rounded: Range<usize>,
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let results = results.iter().map(|&place| place as i64);
        let places: Vec<i64> = results
            .chain(rounded.map(|place| -1 - place as i64))
            .collect();
        Ok(Self {
            results: Some(constants.indices(&places)?),
            ..self
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
    /// The addresses point to the numbers and to the sums.
    pub(super) unsafe fn write(
        &self,
        site: &Site<'_>,
        from: CUdeviceptr,
        to: CUdeviceptr,
    ) -> Result<(), Error> {
        // SAFETY: each place is the place of a number, as the tables were made; the caller promises the rest.
        Ok(unsafe { Items::pack(site.target(), self.pack(site, from, to)) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_tensors_and_elements() {
        let tensor = 1 << Items::PLACE_BITS;
        assert_eq!(places(&[2, 0, 1]), [0, 1, 2 * tensor, 3 * tensor]);
    }
}
