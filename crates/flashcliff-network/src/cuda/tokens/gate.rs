//! Gated nonlinearities.

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::items::{Activation, Items};

use super::{Given, Ready, Site, To, of_blades};
use crate::Error;
use crate::tokens::{self, Channels};

#[derive(Debug)]
pub(super) struct Gated {
    items: Items,
    blades: usize,
    channels: Channels,
    /// The gate of multivectors and that of scalars.
    gates: [Activation; 2],
}

impl Gated {
    pub(super) fn new(step: &tokens::Gated) -> Result<Self, Error> {
        let of_scalars = match step.tanh_scalars {
            true => Activation::GeluTanh,
            false => Activation::Gelu,
        };
        Ok(Self {
            items: Items::new(of_blades(step.blades)?)?,
            blades: step.blades,
            channels: step.channels,
            gates: [Activation::GeluTanh, of_scalars],
        })
    }
}

impl Ready for Gated {
    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        let sizes = &site.sizes;
        let packed = |address| sizes.packed(self.blades, self.channels, address);
        let (x, y, of_items) = (packed(given.x), packed(y), sizes.items(self.channels));
        // SAFETY: both are packed rows of these sizes; the caller promises the rest.
        Ok(unsafe { self.items.gate(site.target(), of_items, self.gates, x, y) }?)
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        let Some(to) = to.x else {
            return Ok(());
        };
        let sizes = &site.sizes;
        let (target, of_items) = (site.target(), sizes.items(self.channels));
        let [x, g, to] =
            [given.x, g, to].map(|address| sizes.packed(self.blades, self.channels, address));
        // SAFETY: all are packed rows of these sizes; the caller promises the rest.
        let done = unsafe {
            self.items
                .gate_gradient(target, of_items, self.gates, x, g, to)
        };
        Ok(done?)
    }
}
