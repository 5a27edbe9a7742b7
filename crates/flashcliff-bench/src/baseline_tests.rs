//! Verdicts by a simulated clock: slowdowns are found, noise is not.

use super::*;
use crate::Target;
use crate::cpu::Cpu;
use crate::machine::Rates;
use crate::measure::SWEEPS;

/// A clock of a machine whose speed drifts, and whose times have noise and outliers.
struct Clock {
    state: u64,
    /// The deviation of the logarithm of each time.
    noise: f64,
    /// How many times in a hundred are outliers, of up to five times as long.
    outliers: f64,
    /// The logarithm of the speed of the machine.
    drift: f64,
    /// The logarithm of what slows the work of a sweep, but not its floors.
    bias: f64,
}

impl Clock {
    fn new(seed: u64, noise: f64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            noise,
            outliers: 5.0,
            drift: 0.0,
            bias: 0.0,
        }
    }

    /// Begins a sweep, whose work other programs slow or not, by a fifth of the noise.
    fn sweep(&mut self) {
        self.bias = 0.2 * self.noise * self.normal();
    }

    /// A number in (0, 1).
    fn uniform(&mut self) -> f64 {
        // splitmix64
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    fn time(&mut self, seconds: f64) -> f64 {
        let noise = (self.noise * self.normal()).exp();
        let outlier = match self.uniform() * 100.0 < self.outliers {
            true => 1.0 + 4.0 * self.uniform(),
            false => 1.0,
        };
        seconds * noise * outlier * self.drift.exp()
    }

    /// The medians of five rounds, after the speed of the machine has drifted by some percent.
    fn repeat(&mut self, seconds: f64) -> Repeat {
        self.drift = 0.9 * self.drift + 0.1 * self.normal();
        let mut rounds = |seconds: f64| median((0..5).map(|_| self.time(seconds)).collect());
        Repeat {
            floor_seconds: rounds(1e-3),
            compute_seconds: rounds(0.5e-3),
            seconds: rounds(seconds) * self.bias.exp(),
            stream_bytes: 1e10,
            ..Repeat::default()
        }
    }
}

fn row(repeats: Vec<Repeat>) -> Row {
    Row {
        name: "case".to_owned(),
        seconds: 1.0,
        repeats,
        ..Row::default()
    }
}

/// The verdict of a run that is slower by a factor than the stored one, among a hundred cases.
fn verdict(seed: u64, noise: f64, factor: f64, machine: f64) -> Verdict {
    let mut clock = Clock::new(seed, noise);
    let mut stored = Vec::new();
    for sweep in 0..SWEEPS {
        clock.sweep();
        stored.extend((0..10).map(|_| Repeat {
            sweep,
            ..clock.repeat(2e-3)
        }));
    }
    let before = row(stored);
    let limits = Limits::percent(10.0, 25.0, 100);
    let mut repeats = Vec::new();
    let mut verdict = Verdict::NotComparable;
    for _ in 0..=AGAIN {
        clock.sweep();
        let compared = compare(&before, &limits, &mut repeats, || {
            let repeat = clock.repeat(2e-3 * factor);
            Ok::<_, ()>(Repeat {
                seconds: machine * repeat.seconds,
                floor_seconds: machine * repeat.floor_seconds,
                compute_seconds: machine * repeat.compute_seconds,
                ..repeat
            })
        });
        let compared = compared.unwrap();
        verdict = compared.verdict;
        if !compared.is_open {
            break;
        }
    }
    verdict
}

const RUNS: u64 = 200;

fn count(runs: u64, verdict: impl Fn(u64) -> Verdict, wanted: impl Fn(Verdict) -> bool) -> usize {
    (0..runs).filter(|&seed| wanted(verdict(seed))).count()
}

#[test]
fn slowdowns_of_15_and_40_percent_are_found() {
    let found = |factor: f64| {
        count(
            RUNS,
            |seed| verdict(seed, 0.1, factor, 1.0),
            Verdict::is_slower,
        )
    };
    assert!(found(1.15) >= 190, "{}", found(1.15));
    assert!(found(1.40) >= 190, "{}", found(1.40));
    let failures = count(
        RUNS,
        |seed| verdict(seed, 0.1, 1.4, 1.0),
        |verdict| verdict == Verdict::SlowerFailure,
    );
    assert!(failures >= 190, "{failures}");
}

#[test]
fn noise_of_30_percent_with_outliers_is_no_slowdown() {
    let alarms = count(
        RUNS,
        |seed| verdict(seed, 0.3, 1.0, 1.0),
        Verdict::is_slower,
    );
    assert_eq!(alarms, 0);
    // The noise of the test above does not hide that nothing changed either.
    let unchanged = count(
        RUNS,
        |seed| verdict(seed, 0.1, 1.0, 1.0),
        |verdict| verdict == Verdict::Unchanged,
    );
    assert!(unchanged >= 190, "{unchanged}");
}

