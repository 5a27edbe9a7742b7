//! Differential fuzzing: calls drawn from a seed, each compared with the reference.
//!
//! A call has a random algebra, operator, options, grade sets, sizes (ragged, prime, 1, 0), element type, tier, number
//! of threads, misalignment and inputs; its buffers are dirty. Then one thing in it is broken, and the call must be
//! refused without a write. The ordinary tests do this for a second; `cargo test -- --ignored` runs longer, from a new
//! seed, and also draws larger calls.
//!
//! A failure prints the seed of its call. `FLASHCLIFF_FUZZ_SEED=<seed>` runs that call alone, in
//! either test; `FLASHCLIFF_FUZZ_SECONDS` is the length of the long one.

mod breakage;
mod choices;
mod draw;
mod verdict;

use std::env;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flashcliff::Algebra;

use draw::{Call, World};
use flashcliff_program::reference::Basis;

const SEED: &str = "FLASHCLIFF_FUZZ_SEED";
const SECONDS: &str = "FLASHCLIFF_FUZZ_SECONDS";

/// The first seed of the ordinary test, and its length.
const FIRST: u64 = 2_026;
const ORDINARY: Duration = Duration::from_secs(1);
const LONG: u64 = 60;

/// Prints how to repeat a call that panics.
struct Announce(u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to repeat the call: {SEED}={}", self.0);
        }
    }
}

/// A number from the environment.
fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}: expected a whole number, got `{text}`")))
}

/// Runs calls for a while, or the one call that the environment names. Returns the number of calls.
fn run(first: u64, time: Duration, large: bool) -> usize {
    let world = World::new();
    if let Some(seed) = number(SEED) {
        return usize::from(one(&world, seed, large));
    }
    let start = Instant::now();
    let (mut calls, mut refused, mut worst) = (0, 0, 0.0_f64);
    for seed in first.. {
        if start.elapsed() >= time {
            break;
        }
        match one_of(&world, seed, large) {
            Some(share) => worst = worst.max(share),
            None => refused += 1,
        }
        calls += 1;
    }
    println!(
        "{calls} calls from seed {first}, of which {refused} asked for what is not shipped or had no bound; largest \
         share of an error bound used: {worst:.3}"
    );
    calls - refused
}

fn one(world: &World, seed: u64, large: bool) -> bool {
    one_of(world, seed, large).is_some()
}

/// Runs the call of a seed. Returns the largest used share of an error bound; `None` if there is no such operator, or no bound.
fn one_of(world: &World, seed: u64, large: bool) -> Option<f64> {
    let _announce = Announce(seed);
    let call = Call::draw(world, seed, large)?;
    let share = call.check().unwrap_or_else(|e| panic!("{call:?}: {e}"));
    breakage::check(&call).unwrap_or_else(|e| panic!("{call:?}: {e}"));
    share
}

#[test]
fn a_second_of_random_calls() {
    let calls = run(FIRST, ORDINARY, false);
    assert!(calls >= 20 || number(SEED).is_some(), "only {calls} calls");
}

#[test]
#[ignore = "takes a minute, or what FLASHCLIFF_FUZZ_SECONDS says"]
fn random_calls_from_a_new_seed() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let first = now.map_or(FIRST, |now| now.as_secs() << 20);
    run(
        first,
        Duration::from_secs(number(SECONDS).unwrap_or(LONG)),
        true,
    );
}

/// The draw reaches every operator, algebra, tier and type, and empty and large shapes.
#[test]
fn the_draw_reaches_everything() {
    let world = World::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut empty = 0;
    for seed in 0..4000 {
        if let Some(call) = Call::draw(&world, seed, false) {
            empty += usize::from(call.is_empty());
            seen.extend(call.features());
        }
    }
    let has = |what: &str| seen.iter().any(|seen: &String| seen == what);
    for algebra in Algebra::shipped() {
        assert!(has(&algebra.name()), "{} was not drawn", algebra.name());
    }
    for tier in flashcliff::Tier::available() {
        assert!(has(tier.name()), "{tier} was not drawn");
    }
    let basis = Basis::new(flashcliff::Signature::of(3, 0, 0));
    let algebra = Algebra::new(flashcliff::Signature::of(3, 0, 0)).expect("shipped");
    for spec in crate::cases::all_operators(&basis) {
        let name = spec.operator(algebra).expect("shipped").name().to_owned();
        assert!(has(&name), "{name} was not drawn");
    }
    for what in ["f32", "f64", "integers", "reals", "1 threads", "3 threads"] {
        assert!(has(what), "{what} was not drawn");
    }
    assert!((100..3000).contains(&empty), "{empty} empty calls");
}
