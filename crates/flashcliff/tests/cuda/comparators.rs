//! Runs each comparator of these tests in a case in which it must fail. These tests need no GPU. The comparators of the
//! CPU suite have such tests there.

use flashcliff::Dtype;

use crate::arena::Arena;
use crate::dtypes;
use crate::measure::{agree, equal, stored, within};
use crate::numbers::Bounded;
use crate::random::Random;
use crate::trials::{Needs, Tests};

pub(crate) fn add(tests: &mut Tests) {
    let all: [(&str, fn()); 7] = [
        ("a_write_outside_is_reported", a_write_outside_is_reported),
        ("a_changed_input_is_reported", a_changed_input_is_reported),
        ("what_is_not_written_is_nan", what_is_not_written_is_nan),
        ("equal_reports_one_flipped_bit", equal_reports),
        ("bounds_are_left_by_little", bounds_are_left_by_little),
        ("within_reports_what_is_off", within_reports),
        ("bytes_and_back", bytes_and_back),
    ];
    for (name, test) in all {
        tests.add(Needs::Nothing, format!("comparators::{name}"), test);
    }
}

fn some_arena(offset: usize) -> (Arena, [crate::arena::Region; 3]) {
    let mut arena = Arena::new();
    let x = arena.input("x", Dtype::F32, &[1.0, 2.0, 3.0], offset);
    let o = arena.output("o", Dtype::Bf16, 5, offset);
    let s = arena.output("s", Dtype::F64, 2, offset);
    (arena, [x, o, s])
}

fn a_write_outside_is_reported() {
    for offset in 0..3 {
        let (arena, [_, o, s]) = some_arena(offset);
        let mut after = arena.bytes().to_vec();
        assert_eq!(arena.check(&after), Ok(()));
        after[o.start()..][..o.bytes()].fill(0);
        assert_eq!(arena.check(&after), Ok(()));
        let ends = |r: &crate::arena::Region| [r.start() - 1, r.start() + r.bytes()];
        for at in [ends(&o), ends(&s)].concat() {
            let mut flipped = after.clone();
            flipped[at] ^= 1;
            assert!(arena.check(&flipped).is_err(), "byte {at}");
            // An element has the pattern of memory that is not yet written.
            let mut copied = after.clone();
            copied[at & !1..][..2].fill(0xff);
            assert!(arena.check(&copied).is_err(), "byte {at}");
        }
        for at in [0, after.len() - 1] {
            let mut after = after.clone();
            after[at] ^= 4;
            assert!(arena.check(&after).is_err(), "byte {at}");
        }
        assert!(arena.check(&after[1..]).is_err());
    }
}

fn a_changed_input_is_reported() {
    let (arena, [x, ..]) = some_arena(1);
    for at in x.start()..x.start() + x.bytes() {
        let mut after = arena.bytes().to_vec();
        after[at] ^= 0x80;
        let message = arena.check(&after).expect_err("an input has changed");
        assert!(message.contains('x'), "{message}");
    }
}

fn what_is_not_written_is_nan() {
    let (arena, [x, o, s]) = some_arena(1);
    assert_eq!(Arena::values(&x, arena.bytes()), [1.0, 2.0, 3.0]);
    for region in [&o, &s] {
        let values = Arena::values(region, arena.bytes());
        assert!(values.iter().all(|v| v.is_nan()), "{values:?}");
        assert!(equal(&vec![0.0; values.len()], &values).is_err());
    }
    // Guard bands are NaN too, in every element type, wherever they are read.
    for dtype in [Dtype::F32, Dtype::F64, Dtype::Bf16, Dtype::F16] {
        let bytes = &arena.bytes()[2..2 + dtype.bytes()];
        assert!(dtypes::decode(dtype, bytes)[0].is_nan(), "{dtype}");
    }
}

fn equal_reports() {
    let want = [0.1, 0.0];
    assert_eq!(equal(&want, &[0.1, -0.0]), Ok(()));
    let flipped = f64::from_bits(0.1_f64.to_bits() ^ 1);
    assert!(equal(&want, &[flipped, 0.0]).is_err());
    assert!(equal(&[f64::NAN], &[f64::NAN]).is_err());
    assert!(equal(&want, &[0.1]).is_err());
}

fn bounds_are_left_by_little() {
    let bound = [Bounded::<24> {
        value: 1.0,
        error: 1e-6,
    }];
    assert!(agree(&bound, &[1.0], &[1.0 + 2.9e-6]).is_ok());
    assert!(agree(&bound, &[1.0], &[1.0 + 3.1e-6]).is_err());
    assert!(agree(&bound, &[1.0], &[f64::NAN]).is_err());
    assert!(agree(&bound, &[1.0], &[]).is_err());
    assert_eq!(stored(&bound, Dtype::F32)[0].error, 1e-6);
    let half = stored(&bound, Dtype::Bf16)[0].error;
    assert!((1.0 / 256.0..1.01 / 256.0).contains(&half), "{half}");
}

fn within_reports() {
    let nothing = || vec![0.0; 2];
    let unit = dtypes::unit(Dtype::F32);
    let want = [100.0, 1.0];
    let off = |units: f64| [100.0, 1.0 + 100.0 * unit * units];
    assert!(within(&want, &off(125.0), Dtype::F32, nothing).is_ok());
    assert!(within(&want, &off(131.0), Dtype::F32, nothing).is_err());
    assert!(within(&want, &off(131.0), Dtype::F64, nothing).is_err());
    // A spread explains errors of its size, and none in other elements.
    let spread = |at: usize| {
        let mut spread = vec![0.0; 2];
        spread[at] = 100.0 * unit * 125.0;
        move || spread
    };
    assert!(within(&want, &off(500.0), Dtype::F32, spread(1)).is_ok());
    assert!(within(&want, &off(500.0), Dtype::F32, spread(0)).is_err());
    assert!(within(&want, &off(700.0), Dtype::F32, spread(1)).is_err());
    for wrong in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(within(&want, &[100.0, wrong], Dtype::F32, nothing).is_err());
        assert!(within(&want, &[100.0, wrong], Dtype::F16, nothing).is_err());
    }
    assert!(within(&[f64::NAN, 1.0], &want, Dtype::F32, nothing).is_err());
    assert!(within(&[0.0, 0.0], &[0.0, 1e-300], Dtype::F32, nothing).is_err());
    // Rounding to 8 bits is allowed, and no more.
    assert!(within(&want, &[100.3, 1.0], Dtype::Bf16, nothing).is_ok());
    assert!(within(&want, &[100.5, 1.0], Dtype::Bf16, nothing).is_err());
    assert!(within(&want, &[100.3, 1.0], Dtype::F16, nothing).is_err());
}

fn bytes_and_back() {
    let values = Random::new(5).reals(1000);
    for dtype in [Dtype::F32, Dtype::F64, Dtype::Bf16, Dtype::F16] {
        let mut bytes = vec![0; values.len() * dtype.bytes()];
        dtypes::encode(dtype, &values, &mut bytes);
        let back = dtypes::decode(dtype, &bytes);
        for (value, back) in values.iter().zip(&back) {
            assert_eq!(*back, dtypes::round(dtype, *value), "{dtype}");
            let allowed = dtypes::unit(dtype) * value.abs() + dtypes::tiny(dtype);
            assert!(
                (back - value).abs() <= allowed,
                "{dtype}: {value} as {back}"
            );
        }
        if dtype.bytes() == 2 {
            assert!(equal(&values, &back).is_err(), "{dtype} rounds nothing");
        }
    }
}
