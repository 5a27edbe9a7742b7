//! The unit tests of files that stand alone. They are tested here so that the library is not built a second time.

#[path = "../src/operator/fully_connected/cuda/blocks.rs"]
mod blocks;

#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    missing_docs,
    reason = "the library uses the rest"
)]
#[path = "unit/cuda.rs"]
mod cuda;

#[allow(dead_code, unreachable_pub, reason = "the library uses the rest")]
#[path = "../src/files.rs"]
mod files;

#[allow(dead_code, unreachable_pub, reason = "the library uses the rest")]
#[path = "../../flashcliff-kernels/src/simd/tier.rs"]
mod tier;

#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the library uses the rest"
)]
#[path = "../src/tuning_table/mod.rs"]
mod tuning_table;

use flashcliff::{Dtype, Pass};
