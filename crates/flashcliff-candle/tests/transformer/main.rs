//! Layers and networks of transformers beside the layers and networks of `flashcliff-network`, which they bind: names, results, gradients,
//! scopes, errors.

mod as_network;
#[path = "../common/mod.rs"]
mod common;
mod gravity;
mod layers;
mod scopes;
mod training;

use candle_core::{DType, Device};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{AttentionOptions, Channels, Tokens};
use flashcliff_candle::models::{Gatr, GatrOptions};

use common::{disturb, random};

/// Sizes with differing numbers everywhere.
fn options(multi_query: bool) -> GatrOptions {
    GatrOptions {
        blocks: 2,
        attention: AttentionOptions {
            heads: 2,
            ratio: 2,
            multi_query,
            ..AttentionOptions::default()
        },
        ..GatrOptions::new(
            Channels::new(2, 3),
            Channels::new(3, 2),
            Channels::new(4, 6),
        )
    }
}

/// Samples that make several chunks of several samples, the last of them smaller.
const SAMPLES: usize = 23;
const ITEMS: usize = 3;

fn network(multi_query: bool, dtype: DType) -> (Gatr, Parameters) {
    let parameters = Parameters::seeded(5);
    let vb = parameters.builder(dtype, &Device::Cpu);
    let net = Gatr::new(options(multi_query), vb).unwrap();
    disturb(&parameters, 11);
    (net, parameters)
}

fn input(channels: Channels, seed: u64) -> Tokens {
    let packed = random(&[SAMPLES, ITEMS, channels.width()], seed);
    Tokens::from_packed(packed, channels).unwrap()
}
