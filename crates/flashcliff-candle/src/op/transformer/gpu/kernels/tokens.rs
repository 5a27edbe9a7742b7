//! Norms, gates and dropout.

use candle_core::{Result, Tensor};
use flashcliff::cuda::items::{Activation, ItemGains};

use super::{Cuda, NORM_EPS};
use crate::op::transformer::draw::Draw;
use crate::op::transformer::dropout::Dropout;
use crate::op::transformer::gate::Gated;
use crate::op::transformer::gpu::dropout::dropped;
use crate::op::transformer::gpu::{SumKernels, TokenKernels};
use crate::op::transformer::norm::Norm;

/// The gains of multivectors and those of scalars, as far as a norm has them.
fn split_gains<'a>(norm: &Norm, gains: &'a [Tensor]) -> [Option<&'a Tensor>; 2] {
    let (of_mv, of_s) =
        gains.split_at(gains.len().min(usize::from(norm.channels.multivectors > 0)));
    [of_mv.first(), of_s.first()]
}

/// The gate of multivectors and that of scalars.
fn activations(gated: &Gated) -> [Activation; 2] {
    let of_scalars = match gated.tanh_scalars {
        true => Activation::GeluTanh,
        false => Activation::Gelu,
    };
    [Activation::GeluTanh, of_scalars]
}

impl TokenKernels for Cuda {
    fn norm(&self, norm: &Norm, x: &Tensor, gains: &[Tensor]) -> Result<Tensor> {
        let channels = norm.channels;
        let to = self.output(x.dims())?;
        let sizes = self.sizes(x.dim(0)?, channels);
        let [of_mv, of_s] = split_gains(norm, gains);
        self.read(
            [x, of_mv.unwrap_or(x), of_s.unwrap_or(x)],
            |[x, gains, gains_s]| {
                let (x, to) = (self.packed(channels, x), self.packed(channels, to.address));
                let gains = ItemGains {
                    multivectors: of_mv.map_or(0, |_| gains),
                    scalars: of_s.map_or(0, |_| gains_s),
                    partials: 0,
                };
                #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
                // SAFETY: both are packed rows of these sizes of this type on this device, gains have the shapes of their channels, and `to` is
                // this function's. Work on the memory of candle's tensors is in the order of their device's stream, also what frees it.
                Ok(unsafe {
                    self.items
                        .norm(self.target(), sizes, NORM_EPS, gains, x, None, to)
                }?)
            },
        )?;
        Ok(to.written())
    }

    fn norm_gradient(
        &self,
        norm: &Norm,
        x: &Tensor,
        gains: &[Tensor],
        g: &Tensor,
        through: Option<&Tensor>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let channels = norm.channels;
        let to = self.output(x.dims())?;
        let sizes = self.sizes(x.dim(0)?, channels);
        let added = through.is_some();
        let [of_mv, of_s] = split_gains(norm, gains);
        let count: usize = gains.iter().map(Tensor::elem_count).sum();
        let partials = match count {
            0 => None,
            count => Some(self.output(&[self.items.norm_partials(sizes), count])?),
        };
        let through = through.unwrap_or(g);
        self.read(
            [x, g, through, of_mv.unwrap_or(x), of_s.unwrap_or(x)],
            |[x, g, through, gains, gains_s]| {
                let [x, g, through] = [x, g, through].map(|address| self.packed(channels, address));
                let through = added.then_some(through);
                let to = self.packed(channels, to.address);
                let gains = ItemGains {
                    multivectors: of_mv.map_or(0, |_| gains),
                    scalars: of_s.map_or(0, |_| gains_s),
                    partials: partials.as_ref().map_or(0, |partials| partials.address),
                };
                #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
                // SAFETY: as in `norm`, for four tensors of these sizes, and as many rows of partial sums as the kernel writes.
                Ok(unsafe {
                    self.items.norm_gradient(
                        self.target(),
                        sizes,
                        NORM_EPS,
                        gains,
                        x,
                        g,
                        through,
                        to,
                    )
                }?)
            },
        )?;
        let sums = partials.map(|partials| self.column_sums(&partials.written(), &[(0, count)]));
        Ok((to.written(), sums.transpose()?))
    }

    fn drop(&self, dropout: &Dropout, x: &Tensor, draw: &Draw) -> Result<Tensor> {
        Ok(dropped(dropout, Some(x), x, draw)?)
    }

    fn gate(&self, gated: &Gated, x: &Tensor) -> Result<Tensor> {
        let (channels, gates) = (gated.channels, activations(gated));
        let to = self.output(x.dims())?;
        let sizes = self.sizes(x.dim(0)?, channels);
        self.read([x], |[x]| {
            let (x, to) = (self.packed(channels, x), self.packed(channels, to.address));
            #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
            // SAFETY: as in `norm`.
            Ok(unsafe { self.items.gate(self.target(), sizes, gates, x, to) }?)
        })?;
        Ok(to.written())
    }

    fn gate_gradient(&self, gated: &Gated, x: &Tensor, g: &Tensor) -> Result<Tensor> {
        let (channels, gates) = (gated.channels, activations(gated));
        let to = self.output(x.dims())?;
        let sizes = self.sizes(x.dim(0)?, channels);
        self.read([x, g], |addresses| {
            let [x, g] = addresses.map(|address| self.packed(channels, address));
            let to = self.packed(channels, to.address);
            #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
            // SAFETY: as in `norm`, for three tensors of these sizes.
            Ok(unsafe {
                self.items
                    .gate_gradient(self.target(), sizes, gates, x, g, to)
            }?)
        })?;
        Ok(to.written())
    }
}
