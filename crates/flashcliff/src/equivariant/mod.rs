//! Layers of geometric algebra transformers, on the CPU: linear layers that commute with a group, and the invariant norm.
//!
//! All linear maps of multivectors that commute with the group of an algebra are known
//! ([`cayley::Algebra::equivariant_maps`]); a layer has a matrix of channels for each of them. Scalar channels mix with
//! the blades that the group leaves alone.

mod norm;
mod passes;
mod prepared;
mod terms;

use cayley::Group;

use crate::compiled::compiled_here;
use crate::{Algebra, Element, Error, sizes};
pub(crate) use norm::CompiledNorm;
pub use norm::{InvariantNorm, NormSizes};
pub use prepared::Prepared;
use terms::Term;

/// A linear layer of multivectors and scalars that commutes with the group of an algebra.
///
/// ```text
/// out[i] = Σ over maps a and entries (i ← j) of a:  f_a s_ij W_a x[j]      (+ B_i s + b_i  for invariant blades i)
/// out_s  = Σ over invariant blades i:  C_i x[i]  +  D s  +  c
/// ```
///
/// The signs `s_ij` belong to the map, and `f_a` is 1, or one over the map's Frobenius norm.
///
/// | tensor | shape |
/// |---|---|
/// | `x`, `out` | `[blades, rows, in_channels]`, `[blades, rows, out_channels]` |
/// | `s`, `out_s` | `[rows, in_scalars]`, `[rows, out_scalars]` |
/// | `weight` (W) | `[out_channels, in_channels, maps]` |
/// | `scalars_to_blades` (B), `blade_bias` (b) | `[out_channels * invariant, in_scalars]`, `[out_channels * invariant]` |
/// | `blades_to_scalars` (C) | `[out_scalars, in_channels * invariant]` |
/// | `scalars_to_scalars` (D), `scalar_bias` (c) | `[out_scalars, in_scalars]`, `[out_scalars]` |
///
/// The invariant blade is innermost in `out_channels * invariant` and `in_channels * invariant`. Empty slices stand for
/// matrices and biases that a layer does not have. Results do not depend on the number of threads.
///
/// Sources: GATr (Brehmer et al. 2023, arXiv 2305.18415, appendix A) for Cl(3,0,1); L-GATr (Spinner et al. 2024, arXiv
/// 2405.14806, section 3) for Cl(1,3).
///
/// ```
/// use flashcliff::cayley::Group;
/// use flashcliff::equivariant::{EquivariantLinear, Matrices, Side, SideMut, Sizes};
/// use flashcliff::{Algebra, Signature};
///
/// let algebra = Algebra::new(Signature::new(3, 0, 1)?)?;
/// let layer = EquivariantLinear::new(algebra, Group::Pin, true)?;
/// let sizes = Sizes { rows: 1, in_channels: 1, out_channels: 1, ..Sizes::default() };
/// let weight = vec![1.0_f32; layer.maps()];
/// let x: Vec<f32> = (0..16).map(|blade| blade as f32).collect();
/// let mut out = vec![0.0; 16];
/// layer.output(
///     sizes,
///     &Matrices { weight: &weight, ..Matrices::default() },
///     Side { multivectors: &x, scalars: &[] },
///     SideMut { multivectors: &mut out, scalars: &mut [] },
/// )?;
/// // Blade e0 is half of the grade-1 part, plus e0 times the scalar.
/// assert_eq!(out[1], 0.5 * x[1] + x[0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct EquivariantLinear {
    blades: usize,
    maps: usize,
    terms: Vec<Term>,
    invariant: Vec<usize>,
}

/// The sizes of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The batch elements.
    pub rows: usize,
    /// Multivector channels of the input.
    pub in_channels: usize,
    /// Multivector channels of the output.
    pub out_channels: usize,
    /// Scalar channels of the input.
    pub in_scalars: usize,
    /// Scalar channels of the output.
    pub out_scalars: usize,
}

/// Multivectors and scalars: an input, or the gradient of an output.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a, T> {
    /// `[blades, rows, channels]`.
    pub multivectors: &'a [T],
    /// `[rows, scalars]`.
    pub scalars: &'a [T],
}

