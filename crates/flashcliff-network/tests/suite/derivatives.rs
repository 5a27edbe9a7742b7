//! Gradients of gradients beside differences: forces, and losses of forces.

use flashcliff::Dtype;
use flashcliff_network::{Axis, Cpu, Keep, Network, Plan, Scales, Segments, Slices, Value};

use crate::graphs::{potential, relations, rows};
use crate::networks::{self, BLADES, CHANNELS, embedded, map, numbers, room, slices, square};

fn run(plan: &Plan, numbers: [&[Vec<f64>]; 2], relations: &[Segments]) -> Vec<Vec<f64>> {
    let mut outputs = room(plan);
    let [inputs, parameters] = numbers.map(slices);
    let sources = Slices {
        inputs: &inputs,
        parameters: &parameters,
    };
    let scales = Scales {
        relations,
        ..Scales::default()
    };
    let mut memory = Cpu::new(plan).unwrap();
    let done = memory.run(plan, &sources, &mut outputs, scales, &mut |_| {});
    done.unwrap();
    outputs
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
        loss: network.plan(&outputs, rows(), [Dtype::F64; 2]).unwrap(),
        forces: network
            .plan(&[energy, force], rows(), [Dtype::F64; 2])
            .unwrap(),
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

fn assert_near(difference: f64, gradient: f64, what: &str) {
    assert!(
        (difference - gradient).abs() < 2e-6 * (1.0 + gradient.abs()),
        "{what}: {difference}, {gradient}"
    );
}

const STEP: f64 = 1e-5;

/// Each element of forces is a difference of energies, and each gradient of the loss of forces a difference of that loss.
#[test]
fn losses_of_forces_have_the_gradients_of_differences() {
    let trained = trained(Keep::All);
    let [mut inputs, mut parameters] = trained.numbers();
    let relations = relations();
    let forces = run(&trained.forces, [&inputs, &parameters], &relations);
    for element in 0..inputs[0].len() {
        let before = inputs[0][element];
        let mut energy = |to: f64| -> f64 {
            inputs[0][element] = to;
            let energies = run(&trained.forces, [&inputs, &parameters], &relations);
            energies[0].iter().sum()
        };
        let difference = (energy(before + STEP) - energy(before - STEP)) / (2.0 * STEP);
        energy(before);
        assert_near(difference, forces[1][element], "force");
    }
    let gradients = run(&trained.loss, [&inputs, &parameters], &relations);
    for at in 0..parameters.len() {
        for element in 0..parameters[at].len() {
            let before = parameters[at][element];
            let mut loss = |to: f64| {
                parameters[at][element] = to;
                let got = run(&trained.loss, [&inputs, &parameters], &relations);
                got[0][0] + got[1][0]
            };
            let difference = (loss(before + STEP) - loss(before - STEP)) / (2.0 * STEP);
            loss(before);
            assert_near(difference, gradients[at + 2][element], "parameter");
        }
    }
}

/// Energies do not change and forces turn when all positions turn, by a quarter of a turn whose products are exact.
#[test]
fn forces_turn_with_positions() {
    let trained = trained(Keep::All);
    let [mut inputs, parameters] = trained.numbers();
    let relations = relations();
    let [energy, force] = run(&trained.forces, [&inputs, &parameters], &relations)
        .try_into()
        .unwrap();
    let turn = |points: &[f64]| -> Vec<f64> {
        let points = points.chunks_exact(3);
        points.flat_map(|p| [-p[1], p[0], p[2]]).collect()
    };
    inputs[0] = turn(&inputs[0]);
    let turned = run(&trained.forces, [&inputs, &parameters], &relations);
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
    let relations = relations();
    let [all, less] = trained.map(|trained| {
        let [inputs, parameters] = trained.numbers();
        let first = run(&trained.loss, [&inputs, &parameters], &relations);
        assert_eq!(
            first,
            run(&trained.loss, [&inputs, &parameters], &relations)
        );
        first
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
    let plan = |outputs: &[Value]| network.plan(outputs, 2, [Dtype::F64; 2]).unwrap();
    let (of_second, of_third) = (plan(&[second]), plan(&[third]));
    let mut inputs = numbers(&network, network.inputs(), 2, 5);
    let parameters = numbers(&network, network.parameters(), 2, 9);
    let third = run(&of_third, [&inputs, &parameters], &[]);
    let (at, last) = (0, inputs.len() - 1);
    for element in 0..inputs[at].len() {
        let before = inputs[at][element];
        let mut along_last = |to: f64| -> f64 {
            inputs[at][element] = to;
            let second = run(&of_second, [&inputs, &parameters], &[]);
            second[0]
                .iter()
                .zip(&inputs[last])
                .map(|(a, b)| a * b)
                .sum()
        };
        let difference = (along_last(before + STEP) - along_last(before - STEP)) / (2.0 * STEP);
        along_last(before);
        assert_near(difference, third[0][element], "third");
    }
    assert!(third[0].iter().any(|&x| x.abs() > 1e-2));
}
