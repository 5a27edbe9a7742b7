//! Messages on the CPU: an operator on each row of a relation, whose tensors are of rows or of what
//! rows belong to, and sums of its results.
//!
//! ```text
//! o[:, i] = sum over the rows e of target i of operator(x[:, end of e], y[:, e], ...)
//! ```
//! The gradient of such a function is one too, of the operator's [gradient](Operator::gradient):
//! with tensors and sums of the same rows and targets.
//!
//! Rows are computed some at a time, so that copies of their tensors stay in the caches. Each task
//! has whole targets, and adds the results of a target row by row, in order. So results depend
//! neither on threads nor on how rows are cut, bit for bit.
//!
//! ```
//! use flashcliff::messages::{self, End, MessageForm, MessageTensor, Messages, Strided};
//! use flashcliff::segments::Lists;
//! use flashcliff::{Algebra, ProductKind, Signature, ops};
//!
//! // Rows 0 and 2 belong to target 1, row 1 to target 0, and none to target 2.
//! let lists = Lists { targets: &[1, 0, 1], starts: &[0, 1, 3, 3], order: &[1, 0, 2] };
//! let of = |end| MessageTensor { end, one: false };
//! let form = MessageForm {
//!     inputs: vec![of(End::Targets(0)), of(End::Rows)],
//!     to: End::Targets(0),
//!     sums: vec![false],
//! };
//!
//! // The algebra of numbers: the sum of `x y`.
//! let numbers = Algebra::new(Signature::new(0, 0, 0)?)?;
//! let product = ops::product(numbers, ProductKind::Geometric, None, None)?;
//! let (x, y) = ([5.0_f32, 3.0, 1.0], [1.0, 10.0, 100.0]);
//! let [x, y] = [&x, &y].map(|data| Strided { data, component: 3, item: 1 });
//! let call = Messages { inputs: &[x, y], relations: &[lists], channels: 1 };
//! let mut sums = [0.0; 3];
//! messages::run(&product, &form, &call, vec![&mut sums[..]])?;
//! assert_eq!(sums, [50.0, 303.0, 0.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;

use crate::segments::Lists;
use crate::tensor::Shape;
use crate::{Dim, Dims, Element, Error, Operator, Tensor, TensorMut, TensorSpec, threads};

/// The bytes of all tensors of the rows that are computed at a time: part of a second cache.
const CHUNK_BYTES: usize = 3 << 17;
/// The fewest and the most rows that are computed at a time.
const CHUNK_ROWS: [usize; 2] = [16, 256];
/// A task has at least so many times the rows that are computed at a time.
const TASK_CHUNKS: usize = 4;
/// The most tasks, but for one: a task begins with a target.
const MOST_TASKS: usize = 256;
/// The channels that are added at a time.
const BLOCK: usize = 8;

/// The items that a tensor is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum End {
    /// Rows.
    #[default]
    Rows,
    /// The targets of the relation with this number.
    Targets(usize),
}

impl End {
    /// The number of the relation, from 1 on; 0 for rows.
    pub(crate) fn number(self) -> usize {
        match self {
            Self::Rows => 0,
            Self::Targets(relation) => relation.saturating_add(1),
        }
    }
}

/// A tensor `[components, items, channels]` of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MessageTensor {
    /// The items.
    pub end: End,
    /// Whether there is one channel: of an input the same for all channels, of a result the sum
    /// over them.
    pub one: bool,
}

/// The tensors of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MessageForm {
    /// Each input of the operator. What is said of parameters, `[channels, count]`, is not read.
    pub inputs: Vec<MessageTensor>,
    /// The items of all results: sums over the rows of each target, unless they are of rows.
    pub to: End,
    /// For each result whether it is summed over the channels.
    pub sums: Vec<bool>,
}

/// A tensor `[components, items, channels]` with contiguous channels, or a contiguous parameter,
/// whose strides are not read.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a, T> {
    /// The elements, from the first to the last.
    pub data: &'a [T],
    /// The elements from a component to the next.
    pub component: usize,
    /// The elements from an item to the next.
    pub item: usize,
}

/// The tensors of a call of [`run`].
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a, T> {
    /// The inputs of the operator.
    pub inputs: &'a [Strided<'a, T>],
    /// The relations, of the same rows; at least one, which tells the number of rows.
    pub relations: &'a [Lists<'a>],
    /// The channels of all tensors that have more than one.
    pub channels: usize,
}

