//! Which warp of a chain has which columns of a product.
//!
//! Columns are counted in units of eight neighbouring channels of a blade, and units come in pairs. A block is what
//! the matrix has between a pair of inputs and a pair of outputs. Pairs of outputs whose blocks are the same, but for signs, are members
//! of one item, which reads the weights of the first of them: in the matrix of an equivariant map these are blades of a grade.

use std::cmp::Reverse;
use std::collections::HashMap;

use flashcliff::cuda::chains::Chain;

use super::super::matrix::Layout;
use crate::tokens::Channels;

/// The first columns of two units, the second of which may be missing.
type Pair = (usize, Option<usize>);
/// An element of the matrix: its parameter and a factor.
type Source = (Option<usize>, f64);

/// The table of a product, and the places of its weights in the matrix, in the order in which warps read them; `None` for a weight of zero.
#[derive(Debug, Default)]
pub(in crate::cuda::tokens) struct Table {
    pub(in crate::cuda::tokens) warps: [[i32; 4]; Chain::WARPS],
    pub(in crate::cuda::tokens) numbers: Vec<i64>,
    pub(in crate::cuda::tokens) weights: Vec<Option<usize>>,
}

/// A pair of inputs, and whether the block has another sign than that of the first member.
#[derive(Clone, Copy, Debug)]
struct StepOf {
    input: usize,
    is_negative: bool,
}

/// Pairs of outputs with the same blocks but for signs, each with its steps.
type Members = Vec<(usize, Vec<StepOf>)>;

/// The members that a warp takes at once, with the same steps. Steps in which no member has another sign come first.
struct Item {
    cost: usize,
    members: Members,
    plain: usize,
}

/// The elements of a block, of which the first factor is positive, and whether it was negative.
type Block = (Vec<(Option<usize>, u64)>, bool);

/// Whether the channels on both sides of a map are whole units.
pub(super) fn fits(sides: [Channels; 2], blades: usize) -> bool {
    sides.iter().all(|own| {
        let is_whole = |count: usize| count.is_multiple_of(Chain::UNIT);
        is_whole(own.multivectors)
            && is_whole(own.scalars)
            && own.width_over(blades) < Chain::COLUMNS
    })
}

impl Table {
    /// The table of a matrix between channels of multivectors with so many blades.
    pub(in crate::cuda::tokens) fn of(
        layout: Layout,
        sources: &[Source],
        blades: usize,
        [inputs, outputs]: [Channels; 2],
    ) -> Self {
        let [inputs, outputs] = [pairs(blades, inputs), pairs(blades, outputs)];
        let block = |[from, to]: [&Pair; 2]| block(layout, sources, [from, to]);
        let warps = shared_out(items(&inputs, &outputs, block));
        let has_bias = |column: usize| sources[layout.bias + column] != (None, 0.0);
        let mut weights = Vec::new();
        for (to, steps) in warps
            .iter()
            .flatten()
            .filter_map(|item| item.members.first())
        {
            for step in steps {
                weights.extend(weights_of(layout, [&inputs[step.input], &outputs[*to]]));
            }
        }
        // A warp reads two steps more than it takes.
        weights.extend([None; 2 * Chain::STEP]);
        let (of_warps, numbers) = numbers(&warps, [&inputs, &outputs], has_bias);
        let mut own = [[0; 4]; Chain::WARPS];
        for (own, counts) in own.iter_mut().zip(of_warps) {
            // Words of a table that is indexed by `i32`.
            *own = counts.map(|count| count as i32);
        }
        Self {
            warps: own,
            numbers,
            weights,
        }
    }
}

/// The pairs of units of channels.
fn pairs(blades: usize, channels: Channels) -> Vec<Pair> {
    let parts = (0..blades).map(|blade| (blade * channels.multivectors, channels.multivectors));
    let scalars = (blades * channels.multivectors, channels.scalars);
    let mut pairs = Vec::new();
    for (first, count) in parts.chain([scalars]) {
        let units: Vec<usize> = (first..first + count).step_by(Chain::UNIT).collect();
        pairs.extend(units.chunks(2).map(|own| (own[0], own.get(1).copied())));
    }
    pairs
}

/// The columns of a pair.
fn columns((first, second): Pair) -> impl Iterator<Item = Option<usize>> + Clone {
    let units = [Some(first), second].into_iter();
    units.flat_map(|unit| (0..Chain::UNIT).map(move |at| Some(unit? + at)))
}

