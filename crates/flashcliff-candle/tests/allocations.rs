//! Memory that a training step on the CPU takes once it has run before.
#![allow(unsafe_code, reason = "an allocator is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::capture::{Capture, Feed, Step};
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::objective::Objective;
use flashcliff_candle::optim::{Adam, AdamOptions};

/// The samples of a batch.
const ROWS: usize = 512;

/// The allocator of the system, which notes sizes while it is told to.
struct Noting;

static NOTES: AtomicBool = AtomicBool::new(false);
static LARGEST: AtomicUsize = AtomicUsize::new(0);
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static FREED: AtomicUsize = AtomicUsize::new(0);

fn note(taken: usize, freed: usize) {
    if NOTES.load(Ordering::Relaxed) {
        LARGEST.fetch_max(taken, Ordering::Relaxed);
        TAKEN.fetch_add(taken, Ordering::Relaxed);
        FREED.fetch_add(freed, Ordering::Relaxed);
    }
}

// SAFETY: all calls go on to the allocator of the system.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps the rules of the system's allocator, here and below.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: see above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: see above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: see above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Noting = Noting;

fn tensor(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let data: Vec<f32> = (0..count).map(|at| (at as f32 * 0.37).sin()).collect();
    Tensor::from_vec(data, shape, &Device::Cpu).unwrap()
}

/// What a step of a task takes that has run some steps before: the largest piece, and the bytes that it has not given back.
fn step(architecture: Architecture, planned: bool) -> (usize, isize) {
    let model = Model::new(architecture, 1, DType::F32).unwrap();
    let mut adam = Adam::new(model.parameters().variables(), AdamOptions::default()).unwrap();
    let mut objective = match planned {
        true => Objective::new(&model, ROWS, 1).unwrap(),
        false => Objective::through_graph(&model, ROWS, 1).unwrap(),
    };
    let points = [ROWS, architecture.points(), architecture.dim()];
    let feed = Feed::new(vec![tensor(&points), tensor(&[ROWS])], ROWS, 4).unwrap();
    let order: Vec<u32> = (0..ROWS as u32).collect();
    feed.load(&order.repeat(4)).unwrap();
    let mut step = Step::new(&feed, Capture::Off, |batch| {
        let loss = objective.evaluate(batch)?;
        adam.objective_step(&mut objective, &loss)?;
        Ok(loss)
    });
    for _ in 0..3 {
        step.run().unwrap();
    }
    for number in [&LARGEST, &TAKEN, &FREED] {
        number.store(0, Ordering::SeqCst);
    }
    NOTES.store(true, Ordering::SeqCst);
    step.run().unwrap();
    NOTES.store(false, Ordering::SeqCst);
    let [largest, taken, freed] = [&LARGEST, &TAKEN, &FREED].map(|n| n.load(Ordering::SeqCst));
    (largest, taken as isize - freed as isize)
}

/// A later step takes no memory of the size of the values between layers, and keeps nothing. What it takes are small tensors of candle, lists,
/// and packed operands of matrix products, whose size is bounded by the caches.
#[test]
fn later_steps_take_no_tensor_of_the_size_of_a_layer() {
    // Matrix products keep memory of the size of a cache for each thread, which takes it when it first has one to do.
    flashcliff::threads::set(1).unwrap();
    let volumes = (Architecture::Volumes, 8 * ROWS * 96 * 4);
    for (architecture, layer) in [(Architecture::Hulls, 32 * ROWS * 32 * 4), volumes] {
        let (largest, kept) = step(architecture, true);
        let name = architecture.name();
        assert!(
            largest < layer / 2,
            "{name}: {largest} bytes at once, a layer has {layer}"
        );
        assert!(kept.abs() < 4096, "{name}: {kept} bytes");
    }
    // The limit notices steps that make a tensor of a layer, as those of candle's graph do.
    let (architecture, layer) = volumes;
    assert!(step(architecture, false).0 >= layer);
}
