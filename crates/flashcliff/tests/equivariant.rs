//! Equivariant linear layers against plain loops over the entries of the maps, in exact integers.

use flashcliff::cayley::{EquivariantMap, Group};
use flashcliff::equivariant::{
    EquivariantLinear, InvariantNorm, Matrices, MatricesMut, NormSizes, Side, SideMut, Sizes,
};
use flashcliff::{Algebra, Element, Error, Signature, threads};

/// Small integers from a seed, so that every sum is exact in `f32`.
struct Integers(u64);

impl Integers {
    fn vec<T: Element>(&mut self, len: usize) -> Vec<T> {
        let mut next = || {
            self.0 = self
                .0
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            T::from_f64(f64::from((self.0 >> 33) as u32 % 7) - 3.0)
        };
        (0..len).map(|_| next()).collect()
    }
}

/// All tensors of a layer.
#[derive(Clone, Debug, PartialEq)]
struct Tensors<T> {
    x: Vec<T>,
    s: Vec<T>,
    parameters: [Vec<T>; 6],
    y: Vec<T>,
    t: Vec<T>,
}

impl<T: Element> Tensors<T> {
    fn random(layer: &EquivariantLinear, blades: usize, sizes: Sizes, seed: u64) -> Self {
        let mut integers = Integers(seed);
        let mixed = layer.invariant().len();
        let Sizes {
            rows,
            in_channels,
            out_channels,
            in_scalars,
            out_scalars,
        } = sizes;
        Self {
            x: integers.vec(blades * rows * in_channels),
            s: integers.vec(rows * in_scalars),
            parameters: [
                integers.vec(out_channels * in_channels * layer.maps()),
                integers.vec(out_channels * mixed * in_scalars),
                integers.vec(out_scalars * in_channels * mixed),
                integers.vec(out_scalars * in_scalars),
                integers.vec(out_channels * mixed),
                integers.vec(out_scalars),
            ],
            y: integers.vec(blades * rows * out_channels),
            t: integers.vec(rows * out_scalars),
        }
    }

    fn matrices(&self) -> Matrices<'_, T> {
        let [
            weight,
            to_blades,
            to_scalars,
            scalars,
            blade_bias,
            scalar_bias,
        ] = &self.parameters;
        Matrices {
            weight,
            scalars_to_blades: to_blades,
            blades_to_scalars: to_scalars,
            scalars_to_scalars: scalars,
            blade_bias,
            scalar_bias,
        }
    }

    fn matrices_mut(&mut self) -> MatricesMut<'_, T> {
        let [
            weight,
            to_blades,
            to_scalars,
            scalars,
            blade_bias,
            scalar_bias,
        ] = &mut self.parameters;
        MatricesMut {
            weight,
            scalars_to_blades: to_blades,
            blades_to_scalars: to_scalars,
            scalars_to_scalars: scalars,
            blade_bias,
            scalar_bias,
        }
    }

    fn dirty(mut self) -> Self {
        let nan = T::from_f64(f64::NAN);
        let parameters = self.parameters.iter_mut();
        for tensor in parameters.chain([&mut self.x, &mut self.s, &mut self.y, &mut self.t]) {
            tensor.fill(nan);
        }
        self
    }
}

fn side<'a, T>(multivectors: &'a [T], scalars: &'a [T]) -> Side<'a, T> {
    Side {
        multivectors,
        scalars,
    }
}

fn to<'a, T>(multivectors: &'a mut [T], scalars: &'a mut [T]) -> SideMut<'a, T> {
    SideMut {
        multivectors,
        scalars,
    }
}

