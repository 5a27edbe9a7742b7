//! Plans in stages: a network, and its gradients later or never.

use flashcliff::ops::{self, LinearOptions};
use flashcliff::{Bias, Dtype, GradeSet};
use flashcliff_network::{
    Axis, Cpu, Error, Keep, Kept, LaterSlices, Network, Plan, Room, Scales, Slices, Value,
};

use crate::networks::{self, BLADES, CHANNELS, numbers, slices};
use crate::runs::{self, F64};

const ROWS: usize = 3;

/// A network with an input for the gradient of its result, and nodes for gradients by some values.
struct Halves {
    network: Network,
    result: Value,
    gradients: Vec<Value>,
}

impl Halves {
    fn new(network: &Network, result: Value, by: &[Value], keep: Keep) -> Self {
        let mut network = network.clone();
        let shape = network.shape(result).unwrap().to_vec();
        let seed = network.features("seed", &shape);
        let pairs = network.gradients_by(result, seed, by, keep).unwrap();
        assert!(pairs.iter().map(|(own, _)| own).eq(by));
        Self {
            network,
            result,
            gradients: pairs.into_iter().map(|(_, gradient)| gradient).collect(),
        }
    }

    fn plan(&self) -> Plan {
        let stages: [&[Value]; 2] = [&[self.result], &self.gradients];
        self.network.plan_stages(&stages, ROWS, F64).unwrap()
    }

    /// The result and the gradients in one run of all.
    fn at_once(&self, numbers: &Numbers) -> Vec<Vec<f64>> {
        let outputs = [&[self.result], &self.gradients[..]].concat();
        let plan = self.network.plan(&outputs, ROWS, F64).unwrap();
        let numbers = [&numbers.inputs[..], &numbers.parameters];
        runs::run(&plan, numbers, Scales::default())
    }
}

/// Numbers for the inputs of a network, the seed among them as the last one, and for its parameters.
#[derive(Clone)]
struct Numbers {
    inputs: Vec<Vec<f64>>,
    parameters: Vec<Vec<f64>>,
}

impl Numbers {
    fn of(network: &Network, seed: u64) -> Self {
        Self {
            inputs: numbers(network, network.inputs(), ROWS, seed),
            parameters: numbers(network, network.parameters(), ROWS, seed + 10),
        }
    }
}

/// A network after its first stage.
struct Begun {
    numbers: Numbers,
    kept: Vec<f64>,
    result: Vec<f64>,
}

/// Memory with numbers that a run must replace.
fn dirty(len: usize) -> Vec<f64> {
    vec![f64::NAN; len]
}

fn outputs_of(plan: &Plan) -> Vec<Vec<f64>> {
    runs::room(plan).split_off(1)
}

/// Runs the first stage without the seed.
fn begin(plan: &Plan, numbers: Numbers) -> Begun {
    let [kept, arena, workspace] = plan.room::<f64>(0);
    let (mut kept, mut arena, mut workspace) = (dirty(kept), dirty(arena), dirty(workspace));
    let mut result = runs::room(plan).swap_remove(0);
    let inputs = slices(&numbers.inputs);
    let sources = Slices {
        inputs: &inputs[..inputs.len() - 1],
        parameters: &slices(&numbers.parameters),
    };
    let room = Room {
        kept: Kept::Written(&mut kept),
        arena: &mut arena,
        workspace: &mut workspace,
    };
    let done = plan.run_stage(
        0,
        &sources,
        (&mut [&mut result], room),
        Scales::default(),
        &mut |_| {},
    );
    done.unwrap();
    Begun {
        numbers,
        kept,
        result,
    }
}

/// Runs the second stage.
fn end(plan: &Plan, begun: &Begun) -> Vec<Vec<f64>> {
    let [_, arena, workspace] = plan.room::<f64>(1);
    let (mut arena, mut workspace) = (dirty(arena), dirty(workspace));
    let mut gradients = outputs_of(plan);
    let mut lent: Vec<&mut [f64]> = gradients.iter_mut().map(Vec::as_mut_slice).collect();
    let sources = LaterSlices {
        slices: Slices {
            inputs: &slices(&begun.numbers.inputs),
            parameters: &slices(&begun.numbers.parameters),
        },
        outputs: &[&begun.result],
    };
    let room = Room {
        kept: Kept::Read(&begun.kept),
        arena: &mut arena,
        workspace: &mut workspace,
    };
    plan.run_stage(
        1,
        &sources,
        (&mut lent, room),
        Scales::default(),
        &mut |_| {},
    )
    .unwrap();
    gradients
}

/// The input of points and all parameters of a network.
fn all(network: &Network) -> Vec<Value> {
    [&network.inputs()[..1], network.parameters()].concat()
}

