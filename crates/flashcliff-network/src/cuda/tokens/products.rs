//! Geometric products and joins, with signs and references of joins, and blades of products that are dropped.
//!
//! A join is the regressive product with the sign `(-1)^(k (n - k))` in grade `k`, times the reference. For odd `n` all signs are +. For even `n`
//! the sign is that of odd `k`, the sum of the grades of the factors less `n`, so it is that of odd grades in both factors: one pass over the factors
//! has the signs and the reference.

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::items::{ItemFactors, ItemSizes, Items};
use flashcliff::cuda::rows::{RowFactors, Rows};
use flashcliff::cuda::{Dtypes, Operator, StridedSizes, StridedTensor};
use flashcliff::{Device, Dims};

use super::constants::{Constants, Table};
use super::room::Room;
use super::{Given, Ready, Site, Sizes, To, of_blades};
use crate::Error;
use crate::tokens::{self, Channels};

#[derive(Debug)]
pub(super) struct Products {
    items: Items,
    blades: usize,
    /// The channels of a factor.
    each: usize,
    input: Channels,
    output: Channels,
    /// The products of factors, in order.
    operators: Vec<Operator>,
    /// The factors of columns, with joins.
    joins: Option<Joins>,
    /// The factors of the columns of the result, with dropped blades.
    dropped: Option<(Rows, Table)>,
}

/// The factors of the columns of the input.
#[derive(Clone, Copy, Debug)]
struct Joins {
    rows: Rows,
    /// The factors that do not depend on the reference.
    fixed: Table,
    /// Those that the reference is multiplied by: of the left factors of joins, 0 for all others.
    referred: Table,
}

/// The elements that the step keeps: with joins the factors as products take them.
pub(super) fn kept(step: &tokens::Products, sizes: &Sizes) -> usize {
    match step.regressive {
        Some(_) => sizes.rows() * step.input().width_over(step.blades),
        None => 0,
    }
}

impl Products {
    pub(super) fn new(
        step: &tokens::Products,
        device: &Device,
        sizes: &Sizes,
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let mut operators = Vec::new();
        for operator in step.operators() {
            let own = operator.on_cuda(device)?;
            let dims = Dims {
                batch: sizes.rows(),
                in_channels: step.each,
                out_channels: step.each,
                scalar_channels: 0,
            };
            own.prepare(&dims, Dtypes::uniform(sizes.dtype))?;
            operators.push(own);
        }
        let (mut joins, mut dropped) = (None, None);
        if step.regressive.is_some() {
            joins = Some(Joins {
                rows: Rows::new(device, sizes.dtype)?,
                fixed: constants.numbers(sizes.dtype, &of_columns(step, [1.0, 1.0, 0.0, 1.0], 1.0)),
                referred: constants
                    .numbers(sizes.dtype, &of_columns(step, [0.0, 0.0, 1.0, 0.0], 0.0)),
            });
        }
        if !step.dropped.is_empty() {
            let columns = constants.numbers(sizes.dtype, &without_dropped(step));
            dropped = Some((Rows::new(device, sizes.dtype)?, columns));
        }
        Ok(Self {
            items: Items::new(of_blades(step.blades)?)?,
            blades: step.blades,
            each: step.each,
            input: step.input(),
            output: step.output(),
            operators,
            joins,
            dropped,
        })
    }

    /// The matrix of the input, and that of the result.
    fn matrices(&self, sizes: &Sizes) -> [[usize; 2]; 2] {
        [self.input, self.output].map(|channels| [sizes.rows(), channels.width_over(self.blades)])
    }

    /// Gradients of the result without dropped blades, and those of the factors as products take them.
    fn room(&self, sizes: &Sizes) -> Room<2> {
        let [input, output] = self.matrices(sizes).map(|[rows, width]| rows * width);
        let of_result = self.dropped.map_or(0, |_| output);
        Room::new([of_result, input].map(|elements| sizes.bytes(elements)))
    }

    /// The multivectors of packed rows from a channel on.
    fn strided(
        &self,
        sizes: &Sizes,
        channels: Channels,
        address: CUdeviceptr,
        first: usize,
    ) -> StridedTensor {
        StridedTensor {
            address: sizes.after(address, first),
            blade_stride: channels.multivectors,
            row_stride: channels.width_over(self.blades),
        }
    }

    fn strided_sizes(&self, sizes: &Sizes) -> StridedSizes {
        StridedSizes {
            batch: sizes.rows(),
            channels: self.each,
            dtype: sizes.dtype,
        }
    }

    /// Copies the scalars of packed rows to others.
    ///
    /// # Safety
    /// The addresses are those of packed rows of these channels.
    unsafe fn copy_scalars(
        &self,
        site: &Site<'_>,
        from: (CUdeviceptr, Channels),
        to: (CUdeviceptr, Channels),
    ) -> Result<(), Error> {
        let sizes = ItemSizes {
            channels: 0,
            ..site.sizes.items(self.input)
        };
        let [from, to] =
            [from, to].map(|(address, channels)| site.sizes.packed(self.blades, channels, address));
        let ones = ItemFactors::default();
        // SAFETY: without multivector channels, scalars alone are copied; the caller promises the rest.
        let copied = unsafe {
            self.items
                .combine(site.target(), sizes, Some(from), ones, None, to)
        };
        Ok(copied?)
    }

