//! Attention, and the features of heads.

use flashcliff::Error;
use flashcliff::attention::{
    self, AttentionGradients, AttentionInputs, AttentionMask, AttentionSizes, DistancePoint,
    HeadDistances, HeadFeatures, HeadItems, HeadItemsMut, HeadScales, HeadSizes, HeadStrides,
};

use crate::{Draw, all_return};

#[test]
fn attention() {
    all_return(40_000, |draw, describe| {
        let sizes = AttentionSizes {
            groups: draw.size(),
            queries: draw.size(),
            keys: draw.size(),
            features: draw.size(),
            width: draw.size(),
        };
        let of_queries = [sizes.groups, sizes.queries];
        let of_scores = [sizes.groups, sizes.queries, sizes.keys];
        let query = draw.slice(&[sizes.groups, sizes.queries, sizes.features]);
        let key = draw.slice(&[sizes.groups, sizes.keys, sizes.features]);
        let value = draw.slice(&[sizes.groups, sizes.keys, sizes.width]);
        let mut out = draw.slice(&[sizes.groups, sizes.queries, sizes.width]);
        let mut normaliser = draw.slice(&of_queries);
        let count = draw.size();
        let rows = draw.slice(&[count, sizes.keys]);
        let highest = draw.size();
        let mut of_query = vec![0_usize; draw.len(&of_queries)];
        if let Some(last) = of_query.last_mut() {
            *last = highest;
        }
        let mask = (draw.below(2) > 0).then_some(AttentionMask {
            rows: &rows,
            of_query: &of_query,
        });
        describe(format!("{sizes:?} {mask:?}"));
        let inputs = AttentionInputs {
            query: &query,
            key: &key,
            value: &value,
            mask,
        };
        let _ = attention::forward(sizes, 0.5, inputs, &mut out, &mut normaliser);
        let [mut to_q, mut to_k, mut to_v] = [&query, &key, &value].map(Vec::clone);
        let mut to_s = (draw.below(2) > 0).then(|| draw.slice(&of_scores));
        let gradients = AttentionGradients {
            query: &mut to_q,
            key: &mut to_k,
            value: &mut to_v,
            scores: to_s.as_deref_mut(),
        };
        let _ = attention::backward(sizes, 0.5, inputs, &out, &normaliser, &out, gradients);
    });
}

#[test]
fn a_mask_whose_last_row_has_no_successor_is_refused() {
    let sizes = AttentionSizes {
        groups: 1,
        queries: 2,
        keys: 1,
        features: 1,
        width: 1,
    };
    let mask = AttentionMask {
        rows: &[],
        of_query: &[usize::MAX, 0],
    };
    let inputs = AttentionInputs {
        query: &[0.0_f32; 2],
        key: &[0.0],
        value: &[0.0],
        mask: Some(mask),
    };
    let result = attention::forward(sizes, 1.0, inputs, &mut [0.0; 2], &mut [0.0; 2]);
    assert!(
        matches!(result, Err(Error::LengthMismatch { .. })),
        "{result:?}"
    );
}

/// The place of the last element of items: those are the lengths that calls accept.
fn reach(axes: [(usize, usize); 2], len: usize) -> usize {
    let steps = axes.map(|(size, stride)| size.saturating_sub(1).saturating_mul(stride));
    match len == 0 || axes.iter().any(|&(size, _)| size == 0) {
        true => 0,
        false => steps[0].saturating_add(steps[1]).saturating_add(len),
    }
}

fn stride(draw: &mut Draw, least: usize) -> usize {
    match draw.below(3) {
        0 => draw.size(),
        _ => least.saturating_add(draw.below(2)),
    }
}

