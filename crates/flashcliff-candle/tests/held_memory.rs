//! Memory that a graph holds, and the most that a training step takes, with and without gradient checkpointing.
#![allow(unsafe_code, reason = "an allocator is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{AttentionOptions, Channels, Tokens};
use flashcliff_candle::models::{Architecture, Gatr, GatrOptions, Model};
use flashcliff_candle::objective::{Objective, ObjectiveOptions};
use flashcliff_candle::op::release_scratch;

/// The allocator of the system, which counts the bytes that are taken.
struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn take(bytes: usize) {
    let taken = TAKEN.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(taken, Relaxed);
}

// SAFETY: all calls go on to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller keeps the rules of the system's allocator, here and below.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Relaxed);
        // SAFETY: see above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: see above.
        unsafe { System.alloc_zeroed(layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes taken now, without free buffers of ours.
fn taken() -> usize {
    release_scratch();
    TAKEN.load(Relaxed)
}

fn tensor(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let data: Vec<f32> = (0..count).map(|at| (at as f32 * 0.37).sin()).collect();
    Tensor::from_vec(data, shape, &Device::Cpu).unwrap()
}

/// The bytes that the graph of a network of so many blocks holds, and the bytes of tokens between two blocks.
fn of_graph(blocks: usize, again: bool) -> [usize; 2] {
    let (samples, items, channels) = (32, 6, Channels::new(8, 16));
    let options = GatrOptions {
        blocks,
        attention: AttentionOptions {
            heads: 2,
            ..AttentionOptions::default()
        },
        ..GatrOptions::new(channels, channels, channels)
    };
    let parameters = Parameters::seeded(5);
    let net = Gatr::new(options, parameters.builder(DType::F32, &Device::Cpu)).unwrap();
    let net = net.with_gradient_checkpointing(again);
    let x = tensor(&[samples, items, channels.width()]);
    let x = Tokens::from_packed(x, channels).unwrap();
    // The first pass plans the layers, which keep their plans.
    drop(net.forward(&x).unwrap());
    let before = taken();
    let out = net.forward(&x).unwrap();
    let held = taken() - before;
    assert!(out.packed().track_op());
    [held, 4 * samples * items * channels.width()]
}

/// The most bytes that a step of gravity takes at once.
fn of_step(rows: usize, gradient_checkpointing: bool) -> usize {
    let model = Model::new(Architecture::Gravity, 3, DType::F32).unwrap();
    let batch = [tensor(&[rows, 4, 7]), tensor(&[rows, 12])];
    let options = ObjectiveOptions {
        gradient_checkpointing,
        ..ObjectiveOptions::default()
    };
    let mut objective = Objective::with_options(&model, rows, 1, &options).unwrap();
    let before = taken();
    PEAK.store(before, Relaxed);
    objective.evaluate(&batch).unwrap();
    PEAK.load(Relaxed) - before
}

// One test, since all threads of a process share the count.
#[test]
fn gradient_checkpointing_holds_the_inputs_of_blocks() {
    // A second thread would take its own memory, sooner or later.
    flashcliff::threads::set(1).unwrap();
    // Matrix products take their own memory when they first run.
    of_graph(7, false);
    let [kept, again] = [false, true].map(|again| {
        let ([few, token], [more, _]) = (of_graph(2, again), of_graph(7, again));
        (more - few) as f64 / 5.0 / token as f64
    });
    println!("a block holds {kept:.2} times its input, with checkpointing {again:.2}");
    // Its input, and what the graph says of itself.
    assert!((1.0..1.2).contains(&again), "{again}");
    assert!(kept > 15.0, "{kept}");

    let [[few, most], [few_again, most_again]] =
        [false, true].map(|again| [32, 128].map(|rows| of_step(rows, again)));
    let [kept, again] = [most - few, most_again - few_again].map(|bytes| bytes / 96 / 1024);
    println!("gravity: {kept} KiB a sample, with checkpointing {again}");
    // Both sum the gradients of a block over chunks of samples; one holds ten blocks meanwhile, the other one block and the inputs of all.
    assert!(5 * again < 2 * kept, "{kept}, {again}");
}