/// The layer and its gradients by loops over entries: every product of an output's, an input's and a parameter's entry.
fn expected<T: Element>(
    maps: &[EquivariantMap],
    invariant: &[usize],
    sizes: Sizes,
    given: &Tensors<T>,
) -> Tensors<T> {
    let mut found = given.clone();
    for tensor in
        found
            .parameters
            .iter_mut()
            .chain([&mut found.x, &mut found.s, &mut found.y, &mut found.t])
    {
        tensor.fill(T::default());
    }
    let Sizes {
        rows,
        in_channels,
        out_channels,
        in_scalars,
        out_scalars,
    } = sizes;
    let mixed = invariant.len();
    let x_at = |blade: usize, row: usize, c: usize| (blade * rows + row) * in_channels + c;
    let y_at = |blade: usize, row: usize, o: usize| (blade * rows + row) * out_channels + o;
    let mul = |a: T, b: T, sign: f64| T::from_f64(a.to_f64() * b.to_f64() * sign);
    for row in 0..rows {
        for (map, entries) in maps.iter().enumerate() {
            for entry in &entries.entries {
                let sign = f64::from(entry.sign);
                for o in 0..out_channels {
                    for c in 0..in_channels {
                        let w = (o * in_channels + c) * maps.len() + map;
                        let (x, y) = (x_at(entry.input, row, c), y_at(entry.output, row, o));
                        found.y[y] += mul(given.parameters[0][w], given.x[x], sign);
                        found.x[x] += mul(given.parameters[0][w], given.y[y], sign);
                        found.parameters[0][w] += mul(given.y[y], given.x[x], sign);
                    }
                }
            }
        }
        for (index, &blade) in invariant.iter().enumerate() {
            for o in 0..out_channels {
                let y = y_at(blade, row, o);
                let b = o * mixed + index;
                found.y[y] += given.parameters[4][b];
                found.parameters[4][b] += given.y[y];
                for c in 0..in_scalars {
                    let (w, s) = (b * in_scalars + c, row * in_scalars + c);
                    found.y[y] += mul(given.parameters[1][w], given.s[s], 1.0);
                    found.s[s] += mul(given.parameters[1][w], given.y[y], 1.0);
                    found.parameters[1][w] += mul(given.y[y], given.s[s], 1.0);
                }
            }
            for o in 0..out_scalars {
                for c in 0..in_channels {
                    let w = (o * in_channels + c) * mixed + index;
                    let (x, t) = (x_at(blade, row, c), row * out_scalars + o);
                    found.t[t] += mul(given.parameters[2][w], given.x[x], 1.0);
                    found.x[x] += mul(given.parameters[2][w], given.t[t], 1.0);
                    found.parameters[2][w] += mul(given.t[t], given.x[x], 1.0);
                }
            }
        }
        for o in 0..out_scalars {
            let t = row * out_scalars + o;
            found.t[t] += given.parameters[5][o];
            found.parameters[5][o] += given.t[t];
            for c in 0..in_scalars {
                let (w, s) = (o * in_scalars + c, row * in_scalars + c);
                found.t[t] += mul(given.parameters[3][w], given.s[s], 1.0);
                found.s[s] += mul(given.parameters[3][w], given.t[t], 1.0);
                found.parameters[3][w] += mul(given.t[t], given.s[s], 1.0);
            }
        }
    }
    found
}

/// Runs the three passes into memory full of NaN.
fn run<T: Element>(layer: &EquivariantLinear, sizes: Sizes, given: &Tensors<T>) -> Tensors<T> {
    let mut found = given.clone().dirty();
    let matrices = given.matrices();
    let (input, gradient) = (side(&given.x, &given.s), side(&given.y, &given.t));
    let out = to(&mut found.y, &mut found.t);
    let done = layer.output(sizes, &matrices, input, out);
    done.expect("sizes fit");
    let out = to(&mut found.x, &mut found.s);
    let done = layer.input_gradient(sizes, &matrices, gradient, out);
    done.expect("sizes fit");
    let done = layer.weight_gradient(sizes, gradient, input, found.matrices_mut());
    done.expect("sizes fit");
    found
}

fn algebra(name: &str) -> Algebra {
    let signature = name.parse::<Signature>().expect("a signature");
    Algebra::new(signature).expect("few dimensions")
}

fn check<T: Element>(name: &str, group: Group, sizes: Sizes) {
    let algebra = algebra(name);
    let maps = algebra
        .cayley()
        .equivariant_maps(group)
        .expect("maps are known");
    let layer = EquivariantLinear::new(algebra, group, false).expect("maps are known");
    let given = Tensors::<T>::random(&layer, algebra.cayley().blade_count(), sizes, 7);
    let expected = expected(&maps, layer.invariant(), sizes, &given);
    assert_eq!(
        run(&layer, sizes, &given),
        expected,
        "{name} {group} {sizes:?}"
    );
}

fn sizes(rows: usize, channels: (usize, usize), scalars: (usize, usize)) -> Sizes {
    Sizes {
        rows,
        in_channels: channels.0,
        out_channels: channels.1,
        in_scalars: scalars.0,
        out_scalars: scalars.1,
    }
}

