//! Tokens of 16 bits between the steps of transformers.

use flashcliff_network::Rows;
use flashcliff_network::tokens::{Channels, Draw, Geometry};

use crate::blocks::{Block, signature};
use crate::compare::{Case, compare_in_16_bits};
use crate::transformers::{case, published};
use crate::trials::Tests;

pub(crate) fn add(tests: &mut Tests) {
    let gatr = Block::of(Geometry::gatr().unwrap());
    let lgatr = Block::of(Geometry::lgatr_2().unwrap());
    let space = Block::of(Geometry::of(signature(3, 0, 0)));
    for (name, own) in [("gatr", gatr), ("lgatr", lgatr), ("space", space)] {
        // Kernels of few rows have no tokens of 16 bits.
        for (channels, rows) in [
            (Channels::new(16, 32), Rows::new(150, 11)),
            (Channels::new(8, 8), Rows::new(33, 31)),
        ] {
            let title = format!("{name}_{}_{}", channels.multivectors, channels.scalars);
            let own = Block { channels, ..own };
            tests.add(format!("narrow::{title}"), move || {
                compare_in_16_bits(&title, &case(own, rows));
            });
        }
        tests.add(format!("narrow::{name}::ragged"), move || {
            compare_in_16_bits(name, &ragged(own));
        });
    }
    for (name, own) in published(gatr, lgatr) {
        let own = Block {
            channels: Channels::new(8, 8),
            ..own
        };
        tests.add(format!("narrow::{name}"), move || {
            compare_in_16_bits(name, &case(own, Rows::new(33, 31)));
        });
    }
}

/// Sequences of several lengths, with dropout.
fn ragged(own: Block) -> Case {
    let own = Block {
        channels: Channels::new(8, 16),
        dropout: Some(0.2),
        ..own
    };
    let lengths = [300, 0, 1, 63, 500, 136];
    let bounds = lengths.iter().scan(0, |end, len| {
        *end += len;
        Some(*end)
    });
    let bounds: Vec<usize> = [0].into_iter().chain(bounds).collect();
    let mut case = case(own, Rows::new(1, lengths.iter().sum()));
    case.sequences = Some([bounds, Vec::new()]);
    case.draw = Some(Draw { key: 7, step: 2 });
    case
}
