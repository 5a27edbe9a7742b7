//! Linear layers and norms of transformers.

use flashcliff::cayley::Group;
use flashcliff::equivariant::{
    EquivariantLinear, InvariantNorm, Matrices, MatricesMut, NormSizes, Side, SideMut, Sizes,
};
use flashcliff::{Algebra, Error, Signature};

use crate::{Draw, all_return};

fn algebra() -> Algebra {
    Algebra::new(Signature::of(1, 3, 0)).expect("a signature")
}

/// The shapes of a layer's parameters, and whether each is an empty slice.
fn parameters(draw: &mut Draw, sizes: Sizes, maps: usize, mixed: usize) -> [Vec<f32>; 6] {
    let Sizes {
        in_channels,
        out_channels,
        in_scalars,
        out_scalars,
        ..
    } = sizes;
    [
        draw.slice(&[out_channels, in_channels, maps]),
        draw.slice(&[out_channels, mixed, in_scalars]),
        draw.slice(&[out_scalars, in_channels, mixed]),
        draw.slice(&[out_scalars, in_scalars]),
        draw.slice(&[out_channels, mixed]),
        draw.slice(&[out_scalars]),
    ]
}

#[test]
fn linear_layers() {
    all_return(30_000, |draw, describe| {
        let group = draw.pick(&[Group::Pin, Group::Spin]);
        let layer = EquivariantLinear::new(algebra(), group, true).expect("maps are known");
        let sizes = Sizes {
            rows: draw.size(),
            in_channels: draw.size(),
            out_channels: draw.size(),
            in_scalars: draw.size(),
            out_scalars: draw.size(),
        };
        let [x, g] = [sizes.in_channels, sizes.out_channels]
            .map(|channels| draw.slice(&[16, sizes.rows, channels]));
        let [s, g_s] = [sizes.in_scalars, sizes.out_scalars]
            .map(|channels| draw.slice(&[sizes.rows, channels]));
        let p = parameters(draw, sizes, layer.maps(), layer.invariant().len());
        describe(format!("{group:?} {sizes:?}"));
        let matrices = Matrices {
            weight: &p[0],
            scalars_to_blades: &p[1],
            blades_to_scalars: &p[2],
            scalars_to_scalars: &p[3],
            blade_bias: &p[4],
            scalar_bias: &p[5],
        };
        fn side<'a>(x: &'a [f32], s: &'a [f32]) -> Side<'a, f32> {
            Side {
                multivectors: x,
                scalars: s,
            }
        }
        let (mut out, mut out_s) = (g.clone(), g_s.clone());
        let to = SideMut {
            multivectors: &mut out,
            scalars: &mut out_s,
        };
        let _ = layer.output(sizes, &matrices, side(&x, &s), to);
        let (mut out, mut out_s) = (x.clone(), s.clone());
        let to = SideMut {
            multivectors: &mut out,
            scalars: &mut out_s,
        };
        let _ = layer.input_gradient(sizes, &matrices, side(&g, &g_s), to);
        let mut to = p.clone();
        let [weight, s_b, b_s, s_s, bias, bias_s] = &mut to;
        let to = MatricesMut {
            weight,
            scalars_to_blades: s_b,
            blades_to_scalars: b_s,
            scalars_to_scalars: s_s,
            blade_bias: bias,
            scalar_bias: bias_s,
        };
        let _ = layer.weight_gradient(sizes, side(&g, &g_s), side(&x, &s), to);
    });
}

#[test]
fn norms() {
    all_return(30_000, |draw, describe| {
        let norm = InvariantNorm::new(algebra());
        let sizes = NormSizes {
            rows: draw.size(),
            channels: draw.size(),
            groups: draw.size(),
            row: draw.size(),
        };
        let x = draw.slice(&[16, sizes.rows, sizes.row]);
        let eps = draw.pick(&[0.0, 1e-2, f64::NAN, f64::INFINITY, -1.0]);
        describe(format!("{sizes:?} {eps} {}", x.len()));
        let mut y = x.clone();
        let _ = norm.forward(sizes, eps, &x, &mut y);
        let _ = norm.scales(sizes, eps, &x, &mut y);
        let _ = norm.backward(sizes, eps, &x, &x, &mut y);
    });
}

#[test]
fn rows_without_elements_are_no_work() -> Result<(), Error> {
    let rows = usize::MAX;
    let nothing: &mut [f32] = &mut [];
    let sizes = NormSizes {
        rows,
        channels: 0,
        groups: 1,
        row: 0,
    };
    InvariantNorm::new(algebra()).forward(sizes, 0.01, &[], nothing)?;
    let layer = EquivariantLinear::new(algebra(), Group::Spin, true)?;
    let sizes = Sizes {
        rows,
        ..Sizes::default()
    };
    let side = Side {
        multivectors: &[],
        scalars: &[],
    };
    let to = SideMut {
        multivectors: nothing,
        scalars: &mut [],
    };
    layer.output(sizes, &Matrices::<f32>::default(), side, to)
}
