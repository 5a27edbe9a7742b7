//! The parts of a chain, with the places of their tensors in shared memory.

use std::sync::Arc;

use flashcliff::cuda::chains::{Chain as Kernel, ChainTile};
use flashcliff::{Dtype, Operator};

use super::super::matrix::Layout;
use super::table;
use crate::Value;
use crate::plan::Plan;
use crate::tokens::lanes::Place;
use crate::tokens::{Channels, Lanes, Linear, Step};

/// The most components of the lane tensors of a program: one thread has all components of a channel in registers.
const MOST_COMPONENTS: usize = 112;

/// Where tokens are: in the memory of a value, in shared memory, or in both.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tokens {
    pub(super) value: Option<Value>,
    pub(super) tile: Option<ChainTile>,
    /// Whether products alone read them in shared memory.
    pub(super) rounds: bool,
}

/// A tensor of a program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    /// Some channels of tokens.
    Tokens(Tokens, Channels, Place),
    /// The number of each row in a value.
    Rows(Value),
    /// Parameters after so many others in what a step keeps.
    Parameters(Value, usize),
}

/// A part of a chain.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Copy {
        from: Value,
        width: usize,
        to: ChainTile,
    },
    Program {
        operator: Arc<Operator>,
        blades: usize,
        each: Channels,
        inputs: Vec<Operand>,
        outputs: Vec<Operand>,
    },
    Product {
        /// The node of the forward pass, whose table of columns the product takes.
        origin: usize,
        layout: Layout,
        /// The matrix with the bias.
        matrix: Value,
        from: ChainTile,
        to: Tokens,
    },
}

/// Why some calls are no chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda) enum Unfit {
    /// The channels of a linear map, of its input and of its result, are no whole units.
    Channels([Channels; 2]),
    /// Tiles need so many bytes of shared memory, more than there are.
    Room(usize),
    /// No chain has such work.
    Work,
}

/// A chain of calls before it is compiled.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) parts: Vec<Part>,
    /// The rows of a tile.
    pub(super) rows: usize,
    tiles: Vec<Life>,
}

/// A tile with the numbers of the parts that need it.
#[derive(Clone, Copy, Debug)]
struct Life {
    tile: ChainTile,
    from: usize,
    to: usize,
}

impl Draft {
    /// The chain of some calls, each of which reads what the one before makes.
    ///
    /// # Errors
    /// Why one of them cannot be a part of a chain.
    pub(super) fn of(plan: &Plan, calls: &[usize], rows: usize) -> Result<Self, Unfit> {
        let mut draft = Self {
            parts: Vec::new(),
            rows,
            tiles: Vec::new(),
        };
        // The tokens that the call before made.
        let mut last: Option<(Value, ChainTile)> = None;
        for (at, &call) in calls.iter().enumerate() {
            let (node, step) = (plan.node(call), plan.step(call).ok_or(Unfit::Work)?);
            let (made, next) = (node.outputs[0], calls.get(at + 1));
            let tokens = Tokens {
                value: plan.is_read_outside(calls, made).then_some(made),
                tile: None,
                rounds: next.is_some_and(|&next| matches!(plan.step(next), Some(Step::Linear(_)))),
            };
            let width = |channels: Channels| channels.width_over(step.blades());
            // A copy comes in front of the first product.
            let own = draft.parts.len() + usize::from(at == 0 && matches!(step, Step::Linear(_)));
            let to = Tokens {
                tile: next.map(|_| draft.tile(width(step.output()), [own, own + 1])),
                ..tokens
            };
            match step {
                Step::Linear(step) => {
                    let from = match last {
                        Some((_, tile)) => tile,
                        None => draft.copy(node.inputs[0], width(step.input)),
                    };
                    draft
                        .parts
                        .push(product(plan, call, step, [from.into(), to])?);
                }
                Step::Lanes(step) => {
                    let part = program(plan, (calls, call), step, last, to)?;
                    draft.parts.push(part);
                }
                _ => return Err(Unfit::Work),
            }
            last = to.tile.map(|tile| (made, tile));
        }
        Ok(draft)
    }

    /// The bytes of shared memory.
    pub(super) fn bytes(&self) -> usize {
        let ends = self
            .tiles
            .iter()
            .map(|own| own.tile.first + own.tile.len(self.rows));
        ends.max().unwrap_or(0) * Dtype::F32.bytes()
    }

