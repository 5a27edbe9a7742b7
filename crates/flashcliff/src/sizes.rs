//! Arithmetic of sizes that callers give, which may be any numbers.
//!
//! A result that does not fit is the largest number. No slice is that long, so such a size is refused where lengths are compared.

/// The product of sizes; 0 if one of them is, whatever the others are.
pub(crate) fn product(sizes: impl IntoIterator<Item = usize>) -> usize {
    sizes.into_iter().fold(1, usize::saturating_mul)
}

/// The sum of sizes.
pub(crate) fn sum(sizes: impl IntoIterator<Item = usize>) -> usize {
    sizes.into_iter().fold(0, usize::saturating_add)
}

/// The elements from the first to the last of runs of `len` elements, which lie along axes of a size and a stride; 0 if there are none.
pub(crate) fn reach<const N: usize>(axes: [(usize, usize); N], len: usize) -> usize {
    if len == 0 || axes.iter().any(|&(size, _)| size == 0) {
        return 0;
    }
    let steps = axes.map(|(size, stride)| product([size - 1, stride]));
    sum(steps.into_iter().chain([len]))
}
