//! The components of multivectors as scalars: what layers see that know of no group.

use super::Channels;
use super::chunk::Layout;
use crate::Number;

/// Multivectors as scalars, or scalars as multivectors: the numbers of a token stay as they are, blade by blade, then
/// its scalars, and only their names change. A [linear layer](super::Linear), a [norm](super::Lanes::norm) and a
/// [gate](super::Lanes::gated) of these scalars are the plain ones, of each component by itself. They commute with a
/// group between [`Frames`](super::Frames) that do.
///
/// On GPUs nothing is copied, but for results of a network: both values lie in one memory.
#[derive(Clone, Debug)]
pub struct Components {
    pub(crate) blades: usize,
    pub(crate) channels: Channels,
    pub(crate) back: bool,
}

impl Components {
    /// Multivectors over so many blades, and scalars after them, as scalars.
    pub fn new(blades: usize, channels: Channels) -> Self {
        Self {
            blades,
            channels,
            back: false,
        }
    }

    /// Scalars as the multivectors, and the scalars after them, that [`Self::new`] makes them of.
    pub fn inverse(blades: usize, channels: Channels) -> Self {
        Self {
            back: true,
            ..Self::new(blades, channels)
        }
    }

    /// The channels of the components, which are scalars.
    pub fn components(&self) -> Channels {
        Channels::new(0, self.channels.width_over(self.blades))
    }

    pub(crate) fn input(&self) -> Channels {
        match self.back {
            true => self.components(),
            false => self.channels,
        }
    }

    pub(crate) fn output(&self) -> Channels {
        match self.back {
            true => self.channels,
            false => self.components(),
        }
    }

    /// Writes the tokens of a chunk of so many rows. Scalars without multivectors lie row by row.
    pub(crate) fn forward<T: Number>(&self, rows: usize, x: &[T], y: &mut [T]) {
        self.copy(self.back, rows, x, y);
    }

    /// Writes the gradient of tokens.
    pub(crate) fn backward<T: Number>(&self, rows: usize, g: &[T], to: &mut [T]) {
        self.copy(!self.back, rows, g, to);
    }

    fn copy<T: Number>(&self, back: bool, rows: usize, from: &[T], to: &mut [T]) {
        let layout = Layout {
            blades: self.blades,
            rows,
            channels: self.channels,
        };
        match back {
            true => layout.unpack(from, to),
            false => layout.pack(from, to),
        }
    }
}
