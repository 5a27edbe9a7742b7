use super::*;

/// Numbers in [-1, 1) that depend on a seed.
fn values(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        })
        .collect()
}

#[derive(Clone)]
struct Case<T> {
    sizes: AttentionSizes,
    /// Rows of a mask, and each query's.
    mask: Option<(Vec<T>, Vec<usize>)>,
    query: Vec<T>,
    key: Vec<T>,
    value: Vec<T>,
}

impl<T: Element> Case<T> {
    fn new((groups, queries, keys, features, width): (usize, usize, usize, usize, usize)) -> Self {
        let make = |len, seed| values(len, seed).into_iter().map(T::from_f64).collect();
        Self {
            sizes: AttentionSizes {
                groups,
                queries,
                keys,
                features,
                width,
            },
            mask: None,
            query: make(groups * queries * features, 1),
            key: make(groups * keys * features, 2),
            value: make(groups * keys * width, 3),
        }
    }

    /// The case with a mask of a few rows, most with hidden keys. The first row hides all.
    fn masked(shape: (usize, usize, usize, usize, usize)) -> Self {
        const ROWS: usize = 5;
        let mut case = Self::new(shape);
        let (groups, queries, keys) = (shape.0, shape.1, shape.2);
        let mut rows = values(ROWS * keys, 4);
        for (at, added) in rows.iter_mut().enumerate() {
            // Whole blocks too.
            let is_hidden = at < keys || (at / keys == 2 && at % keys < 70) || at % 3 == 0;
            if is_hidden {
                *added = f64::NEG_INFINITY;
            }
        }
        let of_query = (0..groups * queries).map(|query| (query * 3 + 1) % ROWS);
        let rows = rows.into_iter().map(T::from_f64).collect();
        case.mask = Some((rows, of_query.collect()));
        case
    }

    fn inputs(&self) -> AttentionInputs<'_, T> {
        let mask = self.mask.as_ref();
        AttentionInputs {
            mask: mask.map(|(rows, of_query)| AttentionMask { rows, of_query }),
            query: &self.query,
            key: &self.key,
            value: &self.value,
        }
    }

    fn forward(&self) -> (Vec<T>, Vec<T>) {
        let count = self.sizes.groups * self.sizes.queries;
        // Old contents must not matter.
        let mut out = vec![T::from_f64(f64::NAN); count * self.sizes.width];
        let mut normaliser = vec![T::from_f64(f64::NAN); count];
        forward(self.sizes, SCALE, self.inputs(), &mut out, &mut normaliser).unwrap();
        (out, normaliser)
    }

    /// The gradients of queries, keys, values and scores.
    fn backward(&self, gradient: &[T]) -> [Vec<T>; 4] {
        let scores = self.sizes.groups * self.sizes.queries * self.sizes.keys;
        let lens = [&self.query, &self.key, &self.value].map(Vec::len);
        let mut to =
            [lens[0], lens[1], lens[2], scores].map(|len| vec![T::from_f64(f64::NAN); len]);
        let [query, key, value, scores] = &mut to;
        self.backward_to(
            gradient,
            AttentionGradients {
                query,
                key,
                value,
                scores: Some(scores),
            },
        );
        to
    }

    fn backward_to(&self, gradient: &[T], to: AttentionGradients<'_, T>) {
        let (out, normaliser) = self.forward();
        let inputs = self.inputs();
        backward(self.sizes, SCALE, inputs, &out, &normaliser, gradient, to).unwrap();
    }

    /// The case with a row of the mask for each query.
    fn with_all_rows(mut self) -> Self {
        let (count, keys) = (self.sizes.groups * self.sizes.queries, self.sizes.keys);
        let rows = match &self.mask {
            None => vec![T::default(); count * keys],
            Some((rows, of)) => of
                .iter()
                .flat_map(|&row| rows[row * keys..][..keys].to_vec())
                .collect(),
        };
        self.mask = Some((rows, (0..count).collect()));
        self
    }
}

const SCALE: f64 = 0.7;
/// Blocks that are whole, ragged, single, and several of each kind.
const SHAPES: [(usize, usize, usize, usize, usize); 5] = [
    (2, 3, 4, 5, 6),
    (1, 64, 64, 8, 3),
    (3, 65, 130, 2, 1),
    (2, 130, 7, 4, 9),
    (1, 1, 129, 1, 2),
];

