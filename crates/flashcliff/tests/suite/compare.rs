//! Comparators. Each reports how far off the worst element is, and a test shows that it can fail.

use flashcliff::Element;

use crate::numbers::Bounded;

/// Checks equality with exact integers.
pub(crate) fn exact<T: Element>(want: &[i128], got: &[T]) -> Result<(), String> {
    same_len(want.len(), got.len())?;
    for (i, (want, got)) in want.iter().zip(got).enumerate() {
        if got.to_f64() != *want as f64 {
            return Err(format!("element {i}: expected {want}, got {got:?}"));
        }
    }
    Ok(())
}

/// Checks that results are within the error bounds times `slack`. Returns the largest used share of a bound.
pub(crate) fn bounded<const BITS: i32, T: Element>(
    want: &[Bounded<BITS>],
    got: &[T],
    slack: f64,
) -> Result<f64, String> {
    same_len(want.len(), got.len())?;
    let mut worst = 0.0_f64;
    for (i, (want, got)) in want.iter().zip(got).enumerate() {
        let (value, bound) = (want.value, slack * want.error);
        let off = (got.to_f64() - value).abs();
        if off.is_nan() || !bound.is_finite() || off > bound {
            return Err(format!(
                "element {i}: expected {value:e} +- {bound:e}, got {got:?}"
            ));
        }
        if off > 0.0 {
            worst = worst.max(off / bound);
        }
    }
    Ok(worst)
}

/// Checks that results are within `tolerance` of the largest magnitude. Returns the largest such relative difference.
pub(crate) fn close<T: Element>(want: &[f64], got: &[T], tolerance: f64) -> Result<f64, String> {
    same_len(want.len(), got.len())?;
    let scale = want
        .iter()
        .fold(0.0_f64, |scale, want| scale.max(want.abs()));
    let mut worst = 0.0_f64;
    for (i, (want, got)) in want.iter().zip(got).enumerate() {
        let off = (got.to_f64() - want).abs();
        if off.is_nan() || off > tolerance * scale {
            return Err(format!(
                "element {i}: expected {want:e}, got {got:?}, scale {scale:e}"
            ));
        }
        if off > 0.0 {
            worst = worst.max(off / scale);
        }
    }
    Ok(worst)
}

/// Checks that numbers are the same, bit for bit except for the sign of zeros.
pub(crate) fn same<T: Element>(want: &[T], got: &[T]) -> Result<(), String> {
    same_len(want.len(), got.len())?;
    match want.iter().zip(got).position(|(want, got)| want != got) {
        Some(i) => Err(format!("element {i}: {:?} against {:?}", want[i], got[i])),
        None => Ok(()),
    }
}

/// Checks that an output is not mostly zeros, which would prove nothing.
pub(crate) fn informative<T: Element>(output: &[T]) -> Result<(), String> {
    let zeros = output.iter().filter(|x| x.to_f64() == 0.0).count();
    match 2 * zeros > output.len() {
        true => Err(format!("{zeros} of {} elements are zero", output.len())),
        false => Ok(()),
    }
}

fn same_len(want: usize, got: usize) -> Result<(), String> {
    match want == got {
        true => Ok(()),
        false => Err(format!("expected {want} elements, got {got}")),
    }
}

#[test]
fn exact_reports_the_smallest_difference() {
    let want = [1, -2, 1 << 20];
    assert_eq!(exact(&want, &[1.0_f32, -2.0, 1_048_576.0]), Ok(()));
    assert!(exact(&want, &[1.0_f32, -2.0, 1_048_576.1]).is_err());
    assert!(exact(&want, &[1.0_f32, 2.0, 1_048_576.0]).is_err());
    assert!(exact(&want, &[1.0_f32, f32::NAN, 1_048_576.0]).is_err());
    assert!(exact(&want, &[1.0_f32, -2.0]).is_err());
}

#[test]
fn bounded_reports_what_leaves_the_bound() {
    let want = [
        Bounded::<24> {
            value: 1.0,
            error: 1e-6,
        },
        Bounded {
            value: 0.0,
            error: 0.0,
        },
    ];
    assert!(bounded(&want, &[1.0_f64 + 0.9e-6, 0.0], 1.0).is_ok());
    assert!(bounded(&want, &[1.0_f64 + 1.1e-6, 0.0], 1.0).is_err());
    assert!(bounded(&want, &[1.0_f64, 1e-300], 1.0).is_err());
    assert!(bounded(&want, &[f64::NAN, 0.0], 1.0).is_err());
    assert!(bounded(&want, &[1.0_f64], 1.0).is_err());
    let unbounded = [Bounded::<24> {
        value: 1.0,
        error: f64::INFINITY,
    }];
    assert!(bounded(&unbounded, &[1.0_f64], 1.0).is_err());
}

#[test]
fn close_reports_what_leaves_the_tolerance() {
    let want = [100.0, 1.0];
    assert!(close(&want, &[100.0_f64, 1.0 + 0.9e-4], 1e-6).is_ok());
    assert!(close(&want, &[100.0_f64, 1.0 + 1.1e-4], 1e-6).is_err());
    assert!(close(&want, &[100.0_f64, f64::NAN], 1e-6).is_err());
    // A gradient of zeros is not close to one that is not zero, nor the other way around.
    assert!(close(&[0.0, 0.0], &[0.0_f64, 1e-300], 1e-6).is_err());
    assert!(close(&want, &[0.0_f64, 0.0], 1e-6).is_err());
}

#[test]
fn same_reports_one_flipped_bit() {
    let want = [0.1_f32, 0.0];
    assert_eq!(same(&want, &[0.1, -0.0]), Ok(()));
    assert!(same(&want, &[f32::from_bits(0.1_f32.to_bits() ^ 1), 0.0]).is_err());
    assert!(same(&[f32::NAN], &[f32::NAN]).is_err());
}

#[test]
fn outputs_that_are_mostly_zeros_are_rejected() {
    assert!(informative(&[0.0_f32, 0.0, 1.0]).is_err());
    assert!(informative(&[0.0_f32, 1.0]).is_ok());
    assert!(informative::<f32>(&[]).is_ok());
}
