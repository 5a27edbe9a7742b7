//! Runs with settled parameters, beside runs without.

use flashcliff_network::messages::Bodies;
use flashcliff_network::tokens::Geometry;
use flashcliff_network::{
    Cpu, Error, Keep, Network, Plan, Rows, Scales, Segments, Settled, Slices, Value,
};

use crate::blocks::{Block, Made, blocks};
use crate::networks::{self, numbers, slices};
use crate::runs::{self, F64, given, room, run};
use crate::slim::{To, blocks_to};

fn settled(plan: &Plan, parameters: &[Vec<f64>]) -> Settled<f64> {
    let sources = Slices {
        inputs: &[],
        parameters: &slices(parameters),
    };
    Settled::new(plan, &sources).unwrap()
}

fn run_settled(
    plan: &Plan,
    own: &Settled<f64>,
    numbers: [&[Vec<f64>]; 2],
    scales: Scales<'_>,
) -> Result<Vec<Vec<f64>>, Error> {
    let mut outputs = room(plan);
    let [inputs, parameters] = numbers.map(slices);
    let sources = Slices {
        inputs: &inputs,
        parameters: &parameters,
    };
    let mut memory = Cpu::new(plan)?;
    memory.run_settled(plan, own, &sources, &mut outputs, scales, &mut |_| {})?;
    Ok(outputs)
}

/// Compares runs of a plan, whose chunks may be several. Where steps on tokens read all parameters, the parameters of
/// later calls no longer count.
fn assert_same_bits(network: &Network, outputs: &[Value], rows: Rows, scales: Scales<'_>) {
    let plan = network.plan(outputs, rows, F64).unwrap();
    let [inputs, parameters] = given(network, rows);
    let expected = run(&plan, [&inputs, &parameters], scales);
    let own = settled(&plan, &parameters);
    let got = run_settled(&plan, &own, [&inputs, &parameters], scales).unwrap();
    assert_eq!(got, expected);
    // Inputs do.
    let others = numbers(network, network.inputs(), rows, 5);
    let of_others = run(&plan, [&others, &parameters], scales);
    let got = run_settled(&plan, &own, [&others, &parameters], scales).unwrap();
    assert_eq!(got, of_others);
    assert_ne!(of_others, expected);
}

/// A block with the gradients of the result by its tokens, as forces have them, and by all parameters.
fn with_gradients(made: Made) -> (Network, Vec<Value>) {
    let mut network = made.network;
    let by = [&network.inputs()[..1], network.parameters()].concat();
    let ends = [made.output, made.seed];
    let outputs = runs::with_gradients(&mut network, ends, &by, Keep::All);
    (network, outputs)
}

#[test]
fn transformers_have_the_same_bits() {
    let geometries = [Geometry::gatr().unwrap(), Geometry::lgatr_2().unwrap()];
    let own = geometries.map(|geometry| blocks(Block::of(geometry)));
    for made in own.into_iter().chain([blocks_to(To::Items)]) {
        let (network, outputs) = with_gradients(made);
        for rows in [Rows::new(1, 5), Rows::new(70, 3)] {
            assert_same_bits(&network, &outputs[..1], rows, Scales::default());
            assert_same_bits(&network, &outputs, rows, Scales::default());
        }
    }
}

/// Operators read their parameters where the host has them.
#[test]
fn networks_without_steps_have_the_same_bits() {
    let (network, [prediction, _]) = networks::of_all_nodes();
    assert_same_bits(&network, &[prediction], Rows::from(4), Scales::default());

    let (layers, ends) = Bodies::default().layers().unwrap();
    let ring = [1, 2, 0, 4, 5, 3];
    let relations = [
        Segments::new(&[0, 1, 2, 3, 4, 5], 6).unwrap(),
        Segments::new(&ring, 6).unwrap(),
        Segments::new(&[0, 0, 0, 1, 1, 1], 2).unwrap(),
    ];
    let scales = Scales {
        relations: &relations,
        ..Scales::default()
    };
    let rows = Rows::of_graphs(2, 6, 6);
    assert_same_bits(&layers.network, &[ends.positions], rows, scales);
}

/// A run reads what was settled: weights that the host changes afterwards change nothing.
#[test]
fn weights_stay_as_they_were() {
    let Made {
        network, output, ..
    } = blocks(Block::of(Geometry::lgatr_2().unwrap()));
    let rows = Rows::new(2, 5);
    let plan = network.plan(&[output], rows, F64).unwrap();
    let [inputs, parameters] = given(&network, rows);
    let changed = numbers(&network, network.parameters(), rows, 12);
    let own = settled(&plan, &parameters);
    let expected = run(&plan, [&inputs, &parameters], Scales::default());
    assert_ne!(run(&plan, [&inputs, &changed], Scales::default()), expected);
    let got = run_settled(&plan, &own, [&inputs, &changed], Scales::default());
    assert_eq!(got.unwrap(), expected);
}

#[test]
fn parameters_of_another_plan_or_length_are_refused() {
    let Made {
        network, output, ..
    } = blocks(Block::of(Geometry::lgatr_2().unwrap()));
    let plan = |rows| network.plan(&[output], rows, F64).unwrap();
    let rows = Rows::new(2, 5);
    let [inputs, parameters] = given(&network, rows);
    let own = settled(&plan(rows), &parameters);
    let other = run_settled(&plan(rows), &own, [&inputs, &parameters], Scales::default());
    let error = other.unwrap_err().to_string();
    assert!(error.contains("these settled parameters"), "{error}");

    let short: Vec<&[f64]> = parameters.iter().map(|own| &own[1..]).collect();
    let sources = Slices {
        inputs: &[],
        parameters: &short,
    };
    let error = Settled::new(&plan(rows), &sources).unwrap_err();
    assert!(matches!(error, Error::Length { .. }), "{error}");
    let narrow = Slices::<f32> {
        inputs: &[],
        parameters: &[],
    };
    let error = Settled::new(&plan(rows), &narrow).unwrap_err();
    assert!(matches!(error, Error::OtherPlan { .. }), "{error}");
}
