//! The invariant layer norm of multivectors, on the CPU.

use crate::kernel::tasks::{self, Chunks};
use crate::{Algebra, Element, Error};

/// The layer norm of GATr and L-GATr, which versors leave alone.
///
/// ```text
/// y = x / sqrt(max(mean over channels of Σ over grades |⟨reverse(x_g) x_g⟩|, eps))
/// ```
///
/// Tensors are `[blades, rows, channels, groups]`, and each row and group has a mean of its own. With one group these
/// are the multivectors `[blades, rows, channels]` of other operators; attention has a group for each head. Blades with a
/// null vector do not count, but are divided too.
///
/// Sources: GATr (Brehmer et al. 2023, arXiv 2305.18415) and L-GATr (Spinner et al. 2024, arXiv 2405.14806, section 3).
///
/// ```
/// use flashcliff::equivariant::{InvariantNorm, NormSizes};
/// use flashcliff::{Algebra, Signature};
///
/// let norm = InvariantNorm::new(Algebra::new(Signature::new(2, 0, 0)?)?);
/// let sizes = NormSizes { rows: 1, channels: 1, groups: 1 };
/// let mut y = [0.0_f32; 4];
/// norm.forward(sizes, 0.01, &[1.0, 1.0, 1.0, 1.0], &mut y)?;
/// assert_eq!(y, [0.5; 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct InvariantNorm {
    /// The squared norm of each blade: 1, -1 or 0.
    squares: Vec<i8>,
    /// The grade of each blade.
    grades: Vec<usize>,
}

/// The sizes of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NormSizes {
    /// The batch elements.
    pub rows: usize,
    /// The channels that a mean is over.
    pub channels: usize,
    /// The groups of channels, innermost.
    pub groups: usize,
}

/// The smallest number of elements that is worth handing to a thread.
const MIN_ELEMENTS: usize = 1 << 17;

impl InvariantNorm {
    /// The norm of an algebra.
    pub fn new(algebra: Algebra) -> Self {
        let cayley = algebra.cayley();
        let square = |blade: usize| {
            let grade = cayley.grade_of(blade);
            let reversed = if matches!(grade % 4, 0 | 1) { 1 } else { -1 };
            cayley
                .multiply(blade, blade)
                .map_or(0, |(_, sign)| sign * reversed)
        };
        let blades = 0..cayley.blade_count();
        Self {
            squares: blades.clone().map(square).collect(),
            grades: blades.map(|blade| cayley.grade_of(blade)).collect(),
        }
    }

    /// Writes the normalised multivectors.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for a slice that does not have the length of its shape.
    pub fn forward<T: Element>(
        &self,
        sizes: NormSizes,
        eps: f64,
        x: &[T],
        y: &mut [T],
    ) -> Result<(), Error> {
        self.check(sizes, &[x.len(), y.len()])?;
        self.rows(sizes, y, |row, scratch, y| {
            self.statistics(sizes, row, x, scratch);
            self.scales(sizes, eps, scratch);
            for blade in 0..self.squares.len() {
                let at = (blade * sizes.rows + row) * sizes.width();
                let x = &x[at..at + sizes.width()];
                // SAFETY: each row is written by one task.
                let y = unsafe { y.slice(at, sizes.width()) };
                for (y, x) in sizes.groups_of_mut(y).zip(sizes.groups_of(x)) {
                    for ((y, &x), &scale) in y.iter_mut().zip(x).zip(&scratch.scale) {
                        *y = x * scale;
                    }
                }
            }
        });
        Ok(())
    }

    /// Writes the gradient of the input from that of the output.
    ///
    /// Where a mean is at most `eps`, the divisor is a constant.
    ///
    /// # Errors
    /// The errors of [`Self::forward`].
    pub fn backward<T: Element>(
        &self,
        sizes: NormSizes,
        eps: f64,
        x: &[T],
        g: &[T],
        gradient: &mut [T],
    ) -> Result<(), Error> {
        self.check(sizes, &[x.len(), g.len(), gradient.len()])?;
        let channels = T::from_f64(sizes.channels.max(1) as f64);
        self.rows(sizes, gradient, |row, scratch, gradient| {
            self.statistics(sizes, row, x, scratch);
            self.scales(sizes, eps, scratch);
            scratch.product.fill(T::default());
            let at = |blade: usize| (blade * sizes.rows + row) * sizes.width();
            for blade in 0..self.squares.len() {
                let (x, g) = (
                    &x[at(blade)..][..sizes.width()],
                    &g[at(blade)..][..sizes.width()],
                );
                for (x, g) in sizes.groups_of(x).zip(sizes.groups_of(g)) {
                    for ((sum, &x), &g) in scratch.product.iter_mut().zip(x).zip(g) {
                        *sum += x * g;
                    }
                }
            }
            for (group, product) in scratch.product.iter_mut().enumerate() {
                let scale = scratch.scale[group];
                let clamped = scratch.mean[group] <= T::from_f64(eps);
                *product = match clamped {
                    true => T::default(),
                    false => *product * scale * scale * scale / channels,
                };
            }
            for (blade, (&square, &grade)) in self.squares.iter().zip(&self.grades).enumerate() {
                let square = T::from_f64(f64::from(square));
                let norms = &scratch.norms[grade * sizes.width()..][..sizes.width()];
                let (x, g) = (
                    &x[at(blade)..][..sizes.width()],
                    &g[at(blade)..][..sizes.width()],
                );
                // SAFETY: the same holds as above.
                let to = unsafe { gradient.slice(at(blade), sizes.width()) };
                for index in 0..sizes.width() {
                    let group = index % sizes.groups;
                    let sign = sign(norms[index]) * square;
                    to[index] =
                        g[index] * scratch.scale[group] - x[index] * sign * scratch.product[group];
                }
            }
        });
        Ok(())
    }