/// `gradients` compares the gradients of one run of this network with differences.
#[test]
fn stages_give_the_bits_of_one_run() {
    let (network, [result, _]) = networks::of_all_nodes();
    for keep in [Keep::All, Keep::BetweenBlocks] {
        let halves = Halves::new(&network, result, &all(&network), keep);
        let numbers = Numbers::of(&halves.network, 1);
        let expected = halves.at_once(&numbers);
        let plan = halves.plan();
        let begun = begin(&plan, numbers);
        assert_eq!(begun.result, expected[0], "{keep:?}");
        // As often as a host wants.
        for _ in 0..2 {
            assert_eq!(end(&plan, &begun), expected[1..], "{keep:?}");
        }
    }
}

#[test]
fn a_second_run_before_the_gradients_does_not_disturb_them() {
    let (network, [result, _]) = networks::of_all_nodes();
    let halves = Halves::new(&network, result, &all(&network), Keep::All);
    let plan = halves.plan();
    let [first, second] = [1, 100].map(|seed| Numbers::of(&halves.network, seed));
    let expected = [&first, &second].map(|numbers| halves.at_once(numbers));
    assert_ne!(expected[0], expected[1]);
    let begun = [first, second].map(|numbers| begin(&plan, numbers));
    for (begun, expected) in begun.iter().zip(&expected) {
        assert_eq!(end(&plan, begun), expected[1..]);
    }
}

/// Each gradient alone is the one among all, from fewer calls and not more memory.
#[test]
fn gradients_that_are_not_wanted_have_no_call() {
    let (network, [result, _]) = networks::of_all_nodes();
    let every = all(&network);
    let halves = Halves::new(&network, result, &every, Keep::All);
    let plan = halves.plan();
    let numbers = Numbers::of(&halves.network, 1);
    let expected = end(&plan, &begin(&plan, numbers.clone()));
    for (at, &own) in every.iter().enumerate() {
        let alone = Halves::new(&network, result, &[own], Keep::All).plan();
        assert!(alone.calls(1).len() < plan.calls(1).len());
        assert!(alone.kept_bytes() <= plan.kept_bytes());
        let got = end(&alone, &begin(&alone, numbers.clone()));
        assert_eq!(got, expected[at..=at], "{}", network.name(own));
    }
    // The last parameter is at the end of the network: its gradient needs one value, and one call.
    let last = Halves::new(&network, result, &every[every.len() - 1..], Keep::All).plan();
    assert_eq!(last.calls(1).len(), 1);
    assert!(4 * last.kept_bytes() < plan.kept_bytes());
    let none = Halves::new(&network, result, &[], Keep::All).plan();
    assert_eq!((none.calls(1).len(), none.kept_bytes()), (0, 0));
}

/// A map of points to scalars and vectors, in the memory of the full algebra, which is the result.
fn embedding() -> (Network, Value) {
    let mut network = Network::new();
    let [points, _] = networks::ends(&mut network);
    let options = LinearOptions::default()
        .with_per_grade(false)
        .with_bias(Bias::Scalar)
        .with_grades(GradeSet::of(&[0, 1]));
    let linear = ops::mv_linear(networks::space(), &options).unwrap();
    let weight = network.parameter("weight", &[CHANNELS, CHANNELS]);
    let bias = network.parameter("bias", &[CHANNELS]);
    let x = network.points(points).unwrap();
    let x = network.operator(&linear, &[x, weight, bias]).unwrap();
    let x = network.extend_blades(x, BLADES).unwrap();
    (network, x)
}

/// The gradient reads the first blades of the seed and of the result, both in memory of the host.
#[test]
fn further_blades_of_a_result_are_zeros_and_have_no_gradient() {
    let (network, result) = embedding();
    let halves = Halves::new(&network, result, &all(&network), Keep::All);
    let plan = halves.plan();
    let numbers = Numbers::of(&halves.network, 1);
    let begun = begin(&plan, numbers);
    let blade = ROWS * CHANNELS;
    assert!(begun.result[4 * blade..].iter().all(|&x| x == 0.0));
    let gradients = end(&plan, &begun);
    let (weight, seed) = (&begun.numbers.parameters[0], &begun.numbers.inputs[2]);
    for (at, got) in gradients[0].iter().enumerate() {
        let [row, point, axis] = [at / 3 / CHANNELS, at / 3 % CHANNELS, at % 3];
        let expected: f64 = (0..CHANNELS)
            .map(|out| {
                let g = seed[(1 + axis) * blade + row * CHANNELS + out];
                weight[out * CHANNELS + point] * g
            })
            .sum();
        assert!((got - expected).abs() < 1e-14, "{at}: {got}, {expected}");
    }
    for (channel, got) in gradients[2].iter().enumerate() {
        let expected: f64 = (0..ROWS).map(|row| seed[row * CHANNELS + channel]).sum();
        assert!((got - expected).abs() < 1e-14);
    }
}

