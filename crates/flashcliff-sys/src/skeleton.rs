//! The sources of the skeleton, for kernels that are compiled at run time.

macro_rules! files {
    ($($path:literal,)*) => {
        &[$(($path, include_str!(concat!("../cuda/", $path)))),*]
    };
}

/// The files that generated kernels include, by their paths below the folder of the sources.
pub const SKELETON: &[(&str, &str)] = files![
    "types.h",
    "block.h",
    "tensor_cores.cuh",
    "skeleton/angles.cuh",
    "skeleton/arguments.cuh",
    "skeleton/chain.cuh",
    "skeleton/gates.cuh",
    "skeleton/kept.cuh",
    "skeleton/lanes.cuh",
    "skeleton/memory.cuh",
    "skeleton/messages.cuh",
    "skeleton/parameter.cuh",
    "skeleton/points.cuh",
    "skeleton/rows.cuh",
    "skeleton/scale.cuh",
    "skeleton/stages.cuh",
    "skeleton/strided.cuh",
    "skeleton/totals.cuh",
    "skeleton/uniforms.cuh",
    "skeleton/walk.cuh",
    "skeleton/walk.h",
    "skeleton/blocks/context.cuh",
    "skeleton/blocks/entry.h",
    "skeleton/blocks/kernel.cuh",
    "skeleton/blocks/scales.cuh",
    "skeleton/blocks/types.cuh",
];
