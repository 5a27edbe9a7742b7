//! Blocks of transformers as networks, beside differences, beside samples by themselves, and beside masks.

use flashcliff_network::tokens::{
    Attention, AttentionOptions, Channels, Draw, Dropout, Geometry, Linear, Rotary, Step,
    Transformer,
};
use flashcliff_network::{Axis, Cpu, Keep, Network, Plan, Rows, Scales, Value};

use crate::blocks::{Block, Made, blocks, flat, linear, signature};
use crate::runs::{Differences, F64, assert_close, given, run, run_in, with_gradients};

/// A plan of the result and all gradients.
fn planned(made: &Made, rows: Rows, keep: Keep) -> Plan {
    let mut network = made.network.clone();
    let by = network.parameters().to_vec();
    let outputs = with_gradients(&mut network, [made.output, made.seed], &by, keep);
    network.plan(&outputs, rows, F64).unwrap()
}

/// Compares a few elements of each gradient with differences of the result along the seed.
fn assert_gradients(own: Block, rows: Rows, scales: Scales<'_>) {
    assert_gradients_of(&blocks(own), rows, scales);
}

/// The same for any network.
pub(crate) fn assert_gradients_of(made: &Made, rows: Rows, scales: Scales<'_>) {
    let network = &made.network;
    let mut numbers = given(network, rows);
    let of = ([made.output, made.seed], network.parameters(), Keep::All);
    let all = Differences::of(3).assert_gradients(network, of, rows, &mut numbers, scales);
    // Blocks that are computed again have the same bits.
    let again = planned(made, rows, Keep::BetweenBlocks);
    assert_eq!(run(&again, [&numbers[0], &numbers[1]], scales), all);
}

fn rows() -> Rows {
    Rows::new(9, 5)
}

#[test]
fn gradients_of_gatr_are_those_of_differences() {
    let own = Block::of(Geometry::gatr().unwrap());
    assert_gradients(own, rows(), Scales::default());
    let shared = Block {
        shared: true,
        rotary: true,
        ..own
    };
    assert_gradients(shared, rows(), Scales::default());
}

#[test]
fn gradients_of_lgatr_are_those_of_differences() {
    let own = Block::of(Geometry::lgatr_2().unwrap());
    assert_gradients(own, rows(), Scales::default());
    let beside = Block { extra: true, ..own };
    assert_gradients(beside, rows(), Scales::default());
}

/// A whole network: layers without biases, queries that see other tokens, and factors of heads.
#[test]
fn gradients_of_whole_transformers_are_those_of_differences() {
    let ends = Channels::new(1, 1);
    let attention = AttentionOptions {
        heads: 2,
        head_scale: true,
        extra: ends,
        ..AttentionOptions::default()
    };
    let options = Transformer {
        blocks: 1,
        attention,
        ..Transformer::new(
            Geometry::lgatr_2().unwrap(),
            ends,
            ends,
            Channels::new(2, 3),
        )
    };
    let (mut network, found) = options.network().unwrap();
    let biases = network.parameters().iter();
    let biases = biases.filter(|&&value| {
        network.name(value).contains("qkv_module") && network.name(value).ends_with("bias")
    });
    assert_eq!(biases.count(), 0);
    let axes = network.shape(found.output).unwrap().to_vec();
    let seed = network.input("seed", &axes);
    let made = Made {
        network,
        output: found.output,
        seed,
    };
    assert_gradients_of(&made, rows(), Scales::default());
}

#[test]
fn gradients_of_a_conformal_transformer_with_dropout_are_those_of_differences() {
    let own = Block {
        dropout: Some(0.3),
        ..Block::of(Geometry::of(signature(4, 1, 0)))
    };
    let draw = Some(Draw { key: 7, step: 2 });
    let scales = Scales {
        draw,
        ..Scales::default()
    };
    let rows = Rows::new(3, 4);
    assert_gradients(own, rows, scales);
    let made = blocks(own);
    let plan = made.network.plan(&[made.output], rows, F64).unwrap();
    let [inputs, parameters] = given(&made.network, rows);
    let dropped = run(&plan, [&inputs, &parameters], scales);
    assert_ne!(
        dropped,
        run(&plan, [&inputs, &parameters], Scales::default())
    );
}

