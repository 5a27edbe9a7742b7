//! Gradients by masks of attention, beside plain sums over queries and keys, beside differences, and beside masks without shared axes.

use flashcliff_network::tokens::{Attention, Channels, Geometry, Step, Transformer};
use flashcliff_network::{Axis, Cpu, Error, Keep, Network, Rows, Scales, Value};

use crate::blocks::signature;
use crate::networks::{len, numbers, random};
use crate::runs::{Differences, F64, assert_close, dot, given, place, run, run_in, with_gradients};

const HEADS: usize = 3;
const HEAD: Channels = Channels::new(2, 3);
const ROWS: Rows = Rows::new(3, 4).with_context(5);

/// Attention of heads with a mask.
#[derive(Clone, Copy, Debug)]
struct Case {
    shared: bool,
    crossing: bool,
    /// For samples, heads and queries, whether the mask has a separate axis.
    whole: [bool; 3],
    rows: Rows,
}

/// A network of one case. The inputs are tokens, the context if there is one, the mask and the seed.
struct Made {
    network: Network,
    output: Value,
    mask: Value,
    seed: Value,
}

fn geometry() -> Geometry {
    Geometry::of(signature(2, 0, 0))
}

impl Case {
    fn attention(self) -> Attention {
        let step = Attention::new(geometry(), HEADS, HEAD, self.shared).masked();
        match self.crossing {
            true => step.crossing(),
            false => step,
        }
    }

    fn keys(self) -> usize {
        match self.crossing {
            true => self.rows.context,
            false => self.rows.items,
        }
    }

    /// Samples, heads, queries and keys.
    fn scores(self) -> [usize; 4] {
        [self.rows.samples, HEADS, self.rows.items, self.keys()]
    }

    fn mask_axes(self) -> [Axis; 4] {
        let all = [Axis::Samples, Axis::Fixed(HEADS), Axis::Items];
        let of = |at: usize| {
            if self.whole[at] {
                all[at]
            } else {
                Axis::Fixed(1)
            }
        };
        let keys = match self.crossing {
            true => Axis::ContextItems,
            false => Axis::Items,
        };
        [of(0), of(1), of(2), keys]
    }

    /// The place of a score in the mask.
    fn place(self, at: [usize; 4]) -> usize {
        let scores = self.scores();
        (0..4).fold(0, |place, axis| {
            let is_whole = axis == 3 || self.whole[axis];
            let (size, at) = if is_whole {
                (scores[axis], at[axis])
            } else {
                (1, 0)
            };
            place * size + at
        })
    }

    fn made(self) -> Made {
        let (mut network, step, geometry) = (Network::new(), self.attention(), geometry());
        let token = |channels| Axis::Token {
            blades: geometry.blades(),
            channels,
        };
        let [query, key, value] = step.parts();
        let own = if self.crossing {
            query
        } else {
            query.and(key).and(value)
        };
        let mut inputs = vec![network.features("x", &[Axis::Rows, token(own)])];
        if self.crossing {
            let axes = [Axis::ContextRows, token(key.and(value))];
            inputs.push(network.features("context", &axes));
        }
        let mask = network.input("mask", &self.mask_axes());
        inputs.push(mask);
        let seed = network.features("seed", &[Axis::Rows, token(step.output())]);
        let output = network.step(Step::Attention(step), &inputs).unwrap();
        Made {
            network,
            output,
            mask,
            seed,
        }
    }

    /// Numbers for all inputs. The mask hides some keys, and all keys of the first of several rows.
    fn given(self, made: &Made) -> Vec<Vec<f64>> {
        let mut inputs = numbers(&made.network, made.network.inputs(), self.rows, 1);
        let mask = &mut inputs[self.mask_at()];
        let first = if mask.len() > self.keys() {
            self.keys()
        } else {
            0
        };
        for (at, x) in mask.iter_mut().enumerate() {
            if at < first || at % 5 == 2 {
                *x = f64::NEG_INFINITY;
            }
        }
        inputs
    }

    /// The number of the mask among the inputs.
    fn mask_at(self) -> usize {
        1 + usize::from(self.crossing)
    }
}

impl Made {
    /// The outputs of a run: the result, and the gradients by some inputs.
    fn gradients(&self, by: &[Value], rows: Rows, inputs: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let mut network = self.network.clone();
        let outputs = with_gradients(&mut network, [self.output, self.seed], by, Keep::All);
        let plan = network.plan(&outputs, rows, F64).unwrap();
        run(&plan, [inputs, &[]], Scales::default())
    }
}

/// The cases of all masks.
fn cases(rows: Rows) -> impl Iterator<Item = Case> {
    (0..32).map(move |choice: usize| {
        let is = |bit: usize| choice >> bit & 1 == 1;
        Case {
            shared: is(0),
            crossing: is(1),
            whole: [is(2), is(3), is(4)],
            rows,
        }
    })
}

/// The numbers of queries, keys and values of a head, as its features: blade by blade, then scalars.
struct Features<'a> {
    tokens: &'a [f64],
    /// All channels of tokens, those in front of the part, and the heads of the part.
    all: Channels,
    first: Channels,
    heads: usize,
}

