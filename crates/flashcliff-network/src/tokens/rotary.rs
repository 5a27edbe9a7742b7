//! Rotary positions: pairs of scalar channels of queries and keys are turned by angles that grow with the position of the item.
//!
//! A head's scalar `c` of the first half is paired with `c + scalars / 2`, and turned by
//! `position * base^(-2 c / scalars)`. A dot product of a query and a key then depends on the difference of their
//! positions. A turn back is the gradient of a turn.

use super::chunk::{Chunk, Layout, Samples};
use super::features::Part;
use super::{Attention, Channels, number};
use crate::Number;

/// A turn of queries, keys and values side by side.
#[derive(Clone, Debug)]
pub struct Rotary {
    /// The attention whose input is turned.
    pub(crate) attention: Attention,
    pub(crate) base: u32,
    pub(crate) channels: Channels,
    pub(crate) blades: usize,
    /// The frequency of each pair of a head.
    frequencies: Vec<f64>,
    /// For each scalar its turn; values have none.
    turns: Vec<Option<Turn>>,
}

/// The turn of a scalar.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// The other scalar of its pair.
    partner: usize,
    /// The factor of the sine: -1 for the first of a pair, 1 for the second.
    sign: f64,
    /// The index of the frequency.
    pair: usize,
}

/// The direction of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Forth,
    Back,
}

impl Way {
    fn sign(self) -> f64 {
        match self {
            Self::Forth => 1.0,
            Self::Back => -1.0,
        }
    }
}

impl Rotary {
    /// The turns of the input of attention within one set. Its heads have an even number of scalars.
    pub fn new(attention: &Attention, base: u32) -> Self {
        let (channels, scalars) = (attention.input(), attention.head.scalars);
        let half = scalars / 2;
        let mut turns = vec![None; channels.scalars];
        for place in attention.places() {
            if place.part == Part::Value {
                continue;
            }
            for head in 0..place.heads {
                let at = |channel| place.scalar(channels, 0, head, channel);
                for pair in 0..half {
                    let (first, second) = (at(pair), at(pair + half));
                    let turn = |partner, sign| Turn {
                        partner,
                        sign,
                        pair,
                    };
                    turns[first] = Some(turn(second, -1.0));
                    turns[second] = Some(turn(first, 1.0));
                }
            }
        }
        let frequency =
            |pair: usize| f64::from(base).powf(-2.0 * pair as f64 / scalars.max(1) as f64);
        Self {
            attention: attention.clone(),
            base,
            channels,
            blades: attention.head.blades,
            frequencies: (0..half).map(frequency).collect(),
            turns,
        }
    }

    /// The frequencies of pairs.
    #[cfg(feature = "cuda")]
    pub(crate) fn frequencies(&self) -> &[f64] {
        &self.frequencies
    }

    /// For each scalar the other one of its pair, the factor of the sine, and the number of the frequency; `None` for one that stays.
    #[cfg(feature = "cuda")]
    pub(crate) fn pairs(&self) -> impl Iterator<Item = Option<(usize, f64, usize)>> {
        let turns = self.turns.iter();
        turns.map(|turn| turn.map(|turn| (turn.partner, turn.sign, turn.pair)))
    }

    /// Turns a chunk.
    pub(crate) fn turn<T: Number>(&self, chunk: &Chunk<'_>, way: Way, x: &[T], y: &mut [T]) {
        y.copy_from_slice(x);
        let layout = Layout {
            blades: self.blades,
            rows: chunk.rows(),
            channels: self.channels,
        };
        let ((_, s), (_, to)) = (layout.split(x), layout.split_mut(y));
        // Samples have the positions from 0 on; the items of a ragged batch are counted through.
        let (first, period) = match chunk.samples {
            Samples::Equal { items, .. } => (0, items),
            Samples::Ragged(bounds) => (bounds.first().copied().unwrap_or(0), chunk.rows()),
        };
        let table: Vec<(T, T)> = (first..first + period)
            .flat_map(|position| self.frequencies.iter().map(move |f| position as f64 * f))
            .map(|angle: f64| (number(way.sign() * angle.sin()), number(angle.cos())))
            .collect();
        let width = self.turns.len().max(1);
        let rows = s.chunks_exact(width).zip(to.chunks_exact_mut(width));
        for (row, (s, to)) in rows.enumerate() {
            let angles = &table[row % period.max(1) * self.frequencies.len()..];
            for ((to, &x), turn) in to.iter_mut().zip(s).zip(&self.turns) {
                let Some(turn) = turn else { continue };
                let (sin, cos) = angles[turn.pair];
                *to = x * cos + s[turn.partner] * sin * number(turn.sign);
            }
        }
    }
}
