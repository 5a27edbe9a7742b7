//! The programs of steps. They need the builder of programs and algebras alone, so the build script has this module too.
//!
//! Programs do not depend on the number of channels, but on which kinds of channels there are.
//!
//! * `norm`, `gate`, `products` - the programs of the steps of these names; `slim` - the programs of L-GATr-slim.
//! * `parts` - what they share.

pub(crate) mod gate;
pub(crate) mod norm;
mod parts;
pub(crate) mod products;
pub(crate) mod slim;

use flashcliff::program::Program;

/// Whether tokens have channels of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kinds {
    pub(crate) multivectors: bool,
    pub(crate) scalars: bool,
}

/// The program without expressions that no result needs. Programs of hosts may have some, and kernels are found by all of them.
pub(crate) fn lean(program: &Program) -> Program {
    program.rebuilt(|_| true, |_, _| None)
}
