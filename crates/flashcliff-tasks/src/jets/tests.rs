use super::*;
use crate::keep_on;

const SIZES: Sizes = Sizes {
    train: 4_000,
    val: 0,
    test: 70,
};

/// The FNV-1a hash of the bits of all numbers.
fn checksum(split: &JetSplit) -> u64 {
    let numbers = [&split.particles, &split.labels, &split.log_ratios];
    let numbers = numbers.into_iter().flatten().map(|x| x.to_bits());
    let bytes = numbers.chain(split.counts.iter().copied());
    bytes
        .flat_map(u32::to_le_bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// The labels follow the ratio: signal has the probability r / (1 + r), so the sum of differences is small.
#[test]
fn labels_are_as_likely_as_the_ratio_says() {
    let jets = generate(SIZES, 3, &keep_on).unwrap().train;
    let probability = |ratio: f32| 1.0 / (1.0 + f64::from(-ratio).exp());
    // Among all jets, among those that are hard, and among those that lean to signal.
    type Among = fn(f32) -> bool;
    let among: [Among; 3] = [|_| true, |r| r.abs() < 1.0, |r| r > 0.5];
    for (which, among) in among.into_iter().enumerate() {
        let (mut difference, mut variance) = (0.0, 0.0);
        for (&label, &ratio) in jets.labels.iter().zip(&jets.log_ratios) {
            if among(ratio) {
                let p = probability(ratio);
                difference += f64::from(label) - p;
                variance += p * (1.0 - p);
            }
        }
        assert!(variance > 20.0);
        let deviations = difference / variance.sqrt();
        assert!(deviations.abs() < 4.0, "{which}: {deviations}");
    }
    let best = jets.accuracy(&jets.log_ratios).unwrap();
    assert!((0.8..0.95).contains(&best), "{best}");
    assert!(jets.accuracy(&[0.0]).is_err());
}

#[test]
fn particles_have_no_mass_and_rows_behind_them_are_zeros() {
    let jets = generate(SIZES, 0, &keep_on).unwrap().test;
    let rows = jets.particles.chunks_exact(MAX_PARTICLES * ROW);
    for (jet, &count) in rows.zip(&jets.counts) {
        assert!((MIN_PARTICLES..=MAX_PARTICLES).contains(&(count as usize)));
        for (at, row) in jet.chunks_exact(ROW).enumerate() {
            let [energy, momentum @ ..] = [row[0], row[1], row[2], row[3]].map(f64::from);
            if at < count as usize {
                let mass = energy * energy - dot(momentum, momentum);
                assert!(energy > 0.0 && mass.abs() < 1e-6 * energy * energy);
            } else {
                assert_eq!(row, [0.0; ROW]);
            }
        }
    }
}

/// Means over jets of 0 rapidity up to the largest: the energy grows by the mean of cosh.
#[test]
fn boosts_and_energies_have_their_means() {
    let jets = generate(SIZES, 1, &keep_on).unwrap().train;
    let energy: f64 = jets
        .particles
        .iter()
        .step_by(ROW)
        .map(|&e| f64::from(e))
        .sum();
    let particles: f64 = jets.counts.iter().map(|&n| f64::from(n)).sum();
    let expected = MAX_RAPIDITY.sinh() / MAX_RAPIDITY;
    assert!((energy / particles / expected - 1.0).abs() < 0.02);
    let mean = particles / jets.len() as f64;
    assert!((mean - 50.0).abs() < 1.5, "{mean}");
}

#[test]
fn the_jets_of_a_seed_never_change() {
    let with_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let sizes = Sizes {
            train: 131,
            val: 70,
            test: 5,
        };
        let make = || generate(sizes, 42, &keep_on).unwrap();
        pool.build().unwrap().install(make)
    };
    let jets = with_threads(1);
    assert_eq!(jets, with_threads(3));
    let sums = [&jets.train, &jets.val, &jets.test].map(checksum);
    // Computed here on x86-64 Linux.
    let expected = [
        0x019d_4255_3c60_f042,
        0x2034_4595_aa99_d3db,
        0x20db_6df9_0247_87f9,
    ];
    assert_eq!(sums, expected, "{sums:#x?}");
}
