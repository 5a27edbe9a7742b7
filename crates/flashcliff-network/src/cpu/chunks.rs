//! Runs parts of plans chunk by chunk.

use std::ops::Range;
use std::slice::{self, from_ref};
use std::sync::{Mutex, OnceLock, PoisonError};

use flashcliff::equivariant::Prepared;
use flashcliff::{Pass, threads};

use super::functions::{self, Number};
use super::{Place, Run, Settled, Sources, check_len, cut};
use crate::Error;
use crate::network::{Axis, Extent, Rows, Set, Value};
use crate::plan::{Memory, Part, Plan, Spot};
use crate::scratch::Buffer;
use crate::tokens::chunk::{Chunk, Layout, Samples};
use crate::tokens::step::{Given, Gradients, Input, Parameters, ParametersMut};
use crate::tokens::{Channels, Step, add};
use crate::work::{Gradient, Work};

/// A tensor of the host that a part reads.
struct Held<G> {
    memory: Memory,
    guard: G,
}

/// A gradient of parameters, or of a mask that all samples share, which is a sum over chunks.
struct Sum {
    value: Value,
    /// The elements in front of it in the memory of a chunk.
    from: usize,
    len: usize,
}

/// All that the chunks of a part share.
struct Shared<'a, T: Number> {
    plan: &'a Plan,
    part: &'a Part,
    arena: Place<T>,
    kept: Place<T>,
    /// The outputs of the stage by their numbers in the plan.
    own: Range<usize>,
    outputs: &'a [Place<T>],
    /// The elements of tensors of the host.
    host: Vec<(Memory, &'a [T])>,
    sums: &'a [Sum],
    /// The parameters of each call of the part, made by the first chunk that needs them; empty for a single chunk.
    prepared: Vec<OnceLock<Option<Prepared<T>>>>,
    settled: Option<&'a Settled<T>>,
}

/// A chunk with its memory.
struct Own<'a, T: Number> {
    shared: &'a Shared<'a, T>,
    chunk: Chunk<'a>,
    locals: *mut T,
    /// Where parts of sums are; `None` for the first chunk, whose parts are where the sums will be.
    sums: Option<*mut T>,
}

impl<'a, T: Number, S: Sources<T>> Run<'a, T, S> {
    /// Checks where sequences begin.
    pub(super) fn check_sequences(&self) -> Result<(), Error> {
        let Some([items, context]) = self.scales.sequences else {
            return Ok(());
        };
        let Rows { samples, .. } = self.plan.batch();
        let is_masked = |call| matches!(self.plan.work(call), Work::Step(step) if step.attends().is_some_and(|own| own.masked));
        if (0..self.plan.call_count()).any(is_masked) {
            return Err(Error::Sequences {
                rows: self.plan.batch().count(),
                count: items.len().saturating_sub(1),
                got: "a plan whose attention has a mask".to_owned(),
            });
        }
        for (bounds, set) in [(items, Set::Items), (context, Set::Context)] {
            let rows = self.plan.batch().of(set);
            let ascends = bounds.windows(2).all(|pair| pair[0] <= pair[1]);
            let fits = bounds.first() == Some(&0) && bounds.last() == Some(&rows) && samples == 1;
            let is_without = set == Set::Context && bounds.is_empty() && rows == 0;
            let as_many = is_without || bounds.len() == items.len();
            if !(is_without || fits && ascends && as_many) {
                return Err(Error::Sequences {
                    rows,
                    count: items.len().saturating_sub(1),
                    got: format!("{bounds:?}"),
                });
            }
        }
        Ok(())
    }

