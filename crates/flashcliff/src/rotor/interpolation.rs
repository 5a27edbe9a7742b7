//! The path from one versor to another.

use super::items::{ITEM_FLOPS, check_all, gather, pull_back, run};
use super::number::{Jet, Number};
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
        out: TensorMut<'_, T>,
    ) -> Result<(), Error> {
        let blades = &self.tables.versors[parity as usize][..];
        let count = blades.len();
        let others = [("b", count, b.shape()), ("out", count, out.shape())];
        let items = check_all("interpolate", ("a", count, a.shape()), &others)?;
        let t = Positions::new(t, a.shape())?;
        run(out, items, 2 * ITEM_FLOPS, |item, write| {
            let ends = [a, b].map(|x| gather(&x, blades, items, item, |value, _| value));
            let ends = [&ends[0], &ends[1]];
            let result = self
                .tables
                .maps
                .interpolate(ends, t.of(item), parity as usize);
            for (to, &blade) in blades.iter().enumerate() {
                write(to, result[blade]);
            }
        });
        Ok(())
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
        outs: InterpolationGradients<'_, T>,
    ) -> Result<(), Error> {
        let blades = &self.tables.versors[parity as usize][..];
        let count = blades.len();
        let mut others = vec![("b", count, b.shape()), ("grad", count, grad.shape())];
        let wanted = [&outs.a, &outs.b].into_iter().flatten();
        others.extend(wanted.map(|out| ("gradient", count, out.shape())));
        let items = check_all("interpolate", ("a", count, a.shape()), &others)?;
        let positions = Positions::new(t, a.shape())?;
        if let Some(out) = &outs.t {
            let rest = &a.shape()[1..];
            if out.shape() != rest {
                let expected = format!("[{}, {}]", rest[0], rest[1]);
                return Err(mismatch("gradient of t", expected, out.shape()));
            }
        }
        for (side, out) in [outs.a, outs.b].into_iter().enumerate() {
            let Some(out) = out else { continue };
            run(out, items, 32 * ITEM_FLOPS, |item, write| {
                let mut ends =
                    [a, b].map(|x| gather(&x, blades, items, item, |v, _| Jet::constant(v)));
                let from = [a, b][side];
                ends[side] = gather(&from, blades, items, item, Jet::<16>::input);
                let t = Jet::constant(positions.of(item));
                let ends = [&ends[0], &ends[1]];
                let result = self.tables.maps.interpolate(ends, t, parity as usize);
                let total = pull_back(&result, blades, &grad, items, item);
                for (to, &slope) in total.iter().enumerate().take(count) {
                    write(to, slope);
                }
            });
        }
        if let Some(out) = outs.t {
            run(out, items, 4 * ITEM_FLOPS, |item, write| {
                let ends = [a, b].map(|x| gather(&x, blades, items, item, |v, _| Jet::constant(v)));
                let t = Jet::<1>::input(positions.of(item), 0);
                let ends = [&ends[0], &ends[1]];
                let result = self.tables.maps.interpolate(ends, t, parity as usize);
                write(0, pull_back(&result, blades, &grad, items, item)[0]);
            });
        }
        Ok(())
    }
}

/// The positions `t` of items, repeated along axes of length 1.
struct Positions<'a, T> {
    data: &'a [T],
    channels: usize,
    strides: [usize; 2],
}

impl<'a, T: Element> Positions<'a, T> {
    fn new(t: Tensor<'a, T>, versors: &[usize]) -> Result<Self, Error> {
        let (batch, channels) = (versors[1], versors[2]);
        let shape = t.shape().to_vec();
        match shape[..] {
            [rows, columns] if [1, batch].contains(&rows) && [1, channels].contains(&columns) => {
                Ok(Self {
                    data: t.data(),
                    channels,
                    strides: [
                        if rows == batch { columns } else { 0 },
                        usize::from(columns == channels),
                    ],
                })
            }
            _ => {
                let expected =
                    format!("[{batch}, {channels}], or 1 for an axis along which it is repeated");
                Err(mismatch("t", expected, &shape))
            }
        }
    }

    fn of(&self, item: usize) -> f64 {
        let (row, column) = (item / self.channels, item % self.channels);
        self.data[row * self.strides[0] + column * self.strides[1]].to_f64()
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
