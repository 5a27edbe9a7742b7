//! The maps of multivectors.

use candle_core::{Result, Tensor};
use flashcliff::cayley::Algebra;

use super::parts::{Parts, blades, joined, parts, product, square};
use super::ring::{self, Element};

/// The exponential of bivectors.
pub(super) fn exp(algebra: &Algebra, x: &Tensor) -> Result<Tensor> {
    let (own, even) = (blades(algebra, |g| g == 2), blades(algebra, |g| g % 2 == 0));
    if own.is_empty() {
        // One blade, of ones.
        let shape = [even.len(), x.dims()[1], x.dims()[2]];
        return Tensor::ones(&shape, x.dtype(), x.device());
    }
    let rotor = exp_parts(algebra, &parts(&own, x)?)?;
    joined(&even, &rotor, &x.get(0)?)
}

fn exp_parts(algebra: &Algebra, b: &Parts) -> Result<Parts> {
    let (s, q) = square(algebra, b, false)?;
    let c = square_of_four(algebra, &q)?;
    let [cosine, sine] = ring::exponential(&s, c.as_ref())?;
    let mut rotor = scaled(algebra, &sine, &q, b)?;
    rotor.insert(0, cosine.a.affine(1.0, 1.0)?);
    if let Some(b) = cosine.b {
        for (blade, value) in q {
            rotor.insert(blade, b.mul(&value)?);
        }
    }
    Ok(rotor)
}

/// The logarithm of even multivectors.
pub(super) fn log(algebra: &Algebra, x: &Tensor) -> Result<Tensor> {
    let (own, even) = (blades(algebra, |g| g == 2), blades(algebra, |g| g % 2 == 0));
    let like = x.get(0)?;
    if own.is_empty() {
        let shape = [0, x.dims()[1], x.dims()[2]];
        return Tensor::zeros(&shape, x.dtype(), x.device());
    }
    joined(&own, &log_parts(algebra, &parts(&even, x)?)?, &like)
}

/// The logarithm, from the square root `normalized(1 + R)` of the normalised `R`.
fn log_parts(algebra: &Algebra, r: &Parts) -> Result<Parts> {
    let mut half = normalized_parts(algebra, r, false)?;
    half.insert(0, half[&0].affine(1.0, 1.0)?);
    let half = normalized_parts(algebra, &half, false)?;
    let of_grade = |grade: usize| -> Parts {
        let parts = half.iter();
        let own = parts.filter(|&(&blade, _)| algebra.grade_of(blade) == grade);
        own.map(|(&blade, value)| (blade, value.clone())).collect()
    };
    let (bivector, q) = (of_grade(2), of_grade(4));
    let c = square_of_four(algebra, &q)?;
    let slope = ring::slope_of_logarithm(element(&half[&0], &c)?, c.as_ref())?;
    scaled(algebra, &slope.scaled(2.0)?, &q, &bivector)
}

/// The inverse of multivectors of a parity.
pub(super) fn inverse(algebra: &Algebra, parity: usize, x: &Tensor) -> Result<Tensor> {
    let own = blades(algebra, |g| g % 2 == parity);
    if own.is_empty() {
        return Ok(x.clone());
    }
    let x = parts(&own, x)?;
    let (a, q) = square(algebra, &x, true)?;
    let c = square_of_four(algebra, &q)?;
    let over = element(&a, &c)?.inverse(c.as_ref())?;
    // The 4-vector does not commute with all of x: reverse(x) r is the reverse of r x.
    let result = reversed(algebra, &scaled(algebra, &over, &q, &x)?)?;
    joined(&own, &result, &a)
}

/// The versor of multivectors of a parity.
pub(super) fn normalized(algebra: &Algebra, parity: usize, x: &Tensor) -> Result<Tensor> {
    let own = blades(algebra, |g| g % 2 == parity);
    if own.is_empty() {
        return Ok(x.clone());
    }
    let like = x.get(0)?;
    let result = normalized_parts(algebra, &parts(&own, x)?, true)?;
    joined(&own, &result, &like)
}

fn normalized_parts(algebra: &Algebra, x: &Parts, signed: bool) -> Result<Parts> {
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
    let [_, over] = element(&a, &c)?.root(c.as_ref())?;
    scaled(algebra, &over, &q, x)
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
    let a = normalized_parts(algebra, &parts(&own, a)?, true)?;
    let b = normalized_parts(algebra, &parts(&own, b)?, true)?;
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
        return joined(&own, &a, &like);
    }
    let mut step = log_parts(algebra, &between)?;
    for value in step.values_mut() {
        *value = t.mul(value)?;
    }
    let turn = exp_parts(algebra, &step)?;
    let result = product(algebra, &a, &turn, |g| g % 2 == parity)?;
    joined(&own, &result, &like)
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
