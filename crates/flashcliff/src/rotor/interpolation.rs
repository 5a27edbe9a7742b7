//! The path from one versor to another.

use std::borrow::Cow;

use flashcliff_program::rotor::Map;

use super::items::check_all;
use super::programs::passes;
use super::{Parity, Rotors};
use crate::{Element, Error, Tensor, TensorMut};

/// The gradients of an interpolation to write; `None` for those that are not wanted.
#[derive(Debug)]
pub struct InterpolationGradients<'a, T> {
    /// The gradient of `a`, in its shape.
    pub a: Option<TensorMut<'a, T>>,
    /// The gradient of `b`, in its shape.
    pub b: Option<TensorMut<'a, T>>,
    /// The gradient of `t` for each item, `[batch, channels]`. Where `t` is repeated along an axis, its gradient is the sum along it.
    pub t: Option<TensorMut<'a, T>>,
}

impl Rotors {
    /// Interpolates between versors: `a exp(t log(reverse(a) b))`, with `a` at `t = 0` and `b` or `-b` at `t = 1`.
    ///
    /// `b` and `-b` act alike; the one nearer to `a` is taken. Versors are normalised. For rotors of space this is
    /// the spherical linear interpolation of quaternions, for motors the screw motion at constant speed.
    ///
    /// | tensor | shape |
    /// |---|---|
    /// | `a`, `b`, `out` | `[blades of the parity, batch, channels]` |
    /// | `t` | `[batch, channels]`; an axis of length 1 is repeated |
    ///
    /// Numbers outside of 0 to 1 go on along the path.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if the tensors do not have these shapes.
    ///
    /// ```
    /// use flashcliff::rotor::{Parity, Rotors};
    /// use flashcliff::{Algebra, Signature, Tensor, TensorMut};
    ///
    /// // Mirrors of space: half of the way from the one across e1 to the one across e2.
    /// let rotors = Rotors::new(Algebra::new(Signature::new(3, 0, 0)?)?)?;
    /// let shape = [4, 1, 1];
    /// let a = Tensor::new(&[1.0, 0.0, 0.0, 0.0], &shape)?;
    /// let b = Tensor::new(&[0.0, 1.0, 0.0, 0.0], &shape)?;
    /// let mut out = [0.0_f64; 4];
    /// rotors.interpolate(Parity::Odd, [a, b], Tensor::new(&[0.5], &[1, 1])?, TensorMut::new(&mut out, &shape)?)?;
    /// assert!((out[0] - 0.5_f64.sqrt()).abs() < 1e-15 && (out[1] - 0.5_f64.sqrt()).abs() < 1e-15);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn interpolate<T: Element>(
        &self,
        parity: Parity,
        ends: [Tensor<'_, T>; 2],
        t: Tensor<'_, T>,
        out: TensorMut<'_, T>,
    ) -> Result<(), Error> {
        T::interpolate(self, parity, ends, t, out)
    }

    pub(super) fn interpolate_here<T: Element>(
        &self,
        parity: Parity,
        [a, b]: [Tensor<'_, T>; 2],
        t: Tensor<'_, T>,
        mut out: TensorMut<'_, T>,
    ) -> Result<(), Error> {
        let count = self.versor_blades(parity);
        let others = [("b", count, b.shape()), ("out", count, out.shape())];
        let items = check_all("interpolate", ("a", count, a.shape()), &others)?;
        let t = positions(t, a)?;
        match passes(self.algebra, Map::Interpolate(parity as usize))? {
            Some(passes) => {
                let inputs = [a.data(), b.data(), &t];
                passes.map.run(items, &inputs, &mut [Some(out.data_mut())])
            }
            // Nothing has no odd versors.
            None => Ok(()),
        }
    }

    /// Computes the gradients of [`interpolate`](Self::interpolate) from the gradient of its output.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if the tensors do not have the shapes of [`interpolate`](Self::interpolate) and of
    /// [`InterpolationGradients`].
    #[inline]
    pub fn interpolate_gradient<T: Element>(
        &self,
        parity: Parity,
        ends: [Tensor<'_, T>; 2],
        t: Tensor<'_, T>,
        grad: Tensor<'_, T>,
        outs: InterpolationGradients<'_, T>,
    ) -> Result<(), Error> {
        T::interpolate_gradient(self, parity, ends, t, grad, outs)
    }

    pub(super) fn interpolate_gradient_here<T: Element>(
        &self,
        parity: Parity,
        [a, b]: [Tensor<'_, T>; 2],
        t: Tensor<'_, T>,
        grad: Tensor<'_, T>,
        mut outs: InterpolationGradients<'_, T>,
    ) -> Result<(), Error> {
        let count = self.versor_blades(parity);
        let mut others = vec![("b", count, b.shape()), ("grad", count, grad.shape())];
        let wanted = [&outs.a, &outs.b].into_iter().flatten();
        others.extend(wanted.map(|out| ("gradient", count, out.shape())));
        let items = check_all("interpolate", ("a", count, a.shape()), &others)?;
        let t = positions(t, a)?;
        if let Some(out) = &outs.t {
            let rest = &a.shape()[1..];
            if out.shape() != rest {
                let expected = format!("[{}, {}]", rest[0], rest[1]);
                return Err(mismatch("gradient of t", expected, out.shape()));
            }
        }
        let Some(passes) = passes(self.algebra, Map::Interpolate(parity as usize))? else {
            if let Some(mut out) = outs.t {
                out.data_mut().fill(T::from_f64(0.0));
            }
            return Ok(());
        };
        let inputs = [a.data(), b.data(), &t, grad.data()];
        let mut outputs = [&mut outs.a, &mut outs.b, &mut outs.t]
            .map(|out| out.as_mut().map(TensorMut::data_mut));
        passes.gradient.run(items, &inputs, &mut outputs)
    }
}

/// The positions `t` of items, repeated along axes of length 1. Versors without elements need none: they may have any number of items.
fn positions<'a, T: Element>(
    t: Tensor<'a, T>,
    versors: Tensor<'a, T>,
) -> Result<Cow<'a, [T]>, Error> {
    let (batch, channels) = (versors.shape()[1], versors.shape()[2]);
    match *t.shape() {
        [rows, columns] if [rows, columns] == [batch, channels] => Ok(Cow::Borrowed(t.data())),
        [rows, columns] if [1, batch].contains(&rows) && [1, channels].contains(&columns) => {
            if versors.data().is_empty() {
                return Ok(Cow::Borrowed(&[]));
            }
            let row = |row: usize| &t.data()[row.min(rows - 1) * columns..][..columns];
            let of_row = |at: usize| {
                let row = row(at);
                (0..channels).map(move |channel| row[channel.min(columns - 1)])
            };
            Ok((0..batch).flat_map(of_row).collect())
        }
        ref got => {
            let expected =
                format!("[{batch}, {channels}], or 1 for an axis along which it is repeated");
            Err(mismatch("t", expected, got))
        }
    }
}

fn mismatch(tensor: &str, expected: String, got: &[usize]) -> Error {
    Error::ShapeMismatch {
        operator: "interpolate".to_owned(),
        tensor: tensor.to_owned(),
        expected,
        got: got.to_vec(),
    }
}
