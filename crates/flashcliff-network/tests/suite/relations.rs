//! Messages on graphs: what rows belong to, and sums over what belongs to them.

use flashcliff_network::{
    Axis, Cpu, Error, Keep, Network, Number, Reduction, Relation, Rows, Scales, Segments, Value,
};

use crate::networks::random;
use crate::runs::{F64, assert_near, dot, given, run, run_in, with_gradients};

const REDUCTIONS: [Reduction; 3] = [Reduction::Sum, Reduction::Mean, Reduction::RootCount];
const BLADES: usize = 4;
const NODES: usize = 6;
const CHANNELS: usize = 3;
/// A loop, two equal edges, and nodes 2 and 5 without edges.
const TARGETS: [i64; 7] = [3, 0, 3, 4, 1, 3, 3];

fn shape(rows: Axis) -> [Axis; 3] {
    [Axis::Fixed(BLADES), rows, Axis::Fixed(CHANNELS)]
}

fn network_of(from: Axis, to: Axis) -> (Network, Relation) {
    let mut network = Network::new();
    let relation = network.relation("own", from, to).unwrap();
    (network, relation)
}

/// The results of a network on nodes and edges.
fn on_edges<T: Number>(
    network: &Network,
    outputs: &[Value],
    relations: &[Segments],
    inputs: &[Vec<T>],
) -> Vec<Vec<T>> {
    let rows = Rows::of_graphs(2, NODES, TARGETS.len());
    let plan = network.plan(outputs, rows, [T::DTYPE; 2]).unwrap();
    let scales = Scales {
        relations,
        ..Scales::default()
    };
    run(&plan, [inputs, &[]], scales)
}

/// The result of a network with one relation and one input.
fn result<T: Number>(network: &Network, o: Value, relations: &[Segments], x: &[T]) -> Vec<T> {
    on_edges(network, &[o], relations, &[x.to_vec()]).remove(0)
}

/// Whole numbers, so that sums, differences and products are exact in any order.
fn whole(len: usize, seed: u64) -> Vec<f64> {
    let numbers = random(len, seed);
    numbers.iter().map(|x| (x * 50.0).round()).collect()
}

fn count(target: usize) -> f64 {
    let of = TARGETS.iter().filter(|own| **own == target as i64);
    of.count() as f64
}

fn factor(reduction: Reduction, target: usize) -> f64 {
    match reduction {
        Reduction::Sum => 1.0,
        Reduction::Mean => 1.0 / count(target),
        Reduction::RootCount => count(target).powf(-0.5),
    }
}

/// Sums over edges one by one.
fn expected(reduction: Reduction, x: &[f64]) -> Vec<f64> {
    let mut o = vec![0.0; BLADES * NODES * CHANNELS];
    for blade in 0..BLADES {
        for (edge, &target) in TARGETS.iter().enumerate() {
            let target = target as usize;
            for channel in 0..CHANNELS {
                o[(blade * NODES + target) * CHANNELS + channel] += factor(reduction, target)
                    * x[(blade * TARGETS.len() + edge) * CHANNELS + channel];
            }
        }
    }
    o
}

#[test]
fn sums_are_those_over_edges() {
    let segments = [Segments::new(&TARGETS, NODES).unwrap()];
    let x = random(BLADES * TARGETS.len() * CHANNELS, 3);
    let short: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    for reduction in REDUCTIONS {
        let (mut network, relation) = network_of(Axis::Edges, Axis::Rows);
        let input = network.input("x", &shape(Axis::Edges));
        let o = network.segment_sum(input, relation, reduction).unwrap();
        let expected = expected(reduction, &x);
        assert_near(&result(&network, o, &segments, &x), &expected, 1e-15);
        let got: Vec<f64> = result(&network, o, &segments, &short)
            .into_iter()
            .map(f64::from)
            .collect();
        assert_near(&got, &expected, 1e-6);
        // Of nodes 2 and 5 nothing is known.
        assert!(expected.iter().filter(|sum| **sum == 0.0).count() == 2 * BLADES * CHANNELS);
    }
}

#[test]
fn gathered_rows_are_those_of_targets() {
    let segments = [Segments::new(&TARGETS, NODES).unwrap()];
    let (mut network, relation) = network_of(Axis::Edges, Axis::Rows);
    let input = network.input("x", &shape(Axis::Rows));
    let o = network.gather(input, relation).unwrap();
    let x = random(BLADES * NODES * CHANNELS, 5);
    let got = result(&network, o, &segments, &x);
    for (at, got) in got.chunks_exact(CHANNELS).enumerate() {
        let (blade, edge) = (at / TARGETS.len(), at % TARGETS.len());
        let row = blade * NODES + TARGETS[edge] as usize;
        assert_eq!(got, &x[row * CHANNELS..][..CHANNELS]);
    }
}

