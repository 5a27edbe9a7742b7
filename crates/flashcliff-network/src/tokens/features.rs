//! The features of queries, keys and values of heads.
//!
//! | part | features, in order |
//! |---|---|
//! | query | for each blade with a norm all channels, with its sign; with distances, for each feature of points all channels; the scalars |
//! | key | the same without signs |
//! | value | for each blade all channels; the scalars |
//!
//! With distances the weight of a point belongs to its distance and is not among the blades. The dot product of a
//! query and a key is the inner product of their multivectors and scalars, less the squared distances of points.

use flashcliff::attention::{DistancePoint, HeadDistances, HeadFeatures};

use super::{Channels, Geometry};

/// Regularises the distance of points without weight.
pub(crate) const EPS: f64 = 1e-3;

/// Whether features belong to a query, a key or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Query,
    Key,
    Value,
}

/// The blades of a point of Cl(n,0,1): the coordinates, then its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Points {
    pub(crate) first: usize,
    pub(crate) coordinates: usize,
}

impl Points {
    /// The number of features of a point.
    pub(crate) fn features(self) -> usize {
        DistancePoint::<f64>::count(self.coordinates)
    }
}

/// A head: its sizes, and what its queries and keys are compared by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) multivectors: usize,
    pub(crate) scalars: usize,
    pub(crate) blades: usize,
    /// The blades of the inner product, and their signs.
    pub(crate) inner: Vec<(usize, f64)>,
    /// The blades of points, if attention sees their distances.
    pub(crate) points: Option<Points>,
}

impl Head {
    pub(crate) fn new(geometry: &Geometry, channels: Channels) -> Self {
        let dim = geometry.algebra.cayley().dim();
        let points = geometry.distances.then(|| Points {
            first: geometry.reference_blade() + 1 - dim,
            coordinates: dim - 1,
        });
        // The weight of a point belongs to its distance.
        let weight = points.map(|_| geometry.reference_blade());
        let norms = geometry.norms().into_iter().enumerate();
        let inner = norms.filter(|&(blade, norm)| norm != 0 && Some(blade) != weight);
        Self {
            multivectors: channels.multivectors,
            scalars: channels.scalars,
            blades: geometry.blades(),
            inner: inner
                .map(|(blade, norm)| (blade, f64::from(norm)))
                .collect(),
            points,
        }
    }

    pub(crate) fn channels(&self) -> Channels {
        Channels::new(self.multivectors, self.scalars)
    }

    /// The number of features of a part.
    pub(crate) fn features(&self, part: Part) -> usize {
        let of_channel = match part {
            Part::Value => self.blades,
            _ => self.inner.len() + self.points.map_or(0, Points::features),
        };
        of_channel * self.multivectors + self.scalars
    }

    /// The features of a part.
    pub(crate) fn packed(&self, part: Part) -> HeadFeatures {
        let inner = || self.inner.iter();
        let points = self.points.filter(|_| part != Part::Value);
        HeadFeatures {
            blades: self.blades,
            taken: match part {
                Part::Query => inner().map(|&(blade, sign)| (blade, sign < 0.0)).collect(),
                Part::Key => inner().map(|&(blade, _)| (blade, false)).collect(),
                Part::Value => (0..self.blades).map(|blade| (blade, false)).collect(),
            },
            distances: points.map(|points| HeadDistances {
                of_queries: part == Part::Query,
                first: points.first,
                coordinates: points.coordinates,
                eps: EPS,
            }),
        }
    }
}
