//! The choices by which transformers over different algebras differ.

use std::ops::Range;

use flashcliff::cayley::{EquivariantMap, Group};
use flashcliff::equivariant::EquivariantLinear;
use flashcliff::{Algebra, Signature};

use super::{Channels, GateFunction};
use crate::Error;

/// The algebra, the group, the products and the norms of a geometric algebra transformer.
///
/// [`Self::of`] has the choices of the published networks. Fields can be set apart:
///
/// ```
/// use flashcliff::{Algebra, Signature};
/// use flashcliff_network::tokens::Geometry;
///
/// let projective = Algebra::new(Signature::new(3, 0, 1)?)?;
/// let without_joins = Geometry { join: false, ..Geometry::of(projective) };
/// assert!(without_joins.distances);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The algebra.
    pub algebra: Algebra,
    /// Whether tokens have vectors, the blades of grade 1, in place of multivectors, as in L-GATr-slim: see [`Self::slim`].
    pub vectors: bool,
    /// What layers commute with. [`Group::Spin`] leaves reflections out, which allows more linear maps.
    pub group: Group,
    /// Whether each linear map is divided by its Frobenius norm.
    pub unit_maps: bool,
    /// Whether the perceptron of a block begins with the bilinear layer. Otherwise it begins as it goes on, with a gate and a linear layer.
    pub product: bool,
    /// Whether the bilinear layer also has joins, for Cl(n,0,1).
    pub join: bool,
    /// Whether geometric products in the bilinear layer keep their bivectors, the blades of grade 2. Joins keep theirs in any case.
    pub bivectors: bool,
    /// Whether attention sees distances of points, for Cl(n,0,1), besides the inner product.
    pub distances: bool,
    /// Whether queries, keys and values are normalised: multivectors and scalars apart, vectors and scalars together.
    pub head_norm: bool,
    /// Whether the result of the bilinear layer is normalised.
    pub product_norm: bool,
    /// Whether the norms of blocks have gains, as in L-GATr since 2.0: a factor for each grade of a channel and for
    /// each scalar, which start at 1.
    pub norm_gains: bool,
    /// Whether projections to queries, keys and values have biases.
    pub attention_bias: bool,
    /// Whether GELU of scalars has the tanh form that gates of multivectors have.
    pub tanh_scalars: bool,
}

impl Geometry {
    /// The choices of the published network over an algebra.
    ///
    /// | algebra | choices |
    /// |---|---|
    /// | Cl(3,0,1) | GATr (arXiv 2305.18415): E(3), unit maps, joins, distances in attention |
    /// | Cl(1,3) | L-GATr (arXiv 2405.14806) before 2.0: connected Lorentz group, norms of queries, keys, values and products |
    /// | others | as E-GATr and C-GATr (arXiv 2311.04744): the full group, no join, no distances |
    ///
    /// [`Self::lgatr_2`] has the choices of L-GATr since 2.0.
    pub fn of(algebra: Algebra) -> Self {
        let signature = algebra.signature();
        let (p, q, r) = (signature.p(), signature.q(), signature.r());
        let (is_gatr, is_lgatr) = ((p, q, r) == (3, 0, 1), (p, q, r) == (1, 3, 0));
        Self {
            algebra,
            vectors: false,
            group: if is_lgatr { Group::Spin } else { Group::Pin },
            unit_maps: is_gatr,
            product: true,
            join: is_gatr,
            bivectors: true,
            distances: is_gatr,
            head_norm: is_lgatr,
            product_norm: is_lgatr,
            norm_gains: false,
            attention_bias: true,
            tanh_scalars: false,
        }
    }

    /// The choices of L-GATr since version 2.0, over Cl(1,3): as [`Self::of`], with gains of norms, without biases of
    /// queries, keys and values, and with the tanh form of GELU for scalars.
    ///
    /// # Errors
    /// None: the signature is supported.
    pub fn lgatr_2() -> Result<Self, Error> {
        let signature = Signature::new(1, 3, 0).map_err(flashcliff::Error::from)?;
        Ok(Self {
            norm_gains: true,
            attention_bias: false,
            tanh_scalars: true,
            ..Self::of(Algebra::new(signature)?)
        })
    }

    /// The choices of L-GATr-slim (arXiv 2512.17011), over Cl(1,3) in that paper: vectors and scalars, which linear
    /// maps do not mix, and heads that are normalised. Norms and gated linear units between them are
    /// [`Lanes`](super::Lanes) of programs.
    pub fn slim(algebra: Algebra) -> Self {
        Self {
            vectors: true,
            group: Group::Spin,
            unit_maps: false,
            product: false,
            join: false,
            distances: false,
            head_norm: true,
            product_norm: false,
            ..Self::of(algebra)
        }
    }