#[test]
fn passes_are_the_sums_over_entries() {
    let names = [
        "cl301", "cl130", "cl300", "cl410", "cl201", "cl020", "cl111", "cl100", "cl230",
    ];
    for name in names {
        for group in Group::ALL {
            check::<f32>(name, group, sizes(5, (3, 2), (4, 3)));
            check::<f64>(name, group, sizes(1, (1, 5), (0, 2)));
            check::<f32>(name, group, sizes(3, (2, 1), (3, 0)));
            check::<f64>(name, group, sizes(2, (4, 4), (0, 0)));
        }
    }
}

#[test]
fn empty_batches_and_channels() {
    check::<f32>("cl301", Group::Pin, sizes(0, (3, 2), (4, 3)));
    check::<f32>("cl130", Group::Spin, sizes(3, (0, 2), (4, 3)));
    check::<f32>("cl130", Group::Spin, sizes(3, (2, 0), (4, 3)));
}

#[test]
fn results_do_not_depend_on_threads() {
    let layer =
        EquivariantLinear::new(algebra("cl130"), Group::Spin, true).expect("maps are known");
    let sizes = sizes(900, (32, 32), (128, 64));
    let mut given = Tensors::<f32>::random(&layer, 16, sizes, 3);
    // Numbers whose sums are rounded.
    for value in given.x.iter_mut().chain(&mut given.y).chain(&mut given.s) {
        *value *= 0.1;
    }
    let one = threads::at_most(1, || run(&layer, sizes, &given));
    let many = run(&layer, sizes, &given);
    assert_eq!(one, many);
    assert!(one.y.iter().all(|value| value.is_finite()));
}

#[test]
fn unit_maps_are_divided_by_their_norms() {
    let layer = EquivariantLinear::new(algebra("cl301"), Group::Pin, true).expect("maps are known");
    assert_eq!(layer.maps(), 9);
    let sizes = sizes(1, (1, 1), (0, 0));
    for map in 0..9 {
        let mut weight = vec![0.0_f64; 9];
        weight[map] = 1.0;
        let mut squares = 0.0;
        for blade in 0..16 {
            let mut x = [0.0; 16];
            x[blade] = 1.0;
            let mut y = [0.0; 16];
            let matrices = Matrices {
                weight: &weight,
                ..Matrices::default()
            };
            layer
                .output(sizes, &matrices, side(&x, &[]), to(&mut y, &mut []))
                .expect("sizes fit");
            squares += y.iter().map(|value| value * value).sum::<f64>();
        }
        assert!((squares - 1.0).abs() < 1e-15, "map {map}: {squares}");
    }
}

#[test]
fn wrong_lengths_are_refused() {
    let layer =
        EquivariantLinear::new(algebra("cl300"), Group::Pin, false).expect("maps are known");
    let sizes = sizes(2, (1, 1), (0, 0));
    let refused = |weights: usize, outputs: usize| {
        let matrices = Matrices {
            weight: &[0.0_f32; 4][..weights],
            ..Matrices::default()
        };
        let mut y = vec![0.0; outputs];
        let done = layer.output(sizes, &matrices, side(&[0.0; 16], &[]), to(&mut y, &mut []));
        done.expect_err("a length does not fit")
    };
    assert_length(&refused(4, 15), 16, 15);
    assert_length(&refused(3, 16), 4, 3);
    let null = algebra("cl002");
    assert!(EquivariantLinear::new(null, Group::Pin, false).is_err());
}

fn assert_length(error: &Error, wanted: usize, came: usize) {
    assert!(
        matches!(error, Error::LengthMismatch { expected, got, .. }
            if (*expected, *got) == (wanted, came)),
        "{error}"
    );
}

/// Sizes of rows that are neighbours.
fn norm_sizes(rows: usize, channels: usize, groups: usize) -> NormSizes {
    NormSizes {
        rows,
        channels,
        groups,
        row: channels * groups,
    }
}

/// The norm's formula in f64, for Cl(1,3): the squared norms of the blades are typed in.
fn normed(sizes: NormSizes, eps: f64, x: &[f64]) -> Vec<f64> {
    let squares = [1, 1, -1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1, -1, -1];
    let grades = [0..1, 1..5, 5..11, 11..15, 15..16];
    let NormSizes {
        rows,
        channels,
        groups,
        ..
    } = sizes;
    let at = |blade: usize, row: usize, channel: usize, group: usize| {
        ((blade * rows + row) * channels + channel) * groups + group
    };
    let mut y = x.to_vec();
    for row in 0..rows {
        for group in 0..groups {
            let mut sum = 0.0;
            for channel in 0..channels {
                for grade in &grades {
                    let terms = grade.clone().map(|blade| {
                        f64::from(squares[blade]) * x[at(blade, row, channel, group)].powi(2)
                    });
                    sum += terms.sum::<f64>().abs();
                }
            }
            let scale = 1.0 / (sum / channels as f64).max(eps).sqrt();
            for blade in 0..16 {
                for channel in 0..channels {
                    y[at(blade, row, channel, group)] *= scale;
                }
            }
        }
    }
    y
}

