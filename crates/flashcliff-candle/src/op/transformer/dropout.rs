//! Dropout of grades: each grade of a multivector channel, and each scalar, is 0 or scaled. It keeps nothing: the backward pass drops the same.

use candle_core::{Result, Tensor};
use flashcliff::dropout::{self, GradeDropout};

use super::Channels;
use super::chunk::Chunk;
use super::draw::Draw;
use super::geometry::Geometry;
use crate::Error;
use crate::op::Scalar;

/// Dropout with a probability. Without random numbers, outside of training, it does nothing.
#[derive(Debug)]
pub(crate) struct Dropout {
    pub(super) geometry: Geometry,
    pub(super) channels: Channels,
    p: f64,
    /// The number of this dropout among those that get the same random numbers.
    place: u64,
}

/// The random numbers of a pass for a chunk.
#[derive(Clone, Copy)]
pub(crate) struct Numbers {
    pub(super) key: u64,
    pub(super) step: u32,
}

impl Dropout {
    /// Dropout with a probability below 1. `place` is its number among those that get the same random numbers.
    pub(crate) fn new(
        geometry: Geometry,
        channels: Channels,
        p: f64,
        place: u64,
    ) -> std::result::Result<Self, Error> {
        if !(0.0..1.0).contains(&p) {
            return Err(Error::Option {
                option: "dropout",
                expected: "a probability below 1",
                got: p,
            });
        }
        Ok(Self {
            geometry,
            channels,
            p,
            place,
        })
    }

    /// The dropout of this place with the key of a pass.
    pub(super) fn of(&self, key: u64) -> GradeDropout {
        GradeDropout::new(self.p, dropout::key_of(key, self.place))
    }

    /// Applies dropout to tokens, or to their gradient.
    pub(super) fn drop<T: Scalar>(&self, chunk: &Chunk<'_, T>, x: &[T], y: &mut [T]) {
        y.copy_from_slice(x);
        let Some(Numbers { key, step }) = chunk.numbers else {
            return;
        };
        let drawn = self.of(key).at(step);
        let cayley = self.geometry.algebra.cayley();
        let (rows, channels) = (chunk.rows(), self.channels.multivectors);
        let of_row = cayley.grade_count() * channels + self.channels.scalars;
        let (mv, s) = chunk.split_mut(self.channels, y);
        for row in 0..rows {
            let first = (chunk.first_row + row) * of_row;
            for grade in 0..cayley.grade_count() {
                for channel in 0..channels {
                    let place = first + grade * channels + channel;
                    let factor: T = drawn.factor(place as u64);
                    for blade in cayley.grade_range(grade) {
                        mv[(blade * rows + row) * channels + channel] *= factor;
                    }
                }
            }
            let first = first + cayley.grade_count() * channels;
            let of_row = &mut s[row * self.channels.scalars..][..self.channels.scalars];
            for (at, s) in of_row.iter_mut().enumerate() {
                *s *= drawn.factor((first + at) as u64);
            }
        }
    }

    /// Tokens `[samples, items, width]` after dropout, by candle's operations.
    pub(super) fn compose(&self, x: &Tensor, draw: Option<&Draw>) -> Result<Tensor> {
        match draw {
            Some(draw) if x.elem_count() > 0 => x.mul(&self.factors(x, draw)?),
            _ => Ok(x.clone()),
        }
    }

    /// The factors of all numbers of tokens, in their type and on their device.
    fn factors(&self, like: &Tensor, draw: &Draw) -> Result<Tensor> {
        #[cfg(feature = "cuda")]
        if like.device().is_cuda() {
            return super::gpu::factors(self, like, draw);
        }
        let width = self.geometry.width(self.channels);
        let rows = like.elem_count() / width.max(1);
        let chunk = Chunk {
            numbers: Some(Numbers {
                key: draw.key(),
                step: draw.number()?,
            }),
            ..Chunk::of_rows(self.geometry.blades(), rows)
        };
        let ones = vec![1.0_f64; rows * width];
        let (mut dropped, mut packed) = (ones.clone(), ones.clone());
        self.drop(&chunk, &ones, &mut dropped);
        chunk.pack(self.channels, &dropped, &mut packed);
        let factors = Tensor::from_vec(packed, like.shape(), like.device())?;
        factors.to_dtype(like.dtype())
    }
}