    /// Runs a part.
    pub(super) fn part(&mut self, part: &Part) -> Result<(), S::Error> {
        let held = self.hold_all(part)?;
        let chunks = cut::chunks(self.plan.batch(), &self.scales);
        let (sums, len) = self.sums(part)?;
        let shared = Shared {
            plan: self.plan,
            part,
            arena: Place(self.arena, 0),
            kept: Place(self.kept, 0),
            own: self.own.clone(),
            outputs: self.outputs,
            host: held
                .iter()
                .map(|held| (held.memory, &*held.guard))
                .collect(),
            sums: &sums,
            prepared: match chunks.len() {
                1 => Vec::new(),
                _ => part.calls.clone().map(|_| OnceLock::new()).collect(),
            },
            settled: self.settled,
        };
        // The first chunk writes where the sums are.
        for sum in &sums {
            let to = self.write(sum.value)?;
            if chunks.is_empty() {
                to.fill(T::default());
            }
        }
        let own = (0..chunks.len()).map(|at| (at > 0).then(|| Buffer::take(len)));
        let mut of_chunks: Vec<Option<Buffer<T>>> = own.collect();
        let failure = Failure::default();
        threads::for_each(chunks.iter().zip(&mut of_chunks), |(&chunk, sums)| {
            let [own, context] = part.widths;
            let len = own * chunk.rows() + context * chunk.context.rows();
            let mut locals = Buffer::take(len);
            let own = Own {
                shared: &shared,
                chunk,
                locals: locals.as_mut_ptr(),
                sums: sums.as_mut().map(|own| own.as_mut_ptr()),
            };
            failure.note(own.run());
        });
        failure.result()?;
        for sum in &sums {
            let to = self.write(sum.value)?;
            let range = sum.from..sum.from + sum.len;
            let others = of_chunks.iter().flatten();
            others.for_each(|own| add(to, &own[range.clone()]));
        }
        Ok(())
    }

    /// Locks the tensors of the host that a part reads, each once.
    fn hold_all(&self, part: &Part) -> Result<Vec<Held<S::Guard<'a>>>, S::Error> {
        let mut held: Vec<Held<S::Guard<'a>>> = Vec::new();
        for call in part.calls.clone() {
            let reads = self.plan.reads(call).iter();
            let parts = reads.map(|input| self.plan.parts_apart(*input).unwrap_or(from_ref(input)));
            for &input in parts.flatten() {
                let spot = self.plan.spot(input)?;
                if held.iter().any(|held| held.memory == spot.memory) {
                    continue;
                }
                let guard = match spot.memory {
                    Memory::Input(at) => self.sources.input(at)?,
                    Memory::Parameter(at) => self.sources.parameter(at)?,
                    Memory::Output(at) if !self.own.contains(&at) => self.sources.output(at)?,
                    _ => continue,
                };
                check_len(spot, guard.len())?;
                held.push(Held {
                    memory: spot.memory,
                    guard,
                });
            }
        }
        Ok(held)
    }

    /// The results of a part that are sums over chunks, and the elements of all.
    fn sums(&self, part: &Part) -> Result<(Vec<Sum>, usize), Error> {
        let (mut sums, mut from) = (Vec::new(), 0);
        for call in part.calls.clone() {
            let network = self.plan.network();
            let writes = self.plan.writes(call).iter().copied();
            let own = writes.filter(|&value| {
                let is_sum = network.widths(value).is_none() && !network.is_of_samples(value);
                is_sum && !self.plan.gathered.is_absent(value)
            });
            let apart = self.plan.gradients_apart(call).iter();
            for value in own.chain(apart.map(|&(_, _, value)| value)) {
                let len = self.plan.spot(value)?.len();
                sums.push(Sum { value, from, len });
                from += len;
            }
        }
        Ok((sums, from))
    }
}

