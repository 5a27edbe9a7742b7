//! The gradient of a mask from the gradients of scores: sums over the axes along which all scores have one number, one
//! axis after another.

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::rows::Rows;

use super::Site;
use crate::Error;

/// A launch between two tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fold {
    /// The sums over the middle axis.
    Sum([usize; 3]),
    /// The two middle axes in the other order.
    Swap([usize; 4]),
}

impl Fold {
    /// The elements of the result.
    fn len(self) -> usize {
        match self {
            Self::Sum([outer, _, inner]) => outer * inner,
            Self::Swap(sizes) => sizes.iter().product(),
        }
    }

    /// # Safety
    /// The addresses point to tensors of these sizes.
    unsafe fn run(
        self,
        rows: &Rows,
        site: &Site<'_>,
        [from, to]: [CUdeviceptr; 2],
    ) -> Result<(), Error> {
        let target = site.target();
        // SAFETY: the caller promises it.
        Ok(unsafe {
            match self {
                Self::Sum(sizes) => rows.head_sums(target, sizes, from, to),
                Self::Swap(sizes) => rows.swap_axes(target, sizes, from, to),
            }
        }?)
    }
}

/// The launches that make the gradient of a mask from the gradients of scores. Empty if both are the same numbers.
#[derive(Debug)]
pub(super) struct Folds(Vec<Fold>);

impl Folds {
    /// The launches for scores `[samples, heads, queries, keys]`, or `[samples, queries, heads, keys]` where heads
    /// are queries, and for a mask, of which each axis but the last may be 1.
    pub(super) fn new(
        [samples, heads, queries, keys]: [usize; 4],
        heads_are_queries: bool,
        mask: [usize; 4],
    ) -> Self {
        let (mut sizes, mut wanted) = ([samples, heads, queries], [mask[0], mask[1], mask[2]]);
        if heads_are_queries {
            sizes.swap(1, 2);
            wanted.swap(1, 2);
        }
        let mut folds = Vec::new();
        // The innermost first, whose sums have the most threads.
        for axis in (0..3).rev() {
            if wanted[axis] == 1 && sizes[axis] > 1 {
                let outer = sizes[..axis].iter().product();
                let inner = sizes[axis + 1..].iter().product::<usize>() * keys;
                folds.push(Fold::Sum([outer, sizes[axis], inner]));
                sizes[axis] = 1;
            }
        }
        let [outer, first, second] = sizes;
        if heads_are_queries && first > 1 && second > 1 {
            folds.push(Fold::Swap([outer, first, second, keys]));
        }
        Self(folds)
    }

    /// Whether the gradient of scores is that of the mask.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The elements between launches: the first launches write there, one after the other.
    pub(super) fn between(&self) -> [usize; 2] {
        let len = |at: usize| match at + 1 < self.0.len() {
            true => self.0[at].len(),
            false => 0,
        };
        [len(0), len(1)]
    }

    /// Writes the gradient of the mask.
    ///
    /// # Safety
    /// The addresses point to the gradient of scores, to as many elements as are [between](Self::between), and to the
    /// gradient of the mask.
    pub(super) unsafe fn run(
        &self,
        rows: &Rows,
        site: &Site<'_>,
        scores: CUdeviceptr,
        between: [CUdeviceptr; 2],
        to: CUdeviceptr,
    ) -> Result<(), Error> {
        let mut from = scores;
        for (at, fold) in self.0.iter().enumerate() {
            let is_last = at + 1 == self.0.len();
            let next = if is_last { to } else { between[at] };
            // SAFETY: the caller promises it. Before the last launch there are two at most.
            unsafe { fold.run(rows, site, [from, next]) }?;
            from = next;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The launches on the host.
    fn run(folds: &Folds, scores: &[f64]) -> Vec<f64> {
        let mut from = scores.to_vec();
        for fold in &folds.0 {
            let mut to = vec![0.0; fold.len()];
            match *fold {
                Fold::Sum([_, count, inner]) => {
                    for (at, x) in from.iter().enumerate() {
                        to[at / (count * inner) * inner + at % inner] += x;
                    }
                }
                Fold::Swap([_, first, second, inner]) => {
                    for (at, x) in from.iter().enumerate() {
                        let (row, column) = (at / inner, at % inner);
                        let [outer, a, b] =
                            [row / (first * second), row / second % first, row % second];
                        to[((outer * second + b) * first + a) * inner + column] = *x;
                    }
                }
            }
            from = to;
        }
        from
    }

    /// All masks of scores of some sizes, in both orders, beside sums by indices.
    #[test]
    fn launches_sum_over_all_axes_that_a_mask_lacks() {
        for sizes in [[2, 3, 4, 5], [2, 1, 4, 3], [1, 3, 1, 2], [1, 1, 1, 4]] {
            let [samples, heads, queries, keys] = sizes;
            for (choice, heads_are_queries) in (0..8).flat_map(|at| [(at, false), (at, true)]) {
                let of = |axis: usize| {
                    if choice >> axis & 1 == 1 {
                        sizes[axis]
                    } else {
                        1
                    }
                };
                let mask = [of(0), of(1), of(2), keys];
                let len = samples * heads * queries * keys;
                let scores: Vec<f64> = (0..len).map(|at| (at * at + 1) as f64).collect();
                let mut expected = vec![0.0; mask.iter().product()];
                for (at, x) in scores.iter().enumerate() {
                    let (key, row) = (at % keys, at / keys);
                    let [head, query] = match heads_are_queries {
                        true => [row % heads, row / heads % queries],
                        false => [row / queries % heads, row % queries],
                    };
                    let place = [row / (heads * queries), head, query, key];
                    let place = (0..4).fold(0, |sum, axis| {
                        sum * mask[axis] + place[axis].min(mask[axis] - 1)
                    });
                    expected[place] += x;
                }
                let folds = Folds::new(sizes, heads_are_queries, mask);
                let what = format!("{sizes:?}, {mask:?}, heads are queries: {heads_are_queries}");
                assert_eq!(run(&folds, &scores), expected, "{what}");
                assert!(folds.0.len() <= 3, "{what}");
                let last = folds.0.len().saturating_sub(1);
                let between: Vec<usize> = folds.0[..last].iter().map(|fold| fold.len()).collect();
                assert_eq!(between, folds.between()[..last], "{what}");
            }
        }
    }
}
