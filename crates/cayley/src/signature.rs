//! Signatures `Cl(p, q, r)`: how many basis vectors square to +1, −1 and 0.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// The signature `Cl(p, q, r)` of a geometric algebra.
///
/// `p` basis vectors square to +1, `q` to −1 and `r` to 0; `p + q + r <= 8`. The vectors are ordered
/// null first, then positive, then negative, and numbered from 0 if `r > 0`, else from 1.
///
/// Signatures compare by `p`, then `q`, then `r`.
///
/// ```
/// use cayley::{Error, Signature};
///
/// let signature = Signature::new(3, 0, 1)?;
/// assert_eq!(signature.dim(), 4);
/// assert_eq!(signature.name(), "cl301");
/// assert_eq!(signature.to_string(), "Cl(3,0,1)");
/// assert_eq!((0..4).map(|vector| signature.square(vector)).collect::<Vec<_>>(), [0, 1, 1, 1]);
///
/// // The three spellings that parse; r may be left out between commas.
/// for text in ["3,0,1", "cl301", "Cl(3,0,1)"] {
///     assert_eq!(text.parse::<Signature>()?, signature);
/// }
/// assert_eq!("3,0".parse::<Signature>()?, Signature::new(3, 0, 0)?);
///
/// assert_eq!(Signature::new(8, 0, 1), Err(Error::DimensionTooLarge { p: 8, q: 0, r: 1 }));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature {
    p: u8,
    q: u8,
    r: u8,
}

impl Signature {
    /// The largest supported dimension `p + q + r`.
    pub const MAX_DIM: usize = 8;

    /// The signature with `p` positive, `q` negative and `r` null vectors.
    ///
    /// # Errors
    ///
    /// [`Error::DimensionTooLarge`] if `p + q + r` exceeds [`Signature::MAX_DIM`].
    pub const fn new(p: usize, q: usize, r: usize) -> Result<Signature, Error> {
        if p.saturating_add(q).saturating_add(r) > Self::MAX_DIM {
            return Err(Error::DimensionTooLarge { p, q, r });
        }
        Ok(Signature {
            p: p as u8,
            q: q as u8,
            r: r as u8,
        })
    }

    /// The signature with `p` positive, `q` negative and `r` null vectors, for constants.
    ///
    /// ```
    /// use cayley::Signature;
    ///
    /// const SPACETIME: Signature = Signature::of(1, 3, 0);
    /// assert_eq!(SPACETIME.name(), "cl130");
    /// ```
    ///
    /// # Panics
    ///
    /// If `p + q + r` exceeds [`Signature::MAX_DIM`]; in a constant, the build fails instead.
    pub const fn of(p: usize, q: usize, r: usize) -> Signature {
        assert!(
            p.saturating_add(q).saturating_add(r) <= Self::MAX_DIM,
            "a signature has at most Signature::MAX_DIM vectors"
        );
        Signature {
            p: p as u8,
            q: q as u8,
            r: r as u8,
        }
    }

    /// Number of vectors that square to +1.
    pub const fn p(self) -> usize {
        self.p as usize
    }

    /// Number of vectors that square to −1.
    pub const fn q(self) -> usize {
        self.q as usize
    }

    /// Number of vectors that square to 0.
    pub const fn r(self) -> usize {
        self.r as usize
    }

    /// Dimension `n = p + q + r` of the vector space.
    pub const fn dim(self) -> usize {
        self.p() + self.q() + self.r()
    }

    /// Canonical name, e.g. `cl301`.
    pub fn name(self) -> String {
        format!("cl{}{}{}", self.p, self.q, self.r)
    }

    /// Square of the vector at position `vector` (from 0): 0, +1 or −1.
    ///
    /// # Panics
    ///
    /// If `vector` is not below [`Signature::dim`].
    pub const fn square(self, vector: usize) -> i8 {
        assert!(vector < self.dim(), "the vector lies outside the signature");
        if vector < self.r() {
            0
        } else if vector < self.r() + self.p() {
            1
        } else {
            -1
        }
    }

    /// Number that the first vector carries in blade names: 0 if `r > 0`, else 1.
    pub const fn first_label(self) -> usize {
        if self.r > 0 { 0 } else { 1 }
    }

    /// Mask of the null vectors.
    pub(crate) const fn null_mask(self) -> u16 {
        (1 << self.r) - 1
    }

    /// Mask of the negative vectors.
    pub(crate) const fn negative_mask(self) -> u16 {
        ((1 << self.q) - 1) << (self.r + self.p)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cl({},{},{})", self.p, self.q, self.r)
    }
}

impl FromStr for Signature {
    type Err = Error;

    /// Reads `3,0,1`, `3,0`, `cl301`, `Cl(3,0,1)` or `Cl(3,0)`; spaces around numbers are allowed.
    fn from_str(text: &str) -> Result<Signature, Error> {
        let invalid = || Error::InvalidSignature {
            found: text.to_owned(),
        };
        let (p, q, r) = parse_counts(text.trim()).ok_or_else(invalid)?;
        Signature::new(p, q, r)
    }
}

fn parse_counts(text: &str) -> Option<(usize, usize, usize)> {
    let Some(rest) = text.strip_prefix("cl").or_else(|| text.strip_prefix("Cl")) else {
        return parse_list(text);
    };
    if let Some(list) = rest.strip_prefix('(') {
        return parse_list(list.strip_suffix(')')?);
    }
    match rest.as_bytes() {
        [p, q, r] => Some((digit(*p)?, digit(*q)?, digit(*r)?)),
        _ => None,
    }
}

fn parse_list(text: &str) -> Option<(usize, usize, usize)> {
    let mut counts = text.split(',').map(|part| number(part.trim()));
    let (p, q) = (counts.next()??, counts.next()??);
    let r = match counts.next() {
        Some(r) => r?,
        None => 0,
    };
    counts.next().is_none().then_some((p, q, r))
}

/// Reads a run of decimal digits. Unlike `usize::from_str`, it takes no leading `+`.
fn number(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

fn digit(byte: u8) -> Option<usize> {
    byte.is_ascii_digit().then(|| usize::from(byte - b'0'))
}
