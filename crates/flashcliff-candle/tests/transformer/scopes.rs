//! Masks and ragged batches of GATr: a sequence is as if it were alone, and what does not fit is an error.

use candle_core::{DType, Device, Tensor, Var};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Channels, CrossAttention, GeometricBilinear, Mask, Scope, SelfAttention,
    Sequences, Tokens, join_reference_within,
};

use crate::common::{assert_close, disturb, random, says, values};
use crate::{network, options};

/// Lengths that make several chunks, an empty sequence, and more keys than a block of attention has.
const LENGTHS: [usize; 8] = [5, 1, 0, 70, 33, 2, 17, 40];
const LONGEST: usize = 70;

/// Rows of sequences, and for each its place among padded items.
fn places() -> Vec<usize> {
    let each = LENGTHS.iter().enumerate();
    let places = each.flat_map(|(at, &length)| (0..length).map(move |i| at * LONGEST + i));
    places.collect()
}

fn rows(padded: &Tensor) -> Tensor {
    let (samples, items, width) = padded.dims3().unwrap();
    let places: Vec<u32> = places().into_iter().map(|at| at as u32).collect();
    let places = Tensor::from_vec(places, LENGTHS.iter().sum::<usize>(), &Device::Cpu).unwrap();
    let rows = padded.reshape((samples * items, width)).unwrap();
    rows.index_select(&places, 0).unwrap()
}

fn sequences() -> Sequences {
    Sequences::of_lengths(&LENGTHS)
}

/// The mask of padded samples.
fn padding() -> Scope {
    let shown = LENGTHS
        .iter()
        .flat_map(|&length| (0..LONGEST).map(move |i| u8::from(i < length)));
    let shape = (LENGTHS.len(), 1, LONGEST);
    let shown = Tensor::from_vec(shown.collect(), shape, &Device::Cpu).unwrap();
    Scope::Masked(Mask::boolean(&shown, DType::F64).unwrap())
}

#[test]
fn a_ragged_batch_is_as_padded_samples() {
    let (net, parameters) = network(true, DType::F64);
    let channels = options(true).input;
    // The padding has numbers too, which must not matter.
    let shape = [LENGTHS.len(), LONGEST, channels.width()];
    let padded = Var::from_tensor(&random(&shape, 5)).unwrap();
    let reference = random(&[LENGTHS.len(), LONGEST, 1], 6);
    let total = LENGTHS.iter().sum::<usize>();
    let ragged = rows(padded.as_tensor()).detach();
    let ragged = Var::from_tensor(&ragged.reshape((1, total, shape[2])).unwrap()).unwrap();
    let of_rows = rows(&reference).reshape((1, total)).unwrap();
    let reference = reference.squeeze(2).unwrap();

    let run = |x: &Var, reference: &Tensor, scope: &Scope| {
        let x = Tokens::from_packed(x.as_tensor().clone(), channels).unwrap();
        net.forward_within(&x, Some(reference), scope).unwrap()
    };
    let a = run(&ragged, &of_rows, &Scope::Within(sequences()));
    let b = run(&padded, &reference, &padding());
    let (a, b) = (a.packed().squeeze(0).unwrap(), rows(b.packed()));
    // Matrix products of other numbers of rows may round otherwise.
    assert_close(&values(&a), &values(&b), 1e-13, "results");

    let weights = random(a.dims(), 9);
    let loss = |out: &Tensor| (out * &weights).unwrap().sum_all().unwrap();
    let (a, b) = (loss(&a).backward().unwrap(), loss(&b).backward().unwrap());
    let of_ragged = a.get(&ragged).unwrap().squeeze(0).unwrap();
    let of_padded = rows(b.get(&padded).unwrap());
    let (a_x, b_x) = (values(&of_ragged), values(&of_padded));
    assert_close(&a_x, &b_x, 1e-12, "gradients of items");
    for (name, var) in parameters.variables() {
        let (a, b) = (a.get(&var).unwrap(), b.get(&var).unwrap());
        let largest = values(a).into_iter().fold(0.0_f64, |l, g| l.max(g.abs()));
        // Some gradients are zero but for rounding: the gradients of what all keys share.
        if largest > 1e-12 {
            assert_close(&values(a), &values(b), 1e-10, &name);
        }
    }
}

