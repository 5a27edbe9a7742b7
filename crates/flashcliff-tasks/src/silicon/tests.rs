use rand::SeedableRng;

use super::*;
use crate::keep_on;

const SIZES: Sizes = Sizes {
    train: 40,
    val: 1,
    test: 1,
};

fn crystals(count: usize) -> Vec<Crystal> {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    (0..count).map(|_| draw(&mut rng)).collect()
}

/// The energy as it is published, pair by pair and triplet by triplet, with all images up to two
/// cells away.
fn by_pairs_and_triplets(crystal: &Crystal) -> f64 {
    let mut energy = 0.0;
    for to in &crystal.places {
        let mut near: Vec<Vector> = Vec::new();
        for (x, y, z) in
            (-2..=2).flat_map(|x| (-2..=2).flat_map(move |y| (-2..=2).map(move |z| (x, y, z))))
        {
            for from in &crystal.places {
                let place = |axis: usize| {
                    let [a, b, c] = crystal.cell.map(|own| own[axis]);
                    from[axis] - to[axis] + f64::from(x) * a + f64::from(y) * b + f64::from(z) * c
                };
                let own = [place(0), place(1), place(2)].map(|own| own / 2.0951);
                let length = own.iter().map(|x| x * x).sum::<f64>().sqrt();
                if (1e-9..1.8).contains(&length) {
                    near.push(own);
                }
            }
        }
        let length = |own: &Vector| own.iter().map(|x| x * x).sum::<f64>().sqrt();
        for (at, one) in near.iter().enumerate() {
            let r = length(one);
            energy +=
                7.049556277 * (0.6022245584 * r.powi(-4) - 1.0) * (1.0 / (r - 1.8)).exp() / 2.0;
            for two in &near[..at] {
                let s = length(two);
                let cosine = one.iter().zip(two).map(|(a, b)| a * b).sum::<f64>() / (r * s);
                let fade = (1.2 / (r - 1.8) + 1.2 / (s - 1.8)).exp();
                energy += 21.0 * (cosine + 1.0 / 3.0).powi(2) * fade;
            }
        }
    }
    2.1683 * energy
}

#[test]
fn energies_are_those_of_pairs_and_triplets() {
    for crystal in crystals(3) {
        let (energy, _) = crystal.energy_and_forces();
        let expected = by_pairs_and_triplets(&crystal);
        assert!((energy - expected).abs() < 1e-10, "{energy} {expected}");
    }
}

#[test]
fn forces_are_differences_of_the_energy() {
    let step = 1e-5;
    for crystal in crystals(2) {
        let (_, forces) = crystal.energy_and_forces();
        for axis in 0..3 {
            let whole: f64 = forces.iter().map(|own| own[axis]).sum();
            assert!(whole.abs() < 1e-11, "{whole}");
        }
        for (at, &got) in forces.as_flattened().iter().enumerate() {
            let moved = |sign: f64| {
                let mut own = crystal.clone();
                own.places.as_flattened_mut()[at] += sign * step;
                by_pairs_and_triplets(&own)
            };
            let expected = (moved(-1.0) - moved(1.0)) / (2.0 * step);
            assert!((got - expected).abs() < 1e-6, "{got} {expected}");
        }
    }
}

/// Two `EPSILON` for each atom at the lattice constant of silicon, where nothing pulls.
#[test]
fn the_crystal_has_the_published_energy() {
    let rest = Crystal::of_samples();
    let (energy, forces) = rest.energy_and_forces();
    assert!(
        (energy / ATOMS as f64 + 2.0 * EPSILON).abs() < 1e-5,
        "{energy}"
    );
    assert!(forces.as_flattened().iter().all(|own| own.abs() < 1e-12));
    let scaled = |factor: f64| {
        let mut own = rest.clone();
        own.places
            .iter_mut()
            .chain(&mut own.cell)
            .for_each(|own| *own = own.map(|x| factor * x));
        own.energy_and_forces().0
    };
    assert!(scaled(0.999) > energy && scaled(1.001) > energy);
}

/// Edges of moved atoms and of small cells, one by one.
#[test]
fn edges_are_all_images_within_the_distance() {
    let mut crystal = crystals(1).remove(0);
    // An atom outside of the cell has the same neighbours.
    let away = crystal.translation([1, -2, 3]);
    add(&mut crystal.places[4], 1.0, away);
    let mut small = Crystal::at_rest([1, 1, 1]);
    small.places.truncate(3);
    for (own, distance) in [(&crystal, CUTOFF), (&small, 11.5)] {
        let mut expected = Vec::new();
        for receiver in 0..own.places.len() {
            for sender in 0..own.places.len() {
                for at in 0..9 * 9 * 9 {
                    let shift = [at / 81, at / 9 % 9, at % 9].map(|own| own - 4);
                    let edge = Edge {
                        receiver,
                        sender,
                        shift,
                    };
                    let length = own.vector(&edge).map(|x| x * x).iter().sum::<f64>().sqrt();
                    if length < distance && length > 0.0 {
                        expected.push(edge);
                    }
                }
            }
        }
        let found = own.edges(distance);
        assert_eq!(found, expected);
        assert!(
            found
                .iter()
                .any(|edge| edge.shift.iter().any(|own| own.abs() > 1))
        );
        // Each has the other direction.
        let back = found.iter().map(|own| Edge {
            receiver: own.sender,
            sender: own.receiver,
            shift: own.shift.map(|own| -own),
        });
        assert!(back.into_iter().all(|own| found.contains(&own)));
    }
    assert!(
        small
            .edges(7.0)
            .iter()
            .any(|edge| edge.receiver == edge.sender)
    );
}

