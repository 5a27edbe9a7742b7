//! Functions of `a + b Q` with `Q Q = c`, in operations of candle.
//!
//! The formulas are those of `flashcliff::rotor`, where each number is computed on its own. Here all elements take the same
//! steps, and a mask says which of them count.

use candle_core::{DType, Result, Tensor};

/// `a + b Q`, and `c`. Below four dimensions there are no 4-vectors: `b` and `c` are `None`.
#[derive(Clone, Debug)]
pub(super) struct Element {
    pub(super) a: Tensor,
    pub(super) b: Option<Tensor>,
}

/// How many times the exponential doubles its argument at the most.
const DOUBLINGS: usize = 8;
/// How many times the logarithm takes a square root.
const HALVINGS: usize = 5;

impl Element {
    fn shifted(&self, number: f64) -> Result<Self> {
        let a = self.a.affine(1.0, number)?;
        Ok(Self { a, ..self.clone() })
    }

    pub(super) fn scaled(&self, factor: f64) -> Result<Self> {
        let a = self.a.affine(factor, 0.0)?;
        let b = self.b.as_ref().map(|b| b.affine(factor, 0.0));
        let b = b.transpose()?;
        Ok(Self { a, b })
    }

    fn times(&self, other: &Self, c: Option<&Tensor>) -> Result<Self> {
        let a = self.a.mul(&other.a)?;
        let (Some(b), Some(d), Some(c)) = (&self.b, &other.b, c) else {
            return Ok(Self { a, b: None });
        };
        Ok(Self {
            a: a.add(&c.mul(&b.mul(d)?)?)?,
            b: Some(self.a.mul(d)?.add(&b.mul(&other.a)?)?),
        })
    }

    /// The sum of `coefficient(k) self^k` for `k` below `terms`.
    fn series(
        &self,
        c: Option<&Tensor>,
        terms: u32,
        coefficient: impl Fn(u32) -> f64,
    ) -> Result<Self> {
        let zeros = |x: &Tensor| x.detach().zeros_like();
        let mut sum = Self {
            a: zeros(&self.a)?,
            b: self.b.as_ref().map(zeros).transpose()?,
        };
        for k in (0..terms).rev() {
            sum = self.times(&sum, c)?.shifted(coefficient(k))?;
        }
        Ok(sum)
    }

    /// This element where a mask is set, else another.
    fn or(&self, mask: &Tensor, other: &Self) -> Result<Self> {
        let a = mask.where_cond(&self.a, &other.a)?;
        let b = match (&self.b, &other.b) {
            (Some(b), Some(d)) => Some(mask.where_cond(b, d)?),
            _ => None,
        };
        Ok(Self { a, b })
    }

    /// `1 / self`: the conjugate over the product with it.
    pub(super) fn inverse(&self, c: Option<&Tensor>) -> Result<Self> {
        let (Some(b), Some(c)) = (&self.b, c) else {
            let a = self.a.recip()?;
            return Ok(Self { a, b: None });
        };
        let norm = self.a.sqr()?.sub(&c.mul(&b.sqr()?)?)?;
        Ok(Self {
            a: self.a.div(&norm)?,
            b: Some(b.div(&norm)?.neg()?),
        })
    }

    /// The principal square root and its inverse; not finite where the ring has none.
    pub(super) fn root(&self, c: Option<&Tensor>) -> Result<[Self; 2]> {
        let (Some(b), Some(c)) = (&self.b, c) else {
            let root = self.a.sqrt()?;
            let over = root.recip()?;
            return Ok([root, over].map(|a| Self { a, b: None }));
        };
        let part = c.mul(&b.sqr()?)?;
        let n = self.a.sqr()?.sub(&part)?.sqrt()?;
        let mean = self.a.abs()?.add(&n)?.affine(0.5, 0.0)?;
        let negative = self.a.detach().lt(&self.a.detach().zeros_like()?)?;
        let small = part.div(&mean.affine(-4.0, 0.0)?)?;
        let r = negative.where_cond(&small, &mean)?.sqrt()?;
        let rest = b.div(&r.affine(2.0, 0.0)?)?;
        let over = Self {
            a: r.div(&n)?,
            b: Some(rest.div(&n)?.neg()?),
        };
        Ok([
            Self {
                a: r,
                b: Some(rest),
            },
            over,
        ])
    }
}

/// `C(u) - 1` and `S(u)` of `u = s + Q`; NaN where eight doublings do not reach `u`.
pub(super) fn exponential(s: &Tensor, c: Option<&Tensor>) -> Result<[Element; 2]> {
    let terms = if s.dtype() == DType::F64 { 9 } else { 5 };
    let plain = s.detach();
    let mut size = plain.abs()?;
    if let Some(c) = c {
        size = size.add(&c.detach().abs()?.sqrt()?)?;
    }
    let one = plain.ones_like()?;
    let mut scale = one.clone();
    let mut doubled = Vec::with_capacity(DOUBLINGS);
    for _ in 0..DOUBLINGS {
        let large = size.mul(&scale)?.gt(&one)?;
        scale = large.where_cond(&scale.affine(0.25, 0.0)?, &scale)?;
        doubled.push(large);
    }
    let beyond = size.mul(&scale)?.gt(&one)?;
    let scale = beyond.where_cond(&one.affine(0.0, f64::NAN)?, &scale)?;
    let u = Element {
        a: s.mul(&scale)?,
        b: c.is_some().then_some(scale),
    };
    let cosine = u.series(c, terms, |k| inverse_factorial(2 * k + 2))?;
    let mut cosine = u.times(&cosine, c)?;
    let mut sine = u.series(c, terms + 1, |k| inverse_factorial(2 * k + 1))?;
    for mask in &doubled {
        sine = sine.times(&cosine.shifted(1.0)?, c)?.or(mask, &sine)?;
        let twice = cosine.times(&cosine.shifted(2.0)?, c)?.scaled(2.0)?;
        cosine = twice.or(mask, &cosine)?;
    }
    Ok([cosine, sine])
}

/// `arccos(w) / sqrt(1 - w^2)`, and `arcosh(w) / sqrt(w^2 - 1)` where `w` is more than 1.
pub(super) fn slope_of_logarithm(w: Element, c: Option<&Tensor>) -> Result<Element> {
    let terms = if w.a.dtype() == DType::F64 { 12 } else { 6 };
    let mut w = w;
    let mut total: Option<Element> = None;
    for _ in 0..HALVINGS {
        let [root, over] = w.shifted(1.0)?.scaled(0.5)?.root(c)?;
        w = root;
        total = Some(match total {
            Some(total) => total.times(&over, c)?,
            None => over,
        });
    }
    let rest = w.scaled(-1.0)?.shifted(1.0)?;
    let series = rest.series(c, terms, |j| {
        let ratios = (1..=j).map(f64::from);
        ratios.map(|i| i / (2.0 * i + 1.0)).product()
    })?;
    match total {
        Some(total) => total.times(&series, c),
        None => Ok(series),
    }
}

fn inverse_factorial(n: u32) -> f64 {
    1.0 / (1..=n).map(f64::from).product::<f64>()
}
