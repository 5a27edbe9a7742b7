//! Features against plain formulas, their distances against distances, gradients against differences, and calls that are refused.

use super::*;

const BLADES: usize = 16;
/// The channels of an item's tensor, of which the head's are a part.
const WIDE: usize = 11;
const WIDE_S: usize = 9;
const FIRST: usize = 2;

fn sizes(rows: usize) -> HeadSizes {
    HeadSizes {
        rows,
        channels: 2,
        scalars: 3,
        heads: 2,
        width: 30,
        items: 1,
    }
}

fn strides(rows: usize) -> HeadStrides {
    HeadStrides {
        blade: rows * WIDE,
        row: WIDE,
        scalars: WIDE_S,
    }
}

fn features(of_queries: bool) -> HeadFeatures {
    HeadFeatures {
        blades: BLADES,
        taken: vec![(0, false), (2, true), (3, false), (8, true), (10, false)],
        distances: Some(HeadDistances {
            of_queries,
            first: 11,
            coordinates: 3,
            eps: 1e-3,
        }),
    }
}

fn noise(count: usize, phase: f64) -> Vec<f64> {
    (0..count)
        .map(|at| (phase + 0.7 * at as f64).sin())
        .collect()
}

/// Multivectors and scalars of rows.
fn data(rows: usize) -> (Vec<f64>, Vec<f64>) {
    (noise(BLADES * rows * WIDE, 0.1), noise(rows * WIDE_S, 0.4))
}

fn items<'a>(rows: usize, (mv, s): &'a (Vec<f64>, Vec<f64>)) -> HeadItems<'a, f64> {
    HeadItems {
        multivectors: &mv[FIRST..],
        scalars: &s[FIRST..],
        strides: strides(rows),
    }
}

fn run(of: &HeadFeatures, rows: usize, data: &(Vec<f64>, Vec<f64>), weights: &[f64]) -> Vec<f64> {
    let sizes = sizes(rows);
    let mut out = vec![f64::NAN; rows * sizes.heads * sizes.width];
    of.forward(sizes, items(rows, data), weights, &mut out)
        .unwrap();
    out
}

#[test]
fn features_are_those_of_the_formulas() {
    let rows = 131;
    let given = data(rows);
    let (mv, s) = &given;
    let weights = [0.5, 2.0, 1.5, 3.0];
    for of_queries in [true, false] {
        let of = features(of_queries);
        let got = run(&of, rows, &given, &weights);
        for row in 0..rows {
            for head in 0..2 {
                let got = &got[(row * 2 + head) * 30..][..30];
                let x = |blade: usize, channel: usize| {
                    mv[FIRST + (blade * rows + row) * WIDE + channel * 2 + head]
                };
                for channel in 0..2 {
                    for (at, &(blade, negative)) in of.taken.iter().enumerate() {
                        let sign = if negative { -1.0 } else { 1.0 };
                        assert_eq!(got[at * 2 + channel], sign * x(blade, channel));
                    }
                    let w = x(14, channel);
                    let t = |axis: usize| x(11 + axis, channel) * w / (w * w + 1e-3);
                    let square = t(0) * t(0) + t(1) * t(1) + t(2) * t(2);
                    let expected = match of_queries {
                        true => [
                            2.0 * t(0) * t(3),
                            2.0 * t(1) * t(3),
                            2.0 * t(2) * t(3),
                            -t(3) * t(3),
                            -square,
                        ],
                        false => [t(0) * t(3), t(1) * t(3), t(2) * t(3), square, t(3) * t(3)],
                    };
                    let weight = if of_queries {
                        weights[channel * 2 + head]
                    } else {
                        1.0
                    };
                    for (at, expected) in expected.into_iter().enumerate() {
                        let got = got[10 + at * 2 + channel];
                        assert!((got - weight * expected).abs() <= 1e-12 * (1.0 + expected.abs()));
                    }
                }
                for scalar in 0..3 {
                    assert_eq!(
                        got[20 + scalar],
                        s[FIRST + row * WIDE_S + scalar * 2 + head]
                    );
                }
                assert!(got[23..].iter().all(|&zero| zero == 0.0));
            }
        }
    }
}

