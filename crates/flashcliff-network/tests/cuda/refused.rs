//! What steps have no kernels for is refused with the reason, before anything runs.

use flashcliff::Dtype;
use flashcliff::cuda::MatmulPrecision;
use flashcliff_network::cuda::{Course, Gpu, Lent, Sequences};
use flashcliff_network::tokens::{Attention, Channels, Geometry, Lanes, NormOptions, Step};
use flashcliff_network::{Axis, Error, Network, Rows, Value};

use crate::blocks::{flat, signature};
use crate::trials::{Tests, device};

const CHANNELS: Channels = Channels::new(2, 2);
const ROWS: Rows = Rows::new(2, 3);

pub(crate) fn add(tests: &mut Tests) {
    tests.add("refused::types", types);
    tests.add("refused::algebras", algebras);
    tests.add("refused::distances_of_normalised_heads", normalised_heads);
    tests.add("refused::sequences", sequences);
}

/// A network of one step.
fn of(step: Step, geometry: Geometry, shapes: &[Vec<usize>]) -> (Network, Value) {
    let mut network = Network::new();
    let (blades, channels) = (geometry.blades(), step.input());
    let mut inputs = vec![network.input("x", &[Axis::Rows, Axis::Token { blades, channels }])];
    if !shapes.is_empty() {
        inputs.push(flat(&mut network, shapes, &[0]));
    }
    let y = network.step(step, &inputs).unwrap();
    (network, y)
}

fn planned((network, y): &(Network, Value), types: [Dtype; 2]) -> Result<Gpu, Error> {
    let precision = MatmulPrecision::Highest;
    Gpu::new(network, &[&[*y]], ROWS, types, device(), precision)
}

#[track_caller]
fn assert_refused(result: Result<Gpu, Error>, reason: &str) {
    match result {
        Err(Error::Core(error @ flashcliff::Error::UnsupportedOnCuda { .. })) => {
            let text = error.to_string();
            assert!(text.contains(reason), "{text}");
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn types() {
    let geometry = Geometry::gatr().unwrap();
    let of = of(
        Step::Lanes(Lanes::norm(geometry, CHANNELS, NormOptions::default()).unwrap()),
        geometry,
        &[],
    );
    for refused in [[Dtype::Bf16; 2], [Dtype::Bf16, Dtype::F64]] {
        let reason = format!("got features of bf16 and a model of {}", refused[1]);
        assert_refused(planned(&of, refused), &reason);
    }
    for served in [[Dtype::F32; 2], [Dtype::F64; 2], [Dtype::Bf16, Dtype::F32]] {
        assert!(planned(&of, served).is_ok());
    }
}

fn algebras() {
    let geometry = Geometry::of(signature(6, 0, 0));
    let step = Attention::new(geometry, 2, CHANNELS, false);
    let of = of(Step::Attention(step), geometry, &[]);
    let refused = "expected 4, 8, 16 or 32 blades";
    assert_refused(planned(&of, [Dtype::F64; 2]), refused);
}

fn normalised_heads() {
    let geometry = Geometry {
        head_norm: true,
        ..Geometry::gatr().unwrap()
    };
    let step = Attention::new(geometry, 2, CHANNELS, false);
    let shapes = step.shapes();
    let of = of(Step::Attention(step), geometry, &shapes);
    assert_refused(planned(&of, [Dtype::F32; 2]), "not both");
}

/// Sequences belong to plans of one sample, whose rows they have.
fn sequences() {
    let geometry = Geometry::of(signature(3, 0, 0));
    let step = Attention::new(geometry, 2, CHANNELS, false);
    let (network, y) = of(Step::Attention(step), geometry, &[]);
    let one = Rows::new(1, 6);
    for (rows, bounds) in [(ROWS, [0, 2, 6]), (one, [0, 2, 5]), (one, [0, 7, 6])] {
        let types = [Dtype::F32; 2];
        let precision = MatmulPrecision::Highest;
        let gpu = Gpu::new(&network, &[&[y]], rows, types, device(), precision).unwrap();
        let stream = device().new_stream().unwrap();
        let mut memory = gpu.allocate(0, &stream).unwrap();
        let (shape, _) = gpu.plan().tensor(network.inputs()[0]).unwrap();
        // SAFETY: nothing is launched.
        let x = unsafe {
            flashcliff::cuda::Tensor::from_raw(256, Dtype::F32, shape, device().ordinal())
        };
        let lent = Lent {
            inputs: &[x.unwrap()],
            parameters: &[],
            outputs: &[256],
            kept: 0,
            error_scale: 1.0,
            adds_error: false,
            loss_scale: None,
            sequences: Some([
                Sequences {
                    bounds: &bounds,
                    address: 256,
                },
                Sequences::default(),
            ]),
            draw: None,
            relations: &[],
        };
        let course = Course {
            forks: false,
            stops: &[],
        };
        // SAFETY: sequences are refused before anything is launched.
        let run = unsafe { gpu.run(&mut memory, &stream, lent, course, &mut |_| Ok(())) };
        assert!(matches!(run, Err(Error::Sequences { .. })), "{run:?}");
    }
}