/// Multivectors and scalars to write.
#[derive(Debug)]
pub struct SideMut<'a, T> {
    /// `[blades, rows, channels]`.
    pub multivectors: &'a mut [T],
    /// `[rows, scalars]`.
    pub scalars: &'a mut [T],
}

/// The parameters of a layer; [`EquivariantLinear`] gives the shapes.
#[derive(Clone, Copy, Debug)]
pub struct Matrices<'a, T> {
    /// A matrix for each map.
    pub weight: &'a [T],
    /// From scalars to the invariant blades.
    pub scalars_to_blades: &'a [T],
    /// From the invariant blades to scalars.
    pub blades_to_scalars: &'a [T],
    /// From scalars to scalars, or empty.
    pub scalars_to_scalars: &'a [T],
    /// The bias of the invariant blades, or empty.
    pub blade_bias: &'a [T],
    /// The bias of the scalars, or empty.
    pub scalar_bias: &'a [T],
}

impl<T> Default for Matrices<'_, T> {
    fn default() -> Self {
        Self {
            weight: &[],
            scalars_to_blades: &[],
            blades_to_scalars: &[],
            scalars_to_scalars: &[],
            blade_bias: &[],
            scalar_bias: &[],
        }
    }
}

/// Gradients of the parameters to write; an empty slice is not written.
#[derive(Debug)]
pub struct MatricesMut<'a, T> {
    /// A matrix for each map.
    pub weight: &'a mut [T],
    /// From scalars to the invariant blades.
    pub scalars_to_blades: &'a mut [T],
    /// From the invariant blades to scalars.
    pub blades_to_scalars: &'a mut [T],
    /// From scalars to scalars.
    pub scalars_to_scalars: &'a mut [T],
    /// The bias of the invariant blades.
    pub blade_bias: &'a mut [T],
    /// The bias of the scalars.
    pub scalar_bias: &'a mut [T],
}

impl EquivariantLinear {
    /// The layer of an algebra and a group.
    ///
    /// With `unit`, each map is divided by its Frobenius norm, as in GATr. The invariant blades are the scalar, and for
    /// [`Group::Spin`] the pseudoscalar.
    ///
    /// # Errors
    /// The error of [`cayley::Algebra::equivariant_maps`], for signatures whose maps are not known.
    pub fn new(algebra: Algebra, group: Group, unit: bool) -> Result<Self, Error> {
        let maps = algebra.cayley().equivariant_maps(group)?;
        let blades = algebra.cayley().blade_count();
        Ok(Self {
            blades,
            maps: maps.len(),
            terms: terms::of(&maps, unit),
            invariant: match group {
                Group::Pin => vec![0],
                Group::Spin => vec![0, blades - 1],
            },
        })
    }