    /// A part that copies rows of a value, for the next part.
    fn copy(&mut self, from: Value, width: usize) -> ChainTile {
        let own = self.parts.len();
        let to = self.tile(width, [own, own + 1]);
        self.parts.push(Part::Copy { from, width, to });
        to
    }

    /// The first free place for rows that the parts from one up to another need.
    fn tile(&mut self, width: usize, [from, to]: [usize; 2]) -> ChainTile {
        let rows = self.rows;
        let len = ChainTile::new(0, width).len(rows);
        let others = self.tiles.iter();
        let others = others.filter(|own| own.from <= to && from <= own.to);
        let others: Vec<Life> = others.copied().collect();
        let is_free = |first: usize| {
            let overlaps = |own: &Life| {
                first < own.tile.first + own.tile.len(rows) && own.tile.first < first + len
            };
            !others.iter().any(overlaps)
        };
        let ends = others.iter().map(|own| own.tile.first + own.tile.len(rows));
        let places = ends.chain([0]).filter(|&first| is_free(first));
        // The end of all is free.
        let tile = ChainTile::new(places.min().unwrap_or(0), width);
        self.tiles.push(Life { tile, from, to });
        tile
    }
}

impl From<ChainTile> for Tokens {
    fn from(tile: ChainTile) -> Self {
        Self {
            tile: Some(tile),
            ..Self::default()
        }
    }
}

fn product(
    plan: &Plan,
    call: usize,
    step: &Linear,
    [from, to]: [Tokens; 2],
) -> Result<Part, Unfit> {
    let node = plan.node(call);
    let sides = [step.input, step.output()];
    if !table::fits(sides, step.geometry.blades()) {
        return Err(Unfit::Channels(sides));
    }
    if plan.gathered.matrix_of(call).is_none() {
        return Err(Unfit::Work);
    }
    Ok(Part::Product {
        origin: node.origin,
        layout: Layout::of(step, Dtype::F32),
        matrix: node.outputs[1],
        from: from.tile.ok_or(Unfit::Work)?,
        to,
    })
}

fn program(
    plan: &Plan,
    (calls, call): (&[usize], usize),
    step: &Lanes,
    last: Option<(Value, ChainTile)>,
    to: Tokens,
) -> Result<Part, Unfit> {
    let (node, sum) = (plan.node(call), plan.sum_before(call));
    let operator = match sum {
        Some(_) => step.of_sums.clone().ok_or(Unfit::Work)?,
        None => step.operator.clone(),
    };
    let tensors = operator.inputs().iter().chain(operator.outputs());
    let components = tensors.filter_map(|spec| match spec.dims[..] {
        [flashcliff::Dim::Fixed(count), ..] => Some(count),
        _ => None,
    });
    let has_matrix = step.parameter_len() == 0 || plan.gathered.matrix_of(call).is_some();
    if !has_matrix || !Kernel::fits(&operator) || components.sum::<usize>() > MOST_COMPONENTS {
        return Err(Unfit::Work);
    }
    let read = |value: Value| match last {
        Some((made, tile)) if made == value => tile.into(),
        _ => Tokens {
            value: Some(value),
            ..Tokens::default()
        },
    };
    let x = sum.map_or(node.inputs[0], |sum| sum.inputs[0]);
    let of = |tokens: Tokens, channels: Channels, place: Place| match place {
        Place::Rows => Operand::Rows(node.inputs[1]),
        Place::Parameters { first, .. } => Operand::Parameters(node.outputs[1], first),
        _ => Operand::Tokens(tokens, channels, place),
    };
    let places = |places: &[Place], tokens: Tokens, channels: Channels| -> Vec<Operand> {
        places
            .iter()
            .map(|&place| of(tokens, channels, place))
            .collect()
    };
    let mut inputs = places(&step.inputs, read(x), step.input());
    let mut outputs = places(&step.outputs, to, step.output());
    if let Some(sum) = sum {
        let are_tokens =
            |place: &&Place| matches!(place, Place::Multivectors(_) | Place::Scalars(_));
        let among: Vec<Place> = step.inputs.iter().filter(are_tokens).copied().collect();
        let total = sum.outputs[0];
        let made = Tokens {
            value: plan.is_read_outside(calls, total).then_some(total),
            ..Tokens::default()
        };
        inputs.extend(places(&among, read(sum.inputs[1]), step.input()));
        outputs.extend(places(&among, made, step.input()));
    }
    Ok(Part::Program {
        operator,
        blades: step.blades,
        each: step.each,
        inputs,
        outputs,
    })
}
