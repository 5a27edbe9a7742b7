//! The operators of maps, made once in a process, and their runs over items in `f64`.

use std::ops::Range;

use flashcliff_program::ir;
use flashcliff_program::rotor::Map;

use super::items::shares;
use crate::kept::Kept;
use crate::kernel::tasks::Chunks;
use crate::{
    Algebra, Element, Error, Operator, ProgramOptions, Signature, Tensor, TensorMut, threads,
};

/// The items that an operator computes at once, so few that they stay in the caches.
const BLOCK: usize = 256;

/// An operator on `f64`, and its operations for an item.
pub(super) struct OnItems {
    pub(super) operator: Operator,
    flops: usize,
}

/// A map, and its gradient.
pub(super) struct Passes {
    pub(super) map: OnItems,
    pub(super) gradient: OnItems,
}

/// The maps that were asked for, by signature, by whether kernels of the build may be used, and by map.
static MADE: Kept<((Signature, bool, Map), Passes)> = Kept::new();

/// The operators of a map; `None` if one of its tensors would have no blades.
pub(super) fn passes(algebra: Algebra, map: Map) -> Result<Option<&'static Passes>, Error> {
    let key = (algebra.signature(), algebra.takes_kernels(), map);
    if let Some((_, passes)) = MADE.iter().find(|(known, _)| *known == key) {
        return Ok(Some(passes));
    }
    let Some(program) = map.program(algebra.cayley()) else {
        return Ok(None);
    };
    let operator = Operator::of(algebra, &program, &ProgramOptions::default())?;
    let passes = Passes {
        gradient: OnItems::new(operator.gradient()?),
        map: OnItems::new(operator),
    };
    Ok(Some(&MADE.add((key, passes)).1))
}

impl OnItems {
    fn new(operator: Operator) -> Self {
        let program = operator.program();
        let flops = program.map_or(1, |program| ir::cost(program).flops());
        Self { operator, flops }
    }

    /// Computes the outputs that are wanted from elements `[blades, items]`. Chunks of items are shared among
    /// threads; each has its own part of every blade.
    pub(super) fn run<T: Element>(
        &self,
        items: usize,
        inputs: &[&[T]],
        outputs: &mut [Option<&mut [T]>],
    ) -> Result<(), Error> {
        if items == 0 {
            return Ok(());
        }
        let chunks = Chunks::new(items, self.flops);
        let mut tasks: Vec<Task<'_, T>> = (0..chunks.count()).map(Task::new).collect();
        for output in outputs {
            let mut parts = output
                .as_deref_mut()
                .map(|data| shares(data, items, chunks).into_iter());
            for task in &mut tasks {
                let part = parts.as_mut().and_then(Iterator::next);
                task.outputs.push(part);
            }
        }
        threads::for_each(tasks.iter_mut(), |task| {
            let range = chunks.range(task.chunk);
            task.done = self.run_range(items, range, inputs, &mut task.outputs);
        });
        tasks.into_iter().try_for_each(|task| task.done)
    }

    /// Computes the items of a range, block by block.
    fn run_range<T: Element>(
        &self,
        items: usize,
        range: Range<usize>,
        inputs: &[&[T]],
        outputs: &mut [Option<Vec<&mut [T]>>],
    ) -> Result<(), Error> {
        let read = |data: &&[T]| vec![0.0; data.len() / items * BLOCK];
        let written =
            |blades: &Option<Vec<_>>| vec![0.0; blades.as_ref().map_or(0, Vec::len) * BLOCK];
        let mut from: Vec<Vec<f64>> = inputs.iter().map(read).collect();
        let mut to: Vec<Vec<f64>> = outputs.iter().map(written).collect();
        let mut workspace = Vec::new();
        for first in range.clone().step_by(BLOCK) {
            let count = BLOCK.min(range.end - first);
            for (from, data) in from.iter_mut().zip(inputs) {
                gather(from, data, items, first..first + count);
            }
            self.run_block(count, &from, &mut to, &mut workspace)?;
            let first = first - range.start;
            for (to, output) in to.iter().zip(&mut *outputs) {
                for (to, blade) in to.chunks(count).zip(output.iter_mut().flatten()) {
                    let blade = blade[first..first + count].iter_mut();
                    blade
                        .zip(to)
                        .for_each(|(blade, &to)| *blade = T::from_f64(to));
                }
            }
        }
        Ok(())
    }

    /// Computes so many items; the elements of a tensor are the first ones of its buffer.
    fn run_block(
        &self,
        count: usize,
        from: &[Vec<f64>],
        to: &mut [Vec<f64>],
        workspace: &mut Vec<f64>,
    ) -> Result<(), Error> {
        let blades = |buffer: &[f64]| buffer.len() / BLOCK;
        let mut inputs = Vec::with_capacity(from.len());
        for from in from {
            let blades = blades(from);
            inputs.push(Tensor::new(&from[..blades * count], &[blades, 1, count])?);
        }
        let mut outputs = Vec::with_capacity(to.len());
        for to in to {
            let blades = blades(to);
            let to = &mut to[..blades * count];
            outputs.push((blades > 0).then(|| TensorMut::new(to, &[blades, 1, count])));
        }
        let outputs = outputs.into_iter().map(Option::transpose);
        let mut outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        let dims = self.operator.bind(&shapes)?;
        let needed = self.operator.run_workspace_len::<f64>(&dims);
        workspace.resize(needed.max(workspace.len()), 0.0);
        self.operator.run(&inputs, &mut outputs, workspace)
    }
}

/// A chunk of items.
struct Task<'a, T> {
    chunk: usize,
    /// The blades of each output; `None` for outputs that are not wanted.
    outputs: Vec<Option<Vec<&'a mut [T]>>>,
    done: Result<(), Error>,
}

impl<T> Task<'_, T> {
    fn new(chunk: usize) -> Self {
        Self {
            chunk,
            outputs: Vec::new(),
            done: Ok(()),
        }
    }
}

/// The elements of some items, blade by blade.
fn gather<T: Element>(to: &mut [f64], data: &[T], items: usize, range: Range<usize>) {
    let blades = to.chunks_mut(range.len()).zip(data.chunks(items));
    for (to, blade) in blades {
        let blade = blade[range.clone()].iter();
        to.iter_mut()
            .zip(blade)
            .for_each(|(to, x)| *to = x.to_f64());
    }
}
