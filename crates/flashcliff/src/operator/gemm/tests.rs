//! Products beside sums in another order, in sizes around the sizes of tiles.

use super::*;

/// Numbers of halves up to 4, whose products and sums are exact.
fn numbers(len: usize, seed: usize) -> Vec<f32> {
    let number = |at: usize| ((at * 7 + at / 5 * 3 + seed) % 17) as f32 / 2.0 - 4.0;
    (0..len).map(number).collect()
}

fn entry(matrix: Matrix<f32>, row: usize, column: usize) -> f32 {
    // SAFETY: tests ask for entries of their matrices.
    unsafe { *matrix.from(row, column).ptr }
}

/// A matrix in each layout that callers have: rows, columns, and elements between others.
fn layouts(data: &mut Vec<f32>, rows: usize, columns: usize) -> [Matrix<f32>; 3] {
    data.resize(3 * rows * columns + 64, 0.5);
    let ptr = data.as_mut_ptr();
    [
        Matrix::rows(ptr, columns),
        Matrix::rows(ptr, rows).transposed(),
        Matrix {
            ptr,
            row: 3 * columns,
            column: 3,
        },
    ]
}

#[test]
fn products_are_exact_in_all_sizes_and_layouts() {
    let sizes = [0, 1, 2, 3, 5, 8, 12, 16, 17, 33, 64, 70];
    let depths = [0, 1, 4, 16, 255, 256, 257];
    let mut cases = Vec::new();
    for m in sizes {
        for n in sizes {
            cases.extend(depths.map(|k| (m, k, n)));
        }
    }
    cases.push((150, 20, 260));
    for (at, (m, k, n)) in cases.into_iter().enumerate() {
        let (mut a, mut b) = (numbers(m * k, at), numbers(k * n, at + 3));
        let before = numbers(m * n, at + 8);
        let a = layouts(&mut a, m, k)[at % 3];
        let b = layouts(&mut b, k, n)[at / 3 % 3];
        for accumulate in [false, true] {
            let mut data = before.clone();
            let out = layouts(&mut data, m, n)[at / 9 % 3];
            let given: Vec<f32> = (0..m * n).map(|at| entry(out, at / n, at % n)).collect();
            let others = data.clone();
            // SAFETY: the matrices have these sizes.
            unsafe { matmul_scaled((m, k, n), out, a, b, accumulate, -0.5) };
            for row in 0..m {
                for column in 0..n {
                    let products = (0..k).map(|p| entry(a, row, p) * entry(b, p, column));
                    let sum = -0.5 * products.sum::<f32>();
                    let first = if accumulate {
                        given[row * n + column]
                    } else {
                        0.0
                    };
                    let found = entry(out, row, column);
                    assert_eq!(found, first + sum, "{m} x {k} x {n} at {row}, {column}");
                    // SAFETY: the entry exists.
                    unsafe { *out.from(row, column).ptr = f32::NAN };
                }
            }
            let changed = data
                .iter()
                .zip(&others)
                .filter(|(now, before)| now != before);
            assert_eq!(changed.count(), m * n, "{m} x {k} x {n}");
        }
    }
}

#[test]
fn sums_of_products_are_those_of_one_product_after_another() {
    for (rows, columns) in [(1, 1), (3, 20), (5, 16), (29, 50), (40, 64)] {
        let depths = [3, 0, 18];
        let mut data: Vec<_> = depths
            .iter()
            .map(|k| (numbers(rows * k, *k), numbers(k * columns, k + 1)))
            .collect();
        let matrices: Vec<_> = data
            .iter_mut()
            .zip(depths)
            .map(|((a, b), k)| (layouts(a, rows, k)[0], layouts(b, k, columns)[1], k))
            .collect();
        let factors: Vec<_> = matrices
            .iter()
            .map(|&(_, b, k)| ((k, columns), b, -2.0))
            .collect();
        let [mut found, mut expected] = [vec![1.0; rows * columns], vec![0.0; rows * columns]];
        // SAFETY: the matrices have these sizes.
        unsafe {
            let rights = Rights::new(&factors);
            let left = matrices.iter().enumerate();
            let products: Vec<_> = left.map(|(at, &(a, ..))| rights.product(a, at)).collect();
            let out = Matrix::rows(found.as_mut_ptr(), columns);
            sum_of_products((rows, columns), out, &products);
            for (a, b, k) in matrices {
                let out = Matrix::rows(expected.as_mut_ptr(), columns);
                matmul_scaled((rows, k, columns), out, a, b, true, -2.0);
            }
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn sums_in_place_and_by_copies_are_the_same() {
    for (rows, columns) in [(1, 16), (16, 32), (7, 20), (40, 48)] {
        let depths = [3, 300, 0, 18];
        let mut data: Vec<_> = depths
            .iter()
            .map(|k| (numbers(rows * k, *k), numbers(k * columns, k + 1)))
            .collect();
        let matrices: Vec<_> = data
            .iter_mut()
            .zip(depths)
            .map(|((a, b), k)| (k, layouts(a, rows, k)[1], layouts(b, k, columns)[0]))
            .collect();
        for accumulate in [false, true] {
            let before = numbers(rows * columns, 5);
            let (mut found, mut expected) = (before.clone(), before);
            // SAFETY: the matrices have these sizes.
            unsafe {
                let out = Matrix::rows(found.as_mut_ptr(), columns);
                matmul_sum(
                    (rows, columns),
                    out,
                    matrices.iter().copied(),
                    accumulate,
                    2.0,
                );
                for (at, &(k, a, b)) in matrices.iter().enumerate() {
                    let out = Matrix::rows(expected.as_mut_ptr(), columns);
                    matmul_scaled((rows, k, columns), out, a, b, accumulate || at > 0, 2.0);
                }
            }
            assert_eq!(found, expected, "{rows} x {columns}");
        }
    }
}
