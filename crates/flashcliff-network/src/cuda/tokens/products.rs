//! Geometric products and joins, with signs and references of joins, and blades of products that are dropped.
//!
//! A join is the regressive product with the sign `(-1)^(k (n - k))` in grade `k`, times the reference. One pass over the products, in place, has the signs,
//! the reference and the zeros of dropped blades.

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::items::{ItemFactors, ItemSizes, Items};
use flashcliff::cuda::rows::{RowFactors, Rows};
use flashcliff::cuda::{Dtypes, Operator, StridedSizes, StridedTensor};
use flashcliff::{Device, Dims};

use super::constants::{Constants, Table};
use super::{Given, Ready, Site, Sizes, To, of_blades};
use crate::Error;
use crate::cuda::room::Room;
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
    /// The factors of the columns of products, with joins or dropped blades.
    scaled: Option<Scaled>,
}

/// The factors of the columns of products, which make joins of regressive products and leave out blades.
#[derive(Clone, Copy, Debug)]
struct Scaled {
    rows: Rows,
    /// The factors that do not depend on the reference.
    fixed: Table,
    /// The factors of the reference: the signs of joins, 0 for all other columns.
    referred: Table,
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
        let mut scaled = None;
        if step.regressive.is_some() || !step.dropped.is_empty() {
            let [fixed, referred] = factors(step);
            scaled = Some(Scaled {
                rows: Rows::new(device, sizes.dtype)?,
                fixed: constants.numbers(sizes.dtype, &fixed),
                referred: constants.numbers(sizes.dtype, &referred),
            });
        }
        Ok(Self {
            items: Items::new(of_blades(step.blades)?)?,
            blades: step.blades,
            each: step.each,
            input: step.input(),
            output: step.output(),
            operators,
            scaled,
        })
    }

    /// The matrix of the input, and that of the result.
    fn matrices(&self, sizes: &Sizes) -> [[usize; 2]; 2] {
        [self.input, self.output].map(|channels| [sizes.rows(), channels.width_over(self.blades)])
    }

    /// The gradient of products, and products for the gradient of the reference; the gradient of tokens if it is not wanted.
    fn room(&self, sizes: &Sizes, to: To) -> Room<3> {
        let [input, output] = self.matrices(sizes).map(|[rows, width]| rows * width);
        let of_products = self.scaled.map_or(0, |_| output);
        let products = to.other.map_or(0, |_| output);
        let unwanted = if to.x.is_some() { 0 } else { input };
        Room::new([of_products, products, unwanted].map(|elements| sizes.bytes(elements)))
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
}

impl Scaled {
    /// Writes the columns of products, or of their gradients, times their factors.
    ///
    /// # Safety
    /// The addresses are those of packed rows of the result.
    unsafe fn scale(
        &self,
        site: &Site<'_>,
        (given, matrix): (Given, [usize; 2]),
        [from, to]: [CUdeviceptr; 2],
    ) -> Result<(), Error> {
        let factors = RowFactors {
            fixed: self.fixed.at(site.tables),
            reference: given.other,
            referred: self.referred.at(site.tables),
        };
        // SAFETY: the caller promises it.
        Ok(unsafe { self.rows.scale(site.target(), matrix, from, factors, to) }?)
    }
}

impl Ready for Products {
    fn backward_bytes(&self, sizes: &Sizes, to: To) -> usize {
        self.room(sizes, to).bytes()
    }

    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        let [_, output] = self.matrices(&site.sizes);
        // SAFETY: the caller promises it.
        unsafe {
            self.multiply(site, given.x, y)?;
            match &self.scaled {
                Some(scaled) => scaled.scale(site, (given, output), [y, y]),
                None => Ok(()),
            }
        }
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        let [_, output] = self.matrices(&site.sizes);
        let [of_products, products, unwanted] = self.room(&site.sizes, to).at(given.workspace);
        let of_tokens = to.x.unwrap_or(unwanted);
        let Some(scaled) = &self.scaled else {
            // SAFETY: the caller promises it.
            return unsafe { self.multiply_back(site, [given.x, g, of_tokens]) };
        };
        if let Some(to) = to.other {
            let rows = [g, products, scaled.referred.at(site.tables)];
            // SAFETY: the room has the elements of the products; the caller promises the rest.
            unsafe {
                self.multiply(site, given.x, products)?;
                scaled.rows.row_sums(site.target(), output, rows, to)?;
            }
        }
        // SAFETY: the room has the elements of the gradient; the caller promises the rest.
        unsafe {
            scaled.scale(site, (given, output), [g, of_products])?;
            self.multiply_back(site, [given.x, of_products, of_tokens])
        }
    }
}

/// The factors of the columns of the result: those that do not depend on the reference, and those of the reference.
fn factors(step: &tokens::Products) -> [Vec<f64>; 2] {
    let output = step.output();
    let width = output.width_over(step.blades);
    let (mut fixed, mut referred) = (vec![1.0; width], vec![0.0; width]);
    for (blade, &sign) in step.signs.iter().enumerate() {
        let first = blade * output.multivectors;
        let (geometric, joins) = (first + step.each, first + output.multivectors);
        fixed[first..geometric].fill(step.kept(blade));
        // Without joins there are no such columns.
        fixed[geometric..joins].fill(0.0);
        referred[geometric..joins].fill(sign);
    }
    [fixed, referred]
}
