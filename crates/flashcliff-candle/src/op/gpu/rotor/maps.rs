//! The maps of multivectors.

use candle_core::{DType, Result, Tensor};
use flashcliff::cayley::Algebra;

use super::parts::{Parts, blades, joined, parts, product, square};
use super::ring::{self, Element, both, kept};

/// The exponential of bivectors.
pub(super) fn exp(algebra: &Algebra, x: &Tensor) -> Result<Tensor> {
    let (own, even) = (blades(algebra, |g| g == 2), blades(algebra, |g| g % 2 == 0));
    if own.is_empty() {
        // One blade, of ones.
        let shape = [even.len(), x.dims()[1], x.dims()[2]];
        return Tensor::ones(&shape, x.dtype(), x.device());
    }
    let (b, finite) = finite_parts(&own, x)?;
    let (rotor, exists) = exp_parts(algebra, &b)?;
    finished(&even, &rotor, &both(&finite, &exists)?)
}

/// The exponential, and where it is.
fn exp_parts(algebra: &Algebra, b: &Parts) -> Result<(Parts, Tensor)> {
    // Sums of `f32` are those of `f64`, rounded: where squares of boosts and rotations, or of two angles, cancel, large
    // bivectors would lose more digits than they have.
    let dtype = match b.values().next() {
        Some(value) => value.dtype(),
        None => candle_core::bail!("a bivector without blades has no exponential here"),
    };
    let wide: Result<Parts> = b
        .iter()
        .map(|(&blade, value)| Ok((blade, value.to_dtype(DType::F64)?)))
        .collect();
    let (s, q) = square(algebra, &wide?, false)?;
    let squares = match square_of_four(algebra, &q)? {
        Some(c) => {
            let n = s.sqr()?.sub(&c)?;
            Some((c.to_dtype(dtype)?, n.to_dtype(dtype)?))
        }
        None => None,
    };
    let pair = squares.as_ref().map(|(c, n)| (c, n));
    let ([cosine, sine], mut exists) = ring::exponential(&s.to_dtype(dtype)?, pair)?;
    let narrow: Result<Parts> = q
        .iter()
        .map(|(&blade, value)| Ok((blade, value.to_dtype(dtype)?)))
        .collect();
    let mut q = narrow?;
    for value in q.values() {
        exists = both(&exists, &ring::is_finite(value)?)?;
    }
    for value in q.values_mut() {
        *value = kept(&exists, value, 0.0)?;
    }
    let mut rotor = scaled(algebra, &sine, &q, b)?;
    rotor.insert(0, cosine.a);
    if let Some(b) = cosine.b {
        for (blade, value) in q {
            rotor.insert(blade, b.mul(&value)?);
        }
    }
    Ok((rotor, exists))
}

/// The logarithm of even multivectors.
pub(super) fn log(algebra: &Algebra, x: &Tensor) -> Result<Tensor> {
    let (own, even) = (blades(algebra, |g| g == 2), blades(algebra, |g| g % 2 == 0));
    if own.is_empty() {
        let shape = [0, x.dims()[1], x.dims()[2]];
        return Tensor::zeros(&shape, x.dtype(), x.device());
    }
    let (r, _) = finite_parts(&even, x)?;
    let (step, exists) = log_parts(algebra, &r)?;
    finished(&own, &step, &exists)
}

