//! The algebras that are generated. **This list is the only place where a signature is named**:
//! to add one, add its entry and run `cargo xtask gen`.

use cayley::Signature;

/// Signatures (p, q, r): vectors that square to +1, to -1 and to 0.
pub const SHIPPED: &[(usize, usize, usize)] = &[
    (1, 0, 0), // hyperbolic numbers
    (0, 1, 0), // complex numbers
    (0, 2, 0), // quaternions
    (2, 0, 0), // the plane
    (3, 0, 0), // space
    (3, 0, 1), // projective geometric algebra of space
    (1, 3, 0), // spacetime
    (4, 1, 0), // conformal geometric algebra of space
    (5, 0, 0), // five dimensions, the convex-hull task
];

/// The signatures of the shipped algebras, in order.
pub fn shipped() -> impl Iterator<Item = Signature> {
    SHIPPED.iter().map(|&(p, q, r)| Signature::of(p, q, r))
}