/// Inputs of features, the result and its gradients have the type of the features; parameters and their gradients that of the model.
#[test]
fn features_have_their_type_from_end_to_end() {
    let mut network = Network::new();
    let shape = [Axis::Fixed(BLADES), Axis::Rows, Axis::Fixed(CHANNELS)];
    let x = network.features("x", &shape);
    let weight = network.parameter("weight", &[CHANNELS, CHANNELS]);
    let y = networks::map(&mut network, x, weight);
    let y = networks::square(&mut network, y);
    let halves = Halves::new(&network, y, &[x, weight], Keep::All);
    let stages: [&[Value]; 2] = [&[y], &halves.gradients];
    let types = [Dtype::Bf16, Dtype::F32];
    let plan = halves.network.plan_stages(&stages, ROWS, types).unwrap();
    let dtype = |value| plan.tensor(value).unwrap().1;
    let seed = halves.network.inputs()[1];
    for value in [x, y, seed, halves.gradients[0]] {
        assert_eq!(dtype(value), Dtype::Bf16, "{}", halves.network.name(value));
    }
    for value in [weight, halves.gradients[1]] {
        assert_eq!(dtype(value), Dtype::F32, "{}", halves.network.name(value));
    }
}

fn text<T>(refused: Result<T, Error>) -> String {
    refused.map(drop).unwrap_err().to_string()
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    let (network, [result, _]) = networks::of_all_nodes();
    let halves = Halves::new(&network, result, &all(&network), Keep::All);
    let plan = halves.plan();
    let begun = begin(&plan, Numbers::of(&halves.network, 1));
    assert!(text(Cpu::<f64>::new(&plan)).contains("for one stage, got one for 2 stages"));
    let whole = halves.network.plan(&[result], ROWS, F64).unwrap();
    let run = |plan: &Plan, stage: usize, short: [usize; 2], kept: bool, outputs: &[&[f64]]| {
        let [own, arena, workspace] = plan.room::<f64>(stage);
        let (mut own, mut arena) = (dirty(own - short[0]), dirty(arena - short[1]));
        let mut workspace = dirty(workspace);
        let mut results = runs::room(plan);
        let results = &mut results[stage.min(1)..];
        let count = if stage == 0 { 1 } else { results.len() };
        let mut results: Vec<&mut [f64]> =
            results[..count].iter_mut().map(Vec::as_mut_slice).collect();
        let sources = LaterSlices {
            slices: Slices {
                inputs: &slices(&begun.numbers.inputs),
                parameters: &slices(&begun.numbers.parameters),
            },
            outputs,
        };
        let kept = match kept {
            true => Kept::Written(&mut own),
            false => Kept::Read(&own),
        };
        let room = Room {
            kept,
            arena: &mut arena,
            workspace: &mut workspace,
        };
        plan.run_stage(
            stage,
            &sources,
            (&mut results, room),
            Scales::default(),
            &mut |_| {},
        )
    };
    let result: &[&[f64]] = &[&begun.result];
    assert!(run(&plan, 0, [0, 0], true, &[]).is_ok());
    assert!(text(run(&plan, 0, [1, 0], true, &[])).contains("kept 0: expected"));
    assert!(text(run(&plan, 1, [0, 1], false, result)).contains("arena 1: expected"));
    let got = text(run(&plan, 0, [0, 0], false, &[]));
    assert!(
        got.contains("expected a plan for memory that is read alone"),
        "{got}"
    );
    let got = text(run(&plan, 1, [0, 0], false, &[]));
    assert!(
        got.contains("output 0: expected 1 elements, got 0"),
        "{got}"
    );
    let short: &[&[f64]] = &[&begun.result[1..]];
    let got = text(run(&plan, 1, [0, 0], false, short));
    assert!(
        got.contains("output 0: expected 3 elements, got 2"),
        "{got}"
    );
    let got = text(run(&whole, 0, [0, 0], true, &[]));
    assert!(
        got.contains("for several stages, got one for one stage"),
        "{got}"
    );
}

#[test]
fn an_output_of_an_earlier_stage_is_refused() {
    let mut network = Network::new();
    let shape = [Axis::Fixed(BLADES), Axis::Rows, Axis::Fixed(CHANNELS)];
    let x = network.input("x", &shape);
    let y = network.scaled_sum([x, x], 1.0).unwrap();
    let z = network.scaled_sum([y, x], 1.0).unwrap();
    let plan = |stages: &[&[Value]]| network.plan_stages(stages, ROWS, F64);
    assert!(plan(&[&[y], &[z]]).is_ok());
    let refused = text(plan(&[&[z], &[y]]));
    let name = network.name(y);
    let expected =
        format!("outputs of stage 1: expected values that no earlier stage computes, got {name}");
    assert_eq!(refused, expected);
}