/// The formula with a whole row of scores at once.
fn by_formula(case: &Case<f64>) -> Vec<f64> {
    let s = case.sizes;
    let mut out = Vec::new();
    for row in 0..s.groups * s.queries {
        let group = row / s.queries;
        let q = &case.query[row * s.features..][..s.features];
        let weights: Vec<f64> = (0..s.keys)
            .map(|key| {
                let k = &case.key[(group * s.keys + key) * s.features..][..s.features];
                let dot: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
                let mask = case.mask.as_ref();
                let added = mask.map_or(0.0, |(rows, of)| rows[of[row] * s.keys + key]);
                (SCALE * dot + added).exp()
            })
            .collect();
        let sum: f64 = weights.iter().sum();
        out.extend((0..s.width).map(|column| {
            let value = |key: usize| case.value[(group * s.keys + key) * s.width + column];
            let total: f64 = (0..s.keys).map(|key| weights[key] * value(key)).sum();
            // Nothing is seen.
            if sum == 0.0 { 0.0 } else { total / sum }
        }));
    }
    out
}

/// All shapes, with and without a mask.
fn cases<T: Element>() -> impl Iterator<Item = Case<T>> {
    let masked = SHAPES.into_iter().map(Case::masked);
    SHAPES.into_iter().map(Case::new).chain(masked)
}

#[test]
fn blocks_give_the_result_of_the_formula() {
    for case in cases::<f64>() {
        let shape = case.sizes;
        let (out, _) = case.forward();
        for (got, expected) in out.iter().zip(by_formula(&case)) {
            assert!(
                (got - expected).abs() < 1e-13,
                "{shape:?}: {got} {expected}"
            );
        }
    }
}

#[test]
fn large_scores_neither_overflow_nor_vanish() {
    let mut case = Case::<f32>::new((1, 2, 70, 1, 1));
    case.query.fill(1.0);
    // The largest score comes in the second block.
    case.key = (0..70).map(|key| key as f32 * 1e4).collect();
    let (out, normaliser) = case.forward();
    assert_eq!(out, [case.value[69]; 2]);
    assert!(normaliser.iter().all(|n| n.is_finite()));
}

