//! Short lists without an allocation.

use std::ops::{Deref, DerefMut};

/// A list of at most `N` items, in an array.
#[derive(Clone, Copy)]
pub(crate) struct Few<T, const N: usize> {
    items: [T; N],
    len: usize,
}

impl<T: Copy, const N: usize> Few<T, N> {
    /// A list of some items. The places after them hold `filler`.
    ///
    /// # Panics
    /// More than `N` items. Lists of operators are within the limits of programs.
    pub(crate) fn of(filler: T, items: impl IntoIterator<Item = T>) -> Self {
        let mut list = Self {
            items: [filler; N],
            len: 0,
        };
        for item in items {
            list.push(item);
        }
        list
    }

    /// Adds an item.
    ///
    /// # Panics
    /// `N` items are there.
    pub(crate) fn push(&mut self, item: T) {
        self.items[self.len] = item;
        self.len += 1;
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items[..self.len]
    }
}

impl<T, const N: usize> DerefMut for Few<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_what_was_added_and_no_filler() {
        let mut list: Few<u8, 4> = Few::of(9, [1, 2]);
        list.push(3);
        list[0] = 5;
        assert_eq!(*list, [5, 2, 3]);
    }
}
