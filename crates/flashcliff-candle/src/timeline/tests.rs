//! Recordings of work whose operations are known.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use super::*;

fn named(name: &str) -> impl FnOnce() -> Arc<Operation> {
    let operation = Arc::new(Operation::other(name, None));
    move || operation
}

fn nap(milliseconds: u64) {
    sleep(Duration::from_millis(milliseconds));
}

/// The slices and the seconds of each operation.
fn sums(timeline: &Timeline) -> BTreeMap<String, (usize, f64)> {
    let mut sums = BTreeMap::new();
    for slice in timeline.slices() {
        let key = slice.operation.operator.clone();
        let (calls, seconds) = sums.entry(key).or_insert((0, 0.0));
        *calls += usize::from(slice.begins);
        *seconds += slice.seconds;
    }
    sums
}

fn record_on_cpu<R>(work: impl FnOnce() -> R) -> (R, Timeline) {
    record(&Device::Cpu, work).unwrap()
}

#[test]
fn an_operation_within_another_takes_its_time_from_it() {
    let (done, timeline) = record_on_cpu(|| {
        within(named("outer"), || {
            nap(2);
            within(named("inner"), || nap(20));
            nap(2);
            7
        })
    });
    assert_eq!(done, 7);
    let sums = sums(&timeline);
    let of = |name: &str| sums[name];
    assert_eq!((of("outer").0, of("inner").0), (1, 1));
    assert!(of("inner").1 >= 0.02 && of("outer").1 >= 0.004, "{sums:?}");
    // A sum that counted the inner one twice would be 20 ms longer.
    let total: f64 = sums.values().map(|(_, seconds)| seconds).sum();
    assert!((total - timeline.seconds()).abs() < 1e-9, "{sums:?}");
    let names: Vec<&str> = timeline
        .slices()
        .iter()
        .map(|slice| slice.operation.operator.as_str())
        .collect();
    assert_eq!(names, ["the rest", "outer", "inner", "outer", "the rest"]);
}

#[test]
fn only_the_recording_thread_records_and_only_while_it_does() {
    within(named("before"), || ());
    let ((), timeline) = record_on_cpu(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| within(named("elsewhere"), || nap(1)));
        });
        begin(named("here"));
    });
    within(named("behind"), || ());
    let sums = sums(&timeline);
    assert!(sums.keys().eq(["here", "the rest"]));
    assert!(!is_recording());
}

#[test]
fn a_recording_within_another_takes_its_calls() {
    let (inner, outer) = record_on_cpu(|| {
        within(named("first"), || ());
        let ((), inner) = record_on_cpu(|| within(named("second"), || ()));
        within(named("third"), || ());
        inner
    });
    assert!(sums(&inner).contains_key("second"));
    let outer = sums(&outer);
    assert!(outer.contains_key("third"));
    assert!(!outer.contains_key("second"));
}

#[test]
fn a_panic_ends_a_recording() {
    let caught = std::panic::catch_unwind(|| record(&Device::Cpu, || panic!("expected")));
    assert!(caught.is_err() && !is_recording());
}

/// A step of four operations that sleep, one of them within another.
fn naps() {
    within(named("first"), || nap(2));
    within(named("outer"), || {
        nap(1);
        within(named("inner"), || nap(3));
        nap(1);
    });
    begin(named("last"));
    nap(2);
}

/// Three rounds of naps, whose whole step is known, in so many slices a window.
fn sampled(whole: &Timeline, slices: usize) -> Sampled {
    let mut sampler = Sampler::new(&Device::Cpu, whole, slices);
    for _ in 0..3 {
        sampler.plain(naps).unwrap();
        for _ in 0..sampler.steps_of_a_round() {
            sampler.sample(naps).unwrap();
        }
    }
    sampler.finish()
}

#[test]
fn windows_of_equal_steps_are_one_step() {
    let ((), whole) = record_on_cpu(naps);
    for slices in [1, 2, 3, 100] {
        let sampled = sampled(&whole, slices);
        let of = |timeline: &Timeline| -> Vec<(String, bool)> {
            let slices = timeline.slices().iter();
            slices
                .map(|slice| (slice.operation.operator.clone(), slice.begins))
                .collect()
        };
        assert_eq!(of(&sampled.timeline), of(&whole));
        let mut end = 0.0;
        for slice in sampled.timeline.slices() {
            assert!((slice.start - end).abs() < 1e-12 && slice.seconds >= 0.0);
            end = slice.start + slice.seconds;
        }
    }
}

/// A window that was shifted by a slice would give one operation the time of another, in every attempt. Lengths are
/// relative to steps without marks, whose sleeps last longer at times on a busy machine, so one attempt of a few is
/// enough.
#[test]
fn windows_have_the_times_of_their_operations() {
    let ((), whole) = record_on_cpu(naps);
    for slices in [1, 2, 3, 100] {
        let is_right = || {
            let sampled = sampled(&whole, slices);
            let sums = sums(&sampled.timeline);
            let least = [
                ("first", 2.0),
                ("outer", 2.0),
                ("inner", 3.0),
                ("last", 2.0),
            ];
            let has_time = |(name, least): (&str, f64)| {
                let (calls, seconds) = sums[name];
                calls == 1 && seconds >= 0.6e-3 * least
            };
            // All of the step is in some slice.
            let all = 9.0e-3;
            let is_whole = sampled.plain_seconds >= all && sampled.timeline.seconds() >= 0.8 * all;
            is_whole && least.into_iter().all(has_time)
        };
        assert!((0..10).any(|_| is_right()), "{slices} slices");
    }
}

#[test]
fn a_step_with_other_marks_is_refused() {
    let ((), whole) = record_on_cpu(naps);
    let mut sampler = Sampler::new(&Device::Cpu, &whole, 4);
    let error = sampler
        .sample(|| within(named("first"), || ()))
        .unwrap_err();
    assert!(
        matches!(error, Error::OtherStep { expected, got } if got < expected),
        "{error}"
    );
    assert!(!is_recording());
}