#[test]
fn gradients_are_central_differences() {
    for case in cases::<f64>().map(Case::with_all_rows) {
        let shape = case.sizes;
        let g = values(case.forward().0.len(), 9);
        let gradients = case.backward(&g);
        let loss = |case: &Case<f64>| -> f64 {
            let out = by_formula(case);
            out.iter().zip(&g).map(|(out, g)| out * g).sum()
        };
        let step = 1e-5;
        for (tensor, gradient) in gradients.iter().enumerate() {
            // A few elements of each, in all blocks.
            let stride = (gradient.len() / 7).max(1);
            for index in (0..gradient.len()).step_by(stride) {
                let moved = |by: f64| {
                    let mut moved = case.clone();
                    let mask = &mut moved.mask.as_mut().unwrap().0;
                    let tensors = [&mut moved.query, &mut moved.key, &mut moved.value, mask];
                    tensors.into_iter().nth(tensor).unwrap()[index] += by;
                    loss(&moved)
                };
                let expected = (moved(step) - moved(-step)) / (2.0 * step);
                let got = gradient[index];
                assert!(
                    (got - expected).abs() < 1e-8,
                    "{shape:?}, tensor {tensor}, {index}: {got} {expected}"
                );
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    for case in cases::<f32>() {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            pool.build().unwrap().install(|| {
                let (out, normaliser) = case.forward();
                let gradients = case.backward(&out);
                (out, normaliser, gradients)
            })
        };
        assert_eq!(run(1), run(3));
    }
}

/// Gradients of scores do not change the others, and need neither features nor values.
#[test]
fn gradients_of_scores_may_be_wanted_or_not() {
    for case in cases::<f32>() {
        let g = case.forward().0;
        let [of_q, of_k, of_v, _] = case.backward(&g);
        let [mut q, mut k, mut v] = [&of_q, &of_k, &of_v].map(|own| vec![f32::NAN; own.len()]);
        let [query, key, value] = [&mut q, &mut k, &mut v];
        let without = AttentionGradients {
            query,
            key,
            value,
            scores: None,
        };
        case.backward_to(&g, without);
        assert_eq!([q, k, v], [of_q, of_k, of_v]);
    }
    let [.., scores] = Case::<f64>::masked((2, 3, 70, 0, 0)).backward(&[]);
    assert_eq!(scores, [0.0; 2 * 3 * 70]);
}

#[test]
fn nothing_to_attend_to_is_zero() {
    let case = Case::<f64>::new((2, 3, 0, 4, 5));
    let (out, normaliser) = case.forward();
    assert!(out.iter().all(|&x| x == 0.0));
    assert!(normaliser.iter().all(|&x| x == f64::NEG_INFINITY));
    let [query, key, value, _] = case.backward(&out);
    assert!(query.iter().all(|&x| x == 0.0) && key.is_empty() && value.is_empty());
}

#[test]
fn a_hidden_key_is_as_good_as_none() {
    // A mask hides the keys that the shorter case lacks, in the last block and in separate blocks.
    for (short, long) in [(3, 5), (64, 200), (70, 75)] {
        let few = Case::<f32>::new((1, 9, short, 4, 3));
        let mut many = few.clone();
        many.sizes.keys = long;
        many.key.resize(4 * long, 7.0);
        many.value.resize(3 * long, 9.0);
        let row = (0..long).map(|key| if key < short { 0.0 } else { f32::NEG_INFINITY });
        many.mask = Some((row.collect(), vec![0; 9]));
        assert_eq!(few.forward(), many.forward(), "{short} of {long}");
        let g = few.forward().0;
        let ([q, k, v, s], [of_q, of_k, of_v, of_s]) = (few.backward(&g), many.backward(&g));
        assert_eq!(q, of_q);
        for (of_s, s) in of_s.chunks_exact(long).zip(s.chunks_exact(short)) {
            assert_eq!(&of_s[..short], s);
            assert!(of_s[short..].iter().all(|&x| x == 0.0));
        }
        assert_eq!((&k[..], &v[..]), (&of_k[..k.len()], &of_v[..v.len()]));
        assert!(
            of_k[k.len()..]
                .iter()
                .chain(&of_v[v.len()..])
                .all(|&x| x == 0.0)
        );
    }
}

#[test]
fn hidden_keys_do_not_hide_nan() {
    let mut case = Case::<f64>::new((1, 1, 2, 1, 1));
    case.query[0] = f64::NAN;
    assert!(case.forward().0[0].is_nan());
    case.mask = Some((vec![0.0, f64::NEG_INFINITY], vec![0]));
    assert!(case.forward().0[0].is_nan());
}

#[test]
fn wrong_lengths_are_errors() {
    let case = Case::<f64>::new((2, 3, 4, 5, 6));
    let inputs = case.inputs();
    let mut buffers = ([0.0; 36], [0.0; 6]);
    for (len, n_len) in [(35, 6), (36, 5)] {
        let (out, normaliser) = (&mut buffers.0[..len], &mut buffers.1[..n_len]);
        let result = forward(case.sizes, 1.0, inputs, out, normaliser);
        assert!(matches!(result, Err(Error::LengthMismatch { .. })));
    }
    let short = AttentionInputs {
        key: &case.key[1..],
        ..inputs
    };
    let result = forward(case.sizes, 1.0, short, &mut buffers.0, &mut buffers.1);
    assert!(matches!(result, Err(Error::LengthMismatch { .. })));
    let [mut query, mut key, mut value, mut scores] = [30, 40, 48, 23].map(|len| vec![0.0; len]);
    let to = AttentionGradients {
        query: &mut query,
        key: &mut key,
        value: &mut value,
        scores: Some(&mut scores),
    };
    let (out, normaliser) = case.forward();
    let result = backward(case.sizes, 1.0, inputs, &out, &normaliser, &out, to);
    assert!(matches!(result, Err(Error::LengthMismatch { .. })));
}

/// Changes of all inputs of a case.
fn changes(case: &Case<f64>) -> Case<f64> {
    let lens = [&case.query, &case.key, &case.value].map(Vec::len);
    let [query, key, value] =
        [(lens[0], 11), (lens[1], 12), (lens[2], 13)].map(|(len, seed)| values(len, seed));
    Case {
        query,
        key,
        value,
        mask: None,
        sizes: case.sizes,
    }
}

impl Case<f64> {
    fn moved(&self, along: &Self, step: f64) -> Self {
        let moved = |x: &[f64], u: &[f64]| x.iter().zip(u).map(|(x, u)| x + step * u).collect();
        Self {
            query: moved(&self.query, &along.query),
            key: moved(&self.key, &along.key),
            value: moved(&self.value, &along.value),
            ..self.clone()
        }
    }

    fn tangents(&self) -> AttentionTangents<'_, f64> {
        AttentionTangents {
            query: &self.query,
            key: &self.key,
            value: &self.value,
        }
    }

    fn tangent(&self, along: &Self) -> Vec<f64> {
        let mut out = vec![f64::NAN; self.sizes.groups * self.sizes.queries * self.sizes.width];
        tangent(
            self.sizes,
            SCALE,
            self.inputs(),
            &[along.tangents()],
            &mut out,
        )
        .unwrap();
        out
    }

    /// The gradients of queries, keys, values and scores, and of their changes.
    fn tangent_backward(&self, along: &Self, gradient: &[f64]) -> [[Vec<f64>; 4]; 2] {
        let scores = self.sizes.groups * self.sizes.queries * self.sizes.keys;
        let lens = [&self.query, &self.key, &self.value].map(Vec::len);
        let lens = [lens[0], lens[1], lens[2], scores];
        let mut to = [lens; 2].map(|lens| lens.map(|len| vec![f64::NAN; len]));
        let mut gradients = to.each_mut().map(|to| {
            let [query, key, value, scores] = to;
            AttentionGradients {
                query,
                key,
                value,
                scores: Some(scores),
            }
        });
        let (inputs, along) = (self.inputs(), [along.tangents()]);
        tangent_backward(self.sizes, SCALE, inputs, &along, gradient, &mut gradients).unwrap();
        to
    }
}

fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// More queries and keys than a block has, and masks that hide all keys of some.
#[test]
fn tangents_are_differences() {
    let sizes = (2, 70, 67, 3, 5);
    for case in [
        Case::new(sizes),
        Case::masked(sizes),
        Case::new((1, 3, 0, 2, 2)),
    ] {
        let along = changes(&case);
        let found = case.tangent(&along);
        assert_eq!(found, case.tangent(&along));
        let [after, before] = [1e-5, -1e-5].map(|step| case.moved(&along, step).forward().0);
        for (at, found) in found.iter().enumerate() {
            let difference = (after[at] - before[at]) / 2e-5;
            assert!(
                (found - difference).abs() < 1e-8,
                "{at}: {found}, {difference}"
            );
        }
    }
}

/// The gradients of changes equal the gradients of attention, and the others are differences along a third change.
#[test]
fn gradients_of_tangents_are_differences() {
    let sizes = (2, 70, 67, 3, 5);
    for case in [Case::new(sizes), Case::masked(sizes)] {
        let along = changes(&case);
        let gradient = values(case.tangent(&along).len(), 17);
        let [of, of_along] = case.tangent_backward(&along, &gradient);
        for (found, expected) in of_along.iter().zip(&case.backward(&gradient)) {
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-12, "{found}, {expected}");
            }
        }
        let parts = |case: &Case<f64>| [case.query.clone(), case.key.clone(), case.value.clone()];
        for (part, of) in of[..3].iter().enumerate() {
            let mut third = changes(&case);
            let [query, key, value] = [&mut third.query, &mut third.key, &mut third.value];
            for (at, own) in [query, key, value].into_iter().enumerate() {
                match at == part {
                    true => *own = values(own.len(), 23),
                    false => own.fill(0.0),
                }
            }
            let moved = |step| product(&gradient, &case.moved(&third, step).tangent(&along));
            let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            let found = product(of, &parts(&third)[part]);
            assert!(
                (found - difference).abs() < 1e-7 * (1.0 + found.abs()),
                "part {part}: {found}, {difference}"
            );
        }
        if let Some((rows, of_query)) = &case.mask {
            // The numbers of the mask that are shown.
            let change: Vec<f64> = values(rows.len(), 29);
            let moved = |step: f64| {
                let rows = rows.iter().zip(&change).map(|(own, by)| own + step * by);
                let mask = Some((rows.collect(), of_query.clone()));
                let case = Case {
                    mask,
                    ..case.clone()
                };
                product(&gradient, &case.tangent(&along))
            };
            let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            let keys = case.sizes.keys;
            let found: f64 = of_query
                .iter()
                .zip(of[3].chunks_exact(keys))
                .map(|(&row, scores)| product(scores, &change[row * keys..][..keys]))
                .sum();
            assert!(
                (found - difference).abs() < 1e-7 * (1.0 + found.abs()),
                "mask: {found}, {difference}"
            );
        }
    }
}