/// Differences of both ends of an edge, whose gradient adds and subtracts.
#[test]
fn differences_are_those_of_both_targets() {
    let others = [2_i64, 2, 3, 0, 1, 5, 4];
    let segments = [TARGETS, others].map(|own| Segments::new(&own, NODES).unwrap());
    let mut network = Network::new();
    let both = ["own", "other"].map(|name| network.relation(name, Axis::Edges, Axis::Rows));
    let both = both.map(Result::unwrap);
    let input = network.input("x", &shape(Axis::Rows));
    let o = network.difference(input, both).unwrap();
    let one = both.map(|own| network.gather(input, own).unwrap());
    let seed = network.features("seed", &shape(Axis::Edges));
    let back = network.gradients_by(o, seed, &[input], Keep::All);
    let sums = both.map(|own| network.segment_sum(seed, own, Reduction::Sum).unwrap());
    let outputs = [o, one[0], one[1], back.unwrap()[0].1, sums[0], sums[1]];
    let inputs = [
        whole(BLADES * NODES * CHANNELS, 1),
        whole(BLADES * TARGETS.len() * CHANNELS, 2),
    ];
    let got = on_edges(&network, &outputs, &segments, &inputs);
    let minus =
        |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a - b).collect() };
    assert_eq!(got[0], minus(&got[1], &got[2]));
    assert_eq!(got[3], minus(&got[4], &got[5]));
    assert_ne!(got[0], got[1]);
}

/// `<g, S x> = <S' g, x>` for numbers whose products and sums are exact, and the gradient of the gradient is the sum again.
#[test]
fn gradients_are_adjoints() {
    let segments = [Segments::new(&TARGETS, NODES).unwrap()];
    let (mut network, relation) = network_of(Axis::Edges, Axis::Rows);
    let x = network.input("x", &shape(Axis::Edges));
    let y = network.segment_sum(x, relation, Reduction::Sum).unwrap();
    let seed = network.features("seed", &shape(Axis::Rows));
    let back = network.gradients_by(y, seed, &[x], Keep::All).unwrap()[0].1;
    let along = network.features("along", &shape(Axis::Edges));
    let again = network.gradients_from(&[(back, along)], &[seed], Keep::All);
    let again = again.unwrap()[0].1;
    let [edges, nodes] = [TARGETS.len(), NODES].map(|rows| BLADES * rows * CHANNELS);
    let (x, g, v) = (whole(edges, 1), whole(nodes, 2), whole(edges, 3));
    let inputs = [x, g, v];
    let results = on_edges(&network, &[y, back, again], &segments, &inputs);
    let [y, back, again]: [Vec<f64>; 3] = results.try_into().unwrap();
    let [x, g, v] = &inputs;
    assert!(dot(g, &y) != 0.0);
    assert_eq!(dot(g, &y), dot(&back, x));
    assert_eq!(again, expected(Reduction::Sum, v));
}

/// Other axes: nodes of graphs, rows of tokens, and samples.
#[test]
fn values_have_rows_anywhere_among_sizes() {
    let graphs = [Segments::new(&[0_u32, 1, 1, 0, 1, 1], 2).unwrap()];
    let (mut network, relation) = network_of(Axis::Rows, Axis::Graphs);
    let x = network.input("x", &[Axis::Rows, Axis::Fixed(2)]);
    let mean = network.segment_sum(x, relation, Reduction::Mean).unwrap();
    assert_eq!(network.shape(mean).unwrap(), [Axis::Graphs, Axis::Fixed(2)]);
    let x: Vec<f64> = (0..12).map(f64::from).collect();
    let got = result(&network, mean, &graphs, &x);
    assert_eq!(got, [3.0, 4.0, 6.0, 7.0]);
}

#[test]
fn many_rows_are_cut_into_tasks_with_the_same_results() {
    let (mut network, relation) = network_of(Axis::Edges, Axis::Rows);
    let x = network.input("x", &[Axis::Edges, Axis::Fixed(1)]);
    let sum = network.segment_sum(x, relation, Reduction::Sum).unwrap();
    let (nodes, edges) = (50_000, 60_000);
    let targets: Vec<usize> = (0..edges).map(|edge| edge * 7919 % nodes).collect();
    let mut expected = vec![0.0; nodes];
    for (edge, &target) in targets.iter().enumerate() {
        expected[target] += edge as f64;
    }
    let numbers: Vec<f64> = (0..edges).map(|edge| edge as f64).collect();
    let plan = network
        .plan(&[sum], Rows::of_graphs(1, nodes, edges), F64)
        .unwrap();
    let segments = [Segments::new(&targets, nodes).unwrap()];
    let scales = Scales {
        relations: &segments,
        ..Scales::default()
    };
    let outputs = run(&plan, [&[numbers], &[]], scales);
    assert_eq!(outputs[0], expected);
}

