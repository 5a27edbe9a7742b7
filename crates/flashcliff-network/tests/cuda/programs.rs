//! Operators of users' programs with parameters, beside scalars and numbers of rows: kernels for rows of several widths
//! add up the gradients of parameters themselves.

use flashcliff::program::{Program, Width};
use flashcliff::{Operator, ProgramOptions};
use flashcliff_network::{Network, Rows};

use crate::blocks::signature;
use crate::compare::{Case, compare};
use crate::networks::{axes, values_of};
use crate::trials::Tests;

/// Channels, and scalar channels.
const CHANNELS: [usize; 2] = [5, 3];

/// The second factor of the lanes of a row.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nothing,
    RowValue,
    /// A number of the row by which its lanes are divided.
    Divisor,
    /// A divisor, and the result is one number for each row.
    Total,
    Scalars,
}

pub(crate) fn add(tests: &mut Tests) {
    for beside in [
        Beside::Nothing,
        Beside::RowValue,
        Beside::Divisor,
        Beside::Total,
        Beside::Scalars,
    ] {
        tests.add(format!("programs::{beside:?}").to_lowercase(), move || {
            weighted(beside);
        });
    }
}

/// `o = w x r`, where `r` is one, a number of the row or the inverse of one, or the sum of its scalars; or the sum of `o` over a row.
fn weighted(beside: Beside) {
    let one = || vec!["1".to_owned()];
    let mut p = Program::new("weighted", "o = w x r");
    let x = p.input("x", one())[0];
    let r = match beside {
        Beside::Nothing => p.graph.constant(1.0),
        Beside::RowValue => p.row_value("r"),
        Beside::Divisor | Beside::Total => {
            let (one, r) = (p.graph.constant(1.0), p.row_value("r"));
            p.graph.div(one, r)
        }
        Beside::Scalars => {
            let s = p.input_of(Width::Scalars, "s", one())[0];
            p.row_sum(s)
        }
    };
    let w = p.param("w", 1)[0];
    let scaled = p.graph.mul(w, x);
    let o = p.graph.mul(scaled, r);
    match beside {
        Beside::Total => p.total("o", [Some(o), None]),
        _ => p.output("o", one(), vec![o]),
    }
    let operator = Operator::of(signature(2, 0, 0), &p, &ProgramOptions::default()).unwrap();

    let mut network = Network::new();
    let inputs = values_of(&mut network, &operator, CHANNELS);
    let by = network.inputs().to_vec();
    let o = network.operator(&operator, &inputs).unwrap();
    let seed = network.features("seed", &axes(&operator.output().dims, CHANNELS));
    let mut case = Case::new(network, [o, seed], Rows::new(7, 6));
    case.by = by;
    compare(&format!("{beside:?}"), &case);
}
