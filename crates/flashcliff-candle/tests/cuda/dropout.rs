//! Dropout of grades: what the CPU drops, for all types and algebras; other grades in each replay of a captured step; runs that go on.

use candle_core::{DType, Device, Tensor};
use flashcliff::{Algebra, Signature};
use flashcliff_candle::capture::{Capture, Feed, Step};
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{
    AttentionOptions, Call, Channels, Draws, GradeDropout, Tokens,
};
use flashcliff_candle::models::{Gatr, GatrOptions};
use flashcliff_candle::optim::{Adam, AdamOptions};

use crate::compare::{assert_close, assert_same, bound, random, values, variable};
use crate::trials::{Tests, gpu};

const CHANNELS: Channels = Channels::new(2, 3);
const SAMPLES: usize = 12;
const BATCH: usize = 4;
const ITEMS: usize = 5;
const STEPS: usize = 20;

pub(crate) fn add(tests: &mut Tests) {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        // Also algebras that no other kernel of items serves.
        for (p, q, r) in [(3, 0, 1), (1, 3, 0), (1, 0, 0), (6, 0, 0)] {
            let name = format!("dropout::{dtype:?}::cl{p}{q}{r}").to_lowercase();
            tests.add(name, move || drops_what_the_cpu_drops(p, q, r, dtype));
        }
    }
    tests.add("dropout::captured_steps_are_those_of_eager_ones", captured);
    tests.add("dropout::each_replay_drops_others", replays);
    tests.add("dropout::resumes", resumes);
}

fn drops_what_the_cpu_drops(p: usize, q: usize, r: usize, dtype: DType) {
    let algebra = Algebra::new(Signature::new(p, q, r).unwrap()).unwrap();
    for channels in [CHANNELS, Channels::new(3, 0), Channels::new(1, 7)] {
        let layer = GradeDropout::over(algebra, channels, 0.4).unwrap();
        let width = channels.width_over(algebra.blade_count());
        let x = random(&[3, 41, width], 1, dtype);
        let weights = random(x.dims(), 2, dtype);
        let run = |dtype, device: &Device| {
            let x = variable(&x, dtype, device);
            let tokens = Tokens::from_packed(x.as_tensor().clone(), channels).unwrap();
            let draws = Draws::new(9, device).unwrap();
            // Not the first pass.
            draws.draw().unwrap();
            let draw = draws.draw().unwrap().of(4);
            let out = layer.forward(&tokens, Some(&draw)).unwrap();
            let weights = variable(&weights, dtype, device);
            let sum = (out.packed() * weights.as_tensor()).unwrap();
            let gradients = sum.sum_all().unwrap().backward().unwrap();
            (out.packed().clone(), gradients.get(&x).unwrap().clone())
        };
        let (got, of_got) = run(dtype, gpu());
        let (expected, of_expected) = run(DType::F64, &Device::Cpu);
        for (got, expected) in [(&got, &expected), (&of_got, &of_expected)] {
            let zeros = |x: &Tensor| values(x).iter().map(|&x| x == 0.0).collect::<Vec<_>>();
            assert_eq!(zeros(got), zeros(expected));
            assert_close(got, expected, bound(dtype), "what is left");
        }
        let share = values(&got).iter().filter(|&&x| x == 0.0).count() as f64;
        let share = share / got.elem_count() as f64;
        assert!((0.3..0.5).contains(&share), "{share}");
    }
}

/// The losses of a run, and its state.
struct Run {
    losses: Vec<f32>,
    state: Checkpoint,
}