#[test]
fn references_are_means_of_sequences() {
    let channels = Channels::new(3, 2);
    let lengths = [2, 0, 4];
    let x = Var::from_tensor(&random(&[1, 6, channels.width()], 3)).unwrap();
    let tokens = Tokens::from_packed(x.as_tensor().clone(), channels).unwrap();
    let scope = Scope::Within(Sequences::of_lengths(&lengths));
    let reference = join_reference_within(&tokens, &scope).unwrap();
    assert_eq!(reference.dims(), [1, 6]);
    let all = values(tokens.packed());
    let component = |row: usize| {
        all[row * channels.width() + 14 * 3..][..3]
            .iter()
            .sum::<f64>()
    };
    let (first, second) = ((0..2).map(component), (2..6).map(component));
    let (first, second) = (first.sum::<f64>() / 6.0, second.sum::<f64>() / 12.0);
    let expected = [first, first, second, second, second, second];
    assert_close(&values(&reference), &expected, 1e-14, "references");
    // Each component counts as often as its sequence has items, over the number that the mean is of.
    let gradients = reference.sum_all().unwrap().backward().unwrap();
    let gradient = values(gradients.get(&x).unwrap());
    for row in 0..6 {
        for at in 0..channels.width() {
            let expected = if (42..45).contains(&at) {
                1.0 / 3.0
            } else {
                0.0
            };
            let got = gradient[row * channels.width() + at];
            assert!((got - expected).abs() < 1e-14, "{row} {at}: {got}");
        }
    }
    let means = join_reference_within(&tokens, &Scope::Sample).unwrap();
    let mean = (0..6).map(component).sum::<f64>() / 18.0;
    assert_close(&values(&means), &[mean; 6], 1e-14, "the mean of a sample");
}

#[test]
fn attention_to_the_same_set_is_self_attention() {
    let channels = Channels::new(3, 5);
    let attention = options(true).attention;
    let own = Parameters::seeded(3);
    let vb = own.builder(DType::F64, &Device::Cpu);
    let within = SelfAttention::new(channels, attention, vb).unwrap();
    disturb(&own, 7);
    let others = Parameters::seeded(4);
    let vb = others.builder(DType::F64, &Device::Cpu);
    let across = CrossAttention::new(channels, channels, attention, vb).unwrap();
    for (name, var) in others.variables() {
        let of_own = match name.split_once('.') {
            Some(("q_linear" | "k_linear" | "v_linear", _)) => format!("qkv_module.{name}"),
            _ => name,
        };
        var.set(own.get(&of_own).unwrap().as_tensor()).unwrap();
    }
    let x = random(&[2, 7, channels.width()], 3);
    let x = Tokens::from_packed(x, channels).unwrap();
    let shown =
        random(&[2, 7, 7], 8).ge(&Tensor::zeros((2, 7, 7), DType::F64, &Device::Cpu).unwrap());
    let mask = Scope::Masked(Mask::boolean(&shown.unwrap(), DType::F64).unwrap());
    for scope in [Scope::Sample, mask] {
        let a = within.forward_within(&x, &scope).unwrap();
        let b = across.forward_within(&x, &x, &scope).unwrap();
        let (a, b) = (values(a.packed()), values(b.packed()));
        assert_close(&a, &b, 1e-13, "samples");
    }
    let sequences = Sequences::new(&[0, 3, 7]).unwrap();
    let one = Tokens::from_packed(x.packed().narrow(0, 0, 1).unwrap(), channels).unwrap();
    let a = within
        .forward_within(&one, &Scope::Within(sequences.clone()))
        .unwrap();
    let between = Scope::Between(sequences.clone(), sequences);
    let b = across.forward_within(&one, &one, &between).unwrap();
    let (a, b) = (values(a.packed()), values(b.packed()));
    assert_close(&a, &b, 1e-13, "sequences");
}

#[test]
fn an_item_that_sees_nothing_gets_the_bias_alone() {
    let channels = Channels::new(3, 5);
    let parameters = Parameters::seeded(3);
    let vb = parameters.builder(DType::F64, &Device::Cpu);
    let layer = SelfAttention::new(channels, options(true).attention, vb).unwrap();
    let x = Var::from_tensor(&random(&[1, 2, channels.width()], 3)).unwrap();
    let tokens = Tokens::from_packed(x.as_tensor().clone(), channels).unwrap();
    let shown = Tensor::new(&[[0_u8, 0], [255, 7]], &Device::Cpu).unwrap();
    let mask = Scope::Masked(Mask::boolean(&shown, DType::F64).unwrap());
    let out = layer.forward_within(&tokens, &mask).unwrap();
    let row = values(&out.packed().narrow(1, 0, 1).unwrap());
    let bias = values(&parameters.get("out_linear.s2mvs.bias").unwrap());
    assert_eq!(row[..3], bias[..]);
    assert!(row[3..48].iter().all(|&x| x == 0.0));
    assert_eq!(
        row[48..],
        values(&parameters.get("out_linear.mvs2s.bias").unwrap())[..]
    );
    let first = out.packed().narrow(1, 0, 1).unwrap().sum_all().unwrap();
    let gradients = first.backward().unwrap();
    assert!(values(gradients.get(&x).unwrap()).iter().all(|&g| g == 0.0));
}

