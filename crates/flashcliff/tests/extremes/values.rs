//! The rest of the functions: dropout, memory, threads, addresses of callers.

use flashcliff::dropout::{GradeDropout, key_of};
use flashcliff::host_memory::Spans;
use flashcliff::{memory, ops, threads};

use crate::all_return;

#[test]
fn dropout() {
    all_return(10_000, |draw, describe| {
        let p = draw.pick(&[0.0, 0.5, 1.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX]);
        let (key, step, place) = (draw.size() as u64, draw.size() as u32, draw.size() as u64);
        describe(format!("{p} {key} {step} {place}"));
        let drawn = GradeDropout::new(p, key_of(key, place)).at(step);
        let factors = [
            drawn.factor::<f32>(place).into(),
            drawn.factor::<f64>(place),
        ];
        assert!(factors.iter().all(|factor| factor.is_finite()));
    });
}

#[test]
fn memory_and_threads() {
    all_return(2_000, |draw, describe| {
        let bytes = draw.pick(&[
            0,
            1,
            1 << 40,
            u128::from(u64::MAX),
            u128::MAX - 1,
            u128::MAX,
        ]);
        let ceiling = draw.size();
        describe(format!("{bytes} {ceiling}"));
        let _ = memory::check("a test", bytes, |_| String::new());
        let _ = memory::in_words(bytes);
        let _ = memory::no_room(String::new(), bytes, Some(bytes), String::new()).to_string();
        let count = threads::at_most(ceiling, threads::count);
        assert!(count >= 1 && count <= ceiling.max(1));
    });
}

#[test]
fn addresses() {
    let operator = "cl200"
        .parse()
        .and_then(|algebra| ops::by_name(algebra, "reverse", &[]));
    let operator = operator.expect("an operator");
    all_return(20_000, move |draw, describe| {
        let mut spans = Spans::new::<f64>(&operator);
        let given: Vec<_> = (0..draw.below(5))
            .map(|_| (draw.size(), draw.size(), draw.below(2) > 0))
            .collect();
        describe(format!("{given:?}"));
        for (address, len, written) in given {
            let _ = spans.add(address, len, "x", written);
        }
        let _ = spans.check();
    });
}
