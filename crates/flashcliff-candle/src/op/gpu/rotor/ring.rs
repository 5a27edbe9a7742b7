//! Functions of `a + b Q` with `Q Q = c`, in operations of candle.
//!
//! The formulas are those of `flashcliff::rotor`, where each number is computed on its own. Here all elements take the same
//! steps, and a mask says which of them count. Where a formula does not hold, it runs on numbers that it can take: a number
//! that is not finite would make the gradients of others NaN.

use candle_core::{DType, Result, Tensor};

/// `a + b Q`, and `c`. Below four dimensions there are no 4-vectors: `b` and `c` are `None`.
#[derive(Clone, Debug)]
pub(super) struct Element {
    pub(super) a: Tensor,
    pub(super) b: Option<Tensor>,
}

/// The largest `|u|` of an exponential: that of a rotation by 1024.
const LARGEST: f64 = 262_144.0;
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

    /// `1 / self`, the conjugate over the product with it, and where it is; others are those of 1.
    pub(super) fn inverse(&self, c: Option<&Tensor>) -> Result<(Self, Tensor)> {
        let norm = match (&self.b, c) {
            (Some(b), Some(c)) => self.a.sqr()?.sub(&c.mul(&b.sqr()?)?)?,
            _ => self.a.clone(),
        };
        let exists = both(&is_finite(&norm)?, &norm.detach().ne(&number(&norm, 0.0)?)?)?;
        let norm = kept(&exists, &norm, 1.0)?;
        let inverse = match (&self.b, c) {
            (Some(b), Some(_)) => Self {
                a: self.a.div(&norm)?,
                b: Some(b.div(&norm)?.neg()?),
            },
            _ => Self {
                a: norm.recip()?,
                b: None,
            },
        };
        Ok((inverse, exists))
    }

    /// Where `a + Q` has a principal square root with an inverse.
    pub(super) fn has_root(&self, c: Option<&Tensor>) -> Result<Tensor> {
        let a = self.a.detach();
        let zero = number(&a, 0.0)?;
        let positive = a.gt(&zero)?;
        let Some(c) = c else {
            return both(&positive, &is_finite(&a)?);
        };
        let square = a.sqr()?.sub(&c.detach())?;
        // Where the scalar is negative, only complex numbers have a root, and only off the real axis.
        let off_axis = either(&positive, &c.detach().lt(&zero)?)?;
        both(&both(&square.gt(&zero)?, &is_finite(&square)?)?, &off_axis)
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

/// A number in the shape of a tensor.
fn number(like: &Tensor, value: f64) -> Result<Tensor> {
    like.detach().zeros_like()?.affine(1.0, value)
}

/// A tensor where a mask is set, else a number.
pub(super) fn kept(mask: &Tensor, x: &Tensor, other: f64) -> Result<Tensor> {
    mask.where_cond(x, &number(x, other)?)
}

/// Where both masks are set.
pub(super) fn both(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.mul(b)
}

/// Where one of two masks is set.
fn either(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.where_cond(a, b)
}

/// Where a mask is not set.
fn not(mask: &Tensor) -> Result<Tensor> {
    mask.eq(&mask.zeros_like()?)
}

/// Where numbers are finite.
pub(super) fn is_finite(x: &Tensor) -> Result<Tensor> {
    x.detach().abs()?.lt(&number(x, f64::INFINITY)?)
}

/// `C(u)` and `S(u)` by their power series, for `u` up to 1.
fn short(u: &Element, c: Option<&Tensor>) -> Result<[Element; 2]> {
    let terms = if u.a.dtype() == DType::F64 { 9 } else { 5 };
    let cosine = u.series(c, terms, |k| inverse_factorial(2 * k + 2))?;
    let sine = u.series(c, terms + 1, |k| inverse_factorial(2 * k + 1))?;
    Ok([u.times(&cosine, c)?.shifted(1.0)?, sine])
}

/// `C(u)` and `S(u)` of real numbers.
fn of_number(u: &Tensor) -> Result<[Tensor; 2]> {
    let plain = u.detach();
    let turns = plain.lt(&number(u, -1.0)?)?;
    let boosts = plain.gt(&number(u, 1.0)?)?;
    let small = kept(&not(&either(&turns, &boosts)?)?, u, 0.0)?;
    let [cosine, sine] = short(&Element { a: small, b: None }, None)?;
    let angle = kept(&turns, &u.neg()?, 1.0)?.sqrt()?;
    let rapidity = kept(&boosts, u, 1.0)?.sqrt()?;
    let (growing, falling) = (rapidity.exp()?, rapidity.neg()?.exp()?);
    let cosh = growing.add(&falling)?.affine(0.5, 0.0)?;
    let sinh = growing.sub(&falling)?.affine(0.5, 0.0)?.div(&rapidity)?;
    let pick = |turn: Tensor, boost: Tensor, series: &Tensor| {
        turns.where_cond(&turn, &boosts.where_cond(&boost, series)?)
    };
    Ok([
        pick(angle.cos()?, cosh, &cosine.a)?,
        pick(angle.sin()?.div(&angle)?, sinh, &sine.a)?,
    ])
}

/// `C(u)` and `S(u)` of `u = s + Q`, and where they are; others are those of zero. `squares` are `c` and `n = s^2 - c`.
pub(super) fn exponential(
    s: &Tensor,
    squares: Option<(&Tensor, &Tensor)>,
) -> Result<([Element; 2], Tensor)> {
    let plain = s.detach();
    let (mut size, mut growth) = (plain.abs()?, plain.clone());
    if let Some((c, n)) = squares {
        let (c, n) = (c.detach(), n.detach());
        let root = c.abs()?.sqrt()?;
        size = size.add(&root)?;
        // The square of the real part of `sqrt u`.
        let turned = growth.add(&n.abs()?.sqrt()?)?.affine(0.5, 0.0)?;
        let complex = c.lt(&number(&c, 0.0)?)?;
        growth = complex.where_cond(&turned, &growth.add(&root)?)?;
    }
    // The largest number whose exponential is one.
    let most = if s.dtype() == DType::F64 {
        f64::MAX
    } else {
        f64::from(f32::MAX)
    };
    let most = most.ln();
    let exists = both(
        &size.le(&number(&size, LARGEST)?)?,
        &growth.le(&number(&size, most * most)?)?,
    )?;
    let s = kept(&exists, s, 0.0)?;
    let Some((c, n)) = squares else {
        let both = of_number(&s)?.map(|a| Element { a, b: None });
        return Ok((both, exists));
    };
    let c = kept(&exists, c, 0.0)?;
    let far = both(&exists, &size.gt(&number(&size, 1.0)?)?)?;
    let near = not(&far)?;
    let one = number(&s, 1.0)?;
    let u = Element {
        a: kept(&near, &s, 0.0)?,
        b: Some(one),
    };
    let small = short(&u, Some(&kept(&near, &c, 0.0)?))?;
    let large = of_pair(&s, &c, n, &far)?;
    let [cosine, sine] = [0, 1].map(|which: usize| large[which].or(&far, &small[which]));
    Ok(([cosine?, sine?], exists))
}

/// `C(u)` and `S(u)` where a mask is set, from values at two real numbers.
fn of_pair(s: &Tensor, c: &Tensor, n: &Tensor, far: &Tensor) -> Result<[Element; 2]> {
    let (plain, squared) = (s.detach(), s.detach().sqr()?);
    let wide = c.detach().affine(4.0, 0.0)?.gt(&squared)?;
    let (apart, split) = (both(far, &wide)?, both(far, &not(&wide)?)?);
    let negative = plain.lt(&number(s, 0.0)?)?;
    let signed = |root: Tensor| negative.where_cond(&root.neg()?, &root);
    let half = signed(kept(&apart, c, 1.0)?.sqrt()?)?;
    let d = signed(kept(&split, n, 1.0)?.sqrt()?)?;
    let over = d.recip()?;
    // The smaller of two numbers follows from the product, as their sum may cancel.
    let larger = kept(&split, &s.add(&d)?.affine(0.5, 0.0)?, 1.0)?;
    let larger = apart.where_cond(&s.add(&half)?, &larger)?;
    let product = kept(&split, &c.affine(0.25, 0.0)?, 0.0)?;
    let smaller = apart.where_cond(n, &product)?.div(&larger)?;
    let ([c1, s1], [c2, s2]) = (of_number(&larger)?, of_number(&smaller)?);
    // Zeros keep the factors below from growing where the other formula counts.
    let p = kept(&split, &larger, 0.0)?.mul(&over)?;
    let q = kept(&split, &smaller, 0.0)?.mul(&over)?;
    let mean = |x: &Tensor, y: &Tensor| x.add(y)?.affine(0.5, 0.0);
    let slope = |x: &Tensor, y: &Tensor| x.sub(y)?.div(&half)?.affine(0.5, 0.0);
    let pick = |x: Tensor, y: Tensor| apart.where_cond(&x, &y);
    let turned = p.mul(&s1)?.mul(&c2)?.sub(&q.mul(&s2)?.mul(&c1)?)?;
    let rest = c1.mul(&s2)?.sub(&s1.mul(&c2)?)?;
    let rest = rest.mul(&over.affine(0.5, 0.0)?)?;
    let cosine = Element {
        a: pick(mean(&c1, &c2)?, c1.mul(&c2)?)?,
        b: Some(pick(slope(&c1, &c2)?, s1.mul(&s2)?.affine(0.5, 0.0)?)?),
    };
    let sine = Element {
        a: pick(mean(&s1, &s2)?, turned)?,
        b: Some(pick(slope(&s1, &s2)?, rest)?),
    };
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
