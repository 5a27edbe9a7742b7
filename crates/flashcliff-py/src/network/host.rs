//! Runs of a plan on the CPU.

use flashcliff_network::scratch::Buffer;
use flashcliff_network::tokens::Draw;
use flashcliff_network::{Error, Kept, LaterSlices, Number, Plan, Room, Scales, Segments, Slices};

use super::plan::{Given, KEY, Planned, PySegments};
use crate::host::{slice, slice_mut};

/// Runs a stage, in memory that it gives back afterwards.
///
/// # Safety
/// The addresses in `given` belong to contiguous tensors of type `T` with the shapes of the plan. Nobody else uses memory that is
/// written, and nobody else writes memory that is read.
pub(crate) unsafe fn run<T: Number>(
    planned: &Planned,
    plan: &Plan,
    stage: usize,
    given: &Given,
) -> Result<(), Error> {
    let count = |shape: &[usize]| shape.iter().product::<usize>();
    // SAFETY: the caller promises it.
    let read = |address: usize, shape: &[usize]| unsafe { slice::<T>(address, count(shape)) };
    let own = given.inputs.iter().enumerate();
    let inputs: Vec<&[T]> = own
        .map(|(at, &own)| read(own, planned.input_shape(at)))
        .collect();
    let own = given.parameters.iter().enumerate();
    let parameters: Vec<&[T]> = own
        .map(|(at, &own)| read(own, planned.parameter_shape(at)))
        .collect();
    let slices = Slices {
        inputs: &inputs,
        parameters: &parameters,
    };
    let earlier: &[&[T]] = match stage {
        0 => &[],
        _ => &[read(given.outputs[0], &planned.results[0])],
    };
    let sources = LaterSlices {
        slices,
        outputs: earlier,
    };
    let shapes = plan.outputs().iter().map(|&value| plan.tensor(value));
    let mut outputs: Vec<&mut [T]> = shapes
        .zip(&given.outputs)
        .skip(stage)
        .map(|(tensor, &address)| {
            let len = tensor.map_or(0, |(shape, _)| count(shape));
            // SAFETY: the caller promises it.
            unsafe { slice_mut(address, len) }
        })
        .collect();
    let [kept, arena, workspace] = plan.room::<T>(stage);
    let (mut arena, mut workspace) = (Buffer::take(arena), Buffer::take(workspace));
    let kept = match stage {
        // SAFETY: the caller promises it.
        0 => Kept::Written(unsafe { slice_mut(given.kept, kept) }),
        // SAFETY: the same holds.
        _ => Kept::Read(unsafe { slice(given.kept, kept) }),
    };
    let room = Room {
        kept,
        arena: &mut arena,
        workspace: &mut workspace,
    };
    let sequences = given.sequences.as_ref();
    // SAFETY: the caller promises it.
    let relations = unsafe { segments(&given.relations)? };
    let scales = Scales {
        sequences: sequences.map(|own| own.each_ref().map(|(bounds, _)| &bounds[..])),
        draw: given.draw.map(|step| Draw {
            key: KEY,
            // The number is below 2^31.
            step: step as u32,
        }),
        relations: &relations,
        ..Scales::default()
    };
    plan.run_stage(stage, &sources, (&mut outputs, room), scales, &mut |_| {})
}

/// The segments of relations, whose targets are checked: a host may have written over them.
///
/// # Safety
/// The first address of each relation is that of as many `i32` as it has rows, which nobody writes.
unsafe fn segments(relations: &[PySegments]) -> Result<Vec<Segments>, Error> {
    let own = relations.iter().map(|&((targets, _, _), rows, count)| {
        // SAFETY: the caller promises it.
        Segments::new(unsafe { slice::<i32>(targets, rows) }, count)
    });
    own.collect()
}