#[test]
fn features_of_heads() {
    all_return(60_000, |draw, describe| {
        let sizes = HeadSizes {
            rows: draw.size(),
            channels: draw.size(),
            scalars: draw.size(),
            heads: draw.size(),
            width: draw.size(),
            items: draw.size(),
        };
        let taken: Vec<_> = (0..draw.below(4)).map(|at| (at, false)).collect();
        let mut of = HeadFeatures {
            blades: draw.size(),
            taken,
            distances: (draw.below(3) == 0).then(|| HeadDistances {
                of_queries: draw.below(2) > 0,
                first: draw.size(),
                coordinates: draw.size(),
                eps: 0.1,
            }),
        };
        if let (Some(last), 0) = (of.taken.last_mut(), draw.below(3)) {
            last.0 = draw.size();
        }
        let of_item = sizes.channels.saturating_mul(sizes.heads);
        let of_scalars = sizes.scalars.saturating_mul(sizes.heads);
        let row = stride(draw, of_item);
        let strides = HeadStrides {
            blade: stride(draw, row.saturating_mul(sizes.rows)),
            row,
            scalars: stride(draw, of_scalars),
        };
        let needed = reach([(of.blades, strides.blade), (sizes.rows, row)], of_item);
        let multivectors = draw.slice(&[needed]);
        let scalars = draw.slice(&[reach([(sizes.rows, strides.scalars), (1, 0)], of_scalars)]);
        let weights = match draw.below(2) {
            0 => Vec::new(),
            _ => draw.slice(&[sizes.channels, sizes.heads]),
        };
        let mut features = draw.slice(&[sizes.rows, sizes.heads, sizes.width]);
        describe(format!(
            "{of:?} {sizes:?} {strides:?} {}",
            multivectors.len()
        ));
        let x = HeadItems {
            multivectors: &multivectors,
            scalars: &scalars,
            strides,
        };
        let _ = of.forward(sizes, x, &weights, &mut features);
        let scales = HeadScales {
            multivectors: &draw.slice(&[sizes.rows, sizes.heads]),
            means: &draw.slice(&[sizes.rows, sizes.heads]),
            scalars: &draw.slice(&[sizes.rows, sizes.heads]),
        };
        let _ = of.forward_scaled(sizes, x, scales, &mut features);
        let (mut to, mut to_s, mut of_weights) =
            (multivectors.clone(), scalars.clone(), weights.clone());
        let to = HeadItemsMut {
            multivectors: &mut to,
            scalars: &mut to_s,
            strides,
        };
        let _ = of.backward(sizes, x, &weights, &features, to, &mut of_weights);
    });
}

fn two_rows(taken: Vec<(usize, bool)>) -> (HeadFeatures, HeadSizes) {
    let of = HeadFeatures {
        blades: 2,
        taken,
        distances: None,
    };
    let sizes = HeadSizes {
        rows: 2,
        channels: 1,
        scalars: 0,
        heads: 1,
        width: 2,
        items: 1,
    };
    (of, sizes)
}

#[test]
fn blades_that_are_not_ascending_are_refused() {
    for taken in [vec![(1, false), (0, false)], vec![(0, false), (0, true)]] {
        let (of, sizes) = two_rows(taken);
        let strides = HeadStrides {
            blade: 2,
            row: 1,
            scalars: 0,
        };
        let x = HeadItems {
            multivectors: &[1.0_f32, 2.0, 3.0, 4.0],
            scalars: &[],
            strides,
        };
        let mut to = [0.0; 4];
        let to = HeadItemsMut {
            multivectors: &mut to,
            scalars: &mut [],
            strides,
        };
        let error = of.backward(sizes, x, &[], &[1.0; 4], to, &mut []);
        let error = error.expect_err("gradients would be wrong").to_string();
        assert!(error.contains("ascending"), "{error}");
        assert!(of.forward(sizes, x, &[], &mut [0.0; 4]).is_err());
    }
}

/// Items that are read may share their elements; items that are written may not.
#[test]
fn items_that_reach_into_each_other_are_not_written() {
    let (of, sizes) = two_rows(vec![(0, false), (1, false)]);
    for row in [0, usize::MAX] {
        let strides = HeadStrides {
            blade: 2,
            row,
            scalars: 0,
        };
        let plain = HeadStrides { row: 1, ..strides };
        let x = HeadItems {
            multivectors: &[1.0_f32, 2.0, 3.0, 4.0],
            scalars: &[],
            strides: plain,
        };
        let mut to = [0.0; 4];
        let to = HeadItemsMut {
            multivectors: &mut to,
            scalars: &mut [],
            strides,
        };
        let error = of.backward(sizes, x, &[], &[1.0; 4], to, &mut []);
        assert!(
            matches!(error, Err(Error::LengthMismatch { .. })),
            "{error:?}"
        );
    }
}

#[test]
fn points() {
    all_return(1_000, |draw, describe| {
        let coordinates = draw.size();
        describe(format!("{coordinates}"));
        let _ = DistancePoint::<f64>::count(coordinates);
        let point = DistancePoint::<f64, 2>::new(coordinates, 0.1, |_| [1.0; 2]);
        point.features(Some([1.0; 2]), |_, _| {});
        point.gradient(None, |_| [1.0; 2], |_, _| {});
    });
}