    /// Writes all products of factors, and the scalars.
    ///
    /// # Safety
    /// The addresses are those of packed rows of the input and of the result.
    unsafe fn multiply(
        &self,
        site: &Site<'_>,
        x: CUdeviceptr,
        y: CUdeviceptr,
    ) -> Result<(), Error> {
        let sizes = &site.sizes;
        for (at, operator) in self.operators.iter().enumerate() {
            let factors = [2 * at, 2 * at + 1]
                .map(|factor| self.strided(sizes, self.input, x, factor * self.each));
            let to = self.strided(sizes, self.output, y, at * self.each);
            let of = self.strided_sizes(sizes);
            // SAFETY: factors and products are different channels of packed rows; the caller promises the rest.
            unsafe { operator.forward_strided(site.stream, of, &factors, to) }?;
        }
        // SAFETY: the caller promises it.
        unsafe { self.copy_scalars(site, (x, self.input), (y, self.output)) }
    }

    /// Writes the gradient of all factors and scalars.
    ///
    /// # Safety
    /// The addresses are those of packed rows: of the factors, of the gradient of the result, and of the gradient that is written.
    unsafe fn multiply_back(
        &self,
        site: &Site<'_>,
        [x, g, to]: [CUdeviceptr; 3],
    ) -> Result<(), Error> {
        let sizes = &site.sizes;
        for (at, operator) in self.operators.iter().enumerate() {
            let own = |address| {
                [2 * at, 2 * at + 1]
                    .map(|factor| self.strided(sizes, self.input, address, factor * self.each))
            };
            let g = self.strided(sizes, self.output, g, at * self.each);
            let (of, grads) = (self.strided_sizes(sizes), own(to).map(Some));
            // SAFETY: as in `multiply`.
            unsafe { operator.backward_strided(site.stream, of, &own(x), g, &grads) }?;
        }
        // SAFETY: the caller promises it.
        unsafe { self.copy_scalars(site, (g, self.output), (to, self.input)) }
    }

    /// Writes packed rows of the result, or of its gradient, without the blades that are dropped. Returns where they are.
    ///
    /// # Safety
    /// The addresses are those of packed rows of the result.
    unsafe fn without_dropped(
        &self,
        site: &Site<'_>,
        from: CUdeviceptr,
        to: CUdeviceptr,
    ) -> Result<CUdeviceptr, Error> {
        let Some((rows, columns)) = &self.dropped else {
            return Ok(from);
        };
        let factors = RowFactors {
            fixed: columns.at(site.tables),
            reference: 0,
            referred: 0,
        };
        let [_, output] = self.matrices(&site.sizes);
        // SAFETY: the caller promises it.
        unsafe { rows.scale(site.target(), output, from, factors, to) }?;
        Ok(to)
    }
}

impl Joins {
    fn factors(&self, site: &Site<'_>, given: Given) -> RowFactors {
        RowFactors {
            fixed: self.fixed.at(site.tables),
            reference: given.other,
            referred: self.referred.at(site.tables),
        }
    }
}

impl Ready for Products {
    fn backward_bytes(&self, sizes: &Sizes, _: To) -> usize {
        self.room(sizes).bytes()
    }

    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        let [input, _] = self.matrices(&site.sizes);
        let mut x = given.x;
        if let Some(joins) = &self.joins {
            let factors = joins.factors(site, given);
            // SAFETY: what is kept has the elements of the input; the caller promises the rest.
            unsafe {
                joins
                    .rows
                    .scale(site.target(), input, x, factors, given.kept)
            }?;
            x = given.kept;
        }
        // SAFETY: the caller promises it.
        unsafe {
            self.multiply(site, x, y)?;
            self.without_dropped(site, y, y)?;
        }
        Ok(())
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        let [input, _] = self.matrices(&site.sizes);
        let [of_result, of_factors] = self.room(&site.sizes).at(given.workspace);
        // SAFETY: the room has the elements of both; the caller promises the rest.
        let g = unsafe { self.without_dropped(site, g, of_result) }?;
        let Some(joins) = &self.joins else {
            let to = to.x.unwrap_or(of_factors);
            // SAFETY: the caller promises it.
            return unsafe { self.multiply_back(site, [given.x, g, to]) };
        };
        // SAFETY: what is kept has the factors; the caller promises the rest.
        unsafe { self.multiply_back(site, [given.kept, g, of_factors]) }?;
        if let Some(to) = to.other {
            let rows = [of_factors, given.x, joins.referred.at(site.tables)];
            // SAFETY: the caller promises it.
            unsafe { joins.rows.row_sums(site.target(), input, rows, to) }?;
        }
        if let Some(to) = to.x {
            let factors = joins.factors(site, given);
            // SAFETY: the caller promises it.
            unsafe {
                joins
                    .rows
                    .scale(site.target(), input, of_factors, factors, to)
            }?;
        }
        Ok(())
    }
}

/// For each of the four factors of a step with joins a number, with the signs of blades for those of joins; and one for scalars.
fn of_columns(step: &tokens::Products, factors: [f64; 4], scalars: f64) -> Vec<f64> {
    let input = step.input();
    let mut columns = vec![scalars; input.width_over(step.blades)];
    for (blade, &sign) in step.signs.iter().enumerate() {
        for (factor, &number) in factors.iter().enumerate() {
            let first = blade * input.multivectors + factor * step.each;
            let sign = if factor < 2 { 1.0 } else { sign };
            columns[first..first + step.each].fill(sign * number);
        }
    }
    columns
}

/// For each column of the result 0 if its blade is dropped, else 1.
fn without_dropped(step: &tokens::Products) -> Vec<f64> {
    let output = step.output();
    let mut columns = vec![1.0; output.width_over(step.blades)];
    for blade in 0..step.blades {
        columns[blade * output.multivectors..][..step.each].fill(step.kept(blade));
    }
    columns
}