#[test]
fn norms_and_their_gradients() {
    let norm = InvariantNorm::new(algebra("cl130"));
    for groups in [1, 3] {
        let sizes = norm_sizes(4, 2, groups);
        let mut integers = Integers(5);
        let len = 16 * 4 * 2 * groups;
        let mut x: Vec<f64> = integers.vec(len);
        // No grade's norm is zero, where its absolute value has no derivative.
        for (index, value) in x.iter_mut().enumerate() {
            *value += 0.25 + 0.001 * index as f64;
        }
        // The norm of this row is below eps.
        for blade in 0..16 {
            x[blade * 4 * 2 * groups..][..2 * groups].fill(0.01);
        }
        let g: Vec<f64> = integers.vec(len);
        let mut y = vec![f64::NAN; len];
        norm.forward(sizes, 0.01, &x, &mut y).expect("sizes fit");
        let close = |a: f64, b: f64, bound: f64| (a - b).abs() <= bound * b.abs().max(1.0);
        let wanted = normed(sizes, 0.01, &x);
        assert!(
            y.iter()
                .zip(&wanted)
                .all(|(&y, &wanted)| close(y, wanted, 1e-15))
        );
        let mut gradient = vec![f64::NAN; len];
        norm.backward(sizes, 0.01, &x, &g, &mut gradient)
            .expect("sizes fit");
        let step = 1e-5;
        for index in 0..len {
            let loss = |by: f64| {
                let mut x = x.clone();
                x[index] += by;
                let y = normed(sizes, 0.01, &x);
                y.iter().zip(&g).map(|(y, g)| y * g).sum::<f64>()
            };
            let slope = (loss(step) - loss(-step)) / (2.0 * step);
            assert!(
                close(gradient[index], slope, 1e-8),
                "{index}: {} {slope}",
                gradient[index]
            );
        }
    }
}

#[test]
fn norms_of_many_rows_are_those_of_each_row() {
    let norm = InvariantNorm::new(algebra("cl130"));
    let (rows, channels) = (501, 7);
    for groups in [1, 3] {
        let width = channels * groups;
        let sizes = |rows| norm_sizes(rows, channels, groups);
        let mut integers = Integers(9);
        let [x, g]: [Vec<f32>; 2] = [(); 2].map(|()| integers.vec(16 * rows * width));
        let all = |x: &[f32], g: &[f32], rows| {
            let mut found = [(); 2].map(|()| vec![f32::NAN; x.len()]);
            let [y, gradient] = &mut found;
            norm.forward(sizes(rows), 0.01, x, y).expect("sizes fit");
            norm.backward(sizes(rows), 0.01, x, g, gradient)
                .expect("sizes fit");
            found
        };
        let row_of = |data: &[f32], row: usize| -> Vec<f32> {
            let blades = data.chunks_exact(rows * width);
            blades
                .flat_map(|blade| &blade[row * width..][..width])
                .copied()
                .collect()
        };
        let found = all(&x, &g, rows);
        for row in 0..rows {
            let own = all(&row_of(&x, row), &row_of(&g, row), 1);
            for (found, own) in found.iter().zip(own) {
                assert_eq!(row_of(found, row), own, "row {row}, {groups} groups");
            }
        }
    }
}

