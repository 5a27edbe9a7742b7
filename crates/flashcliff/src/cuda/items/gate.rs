//! Gates and activations of items, and their gradients.

use flashcliff_sys as sys;

use super::{ItemSizes, ItemTensor, Items, Target};
use crate::Error;

/// The activation of a gate, or of scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `x Phi(x)`, by the normal distribution.
    Gelu,
    /// The approximation of [`Self::Gelu`] by a hyperbolic tangent.
    GeluTanh,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `x / (1 + exp(-x))`
    Silu,
    /// The hyperbolic tangent.
    Tanh,
}

impl Activation {
    /// All activations, with the names that other hosts use.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("relu", Self::Relu),
        ("gelu", Self::Gelu),
        ("gelu_tanh", Self::GeluTanh),
        ("sigmoid", Self::Sigmoid),
        ("silu", Self::Silu),
        ("tanh", Self::Tanh),
    ];

    fn raw(self) -> sys::fc_activation {
        match self {
            Self::Relu => sys::fc_activation::FC_ACTIVATION_RELU,
            Self::Gelu => sys::fc_activation::FC_ACTIVATION_GELU,
            Self::GeluTanh => sys::fc_activation::FC_ACTIVATION_GELU_TANH,
            Self::Sigmoid => sys::fc_activation::FC_ACTIVATION_SIGMOID,
            Self::Silu => sys::fc_activation::FC_ACTIVATION_SILU,
            Self::Tanh => sys::fc_activation::FC_ACTIVATION_TANH,
        }
    }
}

impl Items {
    /// Multivectors times the first activation of their scalar blade, and the second activation of scalars.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn gate(
        &self,
        target: Target<'_>,
        sizes: ItemSizes,
        activations: [Activation; 2],
        x: ItemTensor,
        to: ItemTensor,
    ) -> Result<(), Error> {
        let sizes = self.sizes(sizes);
        let [of_multivectors, of_scalars] = activations.map(Activation::raw);
        let (x, to) = (x.raw(), to.raw());
        target.launch("fc_item_gate", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe { sys::fc_item_gate(&sizes, of_multivectors, of_scalars, &x, &to, stream) }
        })
    }

    /// The gradient of the input of [`Self::gate`] from that of its result.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn gate_gradient(
        &self,
        target: Target<'_>,
        sizes: ItemSizes,
        activations: [Activation; 2],
        x: ItemTensor,
        gradient: ItemTensor,
        to: ItemTensor,
    ) -> Result<(), Error> {
        let sizes = self.sizes(sizes);
        let [first, second] = activations.map(Activation::raw);
        let (x, g, to) = (x.raw(), gradient.raw(), to.raw());
        target.launch("fc_item_gate_gradient", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe { sys::fc_item_gate_gradient(&sizes, first, second, &x, &g, &to, stream) }
        })
    }
}