/// The block between two pairs; `None` for a block of zeros.
fn block(layout: Layout, sources: &[Source], [from, to]: [&Pair; 2]) -> Option<Block> {
    let of = |row: Option<usize>, column: Option<usize>| match (row, column) {
        (Some(row), Some(column)) => sources[row * layout.outputs + column],
        _ => (None, 0.0),
    };
    let rows = columns(*from).flat_map(|row| columns(*to).map(move |column| (row, column)));
    let elements: Vec<Source> = rows.map(|(row, column)| of(row, column)).collect();
    let first = elements.iter().find(|(_, factor)| *factor != 0.0)?;
    let is_negative = first.1 < 0.0;
    let sign = if is_negative { -1.0 } else { 1.0 };
    // Zeros have one sign.
    let bits = |factor: f64| (sign * factor + 0.0).to_bits();
    let elements = elements.into_iter();
    let normal = elements.map(|(source, factor)| (source, bits(factor)));
    Some((normal.collect(), is_negative))
}

/// All items, each with at most [`Chain::MEMBERS`] members.
fn items(
    inputs: &[Pair],
    outputs: &[Pair],
    block: impl Fn([&Pair; 2]) -> Option<Block>,
) -> Vec<Item> {
    let mut blocks = HashMap::new();
    // The blocks of a pair of outputs, whether it has two units, and the place of its class.
    let mut known: HashMap<(Vec<usize>, bool), usize> = HashMap::new();
    let mut classes: Vec<Members> = Vec::new();
    for (at, to) in outputs.iter().enumerate() {
        let mut steps = Vec::new();
        for (input, from) in inputs.iter().enumerate() {
            if let Some((own, is_negative)) = block([from, to]) {
                let next = blocks.len();
                let number = *blocks.entry(own).or_insert(next);
                steps.push((number, input, is_negative));
            }
        }
        steps.sort_unstable();
        let numbers = steps.iter().map(|&(number, ..)| number).collect();
        let class = *known.entry((numbers, to.1.is_some())).or_insert_with(|| {
            classes.push(Members::new());
            classes.len() - 1
        });
        let steps = steps.into_iter();
        let steps = steps.map(|(_, input, is_negative)| StepOf { input, is_negative });
        classes[class].push((at, steps.collect()));
    }
    classes.into_iter().flat_map(divided).collect()
}

/// The items of a class. Members with the same signs come together, as far as they do.
fn divided(mut members: Members) -> Vec<Item> {
    let signs =
        |steps: &[StepOf]| -> Vec<bool> { steps.iter().map(|own| own.is_negative).collect() };
    members.sort_by_key(|(_, steps)| signs(steps));
    let mut items = Vec::new();
    while !members.is_empty() {
        let rest = members.split_off(members.len().min(Chain::MEMBERS));
        items.push(item(std::mem::replace(&mut members, rest)));
    }
    items
}

/// An item of members that have the signs of their blocks. Its work costs products, and weights and sums around them.
fn item(mut members: Members) -> Item {
    let first = members.first().map_or(&[][..], |(_, steps)| steps);
    let signs: Vec<bool> = first.iter().map(|step| step.is_negative).collect();
    for (_, steps) in &mut members {
        for (step, sign) in steps.iter_mut().zip(&signs) {
            step.is_negative ^= sign;
        }
    }
    let is_plain = |at: usize| members.iter().all(|(_, steps)| !steps[at].is_negative);
    let (mut order, signed): (Vec<usize>, Vec<usize>) =
        (0..signs.len()).partition(|&at| is_plain(at));
    let plain = order.len();
    order.extend(signed);
    for (_, steps) in &mut members {
        *steps = order.iter().map(|&at| steps[at]).collect();
    }
    Item {
        cost: order.len() * (4 * members.len() + 3) + 8 * members.len() + 12,
        members,
        plain,
    }
}

/// The items of each warp: the longest first, each to the warp that has least to do.
fn shared_out(mut items: Vec<Item>) -> Vec<Vec<Item>> {
    items.sort_by_key(|item| Reverse(item.cost));
    let mut warps: Vec<(usize, Vec<Item>)> = (0..Chain::WARPS).map(|_| (0, Vec::new())).collect();
    for item in items {
        if let Some(least) = warps.iter_mut().min_by_key(|(cost, _)| *cost) {
            least.0 += item.cost;
            least.1.push(item);
        }
    }
    warps.into_iter().map(|(_, items)| items).collect()
}