/// A learned bias of pairs, for all samples or for each, of all heads or of each.
#[test]
fn masks_that_depend_on_variables_get_gradients() {
    let (channels, samples, items) = (Channels::new(3, 5), 40, 3);
    let x = random(&[samples, items, channels.width()], 3);
    let weights = random(&[samples, items, channels.width()], 4);
    for multi_query in [true, false] {
        let parameters = Parameters::seeded(3);
        let vb = parameters.builder(DType::F64, &Device::Cpu);
        let layer = SelfAttention::new(channels, options(multi_query).attention, vb).unwrap();
        disturb(&parameters, 5);
        for shape in [
            &[items, items][..],
            &[samples, 1, items],
            &[1, 2, 1, items],
            &[samples, 2, items, items],
        ] {
            let bias = Var::from_tensor(&random(shape, 6)).unwrap();
            let loss = || {
                let tokens = Tokens::from_packed(x.clone(), channels).unwrap();
                // A node of candle between the variable and the mask.
                let mask = Mask::additive(&(bias.as_tensor() * 2.0).unwrap()).unwrap();
                let out = layer.forward_within(&tokens, &Scope::Masked(mask)).unwrap();
                (out.packed() * &weights).unwrap().sum_all().unwrap()
            };
            let gradients = loss().backward().unwrap();
            let gradient = gradients.get(&bias).unwrap();
            assert_eq!(gradient.dims(), shape);
            let (gradient, before) = (values(gradient), values(&bias));
            for at in [0, before.len() / 2, before.len() - 1] {
                let moved = |by: f64| {
                    let mut moved = before.clone();
                    moved[at] += by;
                    let moved = Tensor::from_vec(moved, shape, &Device::Cpu).unwrap();
                    bias.set(&moved).unwrap();
                    values(&loss())[0]
                };
                let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                moved(0.0);
                let got = gradient[at];
                assert!(
                    (got - expected).abs() < 1e-7,
                    "{shape:?}, {at}: {got}, {expected}"
                );
            }
        }
    }
}

#[test]
fn bad_offsets_are_errors() {
    says(Sequences::new(&[]), &["offset 0", "expected 0", "got none"]);
    says(
        Sequences::new(&[1, 2]),
        &["offset 0", "expected 0", "got 1"],
    );
    says(
        Sequences::new(&[0, 3, 2]),
        &["offset 2", "3 or more", "got 2"],
    );
    let tensor = |numbers: &[i64]| Tensor::new(numbers, &Device::Cpu).unwrap();
    assert_eq!(
        Sequences::from_tensor(&tensor(&[0, 3, 3]))
            .unwrap()
            .offsets(),
        [0, 3, 3]
    );
    says(
        Sequences::from_tensor(&tensor(&[0, -3])),
        &["offset 1", "0 or more", "got -3"],
    );
    let floats = Tensor::new(&[0.0, 1.0], &Device::Cpu).unwrap();
    says(
        Sequences::from_tensor(&floats),
        &["offsets", "integers", "F64"],
    );
    let wide = tensor(&[0, 3]).reshape((1, 2)).unwrap();
    says(
        Sequences::from_tensor(&wide),
        &["offsets", "[sequences + 1]", "[1, 2]"],
    );

    let (net, _) = network(true, DType::F64);
    let channels = options(true).input;
    let x = |samples, items| {
        let packed = random(&[samples, items, channels.width()], 1);
        Tokens::from_packed(packed, channels).unwrap()
    };
    let scope = Scope::Within(Sequences::new(&[0, 2, 5]).unwrap());
    says(
        net.forward_within(&x(1, 6), None, &scope),
        &["offset 2", "expected 6", "got 5"],
    );
    says(
        net.forward_within(&x(2, 5), None, &scope),
        &["1 sample", "2 samples"],
    );
    let two = Sequences::new(&[0, 2, 5]).unwrap();
    let both = Scope::Between(two.clone(), two);
    says(
        net.forward_within(&x(1, 5), None, &both),
        &["one set", "Between"],
    );
}

