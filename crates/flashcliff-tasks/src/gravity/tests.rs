use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::keep_on;

fn systems(count: usize) -> Vec<System> {
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    (0..count)
        .map(|_| System::around_the_origin(&mut rng))
        .collect()
}

/// `sum_i m_i v_i`, or of positions.
fn weighted(masses: &[f64], vectors: &[Vector]) -> Vector {
    let pairs = masses.iter().zip(vectors);
    pairs.fold([0.0; DIM], |sum, (&m, &v)| add(sum, scaled(v, m)))
}

#[test]
fn forces_cancel_so_momentum_stays_and_the_centre_moves_evenly() {
    for system in systems(20) {
        let forces = weighted(&system.masses, &system.accelerations());
        let end = system.after(STEPS);
        let before = weighted(&system.masses, &system.velocities);
        let after = weighted(&system.masses, &end.velocities);
        let moved = add(
            weighted(&system.masses, &end.positions),
            scaled(weighted(&system.masses, &system.positions), -1.0),
        );
        let expected = scaled(before, STEPS as f64 * TIME_STEP);
        for axis in 0..DIM {
            assert!(forces[axis].abs() < 1e-9, "{forces:?}");
            assert!((before[axis] - after[axis]).abs() < 1e-10);
            assert!((moved[axis] - expected[axis]).abs() < 1e-10);
        }
    }
}

#[test]
fn a_change_of_velocity_is_the_sum_of_pulls() {
    let system = &systems(1)[0];
    let next = system.after(1);
    for i in 0..BODIES {
        for axis in 0..DIM {
            let mut pull = 0.0;
            for j in 0..BODIES {
                let d: Vec<f64> = (0..DIM)
                    .map(|k| system.positions[j][k] - system.positions[i][k])
                    .collect();
                let square: f64 = d.iter().map(|d| d * d).sum();
                if j != i {
                    pull += system.masses[j] * d[axis] / (square * square.sqrt());
                }
            }
            let v = system.velocities[i][axis] + 1e-3 * pull;
            assert!((next.velocities[i][axis] - v).abs() < 1e-12);
            let x = system.positions[i][axis] + 1e-3 * v;
            assert!((next.positions[i][axis] - x).abs() < 1e-12);
        }
    }
}

/// A planet of almost no mass on a circle of radius 1 around a star of mass 4: the angular velocity is 2. Two more
/// are too far away to matter.
#[test]
fn a_circular_orbit_is_the_analytic_one_up_to_the_order_of_the_method() {
    let mut system = systems(1)[0].clone();
    system.masses = [4.0, 1e-12, 1e-12, 1e-12];
    system.positions = [[0.0; 3], [1.0, 0.0, 0.0], [1e6, 0.0, 0.0], [0.0, -1e6, 0.0]];
    system.velocities = [[0.0; 3], [0.0, 2.0, 0.0], [0.0; 3], [0.0; 3]];
    let error = |steps: usize| {
        let angle = 2.0 * steps as f64 * TIME_STEP;
        let [x, y, z] = system.after(steps).positions[1];
        length([x - angle.cos(), y - angle.sin(), z])
    };
    // The local error of a step is `dt^2 / 2` times the acceleration of 4, and the method is of first order.
    assert!(error(1) <= 2.1e-6, "{}", error(1));
    assert!(error(STEPS) < 5e-4, "{}", error(STEPS));
    assert!(error(STEPS) > 1e-5, "the check could not fail");
}

#[test]
fn planets_start_on_circles_of_both_ways() {
    let mut ways = [0_u32; 2];
    for system in systems(200) {
        assert_eq!(system.positions[0], [0.0; 3]);
        assert_eq!(system.velocities[0], [0.0; 3]);
        assert!((1.0..=10.0).contains(&system.masses[0]));
        for planet in 1..BODIES {
            let (x, v) = (system.positions[planet], system.velocities[planet]);
            let radius = length(x);
            assert!((0.01..=0.1).contains(&system.masses[planet]));
            assert!((0.1..=1.0).contains(&radius) && x[2] == 0.0);
            // Five standard deviations of the noise of each component.
            let speed = (system.masses[0] / radius).sqrt();
            assert!((length(v) - speed).abs() < 0.1);
            assert!(v[2].abs() < 0.05);
            let turn = x[0] * v[1] - x[1] * v[0];
            assert!((turn.abs() - radius * speed).abs() < 0.1 * radius);
            ways[usize::from(turn > 0.0)] += 1;
        }
    }
    // 600 throws have a standard deviation of 12.
    assert!(ways[0].abs_diff(ways[1]) < 120, "{ways:?}");
}