/// The components of jets along some directions, after a case.
fn jets(case: &Case<f64>, directions: usize) -> Vec<Case<f64>> {
    let drawn = |at: usize| {
        let lens = [&case.query, &case.key, &case.value].map(Vec::len);
        let [query, key, value] = [0, 1, 2].map(|part| values(lens[part], (31 * at + part) as u64));
        Case {
            query,
            key,
            value,
            ..changes(case)
        }
    };
    (1..1 << directions).map(drawn).collect()
}

impl Case<f64> {
    fn tangent_of(&self, along: &[Self]) -> Vec<f64> {
        let mut out = vec![f64::NAN; self.sizes.groups * self.sizes.queries * self.sizes.width];
        let along: Vec<_> = along.iter().map(Self::tangents).collect();
        tangent(self.sizes, SCALE, self.inputs(), &along, &mut out).unwrap();
        out
    }

    /// The gradients of all components, queries, keys and values one after another.
    fn tangent_gradients(&self, along: &[Self], gradient: &[f64]) -> Vec<Vec<f64>> {
        let own = [&self.query, &self.key, &self.value].map(Vec::len);
        let mut to = vec![vec![f64::NAN; own.iter().sum()]; along.len() + 1];
        let gradients = to.iter_mut().map(|to| {
            let (query, rest) = to.split_at_mut(own[0]);
            let (key, value) = rest.split_at_mut(own[1]);
            AttentionGradients {
                query,
                key,
                value,
                scores: None,
            }
        });
        let (mut gradients, along): (Vec<_>, Vec<_>) = (
            gradients.collect(),
            along.iter().map(Self::tangents).collect(),
        );
        let inputs = self.inputs();
        tangent_backward(self.sizes, SCALE, inputs, &along, gradient, &mut gradients).unwrap();
        to
    }

