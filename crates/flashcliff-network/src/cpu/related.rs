//! Rows by their relations: copies of what they belong to, and sums over what belongs to them.
//!
//! Values are `[outer, rows, inner]`. Each row of a result is computed by one thread, in the order of its segment, so results do not depend on threads.

use flashcliff::threads;

use super::Number;
use crate::relation::{Reduction, Segments};

/// The elements that are worth a task of their own.
const TASK: usize = 1 << 14;

/// `o[a][row][c] = factor x[a][target of row][c]`.
pub(super) fn gather<T: Number>(
    x: &[T],
    (segments, reduction): (&Segments, Reduction),
    inner: usize,
    o: &mut [T],
) {
    let (targets, count) = (segments.targets(), segments.count());
    each_row(o, [targets.len(), inner], |outer, row, o| {
        let target = targets[row] as usize;
        let from = &x[(outer * count + target) * inner..][..inner];
        match reduction {
            Reduction::Sum => o.copy_from_slice(from),
            _ => {
                let factor = T::from_f64(reduction.factor(segments.of(target).len()));
                scale(from, factor, o);
            }
        }
    });
}

/// `o[a][target][c] = factor sum of x[a][row][c]` over the rows of the target.
pub(super) fn sum<T: Number>(
    x: &[T],
    (segments, reduction): (&Segments, Reduction),
    inner: usize,
    o: &mut [T],
) {
    let rows = segments.targets().len();
    each_row(o, [segments.count(), inner], |outer, target, o| {
        o.fill(T::default());
        let own = segments.of(target);
        for &row in own {
            let from = &x[(outer * rows + row as usize) * inner..][..inner];
            for (sum, &x) in o.iter_mut().zip(from) {
                *sum += x;
            }
        }
        if reduction != Reduction::Sum {
            let factor = T::from_f64(reduction.factor(own.len()));
            o.iter_mut().for_each(|sum| *sum *= factor);
        }
    });
}

fn scale<T: Number>(from: &[T], factor: T, o: &mut [T]) {
    for (o, &x) in o.iter_mut().zip(from) {
        *o = factor * x;
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
    let tasks: Vec<(usize, &mut [T])> = o.chunks_mut(of_task * inner).enumerate().collect();
    threads::for_each(tasks.into_iter(), |(task, own)| {
        for (at, o) in own.chunks_exact_mut(inner).enumerate() {
            let row = task * of_task + at;
            compute(row / rows, row % rows, o);
        }
    });
}
