//! Parts of a slice, halved until each is a separate piece of work.
//!
//! Tasks of a rayon scope are boxes on the heap; the halves of a join lie on the stack.

/// Some parts of a slice.
pub(super) struct Parts<'a, T> {
    data: &'a mut [T],
    first: usize,
    count: usize,
    len: usize,
}

impl<'a, T: Send> Parts<'a, T> {
    /// So many parts of `len` elements each; the last may be shorter.
    pub(super) fn of(data: &'a mut [T], count: usize, len: usize) -> Self {
        Self {
            data,
            first: 0,
            count,
            len,
        }
    }

    /// The elements before a part, as far as there are any.
    fn before(&self, part: usize) -> usize {
        (part * self.len).min(self.data.len())
    }

    /// Runs work on the parts in order.
    pub(super) fn each(self, work: &impl Fn(usize, &mut [T])) {
        for part in 0..self.count {
            let own = self.before(part)..self.before(part + 1);
            work(self.first + part, &mut self.data[own]);
        }
    }

    /// Runs work on the parts, one half perhaps on another thread.
    pub(super) fn spread(self, work: &(impl Fn(usize, &mut [T]) + Sync)) {
        if self.count <= 1 {
            return self.each(work);
        }
        let count = self.count / 2;
        let (left, right) = self
            .data
            .split_at_mut((count * self.len).min(self.data.len()));
        let parts = |data, first, count| Parts {
            data,
            first,
            count,
            len: self.len,
        };
        let left = parts(left, self.first, count);
        let right = parts(right, self.first + count, self.count - count);
        rayon::join(|| left.spread(work), || right.spread(work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A way to run work on parts.
    type Run = fn(Parts<'_, u32>, &(dyn Fn(usize, &mut [u32]) + Sync));

    #[test]
    fn every_part_is_worked_on_once_with_its_number() {
        let ways: [Run; 2] = [
            |parts, work| parts.each(&work),
            |parts, work| parts.spread(&work),
        ];
        for run in ways {
            for (elements, len) in [(0, 3), (1, 3), (6, 3), (7, 3), (8, 3), (5, 1)] {
                let mut data = vec![0; elements];
                let count = elements.div_ceil(len);
                run(Parts::of(&mut data, count, len), &|part, elements| {
                    for element in elements {
                        *element += 1 + part as u32;
                    }
                });
                let expected: Vec<u32> = (0..elements).map(|at| 1 + (at / len) as u32).collect();
                assert_eq!(data, expected, "{elements} elements, {len} a part");
            }
        }
    }

    #[test]
    fn parts_without_elements_are_worked_on_too() {
        let seen = [const { std::sync::atomic::AtomicU32::new(0) }; 5];
        Parts::of(&mut [0_u8; 0], 5, 0).spread(&|part, _: &mut [u8]| {
            seen[part].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(seen.into_iter().all(|count| count.into_inner() == 1));
    }
}
