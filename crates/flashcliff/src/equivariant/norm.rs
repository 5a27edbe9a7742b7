//! The invariant layer norm of multivectors, on the CPU.

use std::ops::Range;

use crate::compiled::compiled_here;
use crate::kernel::tasks::{self, Chunks};
use crate::operator::gemm::Matrix;
use crate::{Algebra, Element, Error, Loop, Tier, sizes};

/// The layer norm of GATr and L-GATr, which versors leave alone.
///
/// ```text
/// y = x / sqrt(max(mean over channels of Σ over grades |⟨reverse(x_g) x_g⟩|, eps))
/// ```
///
/// Tensors are `[blades, rows, channels, groups]`, and each row and group has its own mean. With one group these are the multivectors
/// `[blades, rows, channels]` of other operators; attention has a group for each head. Blades with a null vector do not count, but are
/// divided too.
///
/// Sources: GATr (Brehmer et al. 2023, arXiv 2305.18415) and L-GATr (Spinner et al. 2024, arXiv 2405.14806, section 3).
///
/// ```
/// use flashcliff::equivariant::{InvariantNorm, NormSizes};
/// use flashcliff::{Algebra, Signature};
///
/// let norm = InvariantNorm::new(Algebra::new(Signature::new(2, 0, 0)?)?);
/// let sizes = NormSizes { rows: 1, channels: 1, groups: 1, row: 1 };
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
    /// The elements from a row to the next one, at least `channels * groups`. Others between rows are not touched.
    pub row: usize,
}

/// The smallest number of elements that is worth handing to a thread.
const MIN_ELEMENTS: usize = 1 << 17;
/// The elements of a blade that are computed together: loops over fewer cost more than their arithmetic, and more leave the first cache.
const BLOCK: usize = 1 << 10;

impl InvariantNorm {
    /// The norm of an algebra.
    pub fn new(algebra: Algebra) -> Self {
        let cayley = algebra.cayley();
        let blades = 0..cayley.blade_count();
        Self {
            squares: blades
                .clone()
                .map(|blade| cayley.square_of_blade_norm(blade))
                .collect(),
            grades: blades.map(|blade| cayley.grade_of(blade)).collect(),
        }
    }

    /// Writes the normalised multivectors.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for a slice that does not have the length of its shape; with elements between rows, for one that
    /// does not hold all rows.
    #[inline]
    pub fn forward<T: Element>(
        &self,
        sizes: NormSizes,
        eps: f64,
        x: &[T],
        y: &mut [T],
    ) -> Result<(), Error> {
        T::norm_forward(self, sizes, eps, x, y)
    }

    fn forward_here<T: Element>(
        &self,
        sizes: NormSizes,
        eps: f64,
        x: &[T],
        y: &mut [T],
    ) -> Result<(), Error> {
        self.check(sizes, &[x.len(), y.len()])?;
        let pass = Pass {
            of: self,
            sizes,
            eps,
            x,
            what: What::Norm,
        };
        pass.spread(y);
        Ok(())
    }

    /// Writes what the norm multiplies with, `[rows, groups]`.
    ///
    /// # Errors
    /// The errors of [`Self::forward`].
    #[inline]
    pub fn scales<T: Element>(
        &self,
        sizes: NormSizes,
        eps: f64,
        x: &[T],
        scales: &mut [T],
    ) -> Result<(), Error> {
        T::norm_scales(self, sizes, eps, x, scales)
    }

    fn scales_here<T: Element>(
        &self,
        sizes: NormSizes,
        eps: f64,
        x: &[T],
        scales: &mut [T],
    ) -> Result<(), Error> {
        self.check(sizes, &[x.len()])?;
        super::check_len(&[sizes.rows, sizes.groups], scales.len())?;
        // The mean over no channel is 0.
        if sizes.channels == 0 {
            scales.fill(T::from_f64(1.0 / eps.max(0.0).sqrt()));
            return Ok(());
        }
        let pass = Pass {
            of: self,
            sizes,
            eps,
            x,
            what: What::Scales,
        };
        pass.spread(scales);
        Ok(())
    }