/// The mean of values of standard deviation `deviation` lies within five standard errors.
fn assert_mean(values: &[f64], mean: f64, deviation: f64, what: &str) {
    let got = values.iter().sum::<f64>() / values.len() as f64;
    let limit = 5.0 * deviation / (values.len() as f64).sqrt();
    assert!((got - mean).abs() < limit, "{what}: {got}, expected {mean}");
}

#[test]
fn masses_radii_and_translations_have_their_distributions() {
    let all = systems(4000);
    let stars: Vec<f64> = all.iter().map(|s| s.masses[0].log10()).collect();
    assert_mean(&stars, 0.5, 12f64.recip().sqrt(), "decade of a star");
    let planets: Vec<f64> = all.iter().map(|s| s.masses[2].log10()).collect();
    assert_mean(&planets, -1.5, 12f64.recip().sqrt(), "decade of a planet");
    // The square of the radius is uniform in [0.01, 1].
    let squares: Vec<f64> = all.iter().map(|s| length(s.positions[3]).powi(2)).collect();
    assert_mean(&squares, 0.505, 0.99 / 12f64.sqrt(), "square of a radius");

    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let moved: Vec<System> = (0..4000).map(|_| System::draw(&mut rng)).collect();
    let star = |system: &System| {
        let masses = system.masses.iter().enumerate();
        masses.max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0
    };
    for axis in 0..DIM {
        let places: Vec<f64> = moved.iter().map(|s| s.positions[star(s)][axis]).collect();
        assert_mean(&places, 0.0, 20.0, "translation");
        let squares: Vec<f64> = places.iter().map(|x| x * x).collect();
        assert_mean(&squares, 400.0, 400.0 * 2f64.sqrt(), "its square");
        // The normal of the plane of the planets is uniform on the sphere.
        let normals: Vec<f64> = moved
            .iter()
            .map(|s| {
                let others: Vec<usize> = (0..BODIES).filter(|&i| i != star(s)).collect();
                let arm =
                    |i: usize| add(s.positions[others[i]], scaled(s.positions[star(s)], -1.0));
                let (a, b) = (arm(0), arm(1));
                let cross = [
                    a[1] * b[2] - a[2] * b[1],
                    a[2] * b[0] - a[0] * b[2],
                    a[0] * b[1] - a[1] * b[0],
                ];
                (cross[axis] / length(cross)).powi(2)
            })
            .collect();
        assert_mean(
            &normals,
            1.0 / 3.0,
            (4.0f64 / 45.0).sqrt(),
            "square of a normal",
        );
    }
    for place in 0..BODIES {
        let there: Vec<f64> = moved
            .iter()
            .map(|s| f64::from(u8::from(star(s) == place)))
            .collect();
        assert_mean(&there, 0.25, 0.1875f64.sqrt(), "place of the star");
    }
}

#[test]
fn rotations_are_proper_and_keep_lengths() {
    let matrix = rotation([0.3, -1.2, 0.7, 2.0]);
    for i in 0..DIM {
        for j in 0..DIM {
            let dot: f64 = (0..DIM).map(|k| matrix[i][k] * matrix[j][k]).sum();
            assert!((dot - f64::from(u8::from(i == j))).abs() < 1e-14);
        }
    }
    let [a, b, c] = matrix;
    let det = a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0])
        + a[2] * (b[0] * c[1] - b[1] * c[0]);
    assert!((det - 1.0).abs() < 1e-14);
}

#[test]
fn no_sample_moves_further_than_the_limit_though_some_draws_do() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let draws = (0..4000).map(|_| System::draw(&mut rng));
    let far = draws.filter(|start| {
        let end = start.after(STEPS);
        end.largest_distance_from(start) > FURTHEST
    });
    assert!(far.count() > 0, "the rule would never be tested");
    let sizes = Sizes {
        train: 4000,
        val: 0,
        test: 0,
    };
    let data = generate(sizes, 5, &keep_on).unwrap();
    let samples = data.train.inputs.chunks_exact(BODIES * ROW);
    for (inputs, targets) in samples.zip(data.train.targets.chunks_exact(BODIES * DIM)) {
        for (body, target) in inputs.chunks_exact(ROW).zip(targets.chunks_exact(DIM)) {
            let moved = (0..DIM).map(|i| f64::from(target[i] - body[1 + i]).powi(2));
            assert!(moved.sum::<f64>().sqrt() <= FURTHEST + 1e-4);
        }
    }
}