    /// The layer of vectors, the blades of grade 1, in place of multivectors. No group leaves one of them alone, so
    /// scalars mix with scalars alone.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn of_vectors(algebra: Algebra, group: Group, unit: bool) -> Result<Self, Error> {
        let maps = algebra.cayley().equivariant_maps_of_grade(group, 1)?;
        Ok(Self {
            blades: algebra.cayley().dim(),
            maps: maps.len(),
            terms: terms::of(&maps, unit),
            invariant: Vec::new(),
        })
    }

    /// How many maps there are, which is the last axis of `weight`.
    pub fn maps(&self) -> usize {
        self.maps
    }

    /// The invariant blades that scalars mix with.
    pub fn invariant(&self) -> &[usize] {
        &self.invariant
    }

    /// Computes the layer.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for a slice that does not have the length of its shape.
    #[inline]
    pub fn output<T: Element>(
        &self,
        sizes: Sizes,
        matrices: &Matrices<'_, T>,
        input: Side<'_, T>,
        out: SideMut<'_, T>,
    ) -> Result<(), Error> {
        T::linear_output(self, sizes, matrices, input, out)
    }

    /// Computes the gradient of the input from that of the output. Biases are not read.
    ///
    /// # Errors
    /// The errors of [`Self::output`].
    #[inline]
    pub fn input_gradient<T: Element>(
        &self,
        sizes: Sizes,
        matrices: &Matrices<'_, T>,
        gradient: Side<'_, T>,
        out: SideMut<'_, T>,
    ) -> Result<(), Error> {
        T::linear_input_gradient(self, sizes, matrices, gradient, out)
    }

    /// Copies the parameters for many calls of [`Self::output`] with them. The rows of `sizes` are not read.
    ///
    /// # Errors
    /// The errors of [`Self::output`].
    #[inline]
    pub fn prepare<T: Element>(
        &self,
        sizes: Sizes,
        matrices: &Matrices<'_, T>,
    ) -> Result<Prepared<T>, Error> {
        T::linear_prepare(self, sizes, matrices)
    }

    /// Copies the parameters for many calls of [`Self::input_gradient`] with them. The rows of `sizes` are not read.
    ///
    /// # Errors
    /// The errors of [`Self::output`].
    #[inline]
    pub fn prepare_gradient<T: Element>(
        &self,
        sizes: Sizes,
        matrices: &Matrices<'_, T>,
    ) -> Result<Prepared<T>, Error> {
        T::linear_prepare_gradient(self, sizes, matrices)
    }

    /// Computes the gradients of the parameters from that of the output and the input.
    ///
    /// # Errors
    /// The errors of [`Self::output`].
    #[inline]
    pub fn weight_gradient<T: Element>(
        &self,
        sizes: Sizes,
        gradient: Side<'_, T>,
        input: Side<'_, T>,
        out: MatricesMut<'_, T>,
    ) -> Result<(), Error> {
        T::linear_weight_gradient(self, sizes, gradient, input, out)
    }

    /// Checks the multivectors and scalars of the input, or of the output.
    fn check_side(
        &self,
        sizes: Sizes,
        is_input: bool,
        [multivectors, scalars]: [usize; 2],
    ) -> Result<(), Error> {
        let (channels, of_scalars) = match is_input {
            true => (sizes.in_channels, sizes.in_scalars),
            false => (sizes.out_channels, sizes.out_scalars),
        };
        check_len(&[self.blades, sizes.rows, channels], multivectors)?;
        check_len(&[sizes.rows, of_scalars], scalars)
    }

    /// Checks the lengths of parameters. A parameter that must be there is empty only if its shape is.
    fn check_matrices(&self, sizes: Sizes, given: &Lengths, needed: bool) -> Result<(), Error> {
        let mixed = |channels: usize| sizes::product([channels, self.invariant.len()]);
        let (mixed_out, mixed_in) = (mixed(sizes.out_channels), mixed(sizes.in_channels));
        let check = |shape: &[usize], len: usize, needed: bool| match len == 0 && !needed {
            true => Ok(()),
            false => check_len(shape, len),
        };
        let weight = [sizes.out_channels, sizes.in_channels, self.maps];
        check(&weight, given.weight, needed)?;
        check(
            &[mixed_out, sizes.in_scalars],
            given.scalars_to_blades,
            needed,
        )?;
        check(
            &[sizes.out_scalars, mixed_in],
            given.blades_to_scalars,
            needed,
        )?;
        check(
            &[sizes.out_scalars, sizes.in_scalars],
            given.scalars_to_scalars,
            false,
        )?;
        check(&[mixed_out], given.blade_bias, false)?;
        check(&[sizes.out_scalars], given.scalar_bias, false)
    }
}