/// The numbers of each warp, and the words of two numbers that the kernel reads: words of items, then of steps.
fn numbers(
    warps: &[Vec<Item>],
    [inputs, outputs]: [&[Pair]; 2],
    has_bias: impl Fn(usize) -> bool,
) -> (Vec<[usize; 4]>, Vec<i64>) {
    let count: usize = warps.iter().map(Vec::len).sum();
    let [mut first_item, mut first_step] = [0, 2 * count];
    let (mut of_warps, mut of_items, mut of_steps) = (Vec::new(), Vec::new(), Vec::new());
    let mut done = 0;
    let biases = |pair: Pair| columns(pair).flatten().any(&has_bias);
    for items in warps {
        of_warps.push([first_item, items.len(), first_step, done]);
        for Item { members, plain, .. } in items {
            let steps = members.first().map_or(0, |(_, steps)| steps.len());
            let biased = members
                .iter()
                .enumerate()
                .filter(|(_, (to, _))| biases(outputs[*to]));
            let biased = biased.fold(0, |set, (member, _)| set | 1 << member);
            of_items.push(both([steps as i64, *plain as i64]));
            of_items.push(both([members.len() as i64, biased]));
            of_items.extend(word(members.iter().map(|(to, _)| {
                let (first, second) = outputs[*to];
                [unit(first), second.map_or(Chain::NONE, unit)]
            })));
            for at in 0..steps {
                of_steps.extend(word(members.iter().map(|(_, steps)| {
                    let StepOf { input, is_negative } = steps[at];
                    let sign = if is_negative { Chain::NEGATIVE } else { 0 };
                    // A unit that is not there is the other one, and its weights are zero.
                    let (first, second) = inputs[input];
                    [first, second.unwrap_or(first)].map(|own| unit(own) | sign)
                })));
            }
            first_step += steps;
            done += steps;
        }
        first_item += 2 * items.len();
    }
    // A warp reads two steps more than it takes, and one item.
    (of_warps, [of_items, of_steps, vec![0; 4]].concat())
}

/// The pairs of both members.
fn word(pairs: impl Iterator<Item = [i64; 2]>) -> [i64; Chain::MEMBERS] {
    let mut word = [0; Chain::MEMBERS];
    for (own, pair) in word.iter_mut().zip(pairs) {
        *own = both(pair);
    }
    word
}

/// Two numbers of 16 bits as the bits of an `i32`.
fn both([first, second]: [i64; 2]) -> i64 {
    i64::from((first | second << 16) as i32)
}

/// The number of a unit.
fn unit(first: usize) -> i64 {
    (first / Chain::UNIT) as i64
}

/// The places of the weights of a step. For each unit of inputs lane 4 g + t has inputs 2 t and 2 t + 1, and the outputs 2 g and 2 g + 1.
fn weights_of(layout: Layout, [from, to]: [&Pair; 2]) -> Vec<Option<usize>> {
    let columns: Vec<Option<usize>> = columns(*to).collect();
    let mut weights = Vec::with_capacity(Chain::STEP);
    for unit in [Some(from.0), from.1] {
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4);
            for (output, input) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let place = unit.zip(columns[2 * g + output]);
                weights.push(
                    place.map(|(row, column)| (row + 2 * t + input) * layout.outputs + column),
                );
            }
        }
    }
    weights
}

#[cfg(test)]
mod tests {
    use flashcliff::Dtype;

    use super::super::super::matrix;
    use super::*;
    use crate::tokens::{Geometry, Linear};

