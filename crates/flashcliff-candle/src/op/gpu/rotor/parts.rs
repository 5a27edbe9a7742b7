//! Multivectors as one tensor for each blade that is not zero for sure, and their products.

use std::collections::BTreeMap;

use candle_core::{Result, Tensor};
use flashcliff::ProductKind;
use flashcliff::cayley::Algebra;

/// The tensors of blades, by the index of the blade.
pub(super) type Parts = BTreeMap<usize, Tensor>;

/// The blades of some grades.
pub(super) fn blades(algebra: &Algebra, grade: impl Fn(usize) -> bool) -> Vec<usize> {
    let all = 0..algebra.blade_count();
    all.filter(|&blade| grade(algebra.grade_of(blade)))
        .collect()
}

/// The tensors of the blades of some grades.
pub(super) fn parts(blades: &[usize], x: &Tensor) -> Result<Parts> {
    let each = blades.iter().enumerate();
    each.map(|(at, &blade)| Ok((blade, x.get(at)?))).collect()
}

/// One tensor of some blades; `like` has the shape of a blade.
pub(super) fn joined(blades: &[usize], parts: &Parts, like: &Tensor) -> Result<Tensor> {
    let zero = like.zeros_like()?;
    let each: Vec<&Tensor> = blades
        .iter()
        .map(|blade| parts.get(blade).unwrap_or(&zero))
        .collect();
    Tensor::stack(&each, 0)
}

/// The parts of the geometric product whose grades are kept.
pub(super) fn product(
    algebra: &Algebra,
    x: &Parts,
    y: &Parts,
    kept: impl Fn(usize) -> bool,
) -> Result<Parts> {
    let mut result = Parts::new();
    for term in algebra.product(ProductKind::Geometric) {
        if let (Some(x), Some(y)) = (x.get(&term.left), y.get(&term.right))
            && kept(algebra.grade_of(term.output))
        {
            add(&mut result, term.output, x.mul(y)?, i32::from(term.sign))?;
        }
    }
    Ok(result)
}

/// The scalar and the 4-vector of `x x`, or of `x reverse(x)`. Terms `x_i x_k` and `x_k x_i` are one, or none.
pub(super) fn square(algebra: &Algebra, x: &Parts, reversed: bool) -> Result<(Tensor, Parts)> {
    let mut factors: BTreeMap<[usize; 3], i32> = BTreeMap::new();
    for term in algebra.product(ProductKind::Geometric) {
        let grade = algebra.grade_of(term.output);
        if (grade == 0 || grade == 4) && x.contains_key(&term.left) && x.contains_key(&term.right) {
            let sign = if reversed {
                algebra.reverse_sign(term.right)
            } else {
                1
            };
            let pair = [term.left.min(term.right), term.left.max(term.right)];
            *factors.entry([pair[0], pair[1], term.output]).or_default() +=
                i32::from(term.sign * sign);
        }
    }
    let mut result = Parts::new();
    for ([left, right, output], factor) in factors {
        if factor != 0 {
            add(&mut result, output, x[&left].mul(&x[&right])?, factor)?;
        }
    }
    let scalar = match (result.remove(&0), x.values().next()) {
        (Some(scalar), _) => scalar,
        (None, Some(any)) => any.zeros_like()?,
        (None, None) => candle_core::bail!("a multivector without blades has no square"),
    };
    Ok((scalar, result))
}

fn add(result: &mut Parts, blade: usize, term: Tensor, factor: i32) -> Result<()> {
    let term = match factor {
        1 => term,
        factor => term.affine(f64::from(factor), 0.0)?,
    };
    let sum = match result.get(&blade) {
        Some(sum) => sum.add(&term)?,
        None => term,
    };
    result.insert(blade, sum);
    Ok(())
}