/// Computes the results, contiguous `[components, items, channels]`, or `[components, items, 1]`
/// where they are summed over channels.
///
/// # Errors
/// [`Error::UnsupportedProgram`] for an operator with other tensors than
/// `[components, batch, channels]` and parameters `[channels, count]`; [`Error::TensorCount`] for
/// another number of tensors or relations, [`Error::LengthMismatch`] for a result of another size.
///
/// # Panics
/// Panics if lists or inputs do not fit each other.
pub fn run<T: Element>(
    operator: &Operator,
    form: &MessageForm,
    call: &Messages<'_, T>,
    mut outputs: Vec<&mut [T]>,
) -> Result<(), Error> {
    check(operator, form, call, outputs.len())?;
    let plan = Plan::of(operator, form, call);
    let items = plan.to.map_or(plan.rows, Lists::count);
    let width = |one| if one { 1 } else { call.channels };
    for ((spec, &one), data) in operator.outputs().iter().zip(&form.sums).zip(&outputs) {
        Shape::of(&[components(spec), items, width(one)], data.len())?;
    }
    if plan.rows == 0 || call.channels == 0 {
        outputs.iter_mut().for_each(|own| own.fill(T::default()));
        return Ok(());
    }
    let mut tasks = plan.tasks(items);
    for (data, &one) in outputs.into_iter().zip(&form.sums) {
        for mut rest in data.chunks_exact_mut(items * width(one)) {
            for task in &mut tasks {
                let own;
                (own, rest) = rest.split_at_mut(task.items.len() * width(one));
                task.results.push((own, one));
            }
        }
    }
    threads::for_each(tasks.iter_mut(), |task| {
        // A single task too has memory for one thread.
        task.done = threads::at_most(1, || task.run(&plan));
    });
    tasks.into_iter().try_for_each(|task| task.done)
}

fn check<T>(
    operator: &Operator,
    form: &MessageForm,
    call: &Messages<'_, T>,
    outputs: usize,
) -> Result<(), Error> {
    let is_lane = |spec: &TensorSpec| matches!(spec.dims[..], [Dim::Fixed(_), Dim::Batch, Dim::In]);
    let is_parameter = |spec: &TensorSpec| matches!(spec.dims[..], [Dim::In, Dim::Fixed(_)]);
    let (mut inputs, mut results) = (operator.inputs().iter(), operator.outputs().iter());
    let counts = [inputs.len(), results.len()];
    let wrong = inputs.find(|own| !is_lane(own) && !is_parameter(own));
    if let Some(spec) = wrong.or_else(|| results.find(|own| !is_lane(own))) {
        return Err(Error::UnsupportedProgram {
            reason: format!(
                "{}: expected tensors [components, batch, in] and parameters [in, count], got {spec}",
                operator.name()
            ),
        });
    }
    // The first relation tells the number of rows, even if no tensor is of its targets.
    let ends = form.inputs.iter().map(|own| own.end).chain([form.to]);
    let relations = ends.map(End::number).fold(1, usize::max);
    for (what, expected, got) in [
        ("inputs", counts[0], form.inputs.len()),
        ("inputs", counts[0], call.inputs.len()),
        ("outputs", counts[1], form.sums.len()),
        ("outputs", counts[1], outputs),
        ("relations", relations, call.relations.len().min(relations)),
    ] {
        if expected != got {
            return Err(Error::TensorCount {
                operator: operator.name().to_owned(),
                what,
                expected,
                names: String::new(),
                got,
            });
        }
    }
    Ok(())
}

/// The components of a tensor.
fn components(spec: &TensorSpec) -> usize {
    match spec.dims[..] {
        [Dim::Fixed(count), ..] => count,
        _ => 0,
    }
}

/// What all tasks share.
struct Plan<'a, T> {
    /// The operator without the inputs that it does not read.
    operator: Operator,
    /// The inputs that it reads.
    inputs: Vec<(MessageTensor, Strided<'a, T>)>,
    call: &'a Messages<'a, T>,
    rows: usize,
    /// The relation whose targets have the results; `None` if rows have.
    to: Option<Lists<'a>>,
    /// The elements that each row has in all inputs, and in all results.
    widths: [usize; 2],
    /// The rows that are computed at a time.
    chunk: usize,
}

/// Items whose results one thread computes.
struct Task<'o, T> {
    items: Range<usize>,
    /// The items of each component of all results, and whether they are summed over channels.
    results: Vec<(&'o mut [T], bool)>,
    done: Result<(), Error>,
}

/// The memory of a task.
struct Room<T> {
    /// The number of each row's item of an input.
    items: Vec<u32>,
    inputs: Vec<T>,
    results: Vec<T>,
    workspace: Vec<T>,
}

