//! The JSON of a network as data.

use flashcliff::Signature;
use serde::{Deserialize, Serialize};

use super::Error;
use super::operators::OperatorRecord;
use super::steps::GeometryRecord;
use super::work::WorkRecord;
use crate::tokens::Channels;
use crate::{Axis, Relation, Rows};

/// The largest size of an axis.
pub(super) const MOST_SIZE: usize = 1 << 32;
/// The most elements of the axes of a value that are not open.
pub(super) const MOST_ELEMENTS: usize = 1 << 40;
/// The most blades.
pub(super) const MOST_BLADES: usize = 1 << Signature::MAX_DIM;
/// The most channels of a kind.
pub(super) const MOST_CHANNELS: usize = 1 << 20;

/// A network.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Graph {
    pub(super) version: u32,
    pub(super) geometries: Vec<GeometryRecord>,
    pub(super) operators: Vec<OperatorRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) relations: Vec<RelationRecord>,
    pub(super) inputs: Vec<InputRecord>,
    pub(super) parameters: Vec<ParameterRecord>,
    pub(super) nodes: Vec<NodeRecord>,
    pub(super) outputs: Vec<OutputRecord>,
}

/// The part of a network that all formats have.
#[derive(Deserialize)]
pub(super) struct Versioned {
    pub(super) version: u64,
}

/// A relation between rows.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RelationRecord {
    pub(super) name: String,
    pub(super) from: AxisRecord,
    pub(super) to: AxisRecord,
}

impl RelationRecord {
    pub(super) fn new(name: &str, relation: Relation) -> Self {
        Self {
            name: name.to_owned(),
            from: relation.from().into(),
            to: relation.to().into(),
        }
    }

    /// The axes.
    pub(super) fn axes(&self) -> Result<[Axis; 2], Error> {
        Ok([self.from.axis()?, self.to.axis()?])
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputRecord {
    pub(super) name: String,
    pub(super) axes: Vec<AxisRecord>,
    /// Whether there are gradients by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) features: bool,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ParameterRecord {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeRecord {
    pub(super) work: WorkRecord,
    pub(super) inputs: Vec<usize>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) begins_block: bool,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutputRecord {
    pub(super) name: String,
    pub(super) value: usize,
}

/// An axis of an input.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum AxisRecord {
    Rows,
    Samples,
    Items,
    ContextRows,
    ContextItems,
    Edges,
    Graphs,
    Others(usize),
    Fixed(usize),
    Token {
        blades: usize,
        channels: ChannelsRecord,
    },
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChannelsRecord {
    pub(super) multivectors: usize,
    pub(super) scalars: usize,
}

impl From<Channels> for ChannelsRecord {
    fn from(channels: Channels) -> Self {
        let Channels {
            multivectors,
            scalars,
        } = channels;
        Self {
            multivectors,
            scalars,
        }
    }
}

impl ChannelsRecord {
    pub(super) fn channels(self) -> Result<Channels, Error> {
        for count in [self.multivectors, self.scalars] {
            at_most("channels", MOST_CHANNELS, count)?;
        }
        Ok(Channels::new(self.multivectors, self.scalars))
    }
}

impl From<Axis> for AxisRecord {
    fn from(axis: Axis) -> Self {
        match axis {
            Axis::Rows => Self::Rows,
            Axis::Samples => Self::Samples,
            Axis::Items => Self::Items,
            Axis::ContextRows => Self::ContextRows,
            Axis::ContextItems => Self::ContextItems,
            Axis::Edges => Self::Edges,
            Axis::Graphs => Self::Graphs,
            Axis::Others(number) => Self::Others(number),
            Axis::Fixed(size) => Self::Fixed(size),
            Axis::Token { blades, channels } => Self::Token {
                blades,
                channels: channels.into(),
            },
        }
    }
}

impl AxisRecord {
    fn axis(&self) -> Result<Axis, Error> {
        Ok(match *self {
            Self::Rows => Axis::Rows,
            Self::Samples => Axis::Samples,
            Self::Items => Axis::Items,
            Self::ContextRows => Axis::ContextRows,
            Self::ContextItems => Axis::ContextItems,
            Self::Edges => Axis::Edges,
            Self::Graphs => Axis::Graphs,
            Self::Others(number) => {
                at_most("the number of a set of rows", Rows::MOST_OTHERS - 1, number)?;
                Axis::Others(number)
            }
            Self::Fixed(size) => Axis::Fixed(at_most("the size of an axis", MOST_SIZE, size)?),
            Self::Token { blades, channels } => Axis::Token {
                blades: at_most("blades", MOST_BLADES, blades)?,
                channels: channels.channels()?,
            },
        })
    }
}

impl InputRecord {
    pub(super) fn axes(&self) -> Result<Vec<Axis>, Error> {
        let axes = self.axes.iter().map(AxisRecord::axis);
        let axes = axes.collect::<Result<Vec<Axis>, Error>>()?;
        check_elements(axes.iter().map(|axis| axis.size(1)))?;
        Ok(axes)
    }
}

/// Checks the number of elements of axes.
pub(super) fn check_elements(mut sizes: impl Iterator<Item = usize>) -> Result<(), Error> {
    let product = sizes.try_fold(1_usize, usize::checked_mul);
    let got = product.unwrap_or(usize::MAX);
    at_most("elements of a value", MOST_ELEMENTS, got).map(drop)
}

pub(super) fn at_most(what: &'static str, most: usize, got: usize) -> Result<usize, Error> {
    match got <= most {
        true => Ok(got),
        false => Err(Error::Size { what, most, got }),
    }
}

pub(super) fn at_least_one(what: &'static str, got: usize) -> Result<usize, Error> {
    match got {
        0 => Err(Error::Empty { what }),
        got => Ok(got),
    }
}

/// An element of a list, by its number.
pub(super) fn find<'a, T>(what: &'static str, list: &'a [T], at: usize) -> Result<&'a T, Error> {
    list.get(at).ok_or(Error::Reference {
        what,
        count: list.len(),
        got: at,
    })
}

/// Numbers that JSON can have.
pub(super) mod finite {
    use serde::{Deserialize, Deserializer, Serializer, de, ser};

    pub(in crate::file) fn serialize<S: Serializer>(
        number: &f64,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match number.is_finite() {
            true => to.serialize_f64(*number),
            false => Err(ser::Error::custom(format!(
                "expected a finite number, got {number}"
            ))),
        }
    }

    pub(in crate::file) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<f64, D::Error> {
        let number = f64::deserialize(from)?;
        match number.is_finite() {
            true => Ok(number),
            false => Err(de::Error::custom(format!(
                "expected a finite number, got {number}"
            ))),
        }
    }
}
