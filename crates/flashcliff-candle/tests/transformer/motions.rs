//! The network commutes with rotations, translations and reflections of space.

use candle_core::DType;

use crate::common::{assert_close, noise, values};
use crate::oracle::{Token, geometric};
use crate::{input, network, options, packed, samples, tokens_of};

/// A plane `n . x = d` as a unit vector of the algebra.
fn plane(n: [f64; 3], d: f64) -> [f64; 16] {
    let length = n.iter().map(|n| n * n).sum::<f64>().sqrt();
    let mut x = [0.0; 16];
    x[1] = -d;
    for (axis, n) in n.into_iter().enumerate() {
        x[2 + axis] = n / length;
    }
    x
}

const GRADES: [usize; 16] = [0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4];

/// The reflection of a multivector in a plane: `p x p` with the sign of the grade of `x`.
fn reflected(p: &[f64; 16], x: &[f64; 16]) -> [f64; 16] {
    let signed = std::array::from_fn(|b| {
        if GRADES[b].is_multiple_of(2) {
            x[b]
        } else {
            -x[b]
        }
    });
    geometric(&geometric(p, &signed), p)
}

/// The product of reflections in some planes: with two a rotation or translation, with four a motor of both.
fn moved(planes: &[[f64; 16]], token: &Token) -> Token {
    let mv = token.mv.iter().map(|x| {
        let steps = planes.iter();
        steps.fold(*x, |x, plane| reflected(plane, &x))
    });
    Token {
        mv: mv.collect(),
        s: token.s.clone(),
    }
}

#[test]
fn reflections_do_what_they_should() {
    // The point (1, 2, 3), e123 - z e012 + y e013 - x e023, in the plane x = 4.
    let mut point = [0.0; 16];
    (point[11], point[12], point[13], point[14]) = (-3.0, 2.0, -1.0, 1.0);
    let image = reflected(&plane([1.0, 0.0, 0.0], 4.0), &point);
    let w = image[14];
    let (x, y, z) = (-image[13] / w, image[12] / w, -image[11] / w);
    for (got, expected) in [(x, 7.0), (y, 2.0), (z, 3.0)] {
        assert!((got - expected).abs() < 1e-14, "{got} {expected}");
    }
}

#[test]
fn the_network_commutes_with_motions_and_reflections() {
    let numbers = noise(16, 77);
    let planes: Vec<[f64; 16]> = numbers
        .chunks_exact(4)
        .map(|n| plane([n[0], n[1], n[2]], n[3]))
        .collect();
    for multi_query in [true, false] {
        let (net, _) = network(multi_query, DType::F64);
        let channels = options(multi_query).input;
        let x = input(channels, 29);
        let before: Vec<Token> = samples(&x).into_iter().flatten().collect();
        let out: Vec<Token> = samples(&net.forward(&x).unwrap())
            .into_iter()
            .flatten()
            .collect();
        for count in 1..=planes.len() {
            let planes = &planes[..count];
            let image: Vec<Token> = before.iter().map(|x| moved(planes, x)).collect();
            let image = tokens_of(packed(&image), channels);
            let got = net.forward(&image).unwrap();
            let expected: Vec<Token> = out.iter().map(|x| moved(planes, x)).collect();
            let what = format!("{count} reflections");
            assert_close(&values(got.packed()), &packed(&expected), 1e-9, &what);
            // The motion matters.
            let unmoved = packed(&out);
            let got = values(got.packed());
            let far = got.iter().zip(&unmoved).map(|(a, b)| (a - b).abs());
            assert!(far.fold(0.0, f64::max) > 1e-2);
        }
    }
}