#[test]
fn a_slower_machine_is_no_slowdown() {
    let alarms = count(50, |seed| verdict(seed, 0.1, 1.0, 1.5), Verdict::is_slower);
    assert_eq!(alarms, 0);
    let other = count(
        50,
        |seed| verdict(seed, 0.1, 1.0, 3.0),
        |verdict| verdict == Verdict::NotComparable,
    );
    assert_eq!(other, 50);
}

#[test]
fn a_faster_program_is_faster() {
    let faster = count(
        50,
        |seed| verdict(seed, 0.1, 0.7, 1.0),
        |verdict| verdict == Verdict::Faster,
    );
    assert!(faster >= 48, "{faster}");
}

fn report(kind: Kind, cases: Vec<Row>) -> Report {
    Report {
        cases,
        ..Report::new(kind, Rates::default(), false)
    }
}

#[test]
fn other_machines_and_cases_are_named() {
    let kind = Kind {
        device: "cpu".to_owned(),
        processor: "A".to_owned(),
        architecture: "x86_64".to_owned(),
        widest_simd: "avx2".to_owned(),
        threads: 2,
    };
    let stored_run = report(kind.clone(), vec![row(Vec::new())]);
    assert_eq!(other_machine(&stored_run, &kind), None);
    let processor = Kind {
        processor: "B".to_owned(),
        ..kind.clone()
    };
    let reason = other_machine(&stored_run, &processor).unwrap();
    assert_eq!(reason, "other machine: processor was A, is B");
    let threads = Kind { threads: 3, ..kind };
    let reason = other_machine(&stored_run, &threads).unwrap();
    assert_eq!(reason, "other machine: threads were 2, are 3");
    assert!(
        stored(&stored_run, "nothing")
            .unwrap_err()
            .contains("no such case")
    );
    assert!(
        stored(&stored_run, "case")
            .unwrap_err()
            .contains("no repeats")
    );
}

/// A stored file that a hand or a disk has damaged gives no reason for a verdict, nor a reason to measure for ever.
#[test]
fn stored_repeats_that_prove_nothing_are_named() {
    let kind = Cpu::new(true).kind().unwrap();
    let mut clock = Clock::new(2, 0.1);
    let whole: Vec<Repeat> = (0..30).map(|_| clock.repeat(1e-3)).collect();
    let changed = |change: fn(&mut Repeat)| {
        let mut repeats = whole.clone();
        change(&mut repeats[7]);
        report(kind.clone(), vec![row(repeats)])
    };
    let damages: [fn(&mut Repeat); 4] = [
        |repeat| repeat.seconds = 0.0,
        |repeat| repeat.seconds = -1e-3,
        |repeat| repeat.seconds = f64::INFINITY,
        |repeat| (repeat.floor_seconds, repeat.compute_seconds) = (0.0, 0.0),
    ];
    for damage in damages {
        let reason = stored(&changed(damage), "case").unwrap_err();
        assert!(reason.contains("not above 0"), "{reason}");
    }
    let limits = Limits::percent(10.0, 25.0, 2);
    let mut beside = |before: &Row| {
        let next = || Ok::<_, ()>(clock.repeat(1e-3));
        compare(before, &limits, &mut Vec::new(), next).unwrap()
    };
    let one = beside(&row(whole[..1].to_vec()));
    assert_eq!(one.verdict, Verdict::NotComparable);
    assert_eq!(one.reason, "the stored run has 1 repeat of it, too few");
    // The number of a sweep may be any.
    let far = changed(|repeat| repeat.sweep = usize::MAX);
    beside(stored(&far, "case").unwrap());
}

/// A report that was written is read again; any other file is refused.
#[test]
fn reports_are_read() {
    let mut clock = Clock::new(1, 0.1);
    let kind = Cpu::new(true).kind().unwrap();
    let written = report(kind, vec![row(vec![clock.repeat(0.1), clock.repeat(0.2)])]);
    let text = written.json().unwrap();
    assert_eq!(Report::read(text.as_bytes()).unwrap(), written);
    let error = |text: &str| Report::read(text.as_bytes()).unwrap_err().to_string();
    assert!(error("{").contains("EOF"));
    assert!(error("{\"cases\": []}").contains("no format"));
    assert!(error("{\"format\": 1}").contains("format 1"));
    assert!(error("{\"format\": 2}").contains("missing field"));
}