    /// The choices of GATr.
    ///
    /// # Errors
    /// None: the signature is supported.
    pub fn gatr() -> Result<Self, Error> {
        let signature = Signature::new(3, 0, 1).map_err(flashcliff::Error::from)?;
        Ok(Self::of(Algebra::new(signature)?))
    }

    /// The functions of gates, of the scalar blade and of scalars.
    pub fn gates(&self) -> [GateFunction; 2] {
        let of_scalars = match self.tanh_scalars {
            true => GateFunction::GeluTanh,
            false => GateFunction::Gelu,
        };
        [GateFunction::GeluTanh, of_scalars]
    }

    /// The blades of each grade of a token.
    pub(crate) fn grades(&self) -> impl Iterator<Item = Range<usize>> {
        let cayley = self.algebra.cayley();
        let vectors = self.vectors.then(|| 0..cayley.dim());
        let all = 0..if self.vectors {
            0
        } else {
            cayley.grade_count()
        };
        vectors
            .into_iter()
            .chain(all.map(move |grade| cayley.grade_range(grade)))
    }

    /// Checks that the algebra has what the choices need.
    ///
    /// # Errors
    /// [`Error::Geometry`], and the errors of the algebra.
    pub fn check(&self) -> Result<(), Error> {
        self.maps()?;
        let signature = self.algebra.signature();
        for (choice, chosen) in [("join", self.join), ("distances", self.distances)] {
            if chosen && (signature.q(), signature.r()) != (0, 1) {
                return Err(Error::Geometry {
                    choice,
                    expected: "an algebra Cl(n,0,1)",
                    got: self.algebra.name(),
                });
            }
            if chosen {
                self.check_multivectors(choice)?;
            }
        }
        Ok(())
    }

    /// Checks that tokens have multivectors of all grades, for what needs them.
    ///
    /// # Errors
    /// [`Error::Geometry`].
    pub(crate) fn check_multivectors(&self, choice: &'static str) -> Result<(), Error> {
        match self.vectors {
            false => Ok(()),
            true => Err(Error::Geometry {
                choice,
                expected: "tokens of multivectors",
                got: format!("vectors of {}", self.algebra.name()),
            }),
        }
    }

    /// The number of blades of a multivector, or of a vector.
    pub fn blades(&self) -> usize {
        self.range().len()
    }

    /// The blades of the algebra that tokens have.
    fn range(&self) -> Range<usize> {
        match self.vectors {
            true => self.algebra.cayley().grade_range(1),
            false => 0..self.algebra.blade_count(),
        }
    }

    /// Whether blocks have joins, which read a reference.
    pub fn has_joins(&self) -> bool {
        self.product && self.join
    }

    /// The numbers of a token.
    pub fn width(&self, channels: Channels) -> usize {
        channels.width_over(self.blades())
    }

    /// The linear maps that commute with the group.
    ///
    /// # Errors
    /// The errors of the algebra, of one too large for a search.
    pub fn maps(&self) -> Result<Vec<EquivariantMap>, Error> {
        let cayley = self.algebra.cayley();
        let maps = match self.vectors {
            true => cayley.equivariant_maps_of_grade(self.group, 1),
            false => cayley.equivariant_maps(self.group),
        };
        Ok(maps.map_err(flashcliff::Error::from)?)
    }

    /// The layer of these maps.
    pub(crate) fn linear(&self) -> Result<EquivariantLinear, Error> {
        let make = match self.vectors {
            true => EquivariantLinear::of_vectors,
            false => EquivariantLinear::new,
        };
        Ok(make(self.algebra, self.group, self.unit_maps)?)
    }

    /// The number of blades that the group leaves alone, which scalar channels mix with: the scalar, for
    /// [`Group::Spin`] the pseudoscalar too. No vector is one.
    pub fn scalar_blades(&self) -> usize {
        match (self.vectors, self.group) {
            (true, _) => 0,
            (false, Group::Pin) => 1,
            (false, Group::Spin) => 2,
        }
    }

    /// The number that a map is multiplied by.
    #[cfg(feature = "cuda")]
    pub(crate) fn scale_of(&self, map: &EquivariantMap) -> f64 {
        match self.unit_maps {
            true => 1.0 / (map.entries.len() as f64).sqrt(),
            false => 1.0,
        }
    }

    /// The squared norm of each blade: 1, -1 or 0.
    pub(crate) fn norms(&self) -> Vec<i8> {
        let norm = |blade| self.algebra.cayley().square_of_blade_norm(blade);
        self.range().map(norm).collect()
    }

    /// The blade of the product of the vectors that are not null, for an algebra with one null vector.
    pub(crate) fn reference_blade(&self) -> usize {
        self.blades() - 2
    }
}

impl From<Algebra> for Geometry {
    fn from(algebra: Algebra) -> Self {
        Self::of(algebra)
    }
}
