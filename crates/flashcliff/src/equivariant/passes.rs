//! The parameters of a layer as matrices, and their gradients, which are matrix products shared among threads.

use super::{EquivariantLinear, Matrices, MatricesMut, Side, Sizes};
use crate::Element;
use crate::kernel::tasks;
use crate::operator::gemm::{Matrix, matmul, matmul_sum};

impl EquivariantLinear {
    pub(super) fn run_weight_gradient<T: Element>(
        &self,
        sizes: Sizes,
        gradient: Side<'_, T>,
        input: Side<'_, T>,
        out: MatricesMut<'_, T>,
    ) {
        let g = read(gradient.multivectors, sizes.out_channels);
        let g_s = read(gradient.scalars, sizes.out_scalars);
        let (x, s) = (
            read(input.multivectors, sizes.in_channels),
            read(input.scalars, sizes.in_scalars),
        );
        let (k, n, rows) = (sizes.in_channels, sizes.out_channels, sizes.rows);
        let (k_s, n_s) = (sizes.in_scalars, sizes.out_scalars);
        let wanted = [
            !out.weight.is_empty(),
            !out.scalars_to_blades.is_empty(),
            !out.blades_to_scalars.is_empty(),
            !out.scalars_to_scalars.is_empty(),
        ];
        for (index, &blade) in self.invariant.iter().enumerate() {
            let bias = out
                .blade_bias
                .iter_mut()
                .skip(index)
                .step_by(self.invariant.len());
            sum_rows(
                &gradient.multivectors[blade * rows * n..(blade + 1) * rows * n],
                bias,
            );
        }
        sum_rows(gradient.scalars, out.scalar_bias.iter_mut());
        let places = self.places_mut(sizes, out);
        // One task for each matrix. Its rows are summed in order.
        let mixed = self.invariant.len();
        let count = self.maps + 2 * mixed + 1;
        let (places, x, s, g, g_s) = (&places, &x, &s, &g, &g_s);
        // SAFETY: lengths were checked; every task writes its own matrix.
        tasks::run::<T>(count, &mut [], 0, |_, at| unsafe {
            if at < self.maps {
                let of_map = self.terms.iter().filter(|term| term.map == at);
                let mut factors: Vec<f64> = of_map.clone().map(|term| term.factor).collect();
                factors.sort_by(f64::total_cmp);
                factors.dedup();
                for (index, &factor) in factors.iter().enumerate().filter(|_| wanted[0]) {
                    let own = of_map.clone().filter(|term| term.factor == factor);
                    let products = own.map(|term| {
                        let g = g.from(term.output * rows, 0).transposed();
                        (term.blades * rows, g, x.from(term.input * rows, 0))
                    });
                    let (to, is_next) = (places.weight(at), index > 0);
                    matmul_sum((n, k), to, products, is_next, T::from_f64(factor));
                }
            } else if at < self.maps + mixed {
                let index = at - self.maps;
                if wanted[1] {
                    let g = g.from(self.invariant[index] * rows, 0).transposed();
                    matmul(
                        (n, rows, k_s),
                        places.scalars_to_blades(index),
                        g,
                        *s,
                        false,
                    );
                }
            } else if at < self.maps + 2 * mixed {
                let index = at - self.maps - mixed;
                if wanted[2] {
                    let x = x.from(self.invariant[index] * rows, 0);
                    matmul(
                        (n_s, rows, k),
                        places.blades_to_scalars(index),
                        g_s.transposed(),
                        x,
                        false,
                    );
                }
            } else if wanted[3] {
                matmul(
                    (n_s, rows, k_s),
                    places.scalars_to_scalars,
                    g_s.transposed(),
                    *s,
                    false,
                );
            }
        });
    }

    pub(super) fn places<T>(&self, sizes: Sizes, matrices: &Matrices<'_, T>) -> Places<T> {
        self.places_of(
            sizes,
            [
                matrices.weight.as_ptr().cast_mut(),
                matrices.scalars_to_blades.as_ptr().cast_mut(),
                matrices.blades_to_scalars.as_ptr().cast_mut(),
                matrices.scalars_to_scalars.as_ptr().cast_mut(),
            ],
        )
    }

    fn places_mut<T>(&self, sizes: Sizes, matrices: MatricesMut<'_, T>) -> Places<T> {
        self.places_of(
            sizes,
            [
                matrices.weight.as_mut_ptr(),
                matrices.scalars_to_blades.as_mut_ptr(),
                matrices.blades_to_scalars.as_mut_ptr(),
                matrices.scalars_to_scalars.as_mut_ptr(),
            ],
        )
    }

    fn places_of<T>(&self, sizes: Sizes, pointers: [*mut T; 4]) -> Places<T> {
        let mixed = self.invariant.len();
        let [
            weight,
            scalars_to_blades,
            blades_to_scalars,
            scalars_to_scalars,
        ] = pointers;
        Places {
            weight: Matrix {
                ptr: weight,
                row: sizes.in_channels * self.maps,
                column: self.maps,
            },
            scalars_to_blades: Matrix::rows(scalars_to_blades, mixed * sizes.in_scalars),
            in_scalars: sizes.in_scalars,
            blades_to_scalars: Matrix {
                ptr: blades_to_scalars,
                row: mixed * sizes.in_channels,
                column: mixed,
            },
            scalars_to_scalars: Matrix::rows(scalars_to_scalars, sizes.in_scalars),
        }
    }
}

/// The parameters as matrices, outputs by inputs.
pub(super) struct Places<T> {
    weight: Matrix<T>,
    scalars_to_blades: Matrix<T>,
    in_scalars: usize,
    blades_to_scalars: Matrix<T>,
    pub(super) scalars_to_scalars: Matrix<T>,
}

impl<T: Copy> Places<T> {
    pub(super) fn weight(&self, map: usize) -> Matrix<T> {
        shifted(&self.weight, map)
    }

    pub(super) fn scalars_to_blades(&self, index: usize) -> Matrix<T> {
        shifted(&self.scalars_to_blades, index * self.in_scalars)
    }

    pub(super) fn blades_to_scalars(&self, index: usize) -> Matrix<T> {
        shifted(&self.blades_to_scalars, index)
    }
}

fn shifted<T: Copy>(matrix: &Matrix<T>, by: usize) -> Matrix<T> {
    Matrix {
        ptr: matrix.ptr.wrapping_add(by),
        ..*matrix
    }
}

pub(super) fn read<T>(data: &[T], columns: usize) -> Matrix<T> {
    Matrix::rows(data.as_ptr().cast_mut(), columns)
}

/// Writes the sums of the columns of a matrix.
fn sum_rows<'a, T: Element>(matrix: &[T], to: impl ExactSizeIterator<Item = &'a mut T>) {
    let mut sums = vec![T::default(); to.len()];
    if sums.is_empty() {
        return;
    }
    for row in matrix.chunks_exact(sums.len()) {
        for (sum, &value) in sums.iter_mut().zip(row) {
            *sum += value;
        }
    }
    to.zip(sums).for_each(|(to, sum)| *to = sum);
}