    /// Writes the gradient of the input from that of the output.
    ///
    /// Where a mean is at most `eps`, the divisor is a constant.
    ///
    /// # Errors
    /// The errors of [`Self::forward`].
    #[inline]
    pub fn backward<T: Element>(
        &self,
        sizes: NormSizes,
        eps: f64,
        x: &[T],
        g: &[T],
        gradient: &mut [T],
    ) -> Result<(), Error> {
        T::norm_backward(self, sizes, eps, x, g, gradient)
    }

    fn backward_here<T: Element>(
        &self,
        sizes: NormSizes,
        eps: f64,
        x: &[T],
        g: &[T],
        gradient: &mut [T],
    ) -> Result<(), Error> {
        self.check(sizes, &[x.len(), g.len(), gradient.len()])?;
        let pass = Pass {
            of: self,
            sizes,
            eps,
            x,
            what: What::Gradient(g),
        };
        pass.spread(gradient);
        Ok(())
    }

    fn check(&self, sizes: NormSizes, lens: &[usize]) -> Result<(), Error> {
        let shape = [self.squares.len(), sizes.rows, sizes.channels, sizes.groups];
        let width = sizes::product([sizes.channels, sizes.groups]);
        if sizes.row == width {
            return lens
                .iter()
                .try_for_each(|&len| super::check_len(&shape, len));
        }
        let lines = (sizes::product([self.squares.len(), sizes.rows]), sizes.row);
        let needed = sizes::reach([lines], width);
        let is_short = |got: &usize| *got < needed || sizes.row < width;
        match lens.iter().copied().find(is_short) {
            Some(got) => Err(Error::LengthMismatch {
                shape: shape.to_vec(),
                expected: needed,
                got,
            }),
            None => Ok(()),
        }
    }
}

/// The result that a pass writes.
#[derive(Clone, Copy)]
enum What<'a, T> {
    Norm,
    /// The factors of the norm.
    Scales,
    /// The gradient of the input, from that of the norm.
    Gradient(&'a [T]),
}

/// A pass over all rows.
#[derive(Clone, Copy)]
struct Pass<'a, T> {
    of: &'a InvariantNorm,
    sizes: NormSizes,
    eps: f64,
    x: &'a [T],
    what: What<'a, T>,
}

impl<T: Element> Pass<'_, T> {
    /// Runs the pass on blocks of rows.
    fn spread(&self, to: &mut [T]) {
        // Sizes of tensors without elements may be any numbers.
        let NormSizes {
            rows,
            channels,
            groups,
            ..
        } = self.sizes;
        if to.is_empty() || [rows, channels, groups].contains(&0) {
            return;
        }
        let sizes = self.sizes;
        let elements = self.of.squares.len() * sizes.width();
        let chunks = Chunks::of_rows(sizes.rows, MIN_ELEMENTS.div_ceil(elements.max(1)));
        let line = match self.what {
            What::Scales => sizes.groups,
            _ => sizes.row,
        };
        let to = Matrix::rows(to.as_mut_ptr(), line);
        let grades = self.of.grades.last().map_or(0, |last| last + 1);
        // Rows with others between them are one slice each.
        let block = match sizes.row == sizes.width() {
            true => (BLOCK / sizes.width().max(1)).max(1),
            false => 1,
        };
        tasks::run::<T>(chunks.count(), &mut [], 0, |_, chunk| {
            let range = chunks.range(chunk);
            let mut scratch = Scratch::default();
            for start in range.clone().step_by(block) {
                let rows = start..range.end.min(start + block);
                scratch.resize(grades, rows.len() * sizes.width());
                Tier::best().run(Block {
                    pass: *self,
                    rows,
                    scratch: &mut scratch,
                    to,
                });
            }
        });
    }
}

/// Rows of a pass, which no other block writes.
struct Block<'a, T> {
    pass: Pass<'a, T>,
    rows: Range<usize>,
    scratch: &'a mut Scratch<T>,
    to: Matrix<T>,
}

impl<T: Element> Loop for Block<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        self.statistics();
        match self.pass.what {
            What::Norm => self.forward(),
            What::Scales => self.scales(),
            What::Gradient(g) => self.backward(g),
        }
    }
}

