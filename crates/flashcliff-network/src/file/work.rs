//! What nodes compute as records, and back.

use std::sync::Arc;

use flashcliff::Operator;
use serde::{Deserialize, Serialize};

use super::Error;
use super::graph::{MOST_BLADES, MOST_SIZE, at_most, find, finite};
use super::operators::OperatorRecord;
use super::steps::StepRecord;
use crate::relation::Along;
use crate::tokens::Geometry;
use crate::work::{Activation, MOST_INPUTS, Sides, Work};
use crate::{Network, Reduction, Relation, Value};

/// The work of a node.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkRecord {
    /// An operator, by its number among the operators of the file.
    Operator(usize),
    Gather(AlongRecord),
    SegmentSum(AlongRecord),
    Join(SidesRecord),
    Split(SidesRecord),
    Points,
    BladeNorm,
    Silu,
    Relu,
    ScaledSum(Scale),
    Blade(usize),
    FirstBlades(usize),
    ExtendBlades(usize),
    BladesToChannels,
    ChannelsToBlades(usize),
    ReverseAxes,
    Concatenate,
    SquaredError,
    Step(StepRecord),
}

/// The relations that a gathering or a sum follows, by their numbers.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AlongRecord {
    relation: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    minus: Option<usize>,
    reduction: ReductionRecord,
}

impl From<Along> for AlongRecord {
    fn from(own: Along) -> Self {
        Self {
            relation: own.relation.number(),
            minus: own.minus.map(Relation::number),
            reduction: own.reduction.into(),
        }
    }
}

impl AlongRecord {
    fn along(self, network: &Network) -> Result<Along, Error> {
        let relation = |at: usize| -> Result<Relation, Error> {
            Ok(find("relations", &network.relations, at)?.1)
        };
        Ok(Along {
            relation: relation(self.relation)?,
            minus: self.minus.map(relation).transpose()?,
            reduction: self.reduction.into(),
        })
    }
}

/// Parts along an axis.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SidesRecord {
    axis: usize,
    sizes: Vec<usize>,
}

impl SidesRecord {
    fn new(own: &Sides) -> Self {
        Self {
            axis: own.axis,
            sizes: own.parts.iter().map(|(size, _)| *size).collect(),
        }
    }

    fn sides(&self) -> Result<Sides, Error> {
        for &size in &self.sizes {
            at_most("the size of a part", MOST_SIZE, size)?;
        }
        at_most("parts of a value", MOST_INPUTS, self.sizes.len())?;
        Ok(Sides::new(self.axis, self.sizes.iter().copied()))
    }
}

/// What a sum is divided by.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReductionRecord {
    Sum,
    Mean,
    RootCount,
}

impl From<Reduction> for ReductionRecord {
    fn from(own: Reduction) -> Self {
        match own {
            Reduction::Sum => Self::Sum,
            Reduction::Mean => Self::Mean,
            Reduction::RootCount => Self::RootCount,
        }
    }
}

impl From<ReductionRecord> for Reduction {
    fn from(own: ReductionRecord) -> Self {
        match own {
            ReductionRecord::Sum => Self::Sum,
            ReductionRecord::Mean => Self::Mean,
            ReductionRecord::RootCount => Self::RootCount,
        }
    }
}

/// A finite number.
#[derive(Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct Scale(#[serde(with = "finite")] f64);

/// The operators and geometries of nodes, each once.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) operators: Vec<Arc<Operator>>,
    pub(super) geometries: Vec<Geometry>,
}

impl Lists {
    /// The number of an operator, which is added if it is new. Nodes that share an operator still do after loading.
    pub(super) fn listed(&mut self, own: &Arc<Operator>) -> usize {
        let known = self
            .operators
            .iter()
            .position(|known| Arc::ptr_eq(known, own));
        known.unwrap_or_else(|| {
            self.operators.push(own.clone());
            self.operators.len() - 1
        })
    }

    pub(super) fn records(&self) -> Result<Vec<OperatorRecord>, Error> {
        let operators = self.operators.iter();
        operators.map(|own| OperatorRecord::new(own)).collect()
    }
}

