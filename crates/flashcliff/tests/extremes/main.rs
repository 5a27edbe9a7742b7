//! Safe functions with sizes of every kind, extreme ones too: each call returns soon, with a result or an error, and never panics.
//!
//! Tensors without elements are what makes this hard: their other sizes may be any numbers, so a length that fits
//! says nothing about them. Calls are drawn from a seed; a failure names the call.

mod items;
mod layers;
mod operators;
mod rotors;
mod values;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The time after which a call counts as one that does not end. Calls take microseconds.
const ENDLESS: Duration = Duration::from_secs(60);
/// The elements that arguments share.
const HELD: usize = 1 << 12;

/// Numbers of a test, and arguments made of them.
pub(crate) struct Draw {
    state: u64,
    held: Vec<f32>,
}

impl Draw {
    fn new(seed: u64) -> Self {
        Self {
            state: seed,
            held: (0..HELD).map(|at| (at % 7) as f32 - 3.0).collect(),
        }
    }

    /// The generator is SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A size: mostly small, else extreme.
    pub(crate) fn size(&mut self) -> usize {
        match self.below(3) {
            0 => self.extreme(),
            _ => self.pick(&[0, 1, 1, 2, 2, 3, 9]),
        }
    }

    /// A size that most formulas overflow with, or zero.
    pub(crate) fn extreme(&mut self) -> usize {
        let max = usize::MAX;
        self.pick(&[
            0,
            0,
            1 << 39,
            1 << 40,
            (1 << 61) + 1,
            max / 16 + 1,
            max / 2,
            max - 1,
            max,
        ])
    }

    /// The length of a slice of a shape: what the shape holds if that is little, else a small number; seldom one that does not fit.
    pub(crate) fn len(&mut self, shape: &[usize]) -> usize {
        let held = shape
            .iter()
            .fold(1_usize, |held, &size| held.saturating_mul(size));
        match held <= HELD && self.below(12) > 0 {
            true => held,
            false => self.pick(&[0, 1, 2, 16]),
        }
    }

    pub(crate) fn slice(&mut self, shape: &[usize]) -> Vec<f32> {
        let len = self.len(shape);
        self.held[..len].to_vec()
    }
}

/// Runs `call` for many draws. It describes its arguments by the function it is given before it calls anything.
#[track_caller]
pub(crate) fn all_return(draws: u64, call: impl Fn(&mut Draw, &dyn Fn(String)) + Send + 'static) {
    all_return_within(ENDLESS, draws, call);
}

#[track_caller]
fn all_return_within(
    limit: Duration,
    draws: u64,
    call: impl Fn(&mut Draw, &dyn Fn(String)) + Send + 'static,
) {
    let current = Arc::new(Mutex::new(String::new()));
    let (done, waiting) = mpsc::channel();
    let shown = Arc::clone(&current);
    let work = thread::spawn(move || {
        for seed in 0..draws {
            let describe =
                |text: String| *current.lock().expect("no panic while it is held") = text;
            let mut draw = Draw::new(seed);
            if catch_unwind(AssertUnwindSafe(|| call(&mut draw, &describe))).is_err() {
                return Some(seed);
            }
            // The other end is gone if a call before this one took too long.
            let _ = done.send(());
        }
        None
    });
    loop {
        match waiting.recv_timeout(limit) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                panic!(
                    "expected an end, still running: {}",
                    shown.lock().expect("no panic")
                )
            }
        }
    }
    let seed = work.join().expect("panics are caught");
    let text = shown.lock().expect("no panic");
    assert_eq!(seed, None, "expected no panic, got one of: {text}");
}

#[test]
fn a_panic_and_a_call_without_end_are_noticed() {
    let panics = || all_return(2, |_, _| panic!("on purpose"));
    assert!(catch_unwind(panics).is_err());
    let limit = Duration::from_millis(20);
    let lasts = || all_return_within(limit, 2, move |_, _| thread::sleep(20 * limit));
    assert!(catch_unwind(lasts).is_err());
}