impl<T: Element> Block<'_, T> {
    #[inline(always)]
    fn forward(self) {
        let Pass { of, sizes, x, .. } = self.pass;
        for blade in 0..of.squares.len() {
            let x = sizes.of(x, blade, &self.rows);
            // SAFETY: each row is written by one task.
            let y = unsafe { sizes.of_mut(self.to, blade, &self.rows) };
            for ((y, &x), &scale) in y.iter_mut().zip(x).zip(&self.scratch.scale) {
                *y = x * scale;
            }
        }
    }

    #[inline(always)]
    fn scales(self) {
        let sizes = self.pass.sizes;
        let of_rows = self.scratch.scale.chunks_exact(sizes.width().max(1));
        for (row, scales) in self.rows.zip(of_rows) {
            let to = self.to.from(row, 0).ptr;
            for (group, &scale) in scales[..sizes.groups].iter().enumerate() {
                // SAFETY: each row is written by one task.
                unsafe { *to.add(group) = scale };
            }
        }
    }

    #[inline(always)]
    fn backward(self, g: &[T]) {
        let Pass {
            of, sizes, eps, x, ..
        } = self.pass;
        let (rows, scratch) = (&self.rows, self.scratch);
        let (channels, eps) = (T::from_f64(sizes.channels.max(1) as f64), T::from_f64(eps));
        scratch.product.fill(T::default());
        for blade in 0..of.squares.len() {
            let (x, g) = (sizes.of(x, blade, rows), sizes.of(g, blade, rows));
            for ((sum, &x), &g) in scratch.product.iter_mut().zip(x).zip(g) {
                *sum += x * g;
            }
        }
        for product in scratch.product.chunks_exact_mut(sizes.width().max(1)) {
            sizes.sum_channels(product);
        }
        let factors = scratch.product.iter_mut().zip(&scratch.scale);
        for ((product, &scale), &mean) in factors.zip(&scratch.mean) {
            let factor = *product * scale * scale * scale / channels;
            *product = if mean <= eps { T::default() } else { factor };
        }
        for (blade, (&square, &grade)) in of.squares.iter().zip(&of.grades).enumerate() {
            let (x, g) = (sizes.of(x, blade, rows), sizes.of(g, blade, rows));
            let norms = &scratch.norms[grade * x.len()..][..x.len()];
            let square = T::from_f64(f64::from(square));
            // SAFETY: each row is written by one task.
            let to = unsafe { sizes.of_mut(self.to, blade, rows) };
            let scales = scratch.scale.iter().zip(&scratch.product);
            let given = x.iter().zip(g).zip(norms).zip(scales);
            for (to, (((&x, &g), &norm), (&scale, &factor))) in to.iter_mut().zip(given) {
                *to = g * scale - x * sign(norm) * square * factor;
            }
        }
    }

    /// The squared norm of each grade and element, and for each element the mean and the scale of its group.
    #[inline(always)]
    fn statistics(&mut self) {
        let Pass {
            of, sizes, eps, x, ..
        } = self.pass;
        let scratch = &mut *self.scratch;
        scratch.norms.fill(T::default());
        for (blade, (&square, &grade)) in of.squares.iter().zip(&of.grades).enumerate() {
            let x = sizes.of(x, blade, &self.rows);
            let norms = scratch.norms[grade * x.len()..][..x.len()].iter_mut();
            match square {
                0 => {}
                1 => norms.zip(x).for_each(|(norm, &x)| *norm += x * x),
                _ => norms
                    .zip(x)
                    .for_each(|(norm, &x)| *norm += T::default() - x * x),
            }
        }
        scratch.mean.fill(T::default());
        for norms in scratch.norms.chunks_exact(scratch.mean.len().max(1)) {
            for (mean, &norm) in scratch.mean.iter_mut().zip(norms) {
                *mean += norm * sign(norm);
            }
        }
        let channels = T::from_f64(sizes.channels.max(1) as f64);
        let width = sizes.width().max(1);
        let of_rows = scratch.mean.chunks_exact_mut(width);
        for (means, scales) in of_rows.zip(scratch.scale.chunks_exact_mut(width)) {
            sizes.sum_channels(means);
            let groups = means[..sizes.groups].iter_mut();
            for (mean, scale) in groups.zip(&mut scales[..sizes.groups]) {
                *mean = *mean / channels;
                // NaN stays NaN.
                let divisor = if *mean < T::from_f64(eps) {
                    eps
                } else {
                    mean.to_f64()
                };
                *scale = T::from_f64(1.0 / divisor.sqrt());
            }
            sizes.spread(means);
            sizes.spread(scales);
        }
    }
}