impl Features<'_> {
    fn of(&self, row: usize, head: usize) -> Vec<f64> {
        let blades = geometry().blades();
        let width = blades * self.all.multivectors + self.all.scalars;
        let token = &self.tokens[row * width..][..width];
        let head = if self.heads == 1 { 0 } else { head };
        let mut found = Vec::new();
        for blade in 0..blades {
            let first = blade * self.all.multivectors + self.first.multivectors;
            found.extend((0..HEAD.multivectors).map(|c| token[first + c * self.heads + head]));
        }
        let first = blades * self.all.multivectors + self.first.scalars;
        found.extend((0..HEAD.scalars).map(|c| token[first + c * self.heads + head]));
        found
    }
}

/// The result and the gradient of the mask by plain sums, in a Euclidean algebra: all features have the sign 1.
fn by_sums(case: Case, inputs: &[Vec<f64>]) -> [Vec<f64>; 2] {
    let [query, key, value] = case.attention().parts();
    let key_heads = if case.shared { 1 } else { HEADS };
    let seed = Features {
        tokens: inputs.last().unwrap(),
        all: query,
        first: Channels::default(),
        heads: HEADS,
    };
    let (side, all, first) = match case.crossing {
        true => (1, key.and(value), Channels::default()),
        false => (0, query.and(key).and(value), query),
    };
    let queries = Features {
        tokens: &inputs[0],
        all: if case.crossing { query } else { all },
        first: Channels::default(),
        heads: HEADS,
    };
    let of_context = |first| Features {
        tokens: &inputs[side],
        all,
        first,
        heads: key_heads,
    };
    let (keys, values) = (of_context(first), of_context(first.and(key)));
    let (mask, mut result) = (&inputs[case.mask_at()], vec![0.0; seed.tokens.len()]);
    let mut gradient = vec![0.0; mask.len()];
    let [samples, heads, items, count] = case.scores();
    for (sample, head, item) in product([samples, heads, items]) {
        let row = sample * items + item;
        let q = queries.of(row, head);
        let g = in_output(row, head)
            .map(|at| seed.tokens[at])
            .collect::<Vec<_>>();
        let scale = 1.0 / (q.len() as f64).sqrt();
        let of_key = |at: usize| sample * count + at;
        let place = |at| case.place([sample, head, item, at]);
        let shares: Vec<f64> = (0..count)
            .map(|at| (scale * dot(&q, &keys.of(of_key(at), head)) + mask[place(at)]).exp())
            .collect();
        let sum: f64 = shares.iter().sum();
        if sum == 0.0 {
            continue;
        }
        let of_values: Vec<Vec<f64>> = (0..count).map(|at| values.of(of_key(at), head)).collect();
        let mean: f64 = (0..count)
            .map(|at| shares[at] / sum * dot(&g, &of_values[at]))
            .sum();
        for (share, own) in shares.iter().zip(&of_values) {
            for (at, x) in in_output(row, head).zip(own) {
                result[at] += share / sum * x;
            }
        }
        for at in 0..count {
            gradient[place(at)] += shares[at] / sum * (dot(&g, &of_values[at]) - mean);
        }
    }
    [result, gradient]
}

fn product([a, b, c]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a * b * c).map(move |at| (at / (b * c), at / c % b, at % c))
}

/// The places of the features of a head in tokens of the result, where heads are the slowest index.
fn in_output(row: usize, head: usize) -> impl Iterator<Item = usize> {
    let blades = geometry().blades();
    let all = HEAD.times(HEADS);
    let width = blades * all.multivectors + all.scalars;
    let multivectors = (0..blades * HEAD.multivectors).map(move |at| {
        let (blade, c) = (at / HEAD.multivectors, at % HEAD.multivectors);
        row * width + blade * all.multivectors + head * HEAD.multivectors + c
    });
    let first = row * width + blades * all.multivectors + head * HEAD.scalars;
    multivectors.chain((0..HEAD.scalars).map(move |c| first + c))
}

#[test]
fn gradients_by_masks_are_plain_sums() {
    for case in cases(ROWS) {
        let made = case.made();
        let inputs = case.given(&made);
        let [result, gradient] = by_sums(case, &inputs);
        let got = made.gradients(&[made.mask], ROWS, &inputs);
        assert_close(&got[0], &result, &format!("result, {case:?}"));
        assert_close(&got[1], &gradient, &format!("gradient, {case:?}"));
        assert!(gradient.iter().any(|x| x.abs() > 1e-3));
        // Hidden keys get 0.
        let hidden = inputs[case.mask_at()].iter().zip(&got[1]);
        for (_, got) in hidden.filter(|(x, _)| **x == f64::NEG_INFINITY) {
            assert_eq!(*got, 0.0, "{case:?}");
        }
        // With the gradients of all other inputs there are the same bits.
        let all = &made.network.inputs()[..=case.mask_at()];
        let with = made.gradients(all, ROWS, &inputs);
        assert_eq!(with.last(), got.last(), "{case:?}");
    }
}

