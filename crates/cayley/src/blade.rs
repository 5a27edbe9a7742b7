//! Basis blades as bit masks over the basis vectors.

use std::cmp::{Ordering, Reverse};

/// A basis blade: bit `t` of the mask is set if the `t`-th basis vector is a factor.
///
/// The factors stand in increasing order. Blades compare in short-lex order: by grade, then
/// lexicographic in the positions of their vectors.
///
/// ```
/// use cayley::Blade;
///
/// let (e12, e13, e23) = (Blade(0b011), Blade(0b101), Blade(0b110));
/// assert_eq!(e12.grade(), 2);
/// assert!(e12 < e13 && e13 < e23 && Blade(0b100) < e12);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blade(
    /// The mask.
    pub u16,
);

impl Blade {
    /// The scalar blade 1, which has no vector.
    pub const SCALAR: Blade = Blade(0);

    /// Number of vectors in the blade.
    pub const fn grade(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The mask: bit `t` stands for the `t`-th basis vector.
    pub const fn mask(self) -> u16 {
        self.0
    }

    /// Positions of the vectors in the blade, increasing.
    pub fn vectors(self) -> impl Iterator<Item = usize> {
        (0..u16::BITS as usize).filter(move |t| self.0 >> t & 1 == 1)
    }

    /// `(−1)^swaps`, where `swaps` counts the neighbour exchanges that sort the vectors of
    /// `self` followed by those of `right`.
    ///
    /// `swaps = Σ_(t ≥ 1) popcount((a >> t) & b)`: each vector of `right` passes the vectors of
    /// `self` that stand after it.
    pub const fn reordering_sign(self, right: Blade) -> i8 {
        let mut swaps = 0;
        let mut shifted = self.0 >> 1;
        while shifted != 0 {
            swaps += (shifted & right.0).count_ones();
            shifted >>= 1;
        }
        parity_sign(swaps)
    }
}

impl Ord for Blade {
    fn cmp(&self, other: &Blade) -> Ordering {
        // If two masks have the same grade, the one with the lower first differing vector comes first. In the mirrored
        // mask that vector is the higher bit.
        let key = |blade: &Blade| (blade.grade(), Reverse(blade.0.reverse_bits()));
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Blade {
    fn partial_cmp(&self, other: &Blade) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `(−1)^count`.
pub(crate) const fn parity_sign(count: u32) -> i8 {
    if count.is_multiple_of(2) { 1 } else { -1 }
}
