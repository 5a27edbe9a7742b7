//! Gradients of the third order and more of steps on tokens and of blocks, beside differences of the order before.

use flashcliff_network::tokens::{Channels, Geometry, Lanes, Linear, NormOptions, Step};
use flashcliff_network::{Axis, Keep, Network, Rows, Scales, Value};

use crate::blocks::{self, Block, Made};
use crate::runs::{Differences, F64, given, run};
use crate::second::{Reads, attention, gatr, geometries, like, made, token};

/// Norms, gates, products and linear maps have derivatives of the third order.
#[test]
fn orders_follow_where_there_is_no_attention() {
    let channels = Channels::new(2, 3);
    let geometry = Geometry::lgatr_2().unwrap();
    let mut network = Network::new();
    let axes = [Axis::Rows, token(geometry, channels)];
    let x = network.input("x", &axes);
    let step = Lanes::norm(geometry, channels, NormOptions::default()).unwrap();
    let normed = network.step(Step::Lanes(step), &[x]).unwrap();
    let step = Linear::new(geometry, channels, vec![channels]).unwrap();
    let mixed = blocks::linear(&mut network, step, normed);
    let step = Lanes::gated(geometry, channels, geometry.gates()).unwrap();
    let output = network.step(Step::Lanes(step), &[mixed]).unwrap();
    let seed = network.input("seed", &axes);
    let made = Made {
        network,
        output,
        seed,
    };
    assert_third(made, Rows::new(2, 1), "");
}

/// The third gradients of what was made, by all inputs but one with a name, are beside differences of the second.
fn assert_third(mut made: Made, rows: Rows, without: &str) {
    for order in 2..4 {
        made = once_more(made, order).unwrap();
    }
    assert_once(&made.network, [made.output, made.seed], rows, without);
}

/// The gradients of a value along a seed, by all that it depends on but an input with a name, are beside differences.
fn assert_once(network: &Network, ends: [Value; 2], rows: Rows, without: &str) {
    let mut all = [network.inputs(), network.parameters()].concat();
    all.retain(|&own| network.name(own) != without);
    let mut whole = network.clone();
    let pairs = whole.gradients_by(ends[0], ends[1], &all, Keep::All);
    let (by, gradients): (Vec<Value>, Vec<Value>) = pairs.unwrap().into_iter().unzip();
    let mut numbers = given(network, rows);
    let plan = whole.plan(&gradients, rows, F64).unwrap();
    let found = run(&plan, [&numbers[0], &numbers[1]], Scales::default());
    // Differences round by the largest numbers.
    let largest = found
        .iter()
        .flatten()
        .fold(1.0_f64, |most, own| most.max(own.abs()));
    let how = Differences {
        bound: 1e-6 * largest,
        ..Differences::of(3)
    };
    let of = (ends, &by[..], Keep::All);
    how.assert_gradients(network, of, rows, &mut numbers, Scales::default());
}

/// The gradient of what was made by its first input, along a further input.
fn once_more(mut made: Made, order: usize) -> Result<Made, flashcliff_network::Error> {
    let x = made.network.inputs()[0];
    let axes = like(&made.network, x);
    let pairs = made
        .network
        .gradients_from(&[(made.output, made.seed)], &[x], Keep::All)?;
    made.output = pairs[0].1;
    made.seed = made.network.features(&format!("order {order}"), &axes);
    Ok(made)
}

/// Third and fourth gradients are beside differences of the order before. A step has no room for more.
#[test]
fn attention_has_gradients_of_four_orders() {
    let masked = Reads {
        masked: true,
        crossing: true,
        ..Reads::default()
    };
    for geometry in geometries() {
        for own in [Reads::default(), masked] {
            let rows = Rows::new(1, 3).with_context(if own.crossing { 4 } else { 0 });
            let mut made = attention(geometry, 2, own);
            for order in 2..5 {
                made = once_more(made, order).unwrap();
                if order > 2 || !own.masked {
                    assert_once(&made.network, [made.output, made.seed], rows, "mask");
                }
            }
            let fourth = once_more(made, 5).unwrap();
            let text = once_more(fourth, 6).err().map(|error| error.to_string());
            let text = text.unwrap_or_default();
            assert!(text.contains("has no gradient here"), "{text}");
        }
    }
}

/// Products and joins read four factors, a number of each token and the changes of both: 21 tensors in the third order.
#[test]
fn products_have_gradients_of_three_orders() {
    for geometry in [gatr(), Geometry::lgatr_2().unwrap()] {
        let products = Lanes::products(geometry, 2, 3).unwrap();
        let reference = [("reference", vec![Axis::Rows])];
        let others = if geometry.join { &reference[..] } else { &[] };
        let own = made(Step::Lanes(products), others, &[]);
        assert_third(own, Rows::new(2, 2), "");
    }
}

#[test]
fn blocks_have_gradients_of_three_orders() {
    for geometry in [gatr(), Geometry::lgatr_2().unwrap()] {
        assert_third(blocks::blocks(Block::of(geometry)), Rows::new(1, 3), "mask");
    }
}
