//! Rotary positions: pairs of scalar channels of queries and keys are turned by angles that grow with the position of the item.
//!
//! A head's scalar `c` of the first half is paired with `c + scalars / 2`, and turned by `position * base^(-2 c / scalars)`. A dot product of
//! a query and a key then depends on the difference of their positions. A turn back is the gradient of a turn.

use candle_core::{D, Result, Tensor};

use super::Channels;
use super::attention::Attention;
use super::chunk::{Chunk, Samples};
use super::constants::{constant, indices};
use super::features::Part;
use super::number;
use crate::op::Scalar;

/// A turn of queries, keys and values side by side.
#[derive(Debug)]
pub(crate) struct Rotary {
    pub(super) channels: Channels,
    blades: usize,
    /// The frequency of each pair of a head.
    frequencies: Vec<f64>,
    /// For each scalar its turn; values have none.
    turns: Vec<Option<Turn>>,
    /// A name of the turns, the same for those that are alike.
    name: String,
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
pub(super) enum Way {
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
    pub(crate) fn new(attention: &Attention, base: u32) -> Self {
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
        let (heads, shared) = (attention.heads, attention.shared);
        Self {
            channels,
            blades: attention.head.blades,
            frequencies: (0..half).map(frequency).collect(),
            turns,
            name: format!("{heads} heads of {scalars} scalars, shared {shared}, base {base}"),
        }
    }

    /// Turns a chunk.
    pub(super) fn turn<T: Scalar>(&self, chunk: &Chunk<'_, T>, way: Way, x: &[T], y: &mut [T]) {
        y.copy_from_slice(x);
        let ((_, s), (_, to)) = (
            chunk.split(self.channels, x),
            chunk.split_mut(self.channels, y),
        );
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

    /// Turns tokens `[samples, items, width]` by candle's operations. Tables are made once for each power of two of items.
    pub(super) fn turned(&self, x: &Tensor, way: Way) -> Result<Tensor> {
        let (_, items, _) = x.dims3()?;
        let (mv, width) = (self.blades * self.channels.multivectors, self.turns.len());
        if width == 0 || x.elem_count() == 0 {
            return Ok(x.clone());
        }
        let room = items.next_power_of_two();
        let table = |what: &str, of: &dyn Fn(Option<Turn>, f64) -> f64| {
            let values = || {
                let row = |position: usize| {
                    let angle = move |turn: Turn| position as f64 * self.frequencies[turn.pair];
                    let turns = self.turns.iter();
                    turns.map(move |&turn| of(turn, turn.map_or(0.0, angle)))
                };
                Ok((0..room).flat_map(row).collect())
            };
            let name = format!("{what} of {room} positions, {}", self.name);
            let table = constant(&name, values, x)?.reshape((room, width))?;
            table.narrow(0, 0, items)
        };
        let cos = table("cosines", &|_, angle| angle.cos())?;
        let sin = table("sines", &|turn, angle| {
            turn.map_or(0.0, |turn| turn.sign * angle.sin())
        })?;
        let sin = match way {
            Way::Forth => sin,
            Way::Back => sin.neg()?,
        };
        let partners = || {
            let partners = self.turns.iter().enumerate();
            let partners = partners.map(|(at, turn)| turn.map_or(at, |turn| turn.partner));
            partners
                .map(|at| u32::try_from(at).map_err(candle_core::Error::wrap))
                .collect()
        };
        let partners = indices(&format!("partners, {}", self.name), partners, x)?;
        let s = x.narrow(D::Minus1, mv, width)?.contiguous()?;
        let others = s.index_select(&partners, 2)?;
        let s = (s.broadcast_mul(&cos)? + others.broadcast_mul(&sin)?)?;
        match mv {
            0 => Ok(s),
            _ => Tensor::cat(&[&x.narrow(D::Minus1, 0, mv)?.contiguous()?, &s], D::Minus1),
        }
    }
}