compiled_here! {
    /// The functions of [`EquivariantLinear`]. Sizes of tensors without elements may be any numbers, so a call that
    /// writes nothing ends after its checks.
    trait CompiledLinear {
        fn linear_prepare(
            of: &EquivariantLinear,
            sizes: Sizes,
            matrices: &Matrices<'_, Self>,
        ) -> Result<Prepared<Self>, Error> {
            of.check_matrices(sizes, &Lengths::of(matrices), true)?;
            Ok(of.prepared_output(sizes, matrices))
        }

        fn linear_prepare_gradient(
            of: &EquivariantLinear,
            sizes: Sizes,
            matrices: &Matrices<'_, Self>,
        ) -> Result<Prepared<Self>, Error> {
            of.check_matrices(sizes, &Lengths::of(matrices), true)?;
            Ok(of.prepared_input_gradient(sizes, matrices))
        }

        fn linear_run(
            of: &Prepared<Self>,
            rows: usize,
            from: Side<'_, Self>,
            to: SideMut<'_, Self>,
        ) -> Result<(), Error> {
            of.run_here(rows, from, to)
        }

        fn linear_output(
            of: &EquivariantLinear,
            sizes: Sizes,
            matrices: &Matrices<'_, Self>,
            input: Side<'_, Self>,
            out: SideMut<'_, Self>,
        ) -> Result<(), Error> {
            of.check_matrices(sizes, &Lengths::of(matrices), true)?;
            of.check_side(sizes, true, input.lens())?;
            of.check_side(sizes, false, out.lens())?;
            match out.lens() {
                [0, 0] => Ok(()),
                _ => of
                    .prepared_output(sizes, matrices)
                    .run_here(sizes.rows, input, out),
            }
        }

        fn linear_input_gradient(
            of: &EquivariantLinear,
            sizes: Sizes,
            matrices: &Matrices<'_, Self>,
            gradient: Side<'_, Self>,
            out: SideMut<'_, Self>,
        ) -> Result<(), Error> {
            of.check_matrices(sizes, &Lengths::of(matrices), true)?;
            of.check_side(sizes, false, gradient.lens())?;
            of.check_side(sizes, true, out.lens())?;
            match out.lens() {
                [0, 0] => Ok(()),
                _ => of
                    .prepared_input_gradient(sizes, matrices)
                    .run_here(sizes.rows, gradient, out),
            }
        }

        fn linear_weight_gradient(
            of: &EquivariantLinear,
            sizes: Sizes,
            gradient: Side<'_, Self>,
            input: Side<'_, Self>,
            out: MatricesMut<'_, Self>,
        ) -> Result<(), Error> {
            let lengths = Lengths::of_mut(&out);
            of.check_matrices(sizes, &lengths, false)?;
            of.check_side(sizes, false, gradient.lens())?;
            of.check_side(sizes, true, input.lens())?;
            if lengths != Lengths::default() {
                of.run_weight_gradient(sizes, gradient, input, out);
            }
            Ok(())
        }
    }
}

impl<T> Side<'_, T> {
    fn lens(&self) -> [usize; 2] {
        [self.multivectors.len(), self.scalars.len()]
    }
}

impl<T> SideMut<'_, T> {
    fn lens(&self) -> [usize; 2] {
        [self.multivectors.len(), self.scalars.len()]
    }
}

/// The lengths of parameters.
#[derive(Default, PartialEq, Eq)]
struct Lengths {
    weight: usize,
    scalars_to_blades: usize,
    blades_to_scalars: usize,
    scalars_to_scalars: usize,
    blade_bias: usize,
    scalar_bias: usize,
}

impl Lengths {
    fn of<T>(matrices: &Matrices<'_, T>) -> Self {
        Self {
            weight: matrices.weight.len(),
            scalars_to_blades: matrices.scalars_to_blades.len(),
            blades_to_scalars: matrices.blades_to_scalars.len(),
            scalars_to_scalars: matrices.scalars_to_scalars.len(),
            blade_bias: matrices.blade_bias.len(),
            scalar_bias: matrices.scalar_bias.len(),
        }
    }

    fn of_mut<T>(matrices: &MatricesMut<'_, T>) -> Self {
        Self {
            weight: matrices.weight.len(),
            scalars_to_blades: matrices.scalars_to_blades.len(),
            blades_to_scalars: matrices.blades_to_scalars.len(),
            scalars_to_scalars: matrices.scalars_to_scalars.len(),
            blade_bias: matrices.blade_bias.len(),
            scalar_bias: matrices.scalar_bias.len(),
        }
    }
}

fn check_len(shape: &[usize], len: usize) -> Result<(), Error> {
    crate::tensor::Shape::of(shape, len).map(drop)
}