/// Sequences have their features head by head, and so do gradients.
#[test]
fn sequences_have_the_features_of_rows_in_another_order() {
    let (rows, items_of) = (132, 33);
    let (given, of, weights) = (data(rows), features(true), [0.5, 2.0, 1.5, 3.0]);
    let by_rows = run(&of, rows, &given, &weights);
    let of_sequences = HeadSizes {
        items: items_of,
        ..sizes(rows)
    };
    let mut by_heads = vec![f64::NAN; by_rows.len()];
    of.forward(of_sequences, items(rows, &given), &weights, &mut by_heads)
        .unwrap();
    let place =
        |row: usize, head: usize| ((row / items_of * 2 + head) * items_of + row % items_of) * 30;
    let g = noise(rows * 60, 0.9);
    let mut g_by_heads = vec![0.0; g.len()];
    for row in 0..rows {
        for head in 0..2 {
            let (own, other) = ((row * 2 + head) * 30, place(row, head));
            assert_eq!(by_rows[own..][..30], by_heads[other..][..30]);
            g_by_heads[other..][..30].copy_from_slice(&g[own..][..30]);
        }
    }
    let gradients = |sizes: HeadSizes, g: &[f64]| {
        let (mut of_mv, mut of_s) = (vec![0.0; given.0.len()], vec![0.0; given.1.len()]);
        let mut of_weights = [0.0; 4];
        let to = HeadItemsMut {
            multivectors: &mut of_mv[FIRST..],
            scalars: &mut of_s[FIRST..],
            strides: strides(rows),
        };
        of.backward(sizes, items(rows, &given), &weights, g, to, &mut of_weights)
            .unwrap();
        (of_mv, of_s, of_weights)
    };
    assert_eq!(
        gradients(sizes(rows), &g),
        gradients(of_sequences, &g_by_heads)
    );
    let uneven = HeadSizes {
        items: 5,
        ..of_sequences
    };
    assert!(
        of.forward(uneven, items(rows, &given), &weights, &mut by_heads)
            .is_err()
    );
}

/// Factors and means of heads apply to all their items.
#[test]
fn scaled_heads_are_features_of_scaled_items() {
    let rows = 70;
    let given = data(rows);
    let of = HeadFeatures {
        distances: None,
        ..features(false)
    };
    let [factors, means, of_scalars] = [0.3, 0.5, 0.8].map(|phase| noise(rows * 2, phase));
    let mut scaled = given.clone();
    for (at, x) in scaled.0.iter_mut().enumerate() {
        let (row, column) = (at / WIDE % rows, at % WIDE);
        if (FIRST..FIRST + 4).contains(&column) {
            *x *= factors[row * 2 + (column - FIRST) % 2];
        }
    }
    for (at, s) in scaled.1.iter_mut().enumerate() {
        let (row, column) = (at / WIDE_S, at % WIDE_S);
        if (FIRST..FIRST + 6).contains(&column) {
            let head = row * 2 + (column - FIRST) % 2;
            *s = (*s - means[head]) * of_scalars[head];
        }
    }
    let mut found = vec![f64::NAN; rows * 60];
    let scales = HeadScales {
        multivectors: &factors,
        means: &means,
        scalars: &of_scalars,
    };
    of.forward_scaled(sizes(rows), items(rows, &given), scales, &mut found)
        .unwrap();
    assert_eq!(found, run(&of, rows, &scaled, &[]));
    let with_distances = features(false);
    let refused =
        with_distances.forward_scaled(sizes(rows), items(rows, &given), scales, &mut found);
    assert!(refused.is_err());
}

#[test]
fn dot_products_are_squared_distances() {
    let query = DistancePoint::new(2, 1e-3, |at| [[0.3, -0.8, 1.0][at]]);
    let key = DistancePoint::new(2, 1e-3, |at| [[1.1, 0.2, 1.0][at]]);
    let (mut q, mut k) = ([0.0_f64; 4], [0.0; 4]);
    query.features(Some([3.0]), |at, [value]| q[at] = value);
    key.features(None, |at, [value]| k[at] = value);
    let dot: f64 = q.iter().zip(&k).map(|(q, k)| q * k).sum();
    let expected = -3.0 * (0.8_f64 * 0.8 + 1.0) / 1.001_f64.powi(4);
    assert!((dot - expected).abs() < 1e-12, "{dot}, {expected}");
}

#[test]
fn gradients_are_central_differences() {
    // More rows than a chunk has.
    let rows = 70;
    let (given, weights) = (data(rows), [0.5, 2.0, 1.5, 3.0]);
    for of_queries in [true, false] {
        let of = features(of_queries);
        let g = noise(rows * 60, 0.9);
        let sum = |data: &(Vec<f64>, Vec<f64>), weights: &[f64]| -> f64 {
            let out = run(&of, rows, data, weights);
            out.iter().zip(&g).map(|(out, g)| out * g).sum()
        };
        // What is not written stays.
        let (mut of_mv, mut of_s) = (vec![9.0; given.0.len()], vec![9.0; given.1.len()]);
        let mut of_weights = vec![f64::NAN; if of_queries { 4 } else { 0 }];
        let to = HeadItemsMut {
            multivectors: &mut of_mv[FIRST..],
            scalars: &mut of_s[FIRST..],
            strides: strides(rows),
        };
        of.backward(
            sizes(rows),
            items(rows, &given),
            &weights,
            &g,
            to,
            &mut of_weights,
        )
        .unwrap();
        let step = 1e-5;
        let difference = |moved: &dyn Fn(f64) -> f64| (moved(step) - moved(-step)) / (2.0 * step);
        for at in (0..given.0.len()).step_by(37) {
            let within = (FIRST..FIRST + 4).contains(&(at % WIDE));
            let expected = difference(&|by| {
                let mut moved = given.clone();
                moved.0[at] += by;
                sum(&moved, &weights)
            });
            let expected = if within { expected } else { 9.0 };
            assert!(
                (of_mv[at] - expected).abs() <= 1e-4 * (1.0 + expected.abs()),
                "{at}"
            );
        }
        for (at, &got) in of_s.iter().enumerate() {
            let within = (FIRST..FIRST + 6).contains(&(at % WIDE_S));
            let (row, at_row) = (at / WIDE_S, at % WIDE_S);
            let expected = match within {
                true => g[(row * 2 + (at_row - FIRST) % 2) * 30 + 20 + (at_row - FIRST) / 2],
                false => 9.0,
            };
            assert_eq!(got, expected);
        }
        for at in 0..of_weights.len() {
            let expected = difference(&|by| {
                let mut moved = weights;
                moved[at] += by;
                sum(&given, &moved)
            });
            assert!((of_weights[at] - expected).abs() <= 1e-5 * (1.0 + expected.abs()));
        }
    }
}

