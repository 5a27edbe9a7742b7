//! Steps of transformers as records, and back.

use flashcliff::cayley::Group;
use flashcliff::{Algebra, Signature};
use serde::{Deserialize, Serialize};

use super::Error;
use super::graph::{
    ChannelsRecord, MOST_BLADES, MOST_CHANNELS, at_least_one, at_most, find, finite,
};
use super::work::Lists;
use crate::tokens::{
    Attention, Channels, Components, Dropout, Frames, Gains, Geometry, Lanes, Linear, NormOptions,
    Reinserted, Rotary, Step,
};

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GeometryRecord {
    signature: [usize; 3],
    group: GroupRecord,
    unit_maps: bool,
    product: bool,
    join: bool,
    bivectors: bool,
    distances: bool,
    head_norm: bool,
    product_norm: bool,
    norm_gains: bool,
    attention_bias: bool,
    tanh_scalars: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    vectors: bool,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum GroupRecord {
    Pin,
    Spin,
}

/// A step. Geometries are numbers in the file's list of geometries.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum StepRecord {
    Linear {
        geometry: usize,
        input: ChannelsRecord,
        layers: Vec<ChannelsRecord>,
        biased: bool,
    },
    LinearBesideScalars {
        geometry: usize,
        input: ChannelsRecord,
        layers: Vec<usize>,
        biased: bool,
    },
    Norm {
        geometry: usize,
        channels: ChannelsRecord,
        gains: bool,
    },
    Gains {
        geometry: usize,
        channels: ChannelsRecord,
        heads: Option<usize>,
    },
    Gated {
        geometry: usize,
        channels: ChannelsRecord,
    },
    Products {
        geometry: usize,
        each: usize,
        scalars: usize,
    },
    Attention(AttentionRecord),
    Rotary {
        attention: AttentionRecord,
        base: u32,
    },
    Reinserted {
        blades: usize,
        channels: ChannelsRecord,
        extra: ChannelsRecord,
    },
    Frames {
        geometry: usize,
        channels: ChannelsRecord,
        inverse: bool,
    },
    Components {
        blades: usize,
        channels: ChannelsRecord,
        inverse: bool,
    },
    Dropout {
        geometry: usize,
        channels: ChannelsRecord,
        #[serde(with = "finite")]
        p: f64,
        places: Vec<u64>,
    },
    Lanes {
        /// The operator, by its number among the operators of the file.
        operator: usize,
        blades: usize,
        each: ChannelsRecord,
    },
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttentionRecord {
    geometry: usize,
    heads: usize,
    head: ChannelsRecord,
    shared: bool,
    masked: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    crossing: bool,
}

/// The algebra with so many vectors of each kind.
pub(super) fn algebra([p, q, r]: [usize; 3]) -> Result<Algebra, crate::Error> {
    let signature = Signature::new(p, q, r).map_err(flashcliff::Error::from)?;
    Ok(Algebra::new(signature)?)
}

/// The numbers of vectors of each kind.
pub(super) fn signature(algebra: Algebra) -> [usize; 3] {
    let signature = algebra.signature();
    [signature.p(), signature.q(), signature.r()]
}

impl From<Geometry> for GeometryRecord {
    fn from(own: Geometry) -> Self {
        Self {
            signature: signature(own.algebra),
            group: match own.group {
                Group::Pin => GroupRecord::Pin,
                Group::Spin => GroupRecord::Spin,
            },
            unit_maps: own.unit_maps,
            product: own.product,
            join: own.join,
            bivectors: own.bivectors,
            distances: own.distances,
            head_norm: own.head_norm,
            product_norm: own.product_norm,
            norm_gains: own.norm_gains,
            attention_bias: own.attention_bias,
            tanh_scalars: own.tanh_scalars,
            vectors: own.vectors,
        }
    }
}

impl GeometryRecord {
    /// The geometry, after a check that its algebra has what it needs.
    pub(super) fn geometry(&self) -> Result<Geometry, crate::Error> {
        let geometry = Geometry {
            algebra: algebra(self.signature)?,
            group: match self.group {
                GroupRecord::Pin => Group::Pin,
                GroupRecord::Spin => Group::Spin,
            },
            unit_maps: self.unit_maps,
            product: self.product,
            join: self.join,
            bivectors: self.bivectors,
            distances: self.distances,
            head_norm: self.head_norm,
            product_norm: self.product_norm,
            norm_gains: self.norm_gains,
            attention_bias: self.attention_bias,
            tanh_scalars: self.tanh_scalars,
            vectors: self.vectors,
        };
        geometry.check()?;
        Ok(geometry)
    }
}

/// The number of a geometry in a list, which gets it if it is new.
fn listed(geometries: &mut Vec<Geometry>, own: Geometry) -> usize {
    let known = geometries.iter().position(|known| *known == own);
    known.unwrap_or_else(|| {
        geometries.push(own);
        geometries.len() - 1
    })
}

impl AttentionRecord {
    fn new(step: &Attention, geometries: &mut Vec<Geometry>) -> Self {
        Self {
            geometry: listed(geometries, step.geometry),
            heads: step.heads,
            head: step.head.channels().into(),
            shared: step.shared,
            masked: step.masked,
            crossing: step.crossing,
        }
    }

    fn attention(&self, geometries: &[Geometry]) -> Result<Attention, Error> {
        let geometry = *find("geometries", geometries, self.geometry)?;
        let heads = at_least_one("heads", self.heads)?;
        let head = self.head.channels()?;
        for channels in [head.multivectors, head.scalars] {
            let all = channels.saturating_mul(heads);
            at_most("channels of all heads", MOST_CHANNELS, all)?;
        }
        let attention = Attention::new(geometry, heads, head, self.shared);
        let attention = match self.masked {
            true => attention.masked(),
            false => attention,
        };
        Ok(match self.crossing {
            true => attention.crossing(),
            false => attention,
        })
    }
}

impl StepRecord {
    /// # Errors
    /// [`Error::NotStored`] for a derivative.
    pub(super) fn new(step: &Step, lists: &mut Lists) -> Result<Self, Error> {
        let geometries = &mut lists.geometries;
        let mut listed = |own| listed(geometries, own);
        Ok(match step {
            Step::Linear(own) if own.is_derivative() => return Err(not_stored(step)),
            Step::Lanes(own) if own.is_derivative => return Err(not_stored(step)),
            Step::HeadNorm(_) | Step::Distances(_) | Step::AttentionTangent(_) => {
                return Err(not_stored(step));
            }
            Step::Linear(step) => {
                let (geometry, input) = (listed(step.geometry), step.input.into());
                let (layers, biased) = (step.layers.iter(), step.biased);
                match step.keeps_scalars {
                    true => Self::LinearBesideScalars {
                        geometry,
                        input,
                        layers: layers.map(|layer| layer.multivectors).collect(),
                        biased,
                    },
                    false => Self::Linear {
                        geometry,
                        input,
                        layers: layers.map(|&layer| layer.into()).collect(),
                        biased,
                    },
                }
            }
            Step::Gains(step) => Self::Gains {
                geometry: listed(step.geometry),
                channels: step.channels.into(),
                heads: step.heads(),
            },
            Step::Attention(step) => Self::Attention(AttentionRecord::new(step, geometries)),
            Step::Rotary(step) => Self::Rotary {
                attention: AttentionRecord::new(&step.attention, geometries),
                base: step.base,
            },
            Step::Reinserted(step) => Self::Reinserted {
                blades: step.blades,
                channels: step.channels.into(),
                extra: step.extra.into(),
            },
            Step::Frames(step) => Self::Frames {
                geometry: listed(step.geometry),
                channels: step.channels.into(),
                inverse: step.inverse,
            },
            Step::Components(step) => Self::Components {
                blades: step.blades,
                channels: step.channels.into(),
                inverse: step.back,
            },
            Step::Dropout(step) => Self::Dropout {
                geometry: listed(step.geometry),
                channels: step.channels.into(),
                p: step.p,
                places: step.places.clone(),
            },
            Step::Lanes(step) => Self::Lanes {
                operator: lists.listed(&step.operator),
                blades: step.blades,
                each: step.each.into(),
            },
        })
    }

    /// The step of the node with this number.
    pub(super) fn step(&self, node: usize, lists: &Lists) -> Result<Step, Error> {
        let geometries = &lists.geometries[..];
        let geometry = |at: usize| find("geometries", geometries, at).copied();
        let refused = Error::of_part("node", node);
        Ok(match self {
            Self::Linear {
                geometry: at,
                input,
                layers,
                biased,
            } => {
                let layers = layers.iter().map(|layer| layer.channels());
                let layers = layers.collect::<Result<Vec<Channels>, Error>>()?;
                let step = Linear::new(geometry(*at)?, input.channels()?, layers);
                Step::Linear(with_bias(step.map_err(refused)?, *biased)?)
            }
            Self::LinearBesideScalars {
                geometry: at,
                input,
                layers,
                biased,
            } => {
                let mut counts = layers.iter();
                counts
                    .try_for_each(|&count| at_most("channels", MOST_CHANNELS, count).map(drop))?;
                let step = Linear::beside_scalars(geometry(*at)?, input.channels()?, layers);
                Step::Linear(with_bias(step.map_err(refused)?, *biased)?)
            }
            Self::Norm {
                geometry: at,
                channels,
                gains,
            } => {
                let options = NormOptions {
                    gains: [*gains; 2],
                    ..NormOptions::default()
                };
                let step = Lanes::norm(geometry(*at)?, channels.channels()?, options);
                Step::Lanes(step.map_err(refused)?)
            }
            Self::Gains {
                geometry: at,
                channels,
                heads,
            } => Step::Gains(gains(geometry(*at)?, channels.channels()?, *heads)?),
            Self::Gated {
                geometry: at,
                channels,
            } => {
                let own = geometry(*at)?;
                let step = Lanes::gated(own, channels.channels()?, own.gates());
                Step::Lanes(step.map_err(refused)?)
            }
            Self::Products {
                geometry: at,
                each,
                scalars,
            } => {
                let each = at_most("channels", MOST_CHANNELS, *each)?;
                let scalars = at_most("channels", MOST_CHANNELS, *scalars)?;
                let step = Lanes::products(geometry(*at)?, each, scalars);
                Step::Lanes(step.map_err(refused)?)
            }
            Self::Attention(attention) => Step::Attention(attention.attention(geometries)?),
            Self::Rotary { attention, base } => {
                at_least_one("the base of rotary positions", *base as usize)?;
                Step::Rotary(Rotary::new(&attention.attention(geometries)?, *base))
            }
            Self::Reinserted {
                blades,
                channels,
                extra,
            } => {
                let blades = at_most("blades", MOST_BLADES, *blades)?;
                let (own, extra) = (channels.channels()?, extra.channels()?);
                Step::Reinserted(Reinserted::new(blades, own, extra))
            }
            Self::Frames {
                geometry: at,
                channels,
                inverse,
            } => {
                let (geometry, channels) = (geometry(*at)?, channels.channels()?);
                Step::Frames(match inverse {
                    true => Frames::inverse(geometry, channels).map_err(refused)?,
                    false => Frames::new(geometry, channels),
                })
            }
            Self::Components {
                blades,
                channels,
                inverse,
            } => {
                let blades = at_most("blades", MOST_BLADES, *blades)?;
                let channels = channels.channels()?;
                Step::Components(match inverse {
                    true => Components::inverse(blades, channels),
                    false => Components::new(blades, channels),
                })
            }
            Self::Dropout {
                geometry: at,
                channels,
                p,
                places,
            } => {
                let step = Dropout::new(geometry(*at)?, channels.channels()?, *p, places);
                Step::Dropout(step.map_err(refused)?)
            }
            Self::Lanes {
                operator,
                blades,
                each,
            } => {
                let operator = find("operators", &lists.operators, *operator)?;
                let blades = at_most("blades", MOST_BLADES, *blades)?;
                let step = Lanes::new(operator.clone(), blades, each.channels()?);
                Step::Lanes(step.map_err(refused)?)
            }
        })
    }
}

fn not_stored(step: &Step) -> Error {
    Error::NotStored {
        what: format!("the derivative of a step, `{}`", step.name()),
        reason: "a file has the forward pass; derivatives are nodes that `Network::gradients_from` makes of it",
    }
}

/// Layers with or without biases. There is at least one layer.
fn with_bias(step: Linear, biased: bool) -> Result<Linear, Error> {
    at_least_one("layers", step.layers.len())?;
    Ok(match biased {
        true => step,
        false => step.without_bias(),
    })
}

/// Gains of grades, or of heads that share the channels evenly.
fn gains(geometry: Geometry, channels: Channels, heads: Option<usize>) -> Result<Gains, Error> {
    let Some(heads) = heads else {
        return Ok(Gains::new(geometry, channels));
    };
    let heads = at_most("heads", MOST_CHANNELS, at_least_one("heads", heads)?)?;
    Ok(Gains::of_heads(geometry, channels, heads))
}