    /// The matrix that a table stands for, read as the kernel reads it, and how often each column is written.
    fn read(table: &Table, layout: Layout, sources: &[Source]) -> (Vec<Source>, Vec<usize>) {
        let word = |at: usize| -> [usize; 4] {
            std::array::from_fn(|i| table.numbers[2 * at + i] as u32 as usize)
        };
        let split = |own: usize| [own & 0xffff, own >> 16];
        let unit = |pair: usize, at: usize| pair >> (16 * (at / 8)) & 0xffff;
        let mut matrix = vec![(None, 0.0); layout.inputs * layout.outputs];
        let mut written = vec![0; layout.outputs];
        for warp in 0..Chain::WARPS {
            let [first, items, mut inputs, mut step] = table.warps[warp].map(|own| own as usize);
            for item in 0..items {
                let [counts, of_members, ref outputs @ ..] = word(first + 2 * item);
                let ([steps, plain], [members, biased]) = (split(counts), split(of_members));
                assert!((1..=Chain::MEMBERS).contains(&members));
                for at in 0..steps {
                    let (pairs, weights) = (word(inputs), &table.weights[step * Chain::STEP..]);
                    (inputs, step) = (inputs + 1, step + 1);
                    let all =
                        (0..Chain::STEP).flat_map(|at| (0..members).map(move |own| (at, own)));
                    for (place, member) in all {
                        let (of_input, lane, i) = (place / 128, place / 4 % 32, place % 4);
                        let (k, n) = (
                            8 * of_input + 2 * (lane % 4) + i % 2,
                            2 * (lane / 4) + i / 2,
                        );
                        let (from, to) = (unit(pairs[member], k), unit(outputs[member], n));
                        let negative = from & 0x8000 > 0;
                        assert!(!negative || (at >= plain && member > 0));
                        let row = 8 * (from & 0x3fff) + k % 8;
                        assert!(row < layout.inputs, "numbers of the row");
                        let Some(weight) = weights[place] else {
                            continue;
                        };
                        let (source, factor) = sources[weight];
                        if source.is_none() && factor == 0.0 {
                            continue;
                        }
                        assert_ne!(to, 0xffff);
                        let own = &mut matrix[row * layout.outputs + 8 * to + n % 8];
                        assert_eq!(*own, (None, 0.0), "once");
                        *own = (source, if negative { -factor } else { factor });
                    }
                }
                for (member, &pair) in outputs.iter().enumerate().take(members) {
                    for n in 0..16 {
                        let to = unit(pair, n);
                        if to != 0xffff {
                            let column = 8 * to + n % 8;
                            written[column] += 1;
                            let has_bias = sources[layout.bias + column] != (None, 0.0);
                            assert!(biased >> member & 1 > 0 || !has_bias);
                        }
                    }
                }
            }
            assert!(2 * (inputs + 2) <= table.numbers.len());
            assert!((step + 2) * Chain::STEP <= table.weights.len());
        }
        (matrix, written)
    }

    #[test]
    fn items_stand_for_the_matrix() {
        let (gatr, lgatr) = (Geometry::gatr().unwrap(), Geometry::lgatr_2().unwrap());
        let cases = [
            (gatr, Channels::new(8, 16), Channels::new(24, 8)),
            (gatr, Channels::new(8, 0), Channels::new(16, 24)),
            (lgatr, Channels::new(16, 32), Channels::new(16, 32)),
            (lgatr, Channels::new(24, 8), Channels::new(8, 0)),
        ];
        for (geometry, input, output) in cases {
            let beside = Linear::beside_scalars(geometry, input, &[output.multivectors; 2]);
            for step in [
                Linear::new(geometry, input, vec![output]).unwrap(),
                beside.unwrap(),
            ] {
                let layout = Layout::of(&step, Dtype::F32);
                let sources = matrix::sources(&step, layout).unwrap();
                let blades = geometry.blades();
                assert!(fits([step.input, step.output()], blades));
                let table = Table::of(layout, &sources, blades, [step.input, step.output()]);
                let (matrix, written) = read(&table, layout, &sources);
                assert_eq!(written, vec![1; layout.outputs]);
                let same = |(own, other): (&Source, &Source)| own.0 == other.0 && own.1 == other.1;
                assert!(matrix.iter().zip(&sources).all(same), "{step:?}");
            }
        }
    }

    #[test]
    fn blades_of_a_grade_share_weights() {
        let (geometry, channels) = (Geometry::gatr().unwrap(), Channels::new(16, 0));
        let step = Linear::new(geometry, channels, vec![channels]).unwrap();
        let layout = Layout::of(&step, Dtype::F32);
        let sources = matrix::sources(&step, layout).unwrap();
        let table = Table::of(layout, &sources, geometry.blades(), [channels; 2]);
        // Several items read the weights of a grade with more than two blades.
        let steps = table.weights.len() / Chain::STEP - 2;
        let filled = sources
            .iter()
            .filter(|(source, _)| source.is_some())
            .count()
            / 256;
        assert_eq!([steps, filled], [18, 24]);
    }

    #[test]
    fn channels_are_whole_units() {
        assert!(fits([Channels::new(8, 16), Channels::new(24, 0)], 16));
        assert!(!fits([Channels::new(8, 16), Channels::new(24, 4)], 16));
        assert!(!fits([Channels::new(4, 8), Channels::new(24, 8)], 16));
        assert!(!fits([Channels::new(8, 8), Channels::new(8192, 0)], 16));
    }
}
