//! Gradients of gradients beside differences: forces, and losses of forces.

use flashcliff_network::{Axis, Keep, Network, Plan, Scales, Value};

use crate::graphs::{potential, relations, rows};
use crate::networks::{self, BLADES, CHANNELS, embedded, map, numbers, square};
use crate::runs::{Differences, F64, dot, given, run};

/// Results of a network on graphs.
fn on_graphs(plan: &Plan, numbers: [&[Vec<f64>]; 2]) -> Vec<Vec<f64>> {
    let scales = Scales {
        relations: &relations(),
        ..Scales::default()
    };
    run(plan, numbers, scales)
}

/// The loss of energies and forces, and the gradients of all parameters: plans of these and of energies and forces alone.
struct Trained {
    network: Network,
    loss: Plan,
    forces: Plan,
}

fn trained(keep: Keep) -> Trained {
    let mut network = Network::new();
    let [positions, energy] = potential(&mut network);
    let shape_of = |network: &Network, value| network.shape(value).unwrap().to_vec();
    let one = shape_of(&network, energy);
    let one = network.features("one", &one);
    let force = network.gradients_by(energy, one, &[positions], keep);
    let force = force.unwrap()[0].1;
    let targets = [energy, force].map(|value| {
        let axes = shape_of(&network, value);
        network.input(&format!("target of {value:?}"), &axes)
    });
    let [of_energy, by_energy] = network.squared_error(energy, targets[0]).unwrap();
    let [of_force, by_force] = network.squared_error(force, targets[1]).unwrap();
    let parameters = network.parameters().to_vec();
    let seeds = [(energy, by_energy), (force, by_force)];
    let pairs = network.gradients_from(&seeds, &parameters, keep).unwrap();
    assert_eq!(pairs.len(), parameters.len());
    let mut outputs = vec![of_energy, of_force];
    outputs.extend(pairs.iter().map(|&(_, gradient)| gradient));
    Trained {
        loss: network.plan(&outputs, rows(), F64).unwrap(),
        forces: network.plan(&[energy, force], rows(), F64).unwrap(),
        network,
    }
}

impl Trained {
    fn numbers(&self) -> [Vec<Vec<f64>>; 2] {
        let mut inputs = numbers(&self.network, self.network.inputs(), rows(), 3);
        inputs[1].fill(1.0);
        [
            inputs,
            numbers(&self.network, self.network.parameters(), rows(), 21),
        ]
    }
}

/// Every element.
const HOW: Differences = Differences {
    step: 1e-3,
    ..Differences::of(usize::MAX)
};

/// Each element of forces is a difference of energies, and each gradient of the loss of forces a difference of that loss.
#[test]
fn losses_of_forces_have_the_gradients_of_differences() {
    let trained = trained(Keep::All);
    let mut numbers = trained.numbers();
    let forces = on_graphs(&trained.forces, [&numbers[0], &numbers[1]]);
    HOW.assert(&mut numbers, [([0, 0], &forces[1])], |numbers| {
        on_graphs(&trained.forces, numbers)[0].iter().sum()
    });
    let gradients = on_graphs(&trained.loss, [&numbers[0], &numbers[1]]);
    let of_parameters = gradients[2..].iter().enumerate();
    let of_parameters = of_parameters.map(|(at, gradient)| ([1, at], gradient));
    HOW.assert(&mut numbers, of_parameters, |numbers| {
        let got = on_graphs(&trained.loss, numbers);
        got[0][0] + got[1][0]
    });
}

/// Energies do not change and forces turn when all positions turn, by a quarter of a turn whose products are exact.
#[test]
fn forces_turn_with_positions() {
    let trained = trained(Keep::All);
    let [mut inputs, parameters] = trained.numbers();
    let [energy, force] = on_graphs(&trained.forces, [&inputs, &parameters])
        .try_into()
        .unwrap();
    let turn = |points: &[f64]| -> Vec<f64> {
        let points = points.chunks_exact(3);
        points.flat_map(|p| [-p[1], p[0], p[2]]).collect()
    };
    inputs[0] = turn(&inputs[0]);
    let turned = on_graphs(&trained.forces, [&inputs, &parameters]);
    let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(near(&turned[0], &energy), "{turned:?} {energy:?}");
    assert!(near(&turned[1], &turn(&force)), "{turned:?} {force:?}");
    assert!(!near(&turned[1], &force));
}

/// Gradients that are added where they lie get separate sums before they are differentiated, and runs of a plan give
/// the same bits.
#[test]
fn what_is_differentiated_again_keeps_its_values() {
    let trained = [Keep::All, Keep::BetweenBlocks].map(trained);
    let [all, less] = trained.map(|trained| {
        let [inputs, parameters] = trained.numbers();
        let run = || on_graphs(&trained.loss, [&inputs, &parameters]);
        assert_eq!(run(), run());
        run()
    });
    assert_eq!(all, less);
}

/// The gradient by inputs of a network with all nodes, whose weights get gradients of that: of the third order too.
#[test]
fn orders_follow_each_other() {
    let mut network = Network::new();
    let [points, _] = networks::ends(&mut network);
    let weight = network.parameter("weight", &[CHANNELS, CHANNELS]);
    let x = embedded(&mut network, points);
    let x = map(&mut network, x, weight);
    let x = square(&mut network, x);
    let x = map(&mut network, x, weight);
    let y = square(&mut network, x);
    let seed = network.features(
        "seed",
        &[Axis::Fixed(BLADES), Axis::Rows, Axis::Fixed(CHANNELS)],
    );
    let first = network.gradients_by(y, seed, &[points], Keep::All).unwrap()[0].1;
    let along = ["second", "third"].map(|name| {
        let axes = network.shape(points).unwrap().to_vec();
        network.features(name, &axes)
    });
    let second = network.gradients_from(&[(first, along[0])], &[points], Keep::All);
    let second = second.unwrap()[0].1;
    let third = network.gradients_from(&[(second, along[1])], &[points], Keep::All);
    let third = third.unwrap()[0].1;
    let plan = |outputs: &[Value]| network.plan(outputs, 2, F64).unwrap();
    let (of_second, of_third) = (plan(&[second]), plan(&[third]));
    let mut numbers = given(&network, 2);
    let third = run(&of_third, [&numbers[0], &numbers[1]], Scales::default());
    HOW.assert(&mut numbers, [([0, 0], &third[0])], |numbers| {
        let second = run(&of_second, numbers, Scales::default());
        dot(&second[0], numbers[0].last().unwrap())
    });
}
