//! Rows by their relations on the CPU: copies of what rows belong to, and sums over what belongs to rows. Each is the
//! gradient of the other.
//!
//! Values are `[outer, rows, inner]` and `[outer, targets, inner]`. Each row of a result is computed by one thread,
//! in the order of its segment, so results do not depend on threads. The maximum of a segment is the value of one of
//! its rows, which is kept.
//!
//! ```
//! use flashcliff::segments::{self, Lists, Reduction, Related};
//!
//! // Rows 0 and 2 belong to target 1, row 1 to target 0, and none to target 2.
//! let lists = Lists { targets: &[1, 0, 1], starts: &[0, 1, 3, 3], order: &[1, 0, 2] };
//! let related = Related { of: lists, minus: None, reduction: Reduction::Mean, inner: 1 };
//! let mut means = [0.0_f32; 3];
//! segments::segment_sum(&related, &[2.0, 5.0, 4.0], &mut means);
//! assert_eq!(means, [5.0, 3.0, 0.0]);
//! ```

use crate::{Element, threads};

/// The elements that are worth a separate task.
const TASK: usize = 1 << 14;

/// The row that a target without rows keeps: none.
pub const NO_ROW: u32 = u32::MAX;

/// What a sum over the rows of a segment is divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// By nothing.
    #[default]
    Sum,
    /// By the number of rows. The mean of none is 0.
    Mean,
    /// By the square root of the number of rows.
    RootCount,
}

impl Reduction {
    /// The factor of a sum of so many rows.
    pub fn factor(self, count: usize) -> f64 {
        let count = count.max(1) as f64;
        match self {
            Self::Sum => 1.0,
            Self::Mean => 1.0 / count,
            Self::RootCount => 1.0 / count.sqrt(),
        }
    }
}

/// A relation: the target of each row, and the rows of each target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lists<'a> {
    /// The target of each row.
    pub targets: &'a [u32],
    /// For each target where its rows begin in `order`, and the number of rows.
    pub starts: &'a [u32],
    /// The rows of each target, ascending, one target after another.
    pub order: &'a [u32],
}

impl<'a> Lists<'a> {
    /// The number of targets.
    pub(crate) fn count(self) -> usize {
        self.starts.len() - 1
    }

    /// The rows of a target.
    fn of(self, target: usize) -> &'a [u32] {
        let [from, to] = [target, target + 1].map(|at| self.starts[at] as usize);
        &self.order[from..to]
    }
}

/// The relations that a gathering or a sum follows, with what the sum is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Related<'a> {
    /// The relation.
    pub of: Lists<'a>,
    /// A relation of the same rows and targets that subtracts.
    pub minus: Option<Lists<'a>>,
    /// What sums are divided by: the rows of `of`.
    pub reduction: Reduction,
    /// The elements of the axes after the rows.
    pub inner: usize,
}

impl Related<'_> {
    /// The factor of a target.
    fn factor<T: Element>(&self, target: usize) -> Option<T> {
        let count = self.of.of(target).len();
        (self.reduction != Reduction::Sum).then(|| T::from_f64(self.reduction.factor(count)))
    }

    fn scale<T: Element>(&self, target: usize, o: &mut [T]) {
        if let Some(factor) = self.factor::<T>(target) {
            o.iter_mut().for_each(|o| *o = *o * factor);
        }
    }
}

/// `o[a][row][c] = factor x[a][target of row][c]`, less the same of the other target.
///
/// # Panics
/// Panics if lists or values do not fit each other.
pub fn gather<T: Element>(related: &Related<'_>, x: &[T], o: &mut [T]) {
    let (targets, count, inner) = (related.of.targets, related.of.count(), related.inner);
    let minus = related.minus.map(|minus| minus.targets);
    each_row(o, [targets.len(), inner], |outer, row, o| {
        let of = |target: u32| &x[(outer * count + target as usize) * inner..][..inner];
        o.copy_from_slice(of(targets[row]));
        if let Some(minus) = minus {
            subtract(o, of(minus[row]));
        }
        related.scale(targets[row] as usize, o);
    });
}

