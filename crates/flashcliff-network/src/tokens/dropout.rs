//! Dropout of grades: each grade of a multivector channel, or each vector, and each scalar, is 0 or scaled. It keeps
//! nothing: the backward pass drops the same.

use flashcliff::dropout::{self, GradeDropout};

use super::chunk::{Chunk, Layout};
use super::{Channels, Geometry};
use crate::{Error, Number};

/// Dropout with a probability. Without random numbers, outside of training, it does nothing.
#[derive(Clone, Debug)]
pub struct Dropout {
    pub(crate) geometry: Geometry,
    pub(crate) channels: Channels,
    pub(crate) p: f64,
    /// The number of this dropout among those that get the same random numbers, within each group that it is in, the outermost first.
    pub(crate) places: Vec<u64>,
}

impl Dropout {
    /// Dropout with a probability below 1. `places` is its number within each group that it is in, the outermost
    /// first: two of the same places drop alike.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn new(
        geometry: Geometry,
        channels: Channels,
        p: f64,
        places: &[u64],
    ) -> Result<Self, Error> {
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
            places: places.to_vec(),
        })
    }

    /// The dropout of this place with the key of a run.
    pub(crate) fn of(&self, key: u64) -> GradeDropout {
        let key = self
            .places
            .iter()
            .fold(key, |key, &place| dropout::key_of(key, place));
        GradeDropout::new(self.p, key)
    }

    /// Applies dropout to tokens, or to their gradient.
    pub(crate) fn drop<T: Number>(&self, chunk: &Chunk<'_>, x: &[T], y: &mut [T]) {
        y.copy_from_slice(x);
        let Some(draw) = chunk.draw else {
            return;
        };
        let drawn = self.of(draw.key).at(draw.step);
        let grades: Vec<_> = self.geometry.grades().collect();
        let (rows, channels) = (chunk.rows(), self.channels.multivectors);
        let of_row = grades.len() * channels + self.channels.scalars;
        let layout = Layout {
            blades: self.geometry.blades(),
            rows,
            channels: self.channels,
        };
        let (mv, s) = layout.split_mut(y);
        for row in 0..rows {
            let first = (chunk.first_row + row) * of_row;
            for (grade, blades) in grades.iter().enumerate() {
                for channel in 0..channels {
                    let place = first + grade * channels + channel;
                    let factor: T = drawn.factor(place as u64);
                    for blade in blades.clone() {
                        mv[(blade * rows + row) * channels + channel] *= factor;
                    }
                }
            }
            let first = first + grades.len() * channels;
            let of_row = &mut s[row * self.channels.scalars..][..self.channels.scalars];
            for (at, s) in of_row.iter_mut().enumerate() {
                *s *= drawn.factor((first + at) as u64);
            }
        }
    }
}
