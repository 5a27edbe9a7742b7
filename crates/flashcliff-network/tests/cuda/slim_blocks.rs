//! Steps and blocks of L-GATr-slim.

use flashcliff_network::Rows;
use flashcliff_network::tokens::{Draw, Dropout, Lanes, Step};

use crate::compare::{Case, compare};
use crate::slim::{self, CHANNELS, To, blocks_to};
use crate::steps;
use crate::trials::Tests;

const ROWS: Rows = Rows::new(7, 6).with_context(4);

pub(crate) fn add(tests: &mut Tests) {
    let name = "slim::steps";
    tests.add(format!("{name}::linear"), || {
        steps::linear("slim linear", slim::geometry());
    });
    tests.add(format!("{name}::linear_without_zeros"), || {
        steps::linear_without_zeros("slim linear", slim::geometry());
    });
    tests.add(format!("{name}::attention"), || {
        steps::attention("slim attention", slim::geometry());
    });
    tests.add(format!("{name}::attention_to_context"), || {
        steps::to_context("slim attention to a context", slim::geometry());
    });
    tests.add(format!("{name}::frames"), || {
        steps::frames("slim frames", slim::geometry());
    });
    tests.add(format!("{name}::components"), || {
        steps::components("slim components", slim::geometry());
    });
    tests.add(format!("{name}::norm"), norm);
    tests.add(format!("{name}::glu"), glu);
    tests.add(format!("{name}::dropout"), dropout);
    for (name, to) in [
        ("items", To::Items),
        ("masked_items", To::MaskedItems),
        ("context", To::Context),
    ] {
        tests.add(format!("slim::blocks::{name}"), move || blocks(name, to));
    }
}

fn lanes(name: &str, step: Lanes, gains: &[Vec<usize>]) {
    for rows in [ROWS, Rows::new(1, 1), Rows::new(1103, 1)] {
        let step = Step::Lanes(step.clone());
        let case = steps::of_step(slim::geometry(), step, rows, gains);
        compare(&format!("{name}, {rows:?}"), &case);
    }
}

fn norm() {
    let gains = [vec![CHANNELS.multivectors, 1], vec![CHANNELS.scalars, 1]];
    lanes("slim norm", slim::lanes(slim::norm(), CHANNELS), &gains);
}

fn glu() {
    lanes("slim glu", slim::lanes(slim::glu(), CHANNELS), &[]);
}

fn dropout() {
    let step = Dropout::new(slim::geometry(), CHANNELS, 0.3, &[4]).unwrap();
    let mut case = steps::of_step(slim::geometry(), Step::Dropout(step), ROWS, &[]);
    case.draw = Some(Draw { key: 5, step: 2 });
    compare("slim dropout", &case);
}

fn blocks(name: &str, to: To) {
    let made = blocks_to(to);
    let mut case = Case::new(made.network, [made.output, made.seed], ROWS);
    case.by = vec![case.network.inputs()[0]];
    compare(&format!("slim blocks, {name}"), &case);
}
