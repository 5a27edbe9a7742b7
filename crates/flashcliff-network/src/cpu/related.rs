//! Rows by their relations: copies of what they belong to, and sums over what belongs to them.
//!
//! Values are `[outer, rows, inner]`. Each row of a result is computed by one thread, in the order of its segment, so results do not depend on threads.

use flashcliff::threads;

use super::Number;
use crate::relation::{Reduction, Segments};

/// The elements that are worth a task of their own.
const TASK: usize = 1 << 14;

/// What a gathering or a sum follows.
pub(super) struct Followed<'a> {
    pub(super) segments: &'a Segments,
    /// The segments of what is subtracted.
    pub(super) minus: Option<&'a Segments>,
    pub(super) reduction: Reduction,
}

impl Followed<'_> {
    /// The factor of a target.
    fn factor<T: Number>(&self, target: usize) -> Option<T> {
        let count = self.segments.of(target).len();
        (self.reduction != Reduction::Sum).then(|| T::from_f64(self.reduction.factor(count)))
    }
}

/// `o[a][row][c] = factor x[a][target of row][c]`, less the same of the other target.
pub(super) fn gather<T: Number>(x: &[T], followed: &Followed<'_>, inner: usize, o: &mut [T]) {
    let (targets, count) = (followed.segments.targets(), followed.segments.count());
    let minus = followed.minus.map(Segments::targets);
    each_row(o, [targets.len(), inner], |outer, row, o| {
        let of = |target: u32| &x[(outer * count + target as usize) * inner..][..inner];
        o.copy_from_slice(of(targets[row]));
        if let Some(minus) = minus {
            subtract(o, of(minus[row]));
        }
        if let Some(factor) = followed.factor::<T>(targets[row] as usize) {
            o.iter_mut().for_each(|o| *o *= factor);
        }
    });
}

/// `o[a][target][c] = factor sum of x[a][row][c]` over the rows of the target, less the sum of those that subtract it.
pub(super) fn sum<T: Number>(x: &[T], followed: &Followed<'_>, inner: usize, o: &mut [T]) {
    let rows = followed.segments.targets().len();
    let sizes = [followed.segments.count(), inner];
    each_row(o, sizes, |outer, target, o| {
        let of = |row: u32| &x[(outer * rows + row as usize) * inner..][..inner];
        o.fill(T::default());
        let own = followed.segments.of(target).iter();
        own.for_each(|&row| add(o, of(row)));
        let minus = followed.minus.iter().flat_map(|minus| minus.of(target));
        minus.for_each(|&row| subtract(o, of(row)));
        if let Some(factor) = followed.factor::<T>(target) {
            o.iter_mut().for_each(|o| *o *= factor);
        }
    });
}

fn add<T: Number>(o: &mut [T], x: &[T]) {
    for (o, &x) in o.iter_mut().zip(x) {
        *o += x;
    }
}

fn subtract<T: Number>(o: &mut [T], x: &[T]) {
    for (o, &x) in o.iter_mut().zip(x) {
        *o = *o - x;
    }
}

/// Computes each row of `[outer, rows, inner]` from its numbers, many rows to a task.
fn each_row<T: Number>(
    o: &mut [T],
    [rows, inner]: [usize; 2],
    compute: impl Fn(usize, usize, &mut [T]) + Sync,
) {
    if o.is_empty() {
        return;
    }
    let of_task = (TASK / inner).max(1);
    threads::for_each_part(o, of_task * inner, |task, own| {
        for (at, o) in own.chunks_exact_mut(inner).enumerate() {
            let row = task * of_task + at;
            compute(row / rows, row % rows, o);
        }
    });
}