    fn check(&self, sizes: NormSizes, lens: &[usize]) -> Result<(), Error> {
        let shape = [self.squares.len(), sizes.rows, sizes.channels, sizes.groups];
        lens.iter()
            .try_for_each(|&len| super::check_len(&shape, len))
    }

    /// Runs work on every row, with scratch memory and the tensor to write.
    fn rows<T: Element>(
        &self,
        sizes: NormSizes,
        to: &mut [T],
        work: impl Fn(usize, &mut Scratch<T>, &Shared<T>) + Sync,
    ) {
        let elements = self.squares.len() * sizes.width();
        let chunks = Chunks::of_rows(sizes.rows, MIN_ELEMENTS.div_ceil(elements.max(1)));
        let to = Shared(to.as_mut_ptr());
        let grades = self.grades.last().map_or(0, |last| last + 1);
        tasks::run::<T>(chunks.count(), &mut [], 0, |_, chunk| {
            let mut scratch = Scratch {
                norms: vec![T::default(); grades * sizes.width()],
                mean: vec![T::default(); sizes.groups],
                scale: vec![T::default(); sizes.groups],
                product: vec![T::default(); sizes.groups],
            };
            for row in chunks.range(chunk) {
                work(row, &mut scratch, &to);
            }
        });
    }

    /// The squared norm of each grade, channel and group of a row, and their means.
    fn statistics<T: Element>(
        &self,
        sizes: NormSizes,
        row: usize,
        x: &[T],
        scratch: &mut Scratch<T>,
    ) {
        let width = sizes.width();
        scratch.norms.fill(T::default());
        for (blade, (&square, &grade)) in self.squares.iter().zip(&self.grades).enumerate() {
            let x = &x[(blade * sizes.rows + row) * width..][..width];
            let norms = &mut scratch.norms[grade * width..][..width];
            match square {
                0 => {}
                1 => norms
                    .iter_mut()
                    .zip(x)
                    .for_each(|(norm, &x)| *norm += x * x),
                _ => norms
                    .iter_mut()
                    .zip(x)
                    .for_each(|(norm, &x)| *norm += T::default() - x * x),
            }
        }
        scratch.mean.fill(T::default());
        for norms in sizes.groups_of(&scratch.norms) {
            for (mean, &norm) in scratch.mean.iter_mut().zip(norms) {
                *mean += norm * sign(norm);
            }
        }
        let channels = T::from_f64(sizes.channels.max(1) as f64);
        for mean in &mut scratch.mean {
            *mean = *mean / channels;
        }
    }

    /// One over the root of each mean, or of `eps` if that is larger.
    fn scales<T: Element>(&self, _: NormSizes, eps: f64, scratch: &mut Scratch<T>) {
        for (scale, &mean) in scratch.scale.iter_mut().zip(&scratch.mean) {
            // NaN stays NaN.
            let mean = if mean < T::from_f64(eps) {
                eps
            } else {
                mean.to_f64()
            };
            *scale = T::from_f64(1.0 / mean.sqrt());
        }
    }
}

impl NormSizes {
    /// The elements of a blade and a row.
    fn width(self) -> usize {
        self.channels * self.groups
    }

    /// The elements of each channel.
    fn groups_of<T>(self, data: &[T]) -> impl Iterator<Item = &[T]> {
        data.chunks_exact(self.groups.max(1))
    }

    /// The elements of each channel, for writing.
    fn groups_of_mut<T>(self, data: &mut [T]) -> impl Iterator<Item = &mut [T]> {
        data.chunks_exact_mut(self.groups.max(1))
    }
}

/// Memory of a task.
struct Scratch<T> {
    norms: Vec<T>,
    mean: Vec<T>,
    scale: Vec<T>,
    product: Vec<T>,
}

/// A tensor whose rows are written by different tasks.
struct Shared<T>(*mut T);

// SAFETY: tasks write different rows.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// # Safety
    /// The elements exist, and nobody else uses them.
    #[allow(clippy::mut_from_ref, reason = "tasks write different rows")]
    unsafe fn slice(&self, start: usize, len: usize) -> &mut [T] {
        // SAFETY: the caller promises it.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }
}

/// The sign of a number: 1, -1, or 0 for zero and NaN.
fn sign<T: Element>(value: T) -> T {
    let zero = T::default();
    T::from_f64(f64::from(i8::from(value > zero) - i8::from(value < zero)))
}