impl WorkRecord {
    /// # Errors
    /// [`Error::NotStored`] for a gradient, and for a derivative of a step.
    pub(super) fn new(work: &Work, lists: &mut Lists) -> Result<Self, Error> {
        Ok(match work {
            Work::Operator(operator) => Self::Operator(lists.listed(operator)),
            Work::Gather(along) => Self::Gather((*along).into()),
            Work::SegmentSum(along) => Self::SegmentSum((*along).into()),
            Work::Join(sides) => Self::Join(SidesRecord::new(sides)),
            Work::Split(sides) => Self::Split(SidesRecord::new(sides)),
            Work::Points => Self::Points,
            Work::BladeNorm => Self::BladeNorm,
            Work::Activation(Activation::Silu) => Self::Silu,
            Work::Activation(Activation::Relu) => Self::Relu,
            Work::ScaledSum(scale) => Self::ScaledSum(Scale(*scale)),
            Work::Blade(blade) => Self::Blade(*blade),
            Work::FirstBlades(blades) => Self::FirstBlades(*blades),
            Work::ExtendBlades { blades, .. } => Self::ExtendBlades(*blades),
            Work::BladesToChannels => Self::BladesToChannels,
            Work::ChannelsToBlades(blades) => Self::ChannelsToBlades(*blades),
            Work::ReverseAxes => Self::ReverseAxes,
            Work::Concatenate(_) => Self::Concatenate,
            Work::SquaredError => Self::SquaredError,
            Work::Step(step) => Self::Step(StepRecord::new(step, lists)?),
            Work::Gradient(gradient) => {
                return Err(Error::NotStored {
                    what: format!("the gradient of `{}`", gradient.of.name()),
                    reason: "a file has the forward pass; gradients are nodes that `Network::gradients` makes of it",
                });
            }
        })
    }

    /// Adds the node with this number to a network. All checks of the network's own functions run.
    pub(super) fn add(
        &self,
        node: usize,
        network: &mut Network,
        inputs: &[Value],
        lists: &Lists,
    ) -> Result<(), Error> {
        let added = match self {
            Self::Operator(at) => {
                let operator = find("operators", &lists.operators, *at)?;
                network.shared_operator(operator, inputs)
            }
            Self::Gather(along) => network.one(Work::Gather(along.along(network)?), inputs),
            Self::SegmentSum(along) => network.one(Work::SegmentSum(along.along(network)?), inputs),
            Self::Join(sides) => network.one(Work::Join(sides.sides()?), inputs),
            Self::Split(sides) => network.one(Work::Split(sides.sides()?), inputs),
            Self::Points => network.one(Work::Points, inputs),
            Self::BladeNorm => network.one(Work::BladeNorm, inputs),
            Self::Silu => network.one(Work::Activation(Activation::Silu), inputs),
            Self::Relu => network.one(Work::Activation(Activation::Relu), inputs),
            Self::ScaledSum(Scale(scale)) => network.one(Work::ScaledSum(*scale), inputs),
            Self::Blade(blade) => network.one(Work::Blade(*blade), inputs),
            Self::FirstBlades(blades) => network.one(Work::FirstBlades(*blades), inputs),
            Self::ExtendBlades(blades) => extend_blades(network, inputs, *blades)?,
            Self::BladesToChannels => network.one(Work::BladesToChannels, inputs),
            Self::ChannelsToBlades(blades) => network.one(Work::ChannelsToBlades(*blades), inputs),
            Self::ReverseAxes => network.one(Work::ReverseAxes, inputs),
            Self::Concatenate => network.concatenate(inputs),
            Self::SquaredError => match *inputs {
                [y, target] => network.squared_error(y, target).map(|made| made[0]),
                _ => network.one(Work::SquaredError, inputs),
            },
            Self::Step(step) => network.step(step.step(node, lists)?, inputs),
        };
        added.map(drop).map_err(Error::of_part("node", node))
    }
}

/// Further blades of a value that a node computes.
fn extend_blades(
    network: &mut Network,
    inputs: &[Value],
    blades: usize,
) -> Result<Result<Value, crate::Error>, Error> {
    at_most("blades", MOST_BLADES, blades)?;
    Ok(match *inputs {
        [x] => network.extend_blades(x, blades),
        _ => network.one(
            Work::ExtendBlades {
                blades,
                clears: false,
            },
            inputs,
        ),
    })
}
