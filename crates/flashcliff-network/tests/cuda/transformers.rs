//! Blocks of transformers, with all their steps.

use flashcliff_network::Rows;
use flashcliff_network::tokens::{Draw, Geometry};

use crate::blocks::{Block, blocks, signature};
use crate::compare::{Case, compare};
use crate::networks::random;
use crate::trials::Tests;

const ROWS: Rows = Rows::new(9, 5);

/// Blocks of published networks with each of their parts, and one over space.
pub(crate) fn published(gatr: Block, lgatr: Block) -> [(&'static str, Block); 6] {
    let shared = |own| Block {
        shared: true,
        ..own
    };
    let rotary = Block {
        rotary: true,
        ..gatr
    };
    let extra = Block {
        extra: true,
        ..lgatr
    };
    [
        ("gatr_with_shared_keys", shared(gatr)),
        ("gatr_with_positions", rotary),
        ("lgatr", lgatr),
        ("lgatr_with_shared_keys", shared(lgatr)),
        ("lgatr_with_channels_again", extra),
        ("space", Block::of(Geometry::of(signature(3, 0, 0)))),
    ]
}

pub(crate) fn add(tests: &mut Tests) {
    let gatr = Block::of(Geometry::gatr().unwrap());
    let lgatr = Block::of(Geometry::lgatr_2().unwrap());
    let conformal = Block::of(Geometry::of(signature(4, 1, 0)));
    let of = published(gatr, lgatr).into_iter();
    for (name, own) in of.chain([("gatr", gatr), ("conformal", conformal)]) {
        tests.add(format!("transformers::{name}"), move || {
            compare(name, &case(own, ROWS));
        });
        tests.add(format!("transformers::{name}::dropout"), move || {
            let own = Block {
                dropout: Some(0.3),
                ..own
            };
            let mut case = case(own, ROWS);
            case.draw = Some(Draw { key: 7, step: 2 });
            compare(name, &case);
        });
        tests.add(format!("transformers::{name}::ragged"), move || {
            let rows = Rows::new(1, 19);
            let mut case = case(own, rows);
            case.sequences = Some([vec![0, 3, 4, 4, 9, 19], Vec::new()]);
            compare(name, &case);
        });
        if !own.extra {
            tests.add(format!("transformers::{name}::masked"), move || {
                compare(name, &masked(own));
            });
        }
    }
}

/// A block on rows, with gradients by its tokens.
pub(crate) fn case(own: Block, rows: Rows) -> Case {
    let made = blocks(own);
    let (x, ends) = (made.network.inputs()[0], [made.output, made.seed]);
    let mut case = Case::new(made.network, ends, rows);
    case.by = vec![x];
    case
}

/// The case with a mask that hides some items, and hides all items from the items of the first sample.
fn masked(own: Block) -> Case {
    let own = Block {
        masked: true,
        ..own
    };
    let mut case = case(own, ROWS);
    // The mask comes after the tokens and the reference.
    let mask = case.network.inputs()[2];
    let mut numbers = random(ROWS.count(), 5);
    for (at, number) in numbers.iter_mut().enumerate() {
        if at % 3 == 1 || at < ROWS.items {
            *number = f64::NEG_INFINITY;
        }
    }
    case.given = Some((mask, numbers));
    case.by.push(mask);
    case
}