#[test]
fn bad_sizes_are_errors() {
    let rows = 3;
    let (given, of) = (data(rows), features(true));
    let x = items(rows, &given);
    let attempt = |of: &HeadFeatures, sizes: HeadSizes, x, weights: &[f64], len| {
        of.forward(sizes, x, weights, &mut vec![0.0; len]).is_err()
    };
    assert!(!attempt(&of, sizes(rows), x, &[1.0; 4], 180));
    assert!(attempt(&of, sizes(rows), x, &[1.0; 4], 179));
    assert!(attempt(&of, sizes(rows), x, &[1.0; 3], 180));
    let narrow = HeadSizes {
        width: 22,
        ..sizes(rows)
    };
    assert!(attempt(&of, narrow, x, &[1.0; 4], 132));
    let short = HeadItems {
        multivectors: &x.multivectors[..100],
        ..x
    };
    assert!(attempt(&of, sizes(rows), short, &[1.0; 4], 180));
    let without = HeadSizes {
        channels: 0,
        ..sizes(rows)
    };
    assert!(attempt(&of, without, x, &[], 180));
    let beyond = HeadFeatures {
        taken: vec![(16, false)],
        ..of.clone()
    };
    assert!(attempt(&beyond, sizes(rows), x, &[1.0; 4], 180));
    // Rows of a blade that reach into the next cannot be written by several threads.
    let mut to = (given.0.clone(), given.1.clone());
    let overlapping = HeadItemsMut {
        multivectors: &mut to.0,
        scalars: &mut to.1,
        strides: HeadStrides {
            blade: 4,
            row: WIDE,
            scalars: WIDE_S,
        },
    };
    let g = vec![0.0; 180];
    let found = of.backward(sizes(rows), x, &[1.0; 4], &g, overlapping, &mut []);
    assert!(found.is_err());
}

/// Heads whose points are computed side by side are as each by itself, bit for bit.
#[test]
fn blocks_of_heads_are_single_heads() {
    let (rows, heads) = (67, 19);
    let (mv, s) = (noise(BLADES * rows * heads, 0.2), noise(rows * heads, 0.6));
    let weights = noise(heads, 0.3);
    let of = features(true);
    let sizes = |heads: usize| HeadSizes {
        rows,
        channels: 1,
        scalars: 1,
        heads,
        width: 12,
        items: 1,
    };
    let strides = HeadStrides {
        blade: rows * heads,
        row: heads,
        scalars: heads,
    };
    let from = |head: usize| HeadItems {
        multivectors: &mv[head..],
        scalars: &s[head..],
        strides,
    };
    let mut all = vec![0.0; rows * heads * 12];
    of.forward(sizes(heads), from(0), &weights, &mut all)
        .unwrap();
    let g = noise(all.len(), 0.8);
    let (mut of_mv, mut of_s) = (vec![0.0; mv.len()], vec![0.0; s.len()]);
    let mut of_weights = vec![0.0; heads];
    let to = HeadItemsMut {
        multivectors: &mut of_mv,
        scalars: &mut of_s,
        strides,
    };
    of.backward(sizes(heads), from(0), &weights, &g, to, &mut of_weights)
        .unwrap();
    let (mut one_mv, mut one_s) = (vec![0.0; mv.len()], vec![0.0; s.len()]);
    for head in 0..heads {
        let part = |all: &[f64]| -> Vec<f64> {
            let rows = all.chunks(heads * 12);
            rows.flat_map(|row| row[head * 12..][..12].to_vec())
                .collect()
        };
        let mut one = vec![0.0; rows * 12];
        let own = &weights[head..=head];
        of.forward(sizes(1), from(head), own, &mut one).unwrap();
        assert_eq!(one, part(&all));
        let mut of_weight = [0.0];
        let to = HeadItemsMut {
            multivectors: &mut one_mv[head..],
            scalars: &mut one_s[head..],
            strides,
        };
        of.backward(sizes(1), from(head), own, &part(&g), to, &mut of_weight)
            .unwrap();
        assert_eq!(of_weight[0], of_weights[head]);
    }
    assert_eq!((one_mv, one_s), (of_mv, of_s));
}
