//! Checks for memory before work that needs much of it.

use flashcliff::memory;

use crate::error::Error;

/// Checks that this number of bytes can be allocated at once.
///
/// # Errors
/// [`flashcliff::Error::OutOfMemory`] if the allocator refuses the bytes, or if the system has less left.
pub(crate) fn room_for(what: impl Into<String>, bytes: u128) -> Result<(), Error> {
    let remedy = |_| "make the tensors smaller, or use a machine with more".to_owned();
    Ok(memory::check(&what.into(), bytes, remedy)?)
}

/// The number of elements of a shape, however large.
pub(crate) fn elements(shape: &[usize]) -> u128 {
    let product = shape
        .iter()
        .try_fold(1_u128, |count, &axis| count.checked_mul(axis as u128));
    product.unwrap_or(u128::MAX >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_there_and_too_much_is_not() {
        room_for("a page", 4096).unwrap();
        for bytes in [1 << 60, 1 << 70, u128::MAX] {
            let error = room_for("the output", bytes).unwrap_err().to_string();
            assert!(
                error.contains("the output") && error.contains("GiB"),
                "{error}"
            );
        }
    }

    #[test]
    fn shapes_of_any_size_are_counted() {
        assert_eq!(elements(&[]), 1);
        assert_eq!(elements(&[8, 0, usize::MAX]), 0);
        assert_eq!(elements(&[8, usize::MAX]), 8 * usize::MAX as u128);
        assert!(elements(&[usize::MAX; 5]) > 1 << 100);
    }
}
