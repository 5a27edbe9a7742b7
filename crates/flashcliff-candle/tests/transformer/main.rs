//! Layers of GATr against plain loops, central differences, motions of space and other numbers of threads.

mod as_network;
#[path = "../common/mod.rs"]
mod common;
mod golden;
mod gravity;
mod layers;
mod loops;
mod motions;
mod oracle;
mod relatives;
mod scopes;
mod training;
mod training_options;

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{AttentionOptions, Channels, Tokens};
use flashcliff_candle::models::{Gatr, GatrOptions};

use common::{disturb, random, values};
use oracle::Token;

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

/// The tokens of each sample.
fn samples(tokens: &Tokens) -> Vec<Vec<Token>> {
    let (channels, width) = (tokens.channels(), tokens.channels().width());
    let (_, items, _) = tokens.packed().dims3().unwrap();
    let all = values(tokens.packed());
    let token = |row: &[f64]| {
        let mv = (0..channels.multivectors).map(|channel| {
            std::array::from_fn(|blade| row[blade * channels.multivectors + channel])
        });
        Token {
            mv: mv.collect(),
            s: row[16 * channels.multivectors..].to_vec(),
        }
    };
    let rows: Vec<Token> = all.chunks_exact(width).map(token).collect();
    rows.chunks_exact(items).map(<[Token]>::to_vec).collect()
}

/// The numbers of tokens in the order of packed rows.
fn packed(tokens: &[Token]) -> Vec<f64> {
    let rows = tokens.iter().flat_map(|token| {
        let blades = (0..16).flat_map(|b| token.mv.iter().map(move |x| x[b]));
        blades.chain(token.s.iter().copied()).collect::<Vec<_>>()
    });
    rows.collect()
}

fn tokens_of(data: Vec<f64>, channels: Channels) -> Tokens {
    let samples = data.len() / (ITEMS * channels.width());
    let shape = (samples, ITEMS, channels.width());
    let tensor = Tensor::from_vec(data, shape, &Device::Cpu).unwrap();
    Tokens::from_packed(tensor, channels).unwrap()
}
