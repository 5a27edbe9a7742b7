//! The names that files of the crate `flashcliff-build` use: kernels of custom programs.

use std::ptr;

pub use flashcliff_kernels::{Program, prelude};

use crate::kept::Kept;

/// The lists of programs that other crates compiled.
static REGISTERED: Kept<&'static [&'static Program]> = Kept::new();

/// All programs that were registered.
pub(crate) fn programs() -> impl Iterator<Item = &'static Program> {
    REGISTERED.iter().flat_map(|list| list.iter().copied())
}

/// Adds programs to those that [`Operator::of`](crate::Operator::of) finds. A list that is there already is not added again.
///
/// # Safety
/// The programs come from the generator of this version of flashcliff.
pub unsafe fn register(programs: &'static [&'static Program]) {
    if !REGISTERED.iter().any(|list| ptr::eq(*list, programs)) {
        REGISTERED.add(programs);
    }
}

/// Stops the build of a file that another version of `flashcliff-build` wrote.
///
/// # Panics
/// If the versions differ, when the caller is compiled.
pub const fn check_version(of_file: &str) {
    let (theirs, ours) = (of_file.as_bytes(), env!("CARGO_PKG_VERSION").as_bytes());
    let mut is_same = theirs.len() == ours.len();
    let mut at = 0;
    while is_same && at < ours.len() {
        is_same = theirs[at] == ours[at];
        at += 1;
    }
    assert!(
        is_same,
        "expected a file that `flashcliff-build` of the version of `flashcliff` wrote, got one of another version: name one version \
         for both in the manifest"
    );
}