    fn all(&self) -> Vec<f64> {
        [&self.query[..], &self.key, &self.value].concat()
    }
}

/// Along one more direction a derivative is a difference, and the product of its gradients with changes is the product
/// of the result's gradient with that difference.
#[test]
fn derivatives_of_each_order_are_differences() {
    let sizes = (2, 66, 19, 3, 5);
    for (case, directions) in [Case::new(sizes), Case::masked(sizes)]
        .iter()
        .flat_map(|case| (1..=MOST_DIRECTIONS).map(move |count| (case, count)))
    {
        let own = jets(case, directions);
        let gradient = values(
            case.sizes.groups * case.sizes.queries * case.sizes.width,
            17,
        );
        let changes: Vec<_> = (0..1 << directions)
            .map(|at| jets(case, directions + 1)[(1 << directions) - 1 + at].clone())
            .collect();
        let moved = |step: f64| {
            let along = own.iter().zip(&changes[1..]);
            let along: Vec<_> = along.map(|(own, by)| own.moved(by, step)).collect();
            case.moved(&changes[0], step).tangent_of(&along)
        };
        let pairs = moved(1e-5).into_iter().zip(moved(-1e-5));
        let difference: Vec<f64> = pairs
            .map(|(after, before)| (after - before) / 2e-5)
            .collect();
        let largest = difference
            .iter()
            .fold(1.0, |most: f64, own| most.max(own.abs()));
        if directions < MOST_DIRECTIONS {
            let along: Vec<_> = own.iter().chain(&changes).cloned().collect();
            for (found, expected) in case.tangent_of(&along).iter().zip(&difference) {
                let apart = (found - expected).abs();
                assert!(apart < 1e-7 * largest, "{directions}: {found}, {expected}");
            }
        }
        let gradients = case.tangent_gradients(&own, &gradient);
        let pairs = gradients.iter().zip(&changes);
        let found: f64 = pairs.map(|(of, by)| product(of, &by.all())).sum();
        let expected = product(&gradient, &difference);
        let bound = 1e-7 * largest * gradient.len() as f64;
        assert!(
            (found - expected).abs() < bound,
            "{directions}: {found}, {expected}"
        );
    }
}

#[test]
fn changes_are_of_one_to_three_directions() {
    let case = Case::new((1, 2, 2, 1, 1));
    let mut out = vec![0.0; 2];
    for count in [0, 2, 15] {
        let along = changes(&case);
        let along = vec![along.tangents(); count];
        let result = tangent(case.sizes, 1.0, case.inputs(), &along, &mut out);
        assert!(
            matches!(result, Err(Error::InvalidOption { .. })),
            "{count}"
        );
    }
    let own = changes(&case);
    let result = tangent_backward(
        case.sizes,
        1.0,
        case.inputs(),
        &[own.tangents()],
        &out,
        &mut [],
    );
    assert!(matches!(result, Err(Error::InvalidOption { .. })));
}
