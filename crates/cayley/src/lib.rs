//! Exact integer Clifford (geometric) algebra of any signature up to eight dimensions.
//!
//! The crate answers questions about basis blades: which blade is the product of two others and
//! with which sign, which grades a product can reach, how blades are ordered and named. All of it
//! is integer arithmetic on bit masks; multivectors with real coefficients are left to the caller,
//! who reads the tables from here.
//!
//! # Signature and vectors
//!
//! A [`Signature`] `Cl(p, q, r)` has `p` basis vectors that square to +1, `q` that square to −1 and
//! `r` that square to 0. The vectors are ordered **null first, then positive, then negative**. They
//! are numbered from 0 when `r > 0` and from 1 otherwise, so `Cl(3,0,1)` has `e0` (null), `e1`,
//! `e2`, `e3`, and `Cl(1,3,0)` has `e1` (+1), `e2`, `e3`, `e4` (−1).
//!
//! # Basis order
//!
//! Basis blades are products of distinct vectors in increasing order, in **short-lex** order: by
//! grade, then lexicographic in the vector numbers. In `Cl(3,0,1)`:
//!
//! ```text
//! 1 | e0 e1 e2 e3 | e01 e02 e03 e12 e13 e23 | e012 e013 e023 e123 | e0123
//! ```
//!
//! The blades of a grade are contiguous, and the complement of blade `i` is blade `2^n − 1 − i`.
//! Bit `t` of a [`Blade`] mask stands for the `t`-th vector.
//!
//! # Signs
//!
//! With `a`, `b` masks, `e_a e_b = s e_(a xor b)` where
//!
//! ```text
//! s = (−1)^swaps · Π_(t in a and b) e_t²,      swaps = Σ_(t ≥ 1) popcount((a >> t) & b)
//! ```
//!
//! so the product is zero exactly when `a` and `b` share a null vector. Everything else follows:
//!
//! | operation | definition on blades of grades `g`, `h` in dimension `n` |
//! |---|---|
//! | exterior `a ∧ b` | `ab` if no vector is shared, else 0 |
//! | left contraction `a ⌋ b` | `⟨ab⟩_(h−g)` |
//! | right contraction `a ⌊ b` | `⟨ab⟩_(g−h)` |
//! | scalar `a ∗ b` | `⟨ab⟩_0` (no reverse) |
//! | commutator `a × b` | `(ab − ba)/2` |
//! | regressive `a ∨ b` | `undual(dual(a) ∧ dual(b))` |
//! | reverse | `(−1)^(g(g−1)/2)` |
//! | grade involution | `(−1)^g` |
//! | Clifford conjugate | `(−1)^(g(g+1)/2)` |
//! | dual (right complement) | `e_a ∧ dual(e_a) = I`, with `I` the product of all vectors in order |
//! | undual (left complement) | `undual(e_a) ∧ e_a = I` |
//!
//! The dual uses no metric, so it exists for `r > 0` too.
//!
//! # Paths
//!
//! A [`Path`] is a grade triple (left, output, right) for which the geometric product has at least
//! one non-zero term. Weighted products carry one weight a path, in lexicographic order of the
//! triples. The list depends on the metric: `Cl(4,0,0)` has 35 paths, `Cl(3,0,1)` has 34, because
//! there `I I = 0`.
//!
//! # Example
//!
//! ```
//! use cayley::{Algebra, GradeSet, ProductKind, Signature};
//!
//! let algebra = Algebra::new("cl301".parse::<Signature>()?);
//! assert_eq!(algebra.blade_count(), 16);
//! assert_eq!(algebra.paths().len(), 34);
//!
//! let (e1, e2) = (algebra.index_of_name("e1")?, algebra.index_of_name("e2")?);
//! let (output, sign) = algebra.multiply(e2, e1).expect("no null vector is shared");
//! assert_eq!((algebra.blade_name(output).as_str(), sign), ("e12", -1));
//!
//! let points = GradeSet::single(3);
//! assert_eq!(algebra.reachable(ProductKind::Regressive, points, points), GradeSet::single(2));
//! # Ok::<(), cayley::Error>(())
//! ```

#![forbid(unsafe_code)]

mod algebra;
mod blade;
mod duality;
mod equivariant;
mod error;
mod grades;
mod group;
mod invariant;
mod involution;
mod path;
mod product;
mod signature;

pub use algebra::Algebra;
pub use blade::Blade;
pub use equivariant::{EquivariantMap, MapEntry};
pub use error::Error;
pub use grades::GradeSet;
pub use group::Group;
pub use invariant::InvariantForm;
pub use path::Path;
pub use product::{ProductKind, Term};
pub use signature::Signature;
