//! Memory that a training step on the CPU takes once it has run before.
#![allow(unsafe_code, reason = "an allocator is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::capture::{Capture, Feed, Step};
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::objective::Objective;
use flashcliff_candle::optim::{Adam, AdamOptions};

/// The samples of a batch: enough to share the work of an operator among threads.
const ROWS: usize = 512;
/// The steps before the count, which take all memory.
const FIRST: usize = 3;
/// The steps that are counted.
const COUNTED: usize = 4;
/// How often steps are counted.
const WINDOWS: usize = 5;
/// All steps.
const STEPS: usize = FIRST + WINDOWS * COUNTED;
/// Functions of other crates that take memory in every call: candle's check of a layout that it writes to, and queues of threads.
const OF_OTHERS: [&str; 2] = ["candle_core::layout::Layout::range", "crossbeam_"];

/// The allocator of the system, which notes what is asked for while it is told to.
struct Noting;

/// An allocation: its bytes, and the functions that led to it.
struct Note {
    bytes: usize,
    trace: String,
}

static NOTES: AtomicBool = AtomicBool::new(false);
static NOTED: Mutex<Vec<Note>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread makes a note, which allocates too.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

fn noted() -> MutexGuard<'static, Vec<Note>> {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(bytes: usize) {
    if NOTES.load(Ordering::Relaxed) && !WRITES.replace(true) {
        let trace = Backtrace::force_capture().to_string();
        noted().push(Note { bytes, trace });
        WRITES.set(false);
    }
}

// SAFETY: all calls go on to the allocator of the system.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the rules of the system's allocator, here and below.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: see above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: see above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
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

/// How the steps of a test are made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Planned,
    /// Planned, with a list of each step's own.
    Planted,
    /// Through candle's graph.
    Graph,
}

/// Allocations in all counted steps of a task: the bytes of each of the functions of other crates, and the allocations of ours. What a
/// thread takes at the first work of a kind may come late, so these are the counted steps with the fewest of several.
fn later_steps(architecture: Architecture, way: Way) -> ([usize; OF_OTHERS.len()], Vec<Note>) {
    let model = Model::new(architecture, 1, DType::F32).unwrap();
    let mut adam = Adam::new(model.parameters().variables(), AdamOptions::default()).unwrap();
    let mut objective = match way {
        Way::Graph => Objective::through_graph(&model, ROWS, 1).unwrap(),
        Way::Planned | Way::Planted => Objective::new(&model, ROWS, 1).unwrap(),
    };
    let data = architecture.shapes(ROWS).map(|shape| tensor(&shape));
    let feed = Feed::new(data.to_vec(), ROWS, STEPS).unwrap();
    let order: Vec<u32> = (0..ROWS as u32).collect();
    feed.load(&order.repeat(STEPS)).unwrap();
    let mut step = Step::new(&feed, Capture::Off, |batch| {
        if way == Way::Planted {
            black_box(vec![1_u8; 8]);
        }
        let loss = objective.evaluate_in_place(batch)?;
        adam.objective_step(&mut objective, &loss)?;
        Ok(loss)
    });
    for _ in 0..FIRST {
        step.run().unwrap();
    }
    let windows = (0..WINDOWS).map(|_| {
        noted().clear();
        NOTES.store(true, Ordering::SeqCst);
        for _ in 0..COUNTED {
            step.run().unwrap();
        }
        NOTES.store(false, Ordering::SeqCst);
        let (mut others, mut ours) = ([0; OF_OTHERS.len()], Vec::new());
        for note in std::mem::take(&mut *noted()) {
            match OF_OTHERS.iter().position(|name| note.trace.contains(name)) {
                Some(at) => others[at] += note.bytes,
                None => ours.push(note),
            }
        }
        (others, ours)
    });
    windows.min_by_key(|(_, ours)| ours.len()).unwrap()
}

/// The frames of this project in an allocation's trace.
fn frames(note: &Note) -> String {
    let of_ours = |line: &&str| !line.contains("std::");
    let lines: Vec<&str> = note.trace.lines().filter(of_ours).take(12).collect();
    format!("{} bytes\n{}", note.bytes, lines.join("\n"))
}

/// A later step takes no memory, in lists neither. What remains is that of the crates for tensors and threads.
#[test]
fn later_steps_take_no_memory_of_ours() {
    flashcliff::threads::set(2).unwrap();
    let tasks = [
        Architecture::Hulls,
        Architecture::Regression { width: 20 },
        Architecture::Volumes,
        Architecture::Bodies,
    ];
    for architecture in tasks {
        let (others, ours) = later_steps(architecture, Way::Planned);
        let name = architecture.name();
        for (other, bytes) in OF_OTHERS.iter().zip(others) {
            println!("{name}: {} bytes a step in {other}", bytes / COUNTED);
        }
        let all: Vec<String> = ours.iter().map(frames).collect();
        assert!(
            ours.is_empty(),
            "{name}: {} allocations in {COUNTED} steps\n{}",
            ours.len(),
            all.join("\n\n")
        );
    }
    // The count finds one short list of a step, and the gradients that candle's graph takes, such as that of a map of
    // 96 channels in 4 grades.
    let (_, planted) = later_steps(Architecture::Hulls, Way::Planted);
    let sizes: Vec<usize> = planted.iter().map(|note| note.bytes).collect();
    assert_eq!(sizes, [8; COUNTED]);
    let gradient = 96 * 96 * 4 * size_of::<f32>();
    let (_, graph) = later_steps(Architecture::Volumes, Way::Graph);
    assert!(graph.iter().any(|note| note.bytes == gradient));
}