impl Run {
    /// Steps of a network with dropout from a state, or from the start. Without an order all see the same batch.
    fn new(
        capture: Capture,
        again: bool,
        learning_rate: f64,
        from: Option<&Checkpoint>,
        steps: std::ops::Range<usize>,
    ) -> Self {
        let options = GatrOptions {
            blocks: 2,
            attention: AttentionOptions {
                heads: 2,
                ..AttentionOptions::default()
            },
            dropout: Some(0.3),
            ..GatrOptions::new(CHANNELS, CHANNELS, Channels::new(4, 8))
        };
        let parameters = Parameters::seeded(3);
        let net = Gatr::new(options, parameters.builder(DType::F32, gpu())).unwrap();
        let net = net.with_gradient_checkpointing(again);
        let draws = Draws::new(7, gpu()).unwrap();
        let options = AdamOptions {
            learning_rate,
            ..AdamOptions::default()
        };
        let mut adam = Adam::new(parameters.variables(), options).unwrap();
        if let Some(state) = from {
            for (name, var) in parameters.variables() {
                let value = state.get(&name, var.dims(), DType::F32).unwrap();
                var.set(&value.to_device(gpu()).unwrap()).unwrap();
            }
            adam.import("adam.", state).unwrap();
            draws.import("", state).unwrap();
        }
        let width = CHANNELS.width();
        let data = |seed| {
            let data = random(&[SAMPLES, ITEMS, width], seed, DType::F32);
            data.to_dtype(DType::F32).unwrap().to_device(gpu()).unwrap()
        };
        let feed = Feed::new(vec![data(1), data(2)], BATCH, steps.len()).unwrap();
        let order = steps.clone().flat_map(|_| 0..BATCH as u32);
        feed.load(&order.collect::<Vec<_>>()).unwrap();
        {
            let mut step = Step::new(&feed, capture, |batch| {
                let draw = draws.draw()?;
                let x = Tokens::from_packed(batch[0].clone(), CHANNELS)?;
                let call = Call {
                    draw: Some(&draw),
                    ..Call::default()
                };
                let out = net.call(&x, &call)?;
                let loss = (out.packed() - &batch[1])?.sqr()?.mean_all()?;
                adam.backward_step(&loss)?;
                Ok(loss)
            });
            for _ in steps.clone() {
                step.run().unwrap();
            }
            if capture == Capture::Auto {
                assert_eq!(step.fallback(), None);
                assert!(step.is_captured());
            }
        }
        assert_eq!(draws.passes().unwrap() as usize, steps.end);
        let mut state = Checkpoint::new();
        for (name, var) in parameters.variables() {
            state.insert(name, &var.to_device(&Device::Cpu).unwrap());
        }
        adam.export("adam.", &mut state).unwrap();
        draws.export("", &mut state).unwrap();
        Self {
            losses: feed.losses().unwrap(),
            state,
        }
    }

    fn assert_same(&self, other: &Self) {
        let bits = |run: &Self| run.losses.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(self), bits(other));
        for (name, tensor) in self.state.tensors() {
            assert_same(tensor, &other.state.tensors()[name], name);
        }
    }
}

fn captured() {
    let run = |capture, again| Run::new(capture, again, 1e-3, None, 0..STEPS);
    let captured = run(Capture::Auto, false);
    captured.assert_same(&run(Capture::Off, false));
    // Blocks that run again drop the same.
    captured.assert_same(&run(Capture::Auto, true));
}

fn replays() {
    // Nothing is learned and all batches are the same, so losses differ by what is dropped.
    let losses = Run::new(Capture::Auto, false, 0.0, None, 0..STEPS).losses;
    for (at, loss) in losses.iter().enumerate() {
        assert!(
            loss.is_finite() && !losses[..at].contains(loss),
            "{losses:?}"
        );
    }
}

fn resumes() {
    let whole = Run::new(Capture::Auto, false, 1e-3, None, 0..STEPS);
    let first = Run::new(Capture::Auto, false, 1e-3, None, 0..9);
    let second = Run::new(Capture::Auto, false, 1e-3, Some(&first.state), 9..STEPS);
    assert_eq!(second.losses, whole.losses[9..]);
    for (name, tensor) in whole.state.tensors() {
        assert_same(tensor, &second.state.tensors()[name], name);
    }
}