/// `o[a][target][c] = factor sum of x[a][row][c]` over the rows of the target, less the sum of those that subtract it.
///
/// # Panics
/// Panics if lists or values do not fit each other.
pub fn segment_sum<T: Element>(related: &Related<'_>, x: &[T], o: &mut [T]) {
    let (rows, inner) = (related.of.targets.len(), related.inner);
    let sizes = [related.of.count(), inner];
    each_row(o, sizes, |outer, target, o| {
        let of = |row: u32| &x[(outer * rows + row as usize) * inner..][..inner];
        o.fill(T::default());
        let own = related.of.of(target).iter();
        own.for_each(|&row| add(o, of(row)));
        let minus = related.minus.iter().flat_map(|minus| minus.of(target));
        minus.for_each(|&row| subtract(o, of(row)));
        related.scale(target, o);
    });
}

/// The lowest row with the largest `x[a][row][c]` of each target, as `kept[a][target][c]`: [`NO_ROW`] if the target has no rows.
///
/// A NaN is larger than any number. The maximum of components is not equivariant unless all of them are scalars. [`pick`] reads the values,
/// and [`place`] brings gradients to the rows.
///
/// ```
/// use flashcliff::segments::{self, Lists, NO_ROW};
///
/// let lists = Lists { targets: &[1, 0, 1], starts: &[0, 1, 3, 3], order: &[1, 0, 2] };
/// let (x, mut kept, mut o) = ([2.0_f32, 5.0, 4.0], [0; 3], [0.0; 3]);
/// segments::largest(lists, 1, &x, &mut kept);
/// assert_eq!(kept, [1, 2, NO_ROW]);
/// segments::pick(lists, 1, &kept, &x, &mut o);
/// assert_eq!(o, [5.0, 4.0, 0.0]);
/// ```
///
/// # Panics
/// Panics if lists or values do not fit each other.
pub fn largest<T: Element>(of: Lists<'_>, inner: usize, x: &[T], kept: &mut [u32]) {
    let rows = of.targets.len();
    each_row(kept, [of.count(), inner], |outer, target, kept| {
        kept.fill(NO_ROW);
        let x = &x[outer * rows * inner..][..rows * inner];
        for &row in of.of(target) {
            let own = &x[row as usize * inner..][..inner];
            for (c, (kept, &value)) in kept.iter_mut().zip(own).enumerate() {
                let best = (*kept != NO_ROW).then(|| x[*kept as usize * inner + c]);
                if best.is_none_or(|best| is_larger(value, best)) {
                    *kept = row;
                }
            }
        }
    });
}

/// `o[a][target][c] = x[a][kept[a][target][c]][c]`, and 0 where no row is kept.
///
/// # Panics
/// Panics if lists or values do not fit each other.
pub fn pick<T: Element>(of: Lists<'_>, inner: usize, kept: &[u32], x: &[T], o: &mut [T]) {
    let (rows, count) = (of.targets.len(), of.count());
    each_row(o, [count, inner], |outer, target, o| {
        let kept = &kept[(outer * count + target) * inner..][..inner];
        for (c, (o, &kept)) in o.iter_mut().zip(kept).enumerate() {
            *o = match kept {
                NO_ROW => T::default(),
                kept => x[(outer * rows + kept as usize) * inner + c],
            };
        }
    });
}

/// `o[a][row][c] = x[a][target of row][c]` where the target keeps the row, else 0. It is the adjoint of [`pick`].
///
/// # Panics
/// Panics if lists or values do not fit each other.
pub fn place<T: Element>(of: Lists<'_>, inner: usize, kept: &[u32], x: &[T], o: &mut [T]) {
    let count = of.count();
    each_row(o, [of.targets.len(), inner], |outer, row, o| {
        let at = (outer * count + of.targets[row] as usize) * inner;
        let (kept, x) = (&kept[at..][..inner], &x[at..][..inner]);
        for ((o, &kept), &x) in o.iter_mut().zip(kept).zip(x) {
            *o = if kept as usize == row {
                x
            } else {
                T::default()
            };
        }
    });
}

/// Whether a value is larger than another one, where a NaN is larger than any number.
#[expect(clippy::eq_op, reason = "only a NaN differs from itself")]
fn is_larger<T: Element>(value: T, best: T) -> bool {
    value > best || (value != value && best == best)
}

fn add<T: Element>(o: &mut [T], x: &[T]) {
    for (o, &x) in o.iter_mut().zip(x) {
        *o += x;
    }
}

fn subtract<T: Element>(o: &mut [T], x: &[T]) {
    for (o, &x) in o.iter_mut().zip(x) {
        *o = *o - x;
    }
}

/// Computes each row of `[outer, rows, inner]` from its numbers, many rows to a task.
fn each_row<T: Send>(
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
