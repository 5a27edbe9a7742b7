//! Gradients of gradients of steps on tokens: the gradient of a network by its tokens is the result, which has gradients by all.

use flashcliff_network::tokens::{Attention, Channels, Draw, Geometry, Step};
use flashcliff_network::{Axis, Keep, Network, Rows, Value};

use crate::blocks::{Block, Made, blocks, signature};
use crate::compare::{Case, compare_order, compare_second};
use crate::networks::random;
use crate::slim::{self, To, blocks_to};
use crate::transformers::published;
use crate::trials::Tests;

const ROWS: Rows = Rows::new(4, 5);

pub(crate) fn add(tests: &mut Tests) {
    let lgatr = Block::of(Geometry::lgatr_2().unwrap());
    let gatr = Block::of(Geometry::gatr().unwrap());
    for (name, own) in published(gatr, lgatr) {
        tests.add(format!("second::{name}"), move || {
            compare_second(name, &case(blocks(own), ROWS, &[]));
        });
        tests.add(format!("second::{name}::dropout"), move || {
            let own = Block {
                dropout: Some(0.3),
                ..own
            };
            let mut case = case(blocks(own), ROWS, &[]);
            case.draw = Some(Draw { key: 7, step: 2 });
            compare_second(name, &case);
        });
        tests.add(format!("second::{name}::ragged"), move || {
            let mut case = case(blocks(own), Rows::new(1, 19), &[]);
            case.sequences = Some([vec![0, 3, 4, 4, 9, 19], Vec::new()]);
            compare_second(name, &case);
        });
        if !own.extra {
            tests.add(format!("second::{name}::masked"), move || {
                compare_second(name, &masked(own));
            });
        }
    }
    tests.add("second::lgatr::parameters", move || {
        compare_second("parameters", &of_a_parameter(blocks(lgatr)));
    });
    for (name, to) in [
        ("items", To::Items),
        ("masked_items", To::MaskedItems),
        ("context", To::Context),
    ] {
        tests.add(format!("second::slim::{name}"), move || {
            let rows = Rows::new(5, 6).with_context(4);
            compare_second(name, &case(blocks_to(to), rows, &[]));
        });
    }
    let geometries = [
        ("lgatr", Geometry::lgatr_2().unwrap()),
        ("slim", slim::geometry()),
        ("plane", Geometry::of(signature(2, 0, 0))),
        ("gatr", Geometry::gatr().unwrap()),
    ];
    for (name, geometry) in geometries {
        for shared in [false, true] {
            let name = format!("second::attention_to_context::{name}::{shared}");
            tests.add(name.clone(), move || {
                let rows = Rows::new(3, 70).with_context(5);
                compare_second(
                    &name,
                    &case(to_context(geometry, shared), rows, &["context"]),
                );
            });
        }
    }
}

/// Gradients of orders above the second, of attention and of blocks. Kernels of attention have no norms and distances at
/// once; derivatives of attention do.
pub(crate) fn add_orders(tests: &mut Tests) {
    let normed = Geometry {
        head_norm: true,
        ..Geometry::gatr().unwrap()
    };
    let geometries = [
        ("lgatr", Geometry::lgatr_2().unwrap()),
        ("slim", slim::geometry()),
        ("plane", Geometry::of(signature(2, 0, 0))),
        ("gatr", Geometry::gatr().unwrap()),
        ("gatr_with_norms", normed),
    ];
    for (name, geometry) in geometries {
        for order in [3, 4] {
            let name = format!("second::attention_to_context::{name}::order_{order}");
            tests.add(name.clone(), move || {
                let rows = Rows::new(2, 7).with_context(5);
                let made = to_context(geometry, false);
                compare_order(&name, &of_order(order, made, rows), order);
            });
        }
    }
    // Products and joins of GATr read 21 tensors then.
    for geometry in [Geometry::gatr().unwrap(), Geometry::lgatr_2().unwrap()] {
        let name = format!("second::blocks::join_{}::order_3", geometry.join);
        tests.add(name.clone(), move || {
            let made = blocks(Block::of(geometry));
            compare_order(&name, &of_order(3, made, Rows::new(2, 5)), 3);
        });
    }
}

/// The gradient by the first input, along a change of it, has gradients by that input, by others with names, by the
/// seed and by all parameters.
fn case(made: Made, rows: Rows, others: &[&str]) -> Case {
    let Made {
        mut network,
        output,
        seed,
    } = made;
    let x = network.inputs()[0];
    let first = network.gradients_by(output, seed, &[x], Keep::All);
    let case = along(network, first.unwrap()[0].1, rows);
    with(case, &[x, seed], others)
}

/// Gradients of an order: by the first input each, along a further change, and by the context and the seed at last.
fn of_order(order: i32, mut made: Made, rows: Rows) -> Case {
    let x = made.network.inputs()[0];
    for at in 1..order - 1 {
        let pairs = made
            .network
            .gradients_by(made.output, made.seed, &[x], Keep::All);
        made.output = pairs.unwrap()[0].1;
        let axes = made.network.shape(made.output).unwrap().to_vec();
        made.seed = made.network.features(&format!("change {at}"), &axes);
    }
    case(made, rows, &["context"])
}

/// The case of a gradient along a change.
fn along(mut network: Network, first: Value, rows: Rows) -> Case {
    let axes = network.shape(first).unwrap().to_vec();
    let change = network.features("change", &axes);
    Case::new(network, [first, change], rows)
}

fn with(mut case: Case, by: &[Value], others: &[&str]) -> Case {
    let inputs = case.network.inputs().iter().copied();
    let named = inputs.filter(|&own| others.contains(&case.network.name(own)));
    case.by = by.iter().copied().chain(named).collect();
    case
}

/// The gradient by a parameter has gradients: matrices of parameters change.
fn of_a_parameter(made: Made) -> Case {
    let Made {
        mut network,
        output,
        seed,
    } = made;
    let x = network.inputs()[0];
    // A weight, which is a part of what a step reads.
    let weight = network.parameters()[2];
    let first = network.gradients_by(output, seed, &[weight], Keep::All);
    let case = along(network, first.unwrap()[0].1, ROWS);
    with(case, &[x, seed], &[])
}

/// The case with a mask that hides some items, and hides all items from the items of the first sample.
fn masked(own: Block) -> Case {
    let own = Block {
        masked: true,
        ..own
    };
    let mut case = case(blocks(own), ROWS, &["mask"]);
    let mask = *case.by.last().unwrap();
    let mut numbers = random(ROWS.count(), 5);
    for (at, number) in numbers.iter_mut().enumerate() {
        if at % 3 == 1 || at < ROWS.items {
            *number = f64::NEG_INFINITY;
        }
    }
    case.given = Some((mask, numbers));
    case
}

/// Attention of many queries to the context.
fn to_context(geometry: Geometry, shared: bool) -> Made {
    let step = Attention::new(geometry, 3, Channels::new(2, 3), shared).crossing();
    let mut network = Network::new();
    let axes = |rows, channels| {
        let blades = geometry.blades();
        [rows, Axis::Token { blades, channels }]
    };
    let [query, key, value] = step.parts();
    let x = network.input("x", &axes(Axis::Rows, query));
    let context = network.input("context", &axes(Axis::ContextRows, key.and(value)));
    let result = axes(Axis::Rows, step.output());
    let mut inputs = vec![x, context];
    for shape in step.shapes() {
        inputs.push(network.parameter("weights", &shape));
    }
    let output = network.step(Step::Attention(step), &inputs);
    let seed = network.input("seed", &result);
    Made {
        output: output.unwrap(),
        network,
        seed,
    }
}
