//! Comparators that only the GPU tests use. `comparators` shows that each can fail.

use flashcliff::Dtype;

use crate::dtypes;
use crate::numbers::Bounded;

/// Checks equality to the bit, except for the sign of zeros. NaN equals nothing.
pub(crate) fn equal(want: &[f64], got: &[f64]) -> Result<(), String> {
    same_len(want.len(), got.len())?;
    match want.iter().zip(got).position(|(want, got)| want != got) {
        Some(i) => Err(format!("element {i}: expected {}, got {}", want[i], got[i])),
        None => Ok(()),
    }
}

/// Bounds for results that are rounded to a type in the end.
pub(crate) fn stored<const BITS: i32>(bounds: &[Bounded<BITS>], dtype: Dtype) -> Vec<Bounded<24>> {
    let rounded = matches!(dtype, Dtype::Bf16 | Dtype::F16);
    let bound = |b: &Bounded<BITS>| {
        let rounding = dtypes::unit(dtype) * (b.value.abs() + b.error) + dtypes::tiny(dtype);
        Bounded {
            value: b.value,
            error: b.error + if rounded { rounding } else { 0.0 },
        }
    };
    bounds.iter().map(bound).collect()
}

/// Checks that two computations of the same values agree: one may be off by an error bound and the other by twice that.
pub(crate) fn agree(bounds: &[Bounded<24>], one: &[f64], other: &[f64]) -> Result<(), String> {
    same_len(bounds.len(), one.len())?;
    same_len(one.len(), other.len())?;
    for (i, bound) in bounds.iter().enumerate() {
        let (off, allowed) = ((one[i] - other[i]).abs(), 3.0 * bound.error);
        if off.is_nan() || off > allowed {
            let (one, other) = (one[i], other[i]);
            return Err(format!(
                "element {i}: {one:e} and {other:e}, not {allowed:e} apart"
            ));
        }
    }
    Ok(())
}

/// The allowed error of a sum of a few hundred terms, in units of the largest element. Sums on the CPU are off by less
/// than ten.
const UNITS: f64 = 128.0;
/// The factor on a spread: its samples do not bound it.
const SPREADS: f64 = 4.0;

/// Checks that results are close to the results of `f64` arithmetic: within [`UNITS`] of the largest element, or else
/// within the change that inputs with errors of some units cause. Returns the largest difference in units of the
/// largest element, without the part that rounding to the type in memory explains.
pub(crate) fn within(
    want: &[f64],
    got: &[f64],
    dtype: Dtype,
    spread: impl FnOnce() -> Vec<f64>,
) -> Result<f64, String> {
    same_len(want.len(), got.len())?;
    let unit = dtypes::unit(dtype.arithmetic());
    let scale = want
        .iter()
        .fold(0.0_f64, |scale, want| scale.max(want.abs()));
    let rounded = matches!(dtype, Dtype::Bf16 | Dtype::F16);
    let excess = |i: usize| {
        let rounding = dtypes::unit(dtype) * want[i].abs() + dtypes::tiny(dtype);
        let off = (got[i] - want[i]).abs();
        if rounded {
            (off - rounding).max(0.0)
        } else {
            off
        }
    };
    let mut worst = 0.0_f64;
    let mut beyond = Vec::new();
    for i in 0..want.len() {
        // The function `max` above would hide a NaN.
        if got[i].is_nan() {
            return Err(format!("element {i}: expected {:e}, got NaN", want[i]));
        }
        match excess(i) {
            excess if excess <= UNITS * unit * scale => worst = worst.max(excess),
            _ => beyond.push(i),
        }
    }
    if !beyond.is_empty() {
        let spread = spread();
        let inside = |&i: &usize| excess(i) <= UNITS * unit * scale + SPREADS * spread[i];
        if let Some(&i) = beyond.iter().find(|i| !inside(i)) {
            return Err(format!(
                "element {i}: expected {:e}, got {:e}, scale {scale:e}, spread {:e}",
                want[i], got[i], spread[i]
            ));
        }
    }
    Ok(if scale > 0.0 {
        worst / (unit * scale)
    } else {
        0.0
    })
}

fn same_len(want: usize, got: usize) -> Result<(), String> {
    match want == got {
        true => Ok(()),
        false => Err(format!("expected {want} elements, got {got}")),
    }
}