/// The logarithm, from the square root `normalized(1 + R)` of the normalised `R`, and where it is.
fn log_parts(algebra: &Algebra, r: &Parts) -> Result<(Parts, Tensor)> {
    let (mut half, exists) = normalized_parts(algebra, r, false)?;
    let w = half[&0].clone();
    let mut sum = w.affine(1.0, 1.0)?;
    if blades(algebra, |g| g == 4).is_empty() {
        // Near -1 the sum would cancel: `(1 + w) (1 - w)` is `-B B`.
        let bivector = half.iter().filter(|&(&blade, _)| blade != 0);
        let bivector: Parts = bivector.map(|(&b, value)| (b, value.clone())).collect();
        let s = square(algebra, &bivector, false)?.0;
        let negative = w.detach().lt(&w.detach().zeros_like()?)?;
        let rest = kept(&negative, &w.affine(-1.0, 1.0)?, 1.0)?;
        sum = negative.where_cond(&s.neg()?.div(&rest)?, &sum)?;
    }
    half.insert(0, sum);
    let (half, has_root) = normalized_parts(algebra, &half, false)?;
    let exists = both(&exists, &has_root)?;
    let of_grade = |grade: usize| -> Parts {
        let parts = half.iter();
        let own = parts.filter(|&(&blade, _)| algebra.grade_of(blade) == grade);
        own.map(|(&blade, value)| (blade, value.clone())).collect()
    };
    let (bivector, q) = (of_grade(2), of_grade(4));
    let c = square_of_four(algebra, &q)?;
    let c = c.map(|c| kept(&exists, &c, 0.0)).transpose()?;
    let w = element(&kept(&exists, &half[&0], 1.0)?, &c)?;
    let slope = ring::slope_of_logarithm(w, c.as_ref())?;
    let step = scaled(algebra, &slope.scaled(2.0)?, &q, &bivector)?;
    Ok((step, exists))
}

/// The inverse of multivectors of a parity.
pub(super) fn inverse(algebra: &Algebra, parity: usize, x: &Tensor) -> Result<Tensor> {
    let own = blades(algebra, |g| g % 2 == parity);
    if own.is_empty() {
        return Ok(x.clone());
    }
    let (x, _) = finite_parts(&own, x)?;
    let (a, q) = square(algebra, &x, true)?;
    let c = square_of_four(algebra, &q)?;
    let (over, exists) = element(&a, &c)?.inverse(c.as_ref())?;
    // The 4-vector does not commute with all of x: reverse(x) r is the reverse of r x.
    let result = reversed(algebra, &scaled(algebra, &over, &q, &x)?)?;
    finished(&own, &result, &exists)
}

/// The versor of multivectors of a parity.
pub(super) fn normalized(algebra: &Algebra, parity: usize, x: &Tensor) -> Result<Tensor> {
    let own = blades(algebra, |g| g % 2 == parity);
    if own.is_empty() {
        return Ok(x.clone());
    }
    let (x, _) = finite_parts(&own, x)?;
    let (result, exists) = normalized_parts(algebra, &x, true)?;
    finished(&own, &result, &exists)
}

/// The versor, and where it is.
fn normalized_parts(algebra: &Algebra, x: &Parts, signed: bool) -> Result<(Parts, Tensor)> {
    let (mut a, mut q) = square(algebra, x, true)?;
    let c = square_of_four(algebra, &q)?;
    if signed {
        let plain = a.detach();
        let (zero, one) = (plain.zeros_like()?, plain.ones_like()?);
        let minus = one.neg()?;
        let sign = plain.lt(&zero)?.where_cond(&minus, &one)?;
        a = sign.mul(&a)?;
        for value in q.values_mut() {
            *value = sign.mul(value)?;
        }
    }
    let exists = element(&a, &c)?.has_root(c.as_ref())?;
    let c = c.map(|c| kept(&exists, &c, 0.0)).transpose()?;
    for value in q.values_mut() {
        *value = kept(&exists, value, 0.0)?;
    }
    let [_, over] = element(&kept(&exists, &a, 1.0)?, &c)?.root(c.as_ref())?;
    Ok((scaled(algebra, &over, &q, x)?, exists))
}