/// All edges of samples are edges of the crystal at rest within the reach too, and cross the
/// translations of samples.
#[test]
fn samples_share_a_list_of_edges() {
    let all = Crystal::of_samples().edges(reach());
    assert!(all.iter().all(|edge| shifts().contains(&edge.shift)));
    assert_eq!(all.len(), 28 * ATOMS);
    for crystal in crystals(200) {
        for edge in crystal.edges(CUTOFF) {
            assert!(all.binary_search(&edge).is_ok(), "{edge:?}");
        }
    }
    // The extreme cases: both ends shaken towards each other, in a lattice that is as small as it
    // gets.
    assert!((1.0 - 3.0 * STRAIN) * reach() - 2.0 * 3_f64.sqrt() * SHAKE >= CUTOFF - 1e-12);
}

#[test]
fn samples_have_places_then_translations_and_forces_then_the_energy() {
    let data = generate(SIZES, 5, &keep_on).unwrap();
    let (sites, targets) = (ATOMS + IMAGES, ATOMS * TARGETS);
    assert_eq!(data.train.shape, [40, sites, ROW]);
    let mut first = draw(&mut {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        rng.set_stream(0);
        rng
    });
    let (energy, forces) = first.energy_and_forces();
    let rows = data.train.inputs.as_chunks::<ROW>().0;
    for (row, place) in rows.iter().zip(&first.places) {
        assert_eq!(row[..3], place.map(|x| x as f32));
        assert_eq!(row[3], 1.0);
    }
    // The translation by nothing is in the middle, that by the last lattice vector after it.
    assert_eq!(rows[ATOMS + 13], [0.0; 4]);
    assert_eq!(rows[ATOMS + 14][..3], first.cell[2].map(|x| x as f32));
    assert_eq!(rows[ATOMS + 26][3], 0.0);
    let mean = (5.0 * (energy / 16.0 + 2.0 * EPSILON)) as f32;
    let rows = data.train.targets[..targets].as_chunks::<TARGETS>().0;
    for (row, force) in rows.iter().zip(&forces) {
        assert_eq!(row[..3], force.map(|x| x as f32));
        assert_eq!(row[3], mean);
    }
    // A crystal whose atoms move by a lattice vector has the same energy.
    let away = first.cell[1];
    add(&mut first.places[7], 1.0, away);
    assert!((first.energy_and_forces().0 - energy).abs() < 1e-10);
}

#[test]
fn strains_and_shakes_are_as_large_as_documented() {
    let mut largest = 0.0_f64;
    for crystal in crystals(200) {
        let rest = Crystal::of_samples();
        for (own, start) in crystal.cell.iter().zip(rest.cell) {
            for axis in 0..3 {
                let length = start.iter().copied().fold(0.0, f64::max);
                assert!((own[axis] - start[axis]).abs() <= STRAIN * length);
            }
        }
        for (own, start) in crystal.places.iter().zip(rest.places) {
            // Without the strain.
            let most = SHAKE + STRAIN * start.iter().sum::<f64>();
            for axis in 0..3 {
                let apart = (own[axis] - start[axis]).abs();
                assert!(apart <= most);
                largest = largest.max(apart);
            }
        }
    }
    assert!(largest > SHAKE);
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let drawn: Vec<f64> = (0..20_000).map(|_| uniform(&mut rng)).collect();
    let mean = drawn.iter().sum::<f64>() / 20_000.0;
    let square = drawn.iter().map(|x| x * x).sum::<f64>() / 20_000.0;
    assert!(mean.abs() < 0.02 && (square - 1.0 / 3.0).abs() < 0.01);
    assert!(drawn.iter().all(|x| (-1.0..1.0).contains(x)));
}

#[test]
fn errors_are_means_in_their_units() {
    let mut split = generate(SIZES, 1, &keep_on).unwrap().test;
    split.targets = vec![3.0, 0.0, 4.0, 10.0, 0.0, 0.01, 0.0, 10.0];
    // The force of the second atom is small, so its direction does not count.
    let found = Errors::of(&split, &[4.0, 0.0, -3.0, 10.5, 0.0, 0.01, 3.0, 9.5]).unwrap();
    assert!((found.energy - 100.0).abs() < 1e-3, "{found:?}");
    assert!((found.force - 1e3 * (1.0 + 7.0 + 3.0) / 6.0).abs() < 1e-3);
    assert!(found.cosine.abs() < 1e-6);
    let back = Errors::of(&split, &[-3.0, 0.0, -4.0, 0.0, 0.0, 0.0, 0.0, 0.0]).unwrap();
    assert!((back.cosine + 1.0).abs() < 1e-6);
    let none = Errors::of(&split, &[0.0; 8]).unwrap();
    assert_eq!(none.cosine, 0.0);
    let expected = TaskError::PredictionCount {
        expected: 8,
        got: 7,
    };
    assert_eq!(Errors::of(&split, &[0.0; 7]), Err(expected));
}

#[test]
fn the_trivial_prediction_is_the_mean_energy_and_no_force() {
    let data = generate(SIZES, 1, &keep_on).unwrap();
    let mut split = data.train.clone();
    split.targets = vec![0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 4.0];
    let found = Errors::trivial(&split, &split);
    assert!((found.energy - 200.0).abs() < 1e-3);
    assert!((found.force - 1e3 / 6.0).abs() < 1e-3);
    assert_eq!(found.cosine, 0.0);
    assert!(Errors::trivial(&data.train, &data.test).force > 300.0);
}