compiled_here! {
    /// The functions of [`InvariantNorm`].
    trait CompiledNorm {
        fn norm_forward(
            of: &InvariantNorm,
            sizes: NormSizes,
            eps: f64,
            x: &[Self],
            y: &mut [Self],
        ) -> Result<(), Error> {
            of.forward_here(sizes, eps, x, y)
        }

        fn norm_scales(
            of: &InvariantNorm,
            sizes: NormSizes,
            eps: f64,
            x: &[Self],
            scales: &mut [Self],
        ) -> Result<(), Error> {
            of.scales_here(sizes, eps, x, scales)
        }

        fn norm_backward(
            of: &InvariantNorm,
            sizes: NormSizes,
            eps: f64,
            x: &[Self],
            g: &[Self],
            gradient: &mut [Self],
        ) -> Result<(), Error> {
            of.backward_here(sizes, eps, x, g, gradient)
        }
    }
}

impl NormSizes {
    /// The number of elements of a blade and a row.
    fn width(self) -> usize {
        self.channels * self.groups
    }

    /// The elements of a blade and some rows.
    #[inline(always)]
    fn of<'a, T>(self, data: &'a [T], blade: usize, rows: &Range<usize>) -> &'a [T] {
        let start = (blade * self.rows + rows.start) * self.row;
        &data[start..][..rows.len() * self.width()]
    }

    /// The elements of a blade and some rows, for writing.
    ///
    /// # Safety
    /// The rows exist, and nobody else uses them during `'a`.
    #[inline(always)]
    unsafe fn of_mut<'a, T: Copy>(
        self,
        data: Matrix<T>,
        blade: usize,
        rows: &Range<usize>,
    ) -> &'a mut [T] {
        let start = data.from(blade * self.rows + rows.start, 0).ptr;
        // SAFETY: the caller promises it.
        unsafe { std::slice::from_raw_parts_mut(start, rows.len() * self.width()) }
    }

    /// Replaces the elements of a row by the sums over channels, the same for every channel of a group.
    #[inline(always)]
    fn sum_channels<T: Element>(self, elements: &mut [T]) {
        if self.width() == 0 {
            return;
        }
        let (sums, others) = elements.split_at_mut(self.groups);
        for channel in others.chunks_exact(self.groups) {
            for (sum, &value) in sums.iter_mut().zip(channel) {
                *sum += value;
            }
        }
        self.spread(elements);
    }

    /// Copies the elements of the first channel of a row to all others.
    #[inline(always)]
    fn spread<T: Copy>(self, elements: &mut [T]) {
        if self.width() == 0 {
            return;
        }
        let (first, others) = elements.split_at_mut(self.groups);
        if let [first] = first {
            return others.fill(*first);
        }
        for channel in others.chunks_exact_mut(self.groups) {
            channel.copy_from_slice(first);
        }
    }
}

/// Memory of a block. All but the norms have an element for each row, channel and group.
#[derive(Default)]
struct Scratch<T> {
    norms: Vec<T>,
    mean: Vec<T>,
    scale: Vec<T>,
    product: Vec<T>,
}

impl<T: Element> Scratch<T> {
    fn resize(&mut self, grades: usize, len: usize) {
        self.norms.resize(grades * len, T::default());
        for part in [&mut self.mean, &mut self.scale, &mut self.product] {
            part.resize(len, T::default());
        }
    }
}

/// The sign of a number: 1, -1, or 0 for zero and NaN.
#[inline(always)]
fn sign<T: Element>(value: T) -> T {
    let (zero, one) = (T::default(), T::from_f64(1.0));
    if value > zero {
        one
    } else if value < zero {
        zero - one
    } else {
        zero
    }
}