impl<T: Number> Own<'_, T> {
    fn run(&self) -> Result<(), Error> {
        let part = self.shared.part;
        for call in part.calls.clone() {
            for copy in part.copies.iter().filter(|copy| copy.load == Some(call)) {
                self.load(copy.values[0])?;
            }
            self.call(call)?;
            for copy in part.copies.iter().filter(|copy| copy.store == Some(call)) {
                self.store(copy.values[0])?;
            }
        }
        Ok(())
    }

    fn call(&self, call: usize) -> Result<(), Error> {
        let node = self.shared.plan.node(call);
        match &node.work {
            Work::Step(step) => {
                let given = self.given(step, &node.inputs, node.inputs[0])?;
                step.forward(
                    &given,
                    self.prepared(call, step, &given, Pass::Forward),
                    self.write(node.outputs[0])?,
                    self.write(node.outputs[1])?,
                )
            }
            Work::Gradient(gradient) => match &*gradient.of {
                Work::Step(step) => self.gradient(call, step, gradient),
                work => {
                    let mut inputs = [None; 3];
                    for (input, &value) in inputs.iter_mut().zip(&node.inputs) {
                        *input = Some(self.read(value)?);
                    }
                    for &output in &node.outputs {
                        functions::gradient(work, inputs, &[], self.write(output)?);
                    }
                    Ok(())
                }
            },
            work => {
                let second = node.inputs.get(1).map(|&value| self.read(value));
                let inputs = [Some(self.read(node.inputs[0])?), second.transpose()?];
                functions::forward(work, inputs, &[], self.write(node.outputs[0])?);
                Ok(())
            }
        }
    }

    /// What a step reads, from its inputs. It works on the set of some tokens.
    fn given(&self, step: &Step, inputs: &[Value], tokens: Value) -> Result<Given<'_, T>, Error> {
        let network = self.shared.plan.network();
        let set = network.set_of(tokens);
        let mut given = Given {
            chunk: self.chunk.seen_from(set.unwrap_or(Set::Items)),
            x: &[],
            other: &[],
            mask: (&[], [1; 4]),
            parameters: Parameters::Joined(&[]),
        };
        for (at, (input, &value)) in step.inputs().iter().zip(inputs).enumerate() {
            match input {
                _ if at == 0 => given.x = self.read(value)?,
                Input::Parameters(_) => given.parameters = self.parameters(step, value)?,
                Input::Tokens(_) | Input::Context(_) | Input::Rows => {
                    given.other = self.read(value)?;
                }
                Input::Mask(..) => {
                    let shape = &self.shared.plan.spot(value)?.shape;
                    let shape = [shape[0], shape[1], shape[2], shape[3]];
                    given.mask = (self.read(value)?, shape);
                }
            }
        }
        Ok(given)
    }

    /// The parameters that a step reads: settled, by their kinds where the host has them, or as a value.
    fn parameters(&self, step: &Step, value: Value) -> Result<Parameters<'_, T>, Error> {
        let Shared { plan, settled, .. } = self.shared;
        if let Some(own) = settled.and_then(|own| own.value(value)) {
            return Ok(Parameters::Joined(own));
        }
        let (Step::Linear(linear), Some(parts)) = (step, plan.parts_apart(value)) else {
            return Ok(Parameters::Joined(self.read(value)?));
        };
        let mut parts = parts.iter();
        Ok(Parameters::Apart(linear.lens().map(|len| {
            let part = if len > 0 { parts.next() } else { None };
            let spot = part.and_then(|&part| plan.spot(part).ok());
            spot.map_or(&[][..], |spot| self.host(spot.memory))
        })))
    }

    /// The parameters of a step for this pass of all chunks.
    fn prepared(
        &self,
        call: usize,
        step: &Step,
        given: &Given<'_, T>,
        pass: Pass,
    ) -> Option<&Prepared<T>> {
        let settled = self.shared.settled.and_then(|own| own.prepared(call));
        if settled.is_some() {
            return settled;
        }
        let own = self
            .shared
            .prepared
            .get(call - self.shared.part.calls.start)?;
        // Where they cannot be made the pass says why.
        let make = || step.prepare(given.parameters, pass).ok().flatten();
        own.get_or_init(make).as_ref()
    }

    fn gradient(&self, call: usize, step: &Step, gradient: &Gradient) -> Result<(), Error> {
        let node = self.shared.plan.node(call);
        let all = step.inputs();
        let count = step.read_by_gradient();
        let given = self.given(step, &node.inputs[..count], node.inputs[count + 1])?;
        let (kept, g) = (
            self.read(node.inputs[count])?,
            self.read(node.inputs[count + 1])?,
        );
        let prepared = match gradient.wanted.first() {
            Some(true) => self.prepared(call, step, &given, Pass::Backward),
            _ => None,
        };
        let mut to = Gradients::default();
        let mut outputs = node.outputs.iter();
        for (at, (input, _)) in all
            .iter()
            .zip(&gradient.wanted)
            .enumerate()
            .filter(|(_, (_, wanted))| **wanted)
        {
            let Some(&output) = outputs.next() else {
                continue;
            };
            match input {
                _ if at == 0 => to.x = Some(self.write(output)?),
                Input::Parameters(_) => {
                    to.parameters = Some(self.gradients_of_parameters(call, step, output)?);
                }
                Input::Mask(..) => to.mask = Some(self.write(output)?),
                Input::Tokens(_) | Input::Context(_) | Input::Rows => {
                    to.other = Some(self.write(output)?);
                }
            }
        }
        if !gradient.adds {
            return step.backward(&given, prepared, kept, g, to);
        }
        // The gradient so far lies where the sum is written.
        let Some(sum) = to.x.take() else {
            return Ok(());
        };
        let mut more = Buffer::take(sum.len());
        let to = Gradients {
            x: Some(&mut more),
            ..to
        };
        step.backward(&given, prepared, kept, g, to)?;
        add(sum, &more);
        Ok(())
    }

    /// Where a call writes the gradients of a step's parameters, which are one value, or lie apart in its place.
    fn gradients_of_parameters(
        &self,
        call: usize,
        step: &Step,
        value: Value,
    ) -> Result<ParametersMut<'_, T>, Error> {
        let plan = self.shared.plan;
        let linear = match step {
            Step::Linear(linear) if plan.gathered.is_absent(value) => linear,
            _ => return Ok(ParametersMut::Joined(self.write(value)?)),
        };
        let (mut kinds, mut first) = (std::array::from_fn(|_| &mut [][..]), 0);
        for (kind, len) in kinds.iter_mut().zip(linear.lens()) {
            let mut apart = plan.gradients_apart(call).iter();
            if let Some(&(_, _, own)) = apart.find(|own| len > 0 && own.0 == first) {
                *kind = self.write(own)?;
            }
            first += len;
        }
        Ok(ParametersMut::Apart(kinds))
    }

    /// The elements of a value in this chunk; all elements of a value without rows and samples.
    fn read(&self, value: Value) -> Result<&[T], Error> {
        let spot = self.shared.plan.spot(value)?;
        let is_held = match spot.memory {
            Memory::Input(_) | Memory::Parameter(_) => true,
            Memory::Output(at) => !self.shared.own.contains(&at),
            _ => false,
        };
        if is_held
            && self
                .shared
                .plan
                .local(self.shared.part, value, spot)
                .is_none()
        {
            let (start, len) = self.range(value, spot);
            return Ok(&self.host(spot.memory)[start..start + len]);
        }
        let (place, len) = self.place(value, spot)?;
        // SAFETY: see `place`. Nothing writes there while a node reads, but for a value that takes its place.
        Ok(unsafe { slice::from_raw_parts(place, len) })
    }

    fn host(&self, memory: Memory) -> &[T] {
        let mut host = self.shared.host.iter();
        host.find(|(own, _)| *own == memory)
            .map_or(&[], |(_, data)| data)
    }

    /// The first element of a value that is of this chunk, and their number.
    fn range(&self, value: Value, spot: &Spot) -> (usize, usize) {
        let plan = self.shared.plan;
        let Some([own, context]) = plan.network().widths(value) else {
            return match (plan.network().is_of_samples(value), self.chunk.samples) {
                (true, Samples::Equal { samples, .. }) => {
                    let each = spot.len() / plan.batch().samples.max(1);
                    (each * self.chunk.first_sample, each * samples)
                }
                _ => (0, spot.len()),
            };
        };
        let [first, rows] = self.chunk.of(Set::Items);
        let [first_of_context, of_context] = self.chunk.of(Set::Context);
        (
            own * first + context * first_of_context,
            own * rows + context * of_context,
        )
    }

    /// The elements of a result in this chunk, or of its sum.
    #[allow(
        clippy::mut_from_ref,
        reason = "each result of a node has a place of its own"
    )]
    fn write(&self, value: Value) -> Result<&mut [T], Error> {
        let (place, len) = self.place(value, self.shared.plan.spot(value)?)?;
        // SAFETY: see `place`. A node writes each of its results once, and reads them not.
        Ok(unsafe { slice::from_raw_parts_mut(place, len) })
    }

    /// The place of a value in this chunk, and its elements there. The plan gives separate places to values that are
    /// needed at the same time. The places are inside the memory of this run and of this chunk, and no other chunk has
    /// its rows.
    fn place(&self, value: Value, spot: &Spot) -> Result<(*mut T, usize), Error> {
        let shared = self.shared;
        let (start, len) = self.range(value, spot);
        let place = match shared.plan.local(shared.part, value, spot) {
            Some(from) => {
                let rows = self.chunk.rows();
                let before = match shared.plan.network().set_of(value) {
                    Some(Set::Context) => {
                        shared.part.widths[0] * rows + from * self.chunk.context.rows()
                    }
                    _ => from * rows,
                };
                self.locals.wrapping_add(before)
            }
            None => match (self.part_of_sum(value), spot.memory) {
                (Some(own), _) => own,
                (None, Memory::Arena { from, .. }) => {
                    shared.arena.0.wrapping_add(from / T::DTYPE.bytes() + start)
                }
                (None, Memory::Kept { from, .. }) => {
                    shared.kept.0.wrapping_add(from / T::DTYPE.bytes() + start)
                }
                (None, Memory::Output(at)) if shared.own.contains(&at) => {
                    shared.outputs[at - shared.own.start].0.wrapping_add(start)
                }
                (None, _) => return Err(not_computed(shared.plan, value)),
            },
        };
        Ok((place, len))
    }

    /// The part of a sum in the memory of the chunk, if it has some.
    fn part_of_sum(&self, value: Value) -> Option<*mut T> {
        let parts = self.sums?;
        let sum = self.shared.sums.iter().find(|sum| sum.value == value)?;
        Some(parts.wrapping_add(sum.from))
    }

    /// The layout of a value of the host.
    fn layout(&self, value: Value) -> Layout {
        let (blades, channels) = match &self.shared.plan.network().values[value.0].extent {
            Extent::Shape(axes) => match axes.last() {
                Some(&Axis::Token { blades, channels }) => (blades, channels),
                _ => (1, Channels::new(0, 1)),
            },
            Extent::Saved => (1, Channels::default()),
        };
        let set = self.shared.plan.network().set_of(value);
        let [_, rows] = self.chunk.of(set.unwrap_or(Set::Items));
        Layout {
            blades,
            rows,
            channels,
        }
    }

    /// Copies the rows of a value of the host into their layout.
    fn load(&self, value: Value) -> Result<(), Error> {
        let spot = self.shared.plan.spot(value)?;
        let (start, len) = self.range(value, spot);
        let rows = match spot.memory {
            Memory::Output(at) if self.shared.own.contains(&at) => self.output(at, start, len),
            memory => &self.host(memory)[start..start + len],
        };
        self.layout(value).unpack(rows, self.write(value)?);
        Ok(())
    }

    /// Copies a value out of its layout into the rows of the host.
    fn store(&self, value: Value) -> Result<(), Error> {
        let spot = self.shared.plan.spot(value)?;
        let (start, len) = self.range(value, spot);
        if let Memory::Output(at) = spot.memory {
            let rows = self.output(at, start, len);
            self.layout(value).pack(self.write(value)?, rows);
        }
        Ok(())
    }

    /// Elements of an output.
    #[allow(
        clippy::mut_from_ref,
        reason = "the rows of a chunk are of no other chunk"
    )]
    fn output(&self, at: usize, start: usize, len: usize) -> &mut [T] {
        let number = at - self.shared.own.start;
        let place = self.shared.outputs[number].0.wrapping_add(start);
        // SAFETY: the output has the length of its value, and the rows of a chunk are of no other chunk.
        unsafe { slice::from_raw_parts_mut(place, len) }
    }
}

fn not_computed(plan: &Plan, value: Value) -> Error {
    Error::NotComputed {
        what: "part",
        got: plan.network().name(value).to_owned(),
    }
}

/// The first error of chunks.
#[derive(Default)]
struct Failure(Mutex<Option<Error>>);

impl Failure {
    fn note(&self, result: Result<(), Error>) {
        if let Err(error) = result {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
        }
    }

    fn result(self) -> Result<(), Error> {
        let first = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        first.map_or(Ok(()), Err)
    }
}