/// Rows with other numbers between them have the same norms, gradients and scales, and the others stay.
#[test]
fn norms_of_rows_apart_are_those_of_neighbours() {
    let norm = InvariantNorm::new(algebra("cl130"));
    let (rows, channels, groups, apart) = (5, 3, 2, 9);
    let width = channels * groups;
    let near = norm_sizes(rows, channels, groups);
    let far = NormSizes { row: apart, ..near };
    let mut integers = Integers(3);
    let [x, g]: [Vec<f64>; 2] = [(); 2].map(|()| integers.vec(16 * rows * width));
    let spread = |near: &[f64]| {
        let lines = near.chunks_exact(width);
        let mut all: Vec<f64> = lines
            .flat_map(|line| line.iter().copied().chain([7.0; 3]))
            .collect();
        all.truncate(16 * rows * apart - 3);
        all
    };
    let [mut y, mut gradient] = [(); 2].map(|()| vec![f64::NAN; x.len()]);
    norm.forward(near, 0.01, &x, &mut y).expect("sizes fit");
    norm.backward(near, 0.01, &x, &g, &mut gradient)
        .expect("sizes fit");
    let mut found = spread(&vec![0.0; x.len()]);
    norm.forward(far, 0.01, &spread(&x), &mut found)
        .expect("sizes fit");
    assert_eq!(found, spread(&y));
    norm.backward(far, 0.01, &spread(&x), &spread(&g), &mut found)
        .expect("sizes fit");
    assert_eq!(found, spread(&gradient));
    let mut scales = vec![f64::NAN; rows * groups];
    norm.scales(far, 0.01, &spread(&x), &mut scales)
        .expect("sizes fit");
    for (at, (x, y)) in x.iter().zip(&y).enumerate() {
        let (row, group) = (at / width % rows, at % groups);
        assert_eq!(x * scales[row * groups + group], *y);
    }
    let mut short = found[1..].to_vec();
    assert!(norm.forward(far, 0.01, &spread(&x), &mut short).is_err());
    let narrow = NormSizes { row: 5, ..near };
    assert!(norm.forward(narrow, 0.01, &x, &mut y).is_err());
    assert!(norm.scales(near, 0.01, &x, &mut scales[1..]).is_err());
    let nothing = NormSizes { channels: 0, ..far };
    norm.scales(nothing, 0.01, &[], &mut scales)
        .expect("sizes fit");
    assert!(scales.iter().all(|&scale| (scale - 10.0).abs() < 1e-14));
}

/// A layer whose parameters are copied once has the bits of one that copies them in each call.
#[test]
fn prepared_layers_are_the_layers() {
    for (name, group) in [("cl301", Group::Pin), ("cl130", Group::Spin)] {
        let layer = EquivariantLinear::new(algebra(name), group, true).expect("maps are known");
        let sizes = sizes(37, (3, 18), (5, 2));
        let given = Tensors::<f32>::random(&layer, 16, sizes, 4);
        let matrices = given.matrices();
        let expected = run(&layer, sizes, &given);
        let mut found = given.clone().dirty();
        let prepared = layer.prepare(sizes, &matrices).expect("sizes fit");
        let input = side(&given.x, &given.s);
        let mut of = |rows| prepared.run(rows, input, to(&mut found.y, &mut found.t));
        of(37).expect("sizes fit");
        assert!(of(36).is_err());
        assert_eq!((found.y, found.t), (expected.y, expected.t), "{name}");
        let prepared = layer.prepare_gradient(sizes, &matrices).expect("sizes fit");
        let gradient = side(&given.y, &given.t);
        let done = prepared.run(37, gradient, to(&mut found.x, &mut found.s));
        done.expect("sizes fit");
        assert_eq!((found.x, found.s), (expected.x, expected.s), "{name}");
    }
}

#[test]
fn norms_keep_nan_to_its_row_and_refuse_wrong_lengths() {
    let norm = InvariantNorm::new(algebra("cl300"));
    let sizes = norm_sizes(2, 1, 1);
    let mut x = [1.0_f32; 16];
    x[0] = f32::NAN;
    let mut y = [0.0; 16];
    norm.forward(sizes, 0.01, &x, &mut y).expect("sizes fit");
    for (index, value) in y.iter().enumerate() {
        assert_eq!(value.is_nan(), index % 2 == 0, "{index}: {value}");
    }
    let error = norm
        .forward(sizes, 0.01, &x[..15], &mut y)
        .expect_err("15 is not 16");
    assert_length(&error, 16, 15);
}

#[test]
fn norms_do_not_depend_on_threads() {
    let norm = InvariantNorm::new(algebra("cl301"));
    let sizes = norm_sizes(3000, 7, 2);
    let mut x: Vec<f32> = Integers(9).vec(16 * 3000 * 14);
    x.iter_mut().for_each(|value| *value *= 0.1);
    let run = || {
        let mut y = vec![0.0; x.len()];
        norm.forward(sizes, 0.01, &x, &mut y).expect("sizes fit");
        y
    };
    assert_eq!(threads::at_most(1, run), run());
}
