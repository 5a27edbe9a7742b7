//! Parts of a slice, halved until each is work of its own.
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

    /// The first parts, so many, and the others.
    fn split(&mut self, count: usize) -> (Parts<'_, T>, Parts<'_, T>) {
        let at = (count * self.len).min(self.data.len());
        let (data, rest) = self.data.split_at_mut(at);
        let (first, len) = (self.first, self.len);
        let parts = |data, first, count| Parts {
            data,
            first,
            count,
            len,
        };
        (
            parts(data, first, count),
            parts(rest, first + count, self.count - count),
        )
    }

    /// Runs work on the parts in order.
    pub(super) fn each(mut self, work: &impl Fn(usize, &mut [T])) {
        for part in 0..self.count {
            let (_, mut rest) = self.split(part);
            let (own, _) = rest.split(1);
            work(own.first, own.data);
        }
    }

    /// Runs work on the parts, one half perhaps on another thread.
    pub(super) fn spread(mut self, work: &(impl Fn(usize, &mut [T]) + Sync)) {
        match self.count {
            0 | 1 => self.each(work),
            count => {
                let (left, right) = self.split(count / 2);
                rayon::join(|| left.spread(work), || right.spread(work));
            }
        }
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