/// Each sample by itself has the bits that it has among others.
#[test]
fn samples_do_not_see_each_other() {
    let made = blocks(Block::of(Geometry::gatr().unwrap()));
    let rows = Rows::new(70, 3);
    let [inputs, parameters] = given(&made.network, rows);
    let all = made.network.plan(&[made.output], rows, F64).unwrap();
    let all = &run(&all, [&inputs, &parameters], Scales::default())[0];
    let alone = made.network.plan(&[made.output], Rows::new(1, 3), F64);
    let alone = alone.unwrap();
    for sample in [0, 33, 69] {
        let part = |data: &Vec<f64>| {
            let len = data.len() / rows.samples;
            data[sample * len..][..len].to_vec()
        };
        let inputs: Vec<Vec<f64>> = inputs.iter().map(part).collect();
        let own = run(&alone, [&inputs, &parameters], Scales::default());
        assert_close(&own[0], &part(all), "sample");
    }
}

/// Many samples are several chunks, whose sums are in one order.
#[test]
fn bits_do_not_depend_on_threads() {
    let made = blocks(Block::of(Geometry::gatr().unwrap()));
    let rows = Rows::new(70, 3);
    let plan = planned(&made, rows, Keep::All);
    let [inputs, parameters] = given(&made.network, rows);
    let with_threads = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let run = || run(&plan, [&inputs, &parameters], Scales::default());
        pool.build().unwrap().install(run)
    };
    let one = with_threads(1);
    for threads in [1, 2, 3] {
        assert_eq!(with_threads(threads), one, "{threads} threads");
    }
}