/// `a exp(t log(reverse(a) b))`, with `-b` in place of `b` if that is nearer.
pub(super) fn interpolate(
    algebra: &Algebra,
    parity: usize,
    a: &Tensor,
    b: &Tensor,
    t: &Tensor,
) -> Result<Tensor> {
    let own = blades(algebra, |g| g % 2 == parity);
    if own.is_empty() {
        return Ok(a.clone());
    }
    let like = a.get(0)?;
    let (a, starts) = normalized_parts(algebra, &finite_parts(&own, a)?.0, true)?;
    let (b, ends) = normalized_parts(algebra, &finite_parts(&own, b)?.0, true)?;
    let exists = both(&starts, &ends)?;
    let mut between = product(algebra, &reversed(algebra, &a)?, &b, |g| g % 2 == 0)?;
    let scalar = match between.get(&0) {
        Some(scalar) => scalar.detach(),
        None => like.zeros_like()?,
    };
    let one = scalar.ones_like()?;
    let nearer = scalar.lt(&scalar.zeros_like()?)?;
    let nearer = nearer.where_cond(&one.neg()?, &one)?;
    between.entry(0).or_insert(scalar);
    for value in between.values_mut() {
        *value = nearer.mul(value)?;
    }
    if !between.keys().any(|&blade| algebra.grade_of(blade) == 2) {
        // Versors of a line: nothing lies between.
        return finished(&own, &a, &exists);
    }
    let (mut step, goes) = log_parts(algebra, &between)?;
    for value in step.values_mut() {
        *value = t.mul(value)?;
    }
    let (turn, turns) = exp_parts(algebra, &step)?;
    let result = product(algebra, &a, &turn, |g| g % 2 == parity)?;
    let exists = both(&both(&exists, &goes)?, &turns)?;
    finished(&own, &result, &exists)
}

/// The parts of a tensor, zeros in items that are not finite so that no gradient reaches them, and where items are.
fn finite_parts(blades: &[usize], x: &Tensor) -> Result<(Parts, Tensor)> {
    let mut found = parts(blades, x)?;
    let mut finite: Option<Tensor> = None;
    for value in found.values() {
        let own = ring::is_finite(value)?;
        finite = Some(match finite {
            Some(others) => both(&others, &own)?,
            None => own,
        });
    }
    let Some(finite) = finite else {
        candle_core::bail!("a multivector without blades has no items");
    };
    for value in found.values_mut() {
        *value = kept(&finite, value, 0.0)?;
    }
    Ok((found, finite))
}

/// One tensor of parts, NaN where they do not exist. Their gradient is zero there.
fn finished(blades: &[usize], parts: &Parts, exists: &Tensor) -> Result<Tensor> {
    let Some(any) = parts.values().next() else {
        candle_core::bail!("a multivector without blades has no parts");
    };
    let zero = any.detach().zeros_like()?;
    let mut all = Parts::new();
    for &blade in blades {
        let value = parts.get(&blade).unwrap_or(&zero);
        all.insert(blade, kept(exists, value, f64::NAN)?);
    }
    joined(blades, &all, &zero)
}

fn reversed(algebra: &Algebra, x: &Parts) -> Result<Parts> {
    let each = x
        .iter()
        .map(|(&blade, value)| match algebra.reverse_sign(blade) {
            -1 => Ok((blade, value.neg()?)),
            _ => Ok((blade, value.clone())),
        });
    each.collect()
}

/// The scalar `Q Q` of a 4-vector, if there are any.
fn square_of_four(algebra: &Algebra, q: &Parts) -> Result<Option<Tensor>> {
    if q.is_empty() {
        return Ok(None);
    }
    Ok(Some(square(algebra, q, false)?.0))
}

/// `a + Q` as an element of the ring of the 4-vector.
fn element(a: &Tensor, c: &Option<Tensor>) -> Result<Element> {
    let b = c.is_some().then(|| a.detach().ones_like()).transpose()?;
    Ok(Element { a: a.clone(), b })
}

/// `(a + b Q) x`, of the grades of `x`.
fn scaled(algebra: &Algebra, factor: &Element, q: &Parts, x: &Parts) -> Result<Parts> {
    let mut result = Parts::new();
    for (&blade, value) in x {
        result.insert(blade, factor.a.mul(value)?);
    }
    let Some(b) = factor.b.as_ref().filter(|_| !q.is_empty()) else {
        return Ok(result);
    };
    let grades: Vec<usize> = x.keys().map(|&blade| algebra.grade_of(blade)).collect();
    for (blade, value) in product(algebra, q, x, |grade| grades.contains(&grade))? {
        let value = b.mul(&value)?;
        let sum = match result.get(&blade) {
            Some(sum) => sum.add(&value)?,
            None => value,
        };
        result.insert(blade, sum);
    }
    Ok(result)
}