#[test]
fn bad_masks_are_errors() {
    let tensor = |shape: &[usize]| Tensor::ones(shape, DType::F64, &Device::Cpu).unwrap();
    says(
        Mask::additive(&tensor(&[3])),
        &["mask", "[queries, keys]", "[3]"],
    );
    let bytes = tensor(&[3, 3]).to_dtype(DType::U8).unwrap();
    says(Mask::additive(&bytes), &["mask", "float", "U8"]);
    says(
        Mask::boolean(&tensor(&[3, 3]), DType::F64),
        &["mask", "U8", "F64"],
    );
    says(Mask::boolean(&bytes, DType::U32), &["mask", "U32"]);

    let channels = Channels::new(3, 5);
    let parameters = Parameters::seeded(3);
    let vb = || parameters.builder(DType::F64, &Device::Cpu);
    let layer = SelfAttention::new(channels, options(true).attention, vb()).unwrap();
    let x = Tokens::from_packed(random(&[4, 3, channels.width()], 3), channels).unwrap();
    for shape in [
        &[3, 4][..],
        &[2, 3, 3],
        &[4, 3, 3, 3],
        &[4, 2, 2, 3],
        &[3, 1],
    ] {
        let scope = Scope::Masked(Mask::additive(&tensor(shape)).unwrap());
        let words = ["self_attention: mask", "[4 or 1, 2 or 1, 3 or 1, 3]"];
        says(layer.forward_within(&x, &scope), &words);
    }
    for shape in [&[1, 3][..], &[3, 3], &[4, 1, 3], &[1, 2, 3, 3]] {
        let scope = Scope::Masked(Mask::additive(&tensor(shape)).unwrap());
        layer.forward_within(&x, &scope).unwrap();
    }
    let single = Mask::boolean(&bytes, DType::F32).unwrap();
    let words = ["self_attention", "F64, the type of input 0", "F32"];
    says(layer.forward_within(&x, &Scope::Masked(single)), &words);
}

#[test]
fn bad_sets_are_errors() {
    let (channels, others) = (Channels::new(3, 5), Channels::new(2, 4));
    let parameters = Parameters::seeded(3);
    let vb = || parameters.builder(DType::F64, &Device::Cpu);
    let none = AttentionOptions {
        heads: 0,
        ..AttentionOptions::default()
    };
    says(
        CrossAttention::new(channels, others, none, vb()),
        &["heads"],
    );
    let layer = CrossAttention::new(channels, others, AttentionOptions::default(), vb()).unwrap();
    let tokens = |samples, items, channels: Channels| {
        let packed = random(&[samples, items, channels.width()], 1);
        Tokens::from_packed(packed, channels).unwrap()
    };
    let x = tokens(1, 5, channels);
    says(
        layer.forward(&x, &tokens(2, 3, others)),
        &["keys and values", "[1, items"],
    );
    says(
        layer.forward(&x, &tokens(1, 3, channels)),
        &["channels of tokens"],
    );
    let key = tokens(1, 3, others);
    let sequences = |offsets: &[usize]| Sequences::new(offsets).unwrap();
    let between = |a: &[usize], b: &[usize]| Scope::Between(sequences(a), sequences(b));
    let run = |scope: &Scope| layer.forward_within(&x, &key, scope);
    says(
        run(&Scope::Within(sequences(&[0, 5]))),
        &["two sets", "Within"],
    );
    says(run(&between(&[0, 5], &[0, 4])), &["expected 3", "got 4"]);
    says(run(&between(&[0, 4], &[0, 3])), &["expected 5", "got 4"]);
    says(
        run(&between(&[0, 1, 5], &[0, 3])),
        &["2 sequences of keys", "got 1"],
    );
    let square = Tensor::ones((5, 5), DType::F64, &Device::Cpu).unwrap();
    let square = Scope::Masked(Mask::additive(&square).unwrap());
    says(run(&square), &["cross_attention: mask", "5 or 1, 3]"]);
    assert_eq!(
        run(&between(&[0, 1, 5], &[0, 0, 3]))
            .unwrap()
            .packed()
            .dims(),
        [1, 5, 53]
    );

    let bilinear = GeometricBilinear::new(channels, Channels::new(2, 1), vb().pp("b")).unwrap();
    says(bilinear.forward_without_joins(&x), &["reference", "joins"]);
}