/// Sequences of a ragged batch are samples of other lengths, whose positions begin anew, and items that a mask hides are not there.
#[test]
fn sequences_and_masks_hide_the_items_of_others() {
    let lengths = [3, 1, 5, 40];
    let own = Block {
        rotary: true,
        ..Block::of(Geometry::gatr().unwrap())
    };
    let made = blocks(own);
    let total = lengths.iter().sum::<usize>();
    let rows = Rows::new(1, total);
    let [inputs, parameters] = given(&made.network, rows);
    let plan = planned(&made, rows, Keep::All);
    let bounds = [0, 3, 4, 9, 49];
    let scales = Scales {
        sequences: Some([&bounds, &[]]),
        ..Scales::default()
    };
    let ragged = run(&plan, [&inputs, &parameters], scales);
    let mut sums: Vec<Vec<f64>> = ragged[1..].iter().map(|g| vec![0.0; g.len()]).collect();
    let longest = 40;
    let (mut padded, mut mask) = (vec![Vec::new(); inputs.len()], Vec::new());
    for (at, &items) in lengths.iter().enumerate() {
        let own_rows = Rows::new(1, items);
        let part = |data: &[f64]| {
            let len = data.len() / total;
            data[bounds[at] * len..bounds[at + 1] * len].to_vec()
        };
        let own: Vec<Vec<f64>> = inputs.iter().map(|data| part(data)).collect();
        let alone = run(
            &planned(&made, own_rows, Keep::All),
            [&own, &parameters],
            Scales::default(),
        );
        assert_close(&part(&ragged[0]), &alone[0], "sequence");
        for (sum, own) in sums.iter_mut().zip(&alone[1..]) {
            sum.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        for (to, own) in padded.iter_mut().zip(&own) {
            to.extend(own);
            to.extend(vec![0.25; own.len() / items * (longest - items)]);
        }
        mask.extend((0..longest).map(|item| if item < items { 0.0 } else { f64::NEG_INFINITY }));
    }
    for (at, (gradient, sum)) in ragged[1..].iter().zip(&sums).enumerate() {
        assert_close(gradient, sum, &format!("gradient {at}"));
    }
    // The same as a padded batch with a mask.
    let masked = blocks(Block {
        masked: true,
        ..own
    });
    let rows = Rows::new(lengths.len(), longest);
    padded.insert(2, mask);
    let plan = masked.network.plan(&[masked.output], rows, F64).unwrap();
    let seen = &run(&plan, [&padded, &parameters], Scales::default())[0];
    let len = seen.len() / rows.count();
    for (at, &items) in lengths.iter().enumerate() {
        let of_sample = &seen[at * longest * len..][..items * len];
        assert_close(
            of_sample,
            &ragged[0][bounds[at] * len..bounds[at + 1] * len],
            "masked",
        );
    }
}

/// Attention of tokens to the tokens of a context, with the gradients of the result along a seed, by both.
struct Crossing {
    network: Network,
    /// The result and the seed.
    ends: [Value; 2],
    /// The tokens, the context and all parameters.
    by: Vec<Value>,
}

impl Crossing {
    /// A plan of the result and all gradients.
    fn plan(&self, rows: Rows) -> Plan {
        let mut network = self.network.clone();
        let outputs = with_gradients(&mut network, self.ends, &self.by, Keep::All);
        network.plan(&outputs, rows, F64).unwrap()
    }
}

fn crossing(geometry: Geometry, shared: bool) -> Crossing {
    let channels = Channels::new(2, 4);
    let mut network = Network::new();
    let token = Axis::Token {
        blades: geometry.blades(),
        channels,
    };
    let x = network.features("x", &[Axis::Rows, token]);
    let context = network.features("context", &[Axis::ContextRows, token]);
    let attention = Attention::new(geometry, 2, channels, shared).crossing();
    let [query, key, value] = attention.parts();
    let step = Linear::new(geometry, channels, vec![query]).unwrap();
    let queries = linear(&mut network, step, x);
    let step = Linear::new(geometry, channels, vec![key, value]).unwrap();
    let keys = linear(&mut network, step, context);
    let mut inputs = vec![queries, keys];
    let shapes = attention.shapes();
    if !shapes.is_empty() {
        inputs.push(flat(&mut network, &shapes, &[0]));
    }
    let attended = network.step(Step::Attention(attention), &inputs).unwrap();
    let all = channels.times(2);
    let step = Linear::new(geometry, all, vec![channels]).unwrap();
    let made = linear(&mut network, step, attended);
    let y = network.scaled_sum([x, made], 1.0).unwrap();
    let seed = network.input("seed", &[Axis::Rows, token]);
    let mut by = vec![x, context];
    by.extend(network.parameters());
    Crossing {
        network,
        ends: [y, seed],
        by,
    }
}

#[test]
fn gradients_of_attention_to_a_context_are_those_of_differences() {
    let rows = Rows::new(40, 2).with_context(3);
    for (geometry, shared) in [
        (Geometry::gatr().unwrap(), true),
        (Geometry::lgatr_2().unwrap(), false),
    ] {
        let made = crossing(geometry, shared);
        let of = (made.ends, &made.by[..], Keep::All);
        let mut numbers = given(&made.network, rows);
        let how = Differences::of(3);
        how.assert_gradients(&made.network, of, rows, &mut numbers, Scales::default());
    }
}

/// Sequences of a ragged batch attend to the sequences with the same number in the context.
#[test]
fn sequences_attend_to_their_own_context() {
    let made = crossing(Geometry::gatr().unwrap(), false);
    let (items, context) = ([0, 30, 31, 60], [0, 2, 50, 51]);
    let rows = Rows::new(1, 60).with_context(51);
    let [inputs, parameters] = given(&made.network, rows);
    let scales = Scales {
        sequences: Some([&items, &context]),
        ..Scales::default()
    };
    let ragged = run(&made.plan(rows), [&inputs, &parameters], scales);
    for at in 0..3 {
        let own =
            Rows::new(1, items[at + 1] - items[at]).with_context(context[at + 1] - context[at]);
        let part = |data: &[f64], bounds: &[usize; 4]| {
            let len = data.len() / bounds[3];
            data[bounds[at] * len..bounds[at + 1] * len].to_vec()
        };
        let alone = [
            part(&inputs[0], &items),
            part(&inputs[1], &context),
            part(&inputs[2], &items),
        ];
        let alone = run(&made.plan(own), [&alone, &parameters], Scales::default());
        assert_close(&part(&ragged[0], &items), &alone[0], "result");
        assert_close(&part(&ragged[1], &items), &alone[1], "gradient of items");
        assert_close(
            &part(&ragged[2], &context),
            &alone[2],
            "gradient of the context",
        );
    }
}

/// A context without rows may lack boundaries, and leaves no sequence unwritten.
#[test]
fn sequences_attend_to_no_context() {
    let made = crossing(Geometry::gatr().unwrap(), false);
    let items = [0, 30, 31, 60];
    let found = |context: usize, sequences| {
        let rows = Rows::new(1, 60).with_context(context);
        let [inputs, parameters] = given(&made.network, rows);
        let scales = Scales {
            sequences,
            ..Scales::default()
        };
        run(&made.plan(rows), [&inputs, &parameters], scales)
    };
    let whole = found(0, None);
    for context in [&[][..], &[0; 4]] {
        // A result that nothing writes would have the numbers of another run.
        found(51, None);
        let ragged = found(0, Some([&items, context]));
        for (at, (got, expected)) in ragged.iter().zip(&whole).enumerate() {
            assert_close(got, expected, &format!("output {at}"));
        }
    }
}

#[test]
fn sequences_that_do_not_fit_are_refused() {
    let made = blocks(Block::of(Geometry::gatr().unwrap()));
    let plan = |rows| made.network.plan(&[made.output], rows, F64).unwrap();
    let refused = |rows: Rows, items: &[usize], context: &[usize]| {
        let [inputs, parameters] = given(&made.network, rows);
        let scales = Scales {
            sequences: Some([items, context]),
            ..Scales::default()
        };
        let plan = plan(rows);
        let mut memory = Cpu::new(&plan).unwrap();
        let done = run_in(&mut memory, &plan, [&inputs, &parameters], scales);
        matches!(done, Err(flashcliff_network::Error::Sequences { .. }))
    };
    let one = Rows::new(1, 5);
    assert!(!refused(one, &[0, 2, 5], &[]));
    assert!(refused(one, &[], &[]));
    assert!(refused(one, &[1, 5], &[]));
    assert!(refused(one, &[0, 6], &[]));
    assert!(refused(one, &[0, 4, 3, 5], &[]));
    assert!(refused(Rows::new(5, 1), &[0, 5], &[]));
}

/// Attention, positions and dropout within the context are the same as in a network whose items are the context.
#[test]
fn steps_work_on_the_context_as_on_items() {
    let geometry = Geometry::gatr().unwrap();
    let channels = Channels::new(1, 8);
    let attention = Attention::new(geometry, 2, channels, false);
    let token = Axis::Token {
        blades: 16,
        channels: attention
            .parts()
            .into_iter()
            .fold(Channels::default(), Channels::and),
    };
    let drop = Dropout::new(geometry, channels.times(2), 0.4, &[1]).unwrap();
    let made = |rows: Axis, items: Axis| {
        let mut network = Network::new();
        let x = network.features("x", &[rows, token]);
        let mask = [Axis::Samples, Axis::Fixed(1), items, items];
        let mask = network.input("mask", &mask);
        let turned = Step::Rotary(Rotary::new(&attention, 50));
        let turned = network.step(turned, &[x]).unwrap();
        let shapes = attention.shapes();
        let weights = flat(&mut network, &shapes, &[0]);
        let attend = Step::Attention(attention.clone().masked());
        let y = network.step(attend, &[turned, mask, weights]).unwrap();
        let y = network.step(Step::Dropout(drop.clone()), &[y]).unwrap();
        let axes = network.shape(y).unwrap().to_vec();
        let seed = network.input("seed", &axes);
        let by = [x, network.parameters()[0]];
        let outputs = with_gradients(&mut network, [y, seed], &by, Keep::All);
        (network, outputs)
    };
    let (network, outputs) = made(Axis::Rows, Axis::Items);
    let own = Rows::new(50, 3);
    let [inputs, parameters] = given(&network, own);
    let scales = Scales {
        draw: Some(Draw { key: 3, step: 1 }),
        ..Scales::default()
    };
    let plan = network.plan(&outputs, own, F64).unwrap();
    let expected = run(&plan, [&inputs, &parameters], scales);
    assert!(expected.iter().flatten().any(|&x| x != 0.0));
    let (network, outputs) = made(Axis::ContextRows, Axis::ContextItems);
    let context = Rows::new(50, 2).with_context(3);
    let plan = network.plan(&outputs, context, F64).unwrap();
    let got = run(&plan, [&inputs, &parameters], scales);
    for (got, expected) in got.iter().zip(&expected) {
        assert_close(got, expected, "context");
    }
}
