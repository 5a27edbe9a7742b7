//! What a packing keeps of a linear map: its weights for both passes, and the parts of their gradients.

use flashcliff_sys as sys;

use super::{Linear, bias_stride, stride};
use crate::cuda::dtype::Dtypes;
use crate::operator::{Dims, Pass};

/// The places of a map in the memory of a packing, as offsets in bytes. What products read or write in tensors has none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    /// The weight as the products of the forward pass read it.
    pub(crate) forward: Option<u64>,
    /// The weight as the products of the backward pass read it: that of the forward pass, if both read it in one order.
    pub(crate) backward: Option<u64>,
    /// The bias as products read it.
    pub(crate) bias: Option<u64>,
    /// The parts of the gradient of the weight.
    pub(crate) parts: Option<u64>,
    /// The parts of the gradient of the bias, of a map of few channels.
    pub(crate) bias_parts: Option<u64>,
}

impl Linear {
    /// The places for sizes and types. `add` takes so many bytes of the memory, and returns their offset.
    pub(crate) fn places(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        add: &mut dyn FnMut(usize) -> u64,
    ) -> Places {
        if [dims.batch, dims.in_channels, dims.out_channels].contains(&0) {
            return Places::default();
        }
        let bytes = dtypes.lanes.bytes();
        let packed = |pass| Some(self.packed_bytes(dims, dtypes, pass)).filter(|&bytes| bytes > 0);
        let [forward, backward] = [Pass::Forward, Pass::Backward];
        let is_one = self.transposes(dtypes, forward) == self.transposes(dtypes, backward);
        let of_forward = packed(forward).map(&mut *add);
        let of_backward = match of_forward {
            Some(at) if is_one => Some(at),
            _ => packed(backward).map(&mut *add),
        };
        let copies_bias = self.packs_bias(dims) || dtypes.lanes != dtypes.params;
        let bias = of_forward.filter(|_| self.has_bias() && copies_bias);
        let biases = self.packed_biases(dims) * bias_stride(dims, bytes) * bytes;
        let grad_bytes = self.gradient_type(dims, dtypes).bytes();
        let parts = self.packed_gradients(dims) * stride(dims, grad_bytes) * grad_bytes;
        Places {
            forward: of_forward,
            backward: of_backward,
            bias: bias.map(|_| add(biases)),
            parts: self.unpacks_gradients(dims).then(|| add(parts)),
            bias_parts: None,
        }
    }

    /// How the weight and the bias are packed from their addresses to places in memory at `base`.
    pub(crate) fn packings(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        [weight, bias]: [u64; 2],
        (places, base): (Places, u64),
    ) -> impl Iterator<Item = sys::fc_linear_packing> {
        let packing = |pass, at| self.packing(dims, dtypes, pass, [weight, base + at]);
        let biases = |at| self.biases(dims, dtypes, [bias, base + at]);
        let forward = places.forward.map(|at| sys::fc_linear_packing {
            bias: places.bias.map(biases).unwrap_or_default(),
            ..packing(Pass::Forward, at)
        });
        let backward = places
            .backward
            .filter(|_| places.backward != places.forward);
        let backward = backward.map(|at| packing(Pass::Backward, at));
        forward.into_iter().chain(backward)
    }
}
