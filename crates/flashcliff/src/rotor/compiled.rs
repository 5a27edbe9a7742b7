//! The functions of rotors, compiled for each type of elements.

use super::{Action, ActionGradients, InterpolationGradients, Parity, RotorMap, Rotors};
use crate::compiled::compiled_here;
use crate::{Error, Tensor, TensorMut};

compiled_here! {
    /// The functions of [`Rotors`] and [`Action`].
    trait Compiled {
        fn rotor_map(
            of: &Rotors,
            map: RotorMap,
            x: Tensor<'_, Self>,
            out: TensorMut<'_, Self>,
        ) -> Result<(), Error> {
            of.map_here(map, x, out)
        }

        fn rotor_gradient(
            of: &Rotors,
            map: RotorMap,
            x: Tensor<'_, Self>,
            grad: Tensor<'_, Self>,
            out: TensorMut<'_, Self>,
        ) -> Result<(), Error> {
            of.gradient_here(map, x, grad, out)
        }

        fn interpolate(
            of: &Rotors,
            parity: Parity,
            ends: [Tensor<'_, Self>; 2],
            t: Tensor<'_, Self>,
            out: TensorMut<'_, Self>,
        ) -> Result<(), Error> {
            of.interpolate_here(parity, ends, t, out)
        }

        fn interpolate_gradient(
            of: &Rotors,
            parity: Parity,
            ends: [Tensor<'_, Self>; 2],
            t: Tensor<'_, Self>,
            grad: Tensor<'_, Self>,
            outs: InterpolationGradients<'_, Self>,
        ) -> Result<(), Error> {
            of.interpolate_gradient_here(parity, ends, t, grad, outs)
        }

        fn action_forward(
            of: &Action,
            x: Tensor<'_, Self>,
            versors: Tensor<'_, Self>,
            weight: Tensor<'_, Self>,
            workspace: &mut [Self],
            out: TensorMut<'_, Self>,
        ) -> Result<(), Error> {
            of.forward_here(x, versors, weight, workspace, out)
        }

        fn action_backward(
            of: &Action,
            x: Tensor<'_, Self>,
            versors: Tensor<'_, Self>,
            weight: Tensor<'_, Self>,
            grad: Tensor<'_, Self>,
            workspace: &mut [Self],
            outs: ActionGradients<'_, Self>,
        ) -> Result<(), Error> {
            of.backward_here(x, versors, weight, grad, workspace, outs)
        }
    }
}