impl<'a, T: Element> Plan<'a, T> {
    fn of(operator: &Operator, form: &MessageForm, call: &'a Messages<'a, T>) -> Self {
        let (operator, reads) = operator.reading();
        let inputs = form.inputs.iter().zip(call.inputs).zip(reads);
        let inputs = inputs.filter_map(|((&form, &own), reads)| reads.then_some((form, own)));
        let width = |specs: &[TensorSpec]| {
            let of_rows = specs.iter().filter(|own| !own.is_parameter());
            of_rows.map(components).sum::<usize>() * call.channels
        };
        let widths = [width(operator.inputs()), width(operator.outputs())];
        let row = (widths[0] + widths[1]) * size_of::<T>();
        let [fewest, most] = CHUNK_ROWS;
        Self {
            operator,
            inputs: inputs.collect(),
            call,
            rows: call.relations[0].targets.len(),
            to: match form.to {
                End::Rows => None,
                End::Targets(at) => Some(call.relations[at]),
            },
            widths,
            chunk: (CHUNK_BYTES / row.max(1)).clamp(fewest, most),
        }
    }

    /// Cuts the items into tasks of about as many rows.
    fn tasks<'o>(&self, items: usize) -> Vec<Task<'o, T>> {
        let rows = (TASK_CHUNKS * self.chunk).max(self.rows.div_ceil(MOST_TASKS));
        let (mut tasks, mut first) = (Vec::new(), 0);
        for end in 1..=items {
            if end == items || self.rows_of(first..end).len() >= rows {
                tasks.push(Task {
                    items: first..end,
                    results: Vec::new(),
                    done: Ok(()),
                });
                first = end;
            }
        }
        tasks
    }

    /// The places of the rows of some items.
    fn rows_of(&self, items: Range<usize>) -> Range<usize> {
        self.to.map_or(items.clone(), |lists| {
            lists.starts[items.start] as usize..lists.starts[items.end] as usize
        })
    }

    /// The number of the row at a place.
    fn row_at(&self, place: usize) -> u32 {
        self.to.map_or(place as u32, |lists| lists.order[place])
    }

    /// Computes all results of some rows.
    fn compute(&self, places: Range<usize>, room: &mut Room<T>) -> Result<(), Error> {
        let (rows, channels) = (places.len(), self.call.channels);
        let dims = Dims {
            batch: rows,
            in_channels: channels,
            out_channels: channels,
            scalar_channels: 0,
        };
        let mut free = &mut room.inputs[..self.widths[0] * rows];
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for ((form, from), spec) in self.inputs.iter().zip(self.operator.inputs()) {
            let shape = spec.shape(&dims);
            let len = shape.iter().product();
            let data = match spec.is_parameter() {
                true => &from.data[..len],
                false => {
                    let own;
                    (own, free) = free.split_at_mut(len);
                    let all = places.clone().map(|place| self.row_at(place));
                    room.items.clear();
                    match form.end {
                        End::Rows => room.items.extend(all),
                        End::Targets(at) => {
                            let targets = self.call.relations[at].targets;
                            room.items.extend(all.map(|row| targets[row as usize]));
                        }
                    }
                    from.gather(form.one, channels, &room.items, own);
                    &*own
                }
            };
            inputs.push(Tensor::new(data, &shape)?);
        }
        let mut free = &mut room.results[..self.widths[1] * rows];
        let mut outputs = Vec::with_capacity(self.operator.outputs().len());
        for spec in self.operator.outputs() {
            let shape = spec.shape(&dims);
            let own;
            (own, free) = free.split_at_mut(shape.iter().product());
            outputs.push(Some(TensorMut::new(own, &shape)?));
        }
        let needed = self.operator.run_workspace_len::<T>(&dims);
        if needed > room.workspace.len() {
            room.workspace.resize(needed, T::default());
        }
        self.operator
            .run(&inputs, &mut outputs, &mut room.workspace)
    }
}

