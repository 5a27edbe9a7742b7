//! Steps that run together in one kernel, where products may round to TF32.

use flashcliff_network::Rows;
use flashcliff_network::tokens::{Channels, Geometry};

use crate::blocks::{Block, signature};
use crate::compare::compare_values_in_tf32;
use crate::transformers::case;
use crate::trials::Tests;

pub(crate) fn add(tests: &mut Tests) {
    let geometries = [
        ("gatr", Geometry::gatr().unwrap()),
        ("lgatr", Geometry::lgatr_2().unwrap()),
        ("space", Geometry::of(signature(3, 0, 0))),
        ("plane", Geometry::of(signature(2, 0, 0))),
    ];
    // Pairs of units and single ones; rows that are not whole tiles, and more tiles than multiprocessors.
    let sizes = [
        (Channels::new(8, 8), Rows::new(150, 31)),
        (Channels::new(8, 16), Rows::new(3, 1)),
        (Channels::new(24, 8), Rows::new(1, 33)),
        (Channels::new(16, 32), Rows::new(7, 9)),
    ];
    for (name, geometry) in geometries {
        for (channels, rows) in sizes {
            let title = format!("{name}_{}_{}", channels.multivectors, channels.scalars);
            tests.add(format!("chains::{title}"), move || {
                let own = Block {
                    channels,
                    ..Block::of(geometry)
                };
                let busy = compare_values_in_tf32(&title, &case(own, rows));
                // Of all maps of two blocks, the maps after attention begin chains.
                let maps = busy.iter().filter(|name| *name == "equivariant_linear");
                assert_eq!(maps.count(), 2, "{busy:?}");
            });
        }
        tests.add(format!("chains::{name}::ragged"), move || {
            let own = Block {
                channels: Channels::new(8, 8),
                shared: true,
                ..Block::of(geometry)
            };
            let mut case = case(own, Rows::new(1, 19));
            case.sequences = Some([vec![0, 3, 4, 4, 9, 19], Vec::new()]);
            compare_values_in_tf32(name, &case);
        });
    }
}