#[test]
fn gradients_by_masks_are_differences() {
    for case in cases(ROWS) {
        let made = case.made();
        let mut numbers = [case.given(&made), Vec::new()];
        let of = ([made.output, made.seed], &[made.mask][..], Keep::All);
        let how = Differences::of(9);
        how.assert_gradients(&made.network, of, ROWS, &mut numbers, Scales::default());
    }
}

/// Many samples, which are several chunks: the sums over them are in one order, whatever threads there are, and
/// samples with their own masks have the gradients of samples by themselves.
#[test]
fn bits_of_gradients_by_masks_depend_on_nothing_else() {
    let rows = Rows::new(70, 6).with_context(7);
    for case in cases(rows) {
        let made = case.made();
        let inputs = case.given(&made);
        let with_threads = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().unwrap();
            pool.install(|| made.gradients(&[made.mask], rows, &inputs))
        };
        let got = with_threads(1);
        assert_eq!(with_threads(3), got, "{case:?}");
        assert_eq!(with_threads(3), got, "{case:?}");
        let [_, gradient] = by_sums(case, &inputs);
        assert_close(&got[1], &gradient, &format!("{case:?}"));
        if !case.whole[0] {
            continue;
        }
        let last = rows.samples - 1;
        let part = |all: &Vec<f64>| all[last * all.len() / rows.samples..].to_vec();
        let alone: Vec<Vec<f64>> = inputs.iter().map(part).collect();
        let alone = made.gradients(&[made.mask], Rows { samples: 1, ..rows }, &alone);
        assert_eq!(alone[1], part(&got[1]), "{case:?}");
    }
}

/// Several blocks with one mask: its gradient is the sum over blocks.
#[test]
fn a_mask_of_all_blocks_has_one_gradient() {
    for axes in [
        [Axis::Samples, Axis::Fixed(1), Axis::Items, Axis::Items],
        [Axis::Fixed(1), Axis::Fixed(1), Axis::Items, Axis::Items],
    ] {
        let ends = Channels::new(1, 1);
        let options = Transformer {
            blocks: 3,
            mask: Some(axes),
            ..Transformer::new(
                Geometry::of(signature(3, 0, 0)),
                ends,
                ends,
                Channels::new(2, 4),
            )
        };
        let (network, ends) = options.network().unwrap();
        let (rows, mask) = (Rows::new(40, 3), ends.mask.unwrap());
        let mut numbers = given(&network, rows);
        let by = [mask, *network.parameters().last().unwrap()];
        let all = network.inputs().iter().chain(network.parameters());
        let wanted: Vec<bool> = all.map(|own| by.contains(own)).collect();
        let whole = network.differentiated(&[ends.output], &wanted).unwrap();
        let [result, gradients] = whole.stages();
        let outputs = [result, gradients].concat();
        let plan = whole.network().plan(&outputs, rows, F64).unwrap();
        numbers[0].push(random(len(&network, ends.output, rows), 7));
        let run = |numbers: [&[Vec<f64>]; 2]| run(&plan, numbers, Scales::default());
        let found = run([&numbers[0], &numbers[1]]);
        let places = [(place(&network, mask), &found[1])];
        Differences::of(3).assert(&mut numbers, places, |numbers| {
            dot(&run(numbers)[0], numbers[0].last().unwrap())
        });
    }
}

#[test]
fn a_plan_says_that_a_mask_has_a_gradient() {
    let case = Case {
        shared: false,
        crossing: true,
        whole: [true; 3],
        rows: Rows::new(2, 4).with_context(3),
    };
    let made = case.made();
    for (by, expected) in [(made.mask, true), (made.network.inputs()[0], false)] {
        let mut network = made.network.clone();
        let pairs = network.gradients_by(made.output, made.seed, &[by], Keep::All);
        let outputs = [pairs.unwrap()[0].1];
        let plan = network.plan(&outputs, case.rows, F64).unwrap();
        let page = plan.explain();
        let found = page.contains("attention gradient, of its mask too");
        assert_eq!(found, expected, "{page}");
    }
}

/// Sequences say themselves who attends to whom.
#[test]
fn a_ragged_batch_with_the_gradient_of_a_mask_is_refused() {
    let case = Case {
        shared: false,
        crossing: false,
        whole: [true; 3],
        rows: Rows::new(1, 6),
    };
    let mut made = case.made();
    let inputs = case.given(&made);
    let network = &mut made.network;
    let outputs = with_gradients(network, [made.output, made.seed], &[made.mask], Keep::All);
    let plan = network.plan(&outputs[1..], case.rows, F64).unwrap();
    let scales = Scales {
        sequences: Some([&[0, 2, 6], &[]]),
        ..Scales::default()
    };
    let mut memory = Cpu::new(&plan).unwrap();
    let done = run_in(&mut memory, &plan, [&inputs, &[]], scales);
    assert!(
        matches!(&done, Err(Error::Sequences { got, .. }) if got.contains("mask")),
        "{done:?}"
    );
}