impl<T: Element> Task<'_, T> {
    fn run(&mut self, plan: &Plan<'_, T>) -> Result<(), Error> {
        let places = plan.rows_of(self.items.clone());
        let chunk = plan.chunk.min(places.len());
        let [inputs, results] = plan.widths.map(|own| vec![T::default(); own * chunk]);
        let mut room = Room {
            items: Vec::with_capacity(chunk),
            inputs,
            results,
            workspace: Vec::new(),
        };
        if plan.to.is_some() {
            let all = self.results.iter_mut();
            all.for_each(|(own, _)| own.fill(T::default()));
        }
        let mut item = self.items.start;
        for first in places.clone().step_by(chunk.max(1)) {
            let own = first..(first + chunk).min(places.end);
            plan.compute(own.clone(), &mut room)?;
            match plan.to {
                None => self.write(plan.call.channels, own, &room.results),
                Some(_) => item = self.add(plan, item, own, &room.results),
            }
        }
        Ok(())
    }

    /// Writes the results of some rows, which are items.
    fn write(&mut self, channels: usize, places: Range<usize>, results: &[T]) {
        let first = places.start - self.items.start;
        let all = results.chunks_exact(places.len() * channels);
        for ((to, is_summed), from) in self.results.iter_mut().zip(all) {
            match *is_summed {
                true => {
                    let rows = from.chunks_exact(channels);
                    let to = to[first..].iter_mut();
                    to.zip(rows).for_each(|(to, row)| *to = total(row));
                }
                false => to[first * channels..][..from.len()].copy_from_slice(from),
            }
        }
    }

    /// Adds the results of some rows to their items, of which none is before the one given. Returns
    /// the item of the last row.
    fn add(
        &mut self,
        plan: &Plan<'_, T>,
        mut item: usize,
        places: Range<usize>,
        results: &[T],
    ) -> usize {
        let channels = plan.call.channels;
        let of_component = places.len() * channels;
        let mut place = places.start;
        while place < places.end {
            let rows = plan.rows_of(item..item + 1);
            if rows.end <= place {
                item += 1;
                continue;
            }
            let (end, at) = (rows.end.min(places.end), item - self.items.start);
            let own = (place - places.start) * channels..(end - places.start) * channels;
            let all = results.chunks_exact(of_component);
            for ((to, is_summed), from) in self.results.iter_mut().zip(all) {
                let from = &from[own.clone()];
                match *is_summed {
                    true => {
                        let rows = from.chunks_exact(channels);
                        rows.for_each(|row| to[at] += total(row));
                    }
                    false => add(from, &mut to[at * channels..][..channels]),
                }
            }
            place = end;
        }
        item
    }
}

impl<T: Element> Strided<'_, T> {
    /// Copies some items, contiguous with all channels.
    fn gather(&self, one: bool, channels: usize, items: &[u32], to: &mut [T]) {
        let follow = items.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let is_run = follow && !one && self.item == channels;
        for (component, to) in to.chunks_exact_mut(items.len() * channels).enumerate() {
            let from = &self.data[component * self.component..];
            let firsts = items.iter().map(|&item| item as usize * self.item);
            match channels {
                _ if is_run => {
                    let first = items[0] as usize * channels;
                    to.copy_from_slice(&from[first..][..to.len()]);
                }
                8 => spread::<T, 8>(from, firsts, one, to),
                16 => spread::<T, 16>(from, firsts, one, to),
                32 => spread::<T, 32>(from, firsts, one, to),
                _ => {
                    for (first, to) in firsts.zip(to.chunks_exact_mut(channels)) {
                        match one {
                            true => to.fill(from[first]),
                            false => to.copy_from_slice(&from[first..][..channels]),
                        }
                    }
                }
            }
        }
    }
}

/// Copies items of so many channels. A copy of a known length takes less time than the call of a
/// function for any length.
fn spread<T: Element, const CHANNELS: usize>(
    from: &[T],
    firsts: impl Iterator<Item = usize>,
    one: bool,
    to: &mut [T],
) {
    for (first, to) in firsts.zip(to.as_chunks_mut().0) {
        let from = &from[first..];
        match from.first_chunk::<CHANNELS>() {
            Some(own) if !one => *to = *own,
            _ => *to = [from[0]; CHANNELS],
        }
    }
}

/// Adds rows, one after another.
fn add<T: Element>(rows: &[T], to: &mut [T]) {
    let channels = to.len();
    let (blocks, last) = to.as_chunks_mut::<BLOCK>();
    let tail = channels - last.len();
    for (at, to) in blocks.iter_mut().enumerate() {
        // A sum that lies in registers until all rows are added.
        let mut sum = *to;
        for row in rows.chunks_exact(channels) {
            let own = row[at * BLOCK..].first_chunk::<BLOCK>();
            let own = own.into_iter().flatten();
            sum.iter_mut().zip(own).for_each(|(sum, &x)| *sum += x);
        }
        *to = sum;
    }
    for row in rows.chunks_exact(channels).take_while(|_| tail < channels) {
        let own = last.iter_mut().zip(&row[tail..]);
        own.for_each(|(sum, &x)| *sum += x);
    }
}

/// The sum over channels, in an order that depends on their number alone.
fn total<T: Element>(row: &[T]) -> T {
    let mut parts = [T::default(); BLOCK];
    let (blocks, last) = row.as_chunks::<BLOCK>();
    for own in blocks {
        parts.iter_mut().zip(own).for_each(|(part, &x)| *part += x);
    }
    parts.iter_mut().zip(last).for_each(|(part, &x)| *part += x);
    for half in [4, 2, 1] {
        let (first, second) = parts.split_at_mut(half);
        first
            .iter_mut()
            .zip(second)
            .for_each(|(part, &mut x)| *part += x);
    }
    parts[0]
}