#[test]
fn what_no_relation_has_is_refused() {
    let text = |error: Error| error.to_string();
    let got = text(Segments::new(&[0_i64, -1], 3).unwrap_err());
    assert!(
        got.contains("one of 3 from 0 up, got -1 for row 1"),
        "{got}"
    );
    let got = text(Segments::new(&[0_i64, 1], 1 << 33).unwrap_err());
    let words = "at most 4294967295 rows and targets, got 2 rows and 8589934592 targets";
    assert!(got.contains(words), "{got}");
    let got = text(Segments::new(&[0_i32, 2, 3], 3).unwrap_err());
    assert!(got.contains("got 3 for row 2"), "{got}");

    let (mut network, relation) = network_of(Axis::Edges, Axis::Rows);
    let refused = network.relation("other", Axis::Edges, Axis::Items);
    assert!(text(refused.unwrap_err()).contains("the relation other: expected axes of rows"));
    let x = network.input("x", &shape(Axis::Rows));
    let pooled = network
        .relation("pooled", Axis::Rows, Axis::Graphs)
        .unwrap();
    let got = text(network.difference(x, [relation, pooled]).unwrap_err());
    assert!(
        got.contains("expected two relations of [edges, rows], got one of [rows, graphs]"),
        "{got}"
    );
    let (mut network, relation) = network_of(Axis::Edges, Axis::Rows);
    let x = network.input("x", &shape(Axis::Rows));
    let got = text(
        network
            .segment_sum(x, relation, Reduction::Sum)
            .unwrap_err(),
    );
    assert!(
        got.contains("expected edges among sizes, got [4, rows, 3]"),
        "{got}"
    );
    let o = network.gather(x, relation).unwrap();
    let mut other = Network::new();
    let y = other.input("x", &shape(Axis::Rows));
    assert!(matches!(
        other.gather(y, relation),
        Err(Error::Unknown { .. })
    ));

    let plan = network
        .plan(&[o], Rows::of_graphs(1, NODES, 7), F64)
        .unwrap();
    let inputs = [vec![0.0; BLADES * NODES * CHANNELS]];
    let mut memory = Cpu::new(&plan).unwrap();
    let short = Segments::new(&TARGETS[1..], NODES).unwrap();
    let wide = Segments::new(&TARGETS, NODES + 1).unwrap();
    for relations in [vec![], vec![short], vec![wide]] {
        let scales = Scales {
            relations: &relations,
            ..Scales::default()
        };
        let refused = run_in(&mut memory, &plan, [&inputs, &[]], scales);
        assert!(
            matches!(refused, Err(Error::Length { .. })),
            "{relations:?}"
        );
    }
}

/// Parts along any axis, some of which nobody reads.
#[test]
fn joins_and_splits_undo_each_other() {
    for axis in 0..2 {
        let axes = |size: usize| match axis {
            0 => [Axis::Fixed(size), Axis::Fixed(3), Axis::Rows],
            _ => [Axis::Fixed(2), Axis::Fixed(size), Axis::Rows],
        };
        let mut network = Network::new();
        let parts =
            [("a", 2), ("b", 1), ("c", 3)].map(|(name, size)| network.input(name, &axes(size)));
        let whole = network.join(&parts, axis).unwrap();
        let apart = network.split(whole, axis, &[2, 1, 3]).unwrap();
        let seed = network.features("seed", &axes(1));
        let gradients = with_gradients(&mut network, [apart[1], seed], &parts, Keep::All);
        let outputs = [&apart[..], &gradients[1..]].concat();
        let plan = network.plan(&outputs, 5, F64).unwrap();
        let [inputs, _] = given(&network, 5);
        let got = run(&plan, [&inputs, &[]], Scales::default());
        for at in 0..3 {
            assert_eq!(got[at], inputs[at]);
        }
        // Of parts that the result does not depend on, the gradient is 0.
        assert_eq!(got[4], inputs[3]);
        assert!(got[3].iter().chain(&got[5]).all(|&x| x == 0.0));
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let mut network = Network::new();
    let [a, b] =
        [2, 3].map(|size| network.input("x", &[Axis::Fixed(size), Axis::Rows, Axis::Fixed(4)]));
    let got = network.join(&[a, b], 2).unwrap_err().to_string();
    assert!(
        got.contains("expected [2, rows, 4], got [3, rows, 4]"),
        "{got}"
    );
    assert!(network.join(&[a, a], 1).is_err());
    assert!(network.join(&[], 0).is_err());
    let got = network.split(a, 0, &[1, 2]).unwrap_err().to_string();
    assert!(got.contains("expected 3 elements along axis 0"), "{got}");
    assert!(network.split(a, 7, &[1]).is_err());
    assert!(network.join(&[a, b], 0).is_ok());
}
