//! The invariant norm, with gains in its kernel, and its gradient, which adds to the gradient so far.

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::items::{ItemEps, ItemGains, ItemTensor, Items};

use super::constants::Constants;
use super::sums::Ways;
use super::{Given, Ready, Site, Sizes, To};
use crate::Error;
use crate::cuda::room::Room;
use crate::tokens::norm::{EPS, SCALAR_EPS};
use crate::tokens::{self, Channels, Gains};

pub(super) const NORM_EPS: ItemEps = ItemEps {
    multivectors: EPS,
    scalars: SCALAR_EPS,
};

#[derive(Debug)]
pub(super) struct Norm {
    items: Items,
    blades: usize,
    channels: Channels,
    /// The gains of a multivector channel, and all gains; `None` without gains.
    gains: Option<[usize; 2]>,
    /// How gains are put one after another before the step runs, if they are.
    ways: Option<Ways>,
}

impl Norm {
    pub(super) fn new(
        step: &tokens::Norm,
        sizes: &Sizes,
        parts: Option<&[usize]>,
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let ways = parts.map(|parts| Ways::of_parameters(parts, sizes, constants));
        let of = |gains: &Gains| [gains.grades(), gains.len()];
        Ok(Self {
            items: Items::new(step.geometry.algebra)?,
            blades: step.geometry.blades(),
            channels: step.channels,
            gains: step.gains.as_ref().map(of),
            ways: ways.transpose()?,
        })
    }

    fn packed(&self, sizes: &Sizes, address: CUdeviceptr) -> ItemTensor {
        sizes.packed(self.blades, self.channels, address)
    }

    /// The gains one after another, and the place of partial sums of their gradients.
    fn item_gains(&self, sizes: &Sizes, given: Given, partials: CUdeviceptr) -> ItemGains {
        let gains = given.flat(self.ways);
        let Some([grades, _]) = self.gains else {
            return ItemGains::default();
        };
        let Channels {
            multivectors,
            scalars,
        } = self.channels;
        let of_scalars = sizes.after(gains, multivectors * grades);
        ItemGains {
            multivectors: if multivectors > 0 { gains } else { 0 },
            scalars: if scalars > 0 { of_scalars } else { 0 },
            partials,
        }
    }

    /// The matrix of partial sums of the gradients of gains.
    fn partials(&self, sizes: &Sizes) -> [usize; 2] {
        let count = self.gains.map_or(0, |[_, count]| count);
        let rows = match count {
            0 => 0,
            _ => self.items.norm_partials(sizes.items(self.channels)),
        };
        [rows, count]
    }

    /// Partial sums of gains, those of the sums over them, and a gradient of tokens that is not wanted.
    fn room(&self, sizes: &Sizes, to: To) -> Room<3> {
        let matrix @ [rows, count] = self.partials(sizes);
        let unwanted = match to.x {
            Some(_) => 0,
            None => sizes.rows() * self.channels.width_over(self.blades),
        };
        Room::new([
            sizes.bytes(rows * count),
            sizes.partial_bytes(matrix, &[(0, count)]),
            sizes.bytes(unwanted),
        ])
    }
}

impl Ready for Norm {
    fn ways(&self) -> Option<Ways> {
        self.ways
    }

    fn backward_bytes(&self, sizes: &Sizes, to: To) -> usize {
        self.room(sizes, to).bytes()
    }

    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        let sizes = &site.sizes;
        let gains = self.item_gains(sizes, given, 0);
        let [x, y] = [given.x, y].map(|address| self.packed(sizes, address));
        let residual = given.residual;
        let residual = residual.map(|both| both.map(|address| self.packed(sizes, address)));
        let of_items = sizes.items(self.channels);
        let target = site.target();
        // SAFETY: all are packed rows of these sizes, and gains have the shapes of their channels; the caller promises the rest.
        let done = unsafe {
            self.items
                .norm(target, of_items, NORM_EPS, gains, x, residual, y)
        };
        Ok(done?)
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        let sizes = &site.sizes;
        let [partials, of_sums, unwanted] = self.room(sizes, to).at(given.workspace);
        let gains = self.item_gains(sizes, given, partials);
        let of_x = self.packed(sizes, to.x.unwrap_or(unwanted));
        let [x, g] = [given.x, g].map(|address| self.packed(sizes, address));
        let of_items = sizes.items(self.channels);
        // SAFETY: all are packed rows of these sizes, and as many rows of partial sums as the kernel writes. The sum takes the place of what
        // is added, element by element. The caller promises the rest.
        unsafe {
            self.items.norm_gradient(
                site.target(),
                of_items,
                NORM_EPS,
                gains,
                x,
                g,
                to.adds.then_some(of_x),
                of_x,
            )
        }?;
        let matrix @ [_, count] = self.partials(sizes);
        match to.parameters {
            // SAFETY: the room has the partial sums of this matrix.
            Some(to) => unsafe { site.column_sums(matrix, &[(0, count)], [partials, of_sums, to]) },
            None => Ok(()),
        }
    }
}
