//! Networks through the C interface, beside the library, and wrong calls.

mod gradients;
mod relations;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::PathBuf;
use std::ptr::{null, null_mut};

use flashcliff::Dtype;
use flashcliff::ops::{self, LinearOptions};
use flashcliff_network::tokens::{AttentionOptions, Channels, Geometry, Transformer};
use flashcliff_network::{
    Activation, Axis, Cpu, Keep, Network as Graph, Rows, Scales, Slices, Value, file,
};

use super::*;
use crate::fc_last_error;

const OK: c_int = 0;
const BAD_ARGUMENT: c_int = 1;
const BAD_FILE: c_int = 6;

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all calls go to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no count any more.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller promises the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller promises the same.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A file that is gone in the end.
struct Written {
    path: PathBuf,
    network: Graph,
    output: Value,
    parameters: Vec<Vec<f64>>,
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Numbers between -1 and 1.
fn numbers(len: usize, seed: usize) -> Vec<f64> {
    (0..len)
        .map(|at| ((at * 37 + seed * 11) as f64).sin())
        .collect()
}

fn written(name: &str, network: Graph, output: Value) -> Written {
    let path = std::env::temp_dir().join(format!("flashcliff-c-{}-{name}", std::process::id()));
    let lens = network.parameters().iter().map(|&value| {
        let axes = network.shape(value).unwrap_or_default();
        axes.iter().map(|axis| axis.size(1)).product()
    });
    let parameters: Vec<Vec<f64>> = lens
        .zip(1..)
        .map(|(len, seed)| numbers(len, seed))
        .collect();
    let slices: Vec<&[f64]> = parameters.iter().map(Vec::as_slice).collect();
    file::save(&path, &network, &[("y", output)], &slices).unwrap();
    Written {
        path,
        network,
        output,
        parameters,
    }
}

/// A transformer.
fn transformer(name: &str) -> Written {
    let ends = Channels::new(1, 2);
    let options = Transformer {
        blocks: 1,
        attention: AttentionOptions {
            heads: 2,
            ..AttentionOptions::default()
        },
        ..Transformer::new(Geometry::gatr().unwrap(), ends, ends, Channels::new(2, 4))
    };
    let (network, ends) = options.network().unwrap();
    written(name, network, ends.output)
}

/// A linear map of multivectors and its activation.
fn linear(name: &str) -> Written {
    let options = LinearOptions::default();
    let operator = ops::mv_linear("cl300".parse().unwrap(), &options).unwrap();
    let mut network = Graph::new();
    let x = network.input("x", &[Axis::Fixed(8), Axis::Rows, Axis::Fixed(3)]);
    let weight = network.parameter("weight", &[5, 3, 4]);
    let bias = network.parameter("bias", &[5]);
    let y = network.operator(&operator, &[x, weight, bias]).unwrap();
    let y = network.activation(y, Activation::Silu).unwrap();
    written(name, network, y)
}

fn loaded(written: &Written) -> *mut Network {
    let path = CString::new(written.path.to_str().unwrap()).unwrap();
    let mut out = null_mut();
    // SAFETY: the text lives, and a pointer can be written to `out`.
    assert_eq!(unsafe { fc_network_load(path.as_ptr(), &raw mut out) }, OK);
    out
}

fn planned(network: *const Network, rows: Rows, dtype: c_int) -> *mut NetworkRunner {
    let mut out = null_mut();
    // SAFETY: the network lives, and a pointer can be written to `out`.
    let status = unsafe { fc_network_plan(network, batch(rows), dtype, null(), 0, &raw mut out) };
    assert_eq!(status, OK);
    out
}

/// Checks that a call is refused with a message that has some words.
#[track_caller]
fn refused(status: c_int, expected: c_int, words: &str) {
    // SAFETY: the message ends with a zero byte, and lives until the next call.
    let message = unsafe { CStr::from_ptr(fc_last_error()) }.to_str().unwrap();
    assert_eq!(status, expected, "{message}");
    assert!(message.contains(words), "{message}; {words}");
}

/// The inputs of a network for some rows.
fn inputs(network: &Graph, rows: Rows) -> Vec<Vec<f64>> {
    let lens = network.inputs().iter().map(|&value| {
        let axes = network.shape(value).unwrap_or_default();
        axes.iter().map(|axis| axis.size(rows)).product()
    });
    lens.zip(50..)
        .map(|(len, seed)| numbers(len, seed))
        .collect()
}

/// The result of the library, with sequences.
fn expected(written: &Written, rows: Rows, sequences: Option<&[usize]>) -> Vec<f64> {
    let scales = Scales {
        sequences: sequences.map(|items| [items, &[][..]]),
        ..Scales::default()
    };
    expected_with(written, rows, scales)
}

/// The result of the library.
fn expected_with(written: &Written, rows: Rows, scales: Scales<'_>) -> Vec<f64> {
    let network = &written.network;
    let plan = network
        .plan(&[written.output], rows, [Dtype::F64; 2])
        .unwrap();
    let inputs = inputs(network, rows);
    let [inputs, parameters] =
        [&inputs, &written.parameters].map(|all| all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let sources = Slices {
        inputs: &inputs,
        parameters: &parameters,
    };
    let len = plan.tensor(written.output).unwrap().0.iter().product();
    let mut outputs = [vec![f64::NAN; len]];
    Cpu::new(&plan)
        .unwrap()
        .run(&plan, &sources, &mut outputs, scales, &mut |_| {})
        .unwrap();
    let [output] = outputs;
    output
}

fn addresses<T>(all: &[Vec<T>]) -> Vec<*const c_void> {
    all.iter().map(|own| own.as_ptr().cast()).collect()
}

const ROWS: Rows = Rows::new(3, 4);
const LARGE: Rows = Rows::new(usize::MAX, 4);

fn batch(rows: Rows) -> NetworkBatch {
    NetworkBatch {
        samples: rows.samples,
        items: rows.items,
        context_items: rows.context,
        edges: rows.edges,
        graphs: rows.graphs,
        others: rows.others,
    }
}

/// The page of a runner.
fn explained(runner: *const NetworkRunner, machine: Option<Machine>) -> String {
    let mut page = null();
    let machine = machine.as_ref().map_or(null(), std::ptr::from_ref);
    // SAFETY: the runner and the machine live; the page lives until the next call, and ends with a zero byte.
    unsafe {
        assert_eq!(fc_network_explain(runner, machine, &raw mut page), OK);
        CStr::from_ptr(page).to_str().unwrap().to_owned()
    }
}

#[test]
fn pages_are_those_of_the_library() {
    let written = transformer("pages");
    let network = loaded(&written);
    let (narrow, wide) = (planned(network, ROWS, F32), planned(network, ROWS, F64));
    // SAFETY: nobody uses the network from now on.
    unsafe { fc_network_free(network) };
    let rates = flashcliff_network::Machine {
        bytes_per_second: 1e12,
        flops_per_second: 1e13,
        seconds_per_call: 1e-6,
    };
    let machine = Machine::of(1e12, 1e13, 1e-6);
    for (runner, dtype) in [(narrow, Dtype::F32), (wide, Dtype::F64)] {
        let plan = written.network.plan(&[written.output], ROWS, [dtype; 2]);
        let plan = plan.unwrap();
        assert_eq!(explained(runner, None), plan.explain());
        assert_eq!(explained(runner, Some(machine)), plan.explain_on(&rates));
        // SAFETY: nobody uses the runner from now on.
        unsafe { fc_network_runner_free(runner) };
    }
}

#[test]
fn runs_are_those_of_the_library() {
    let written = transformer("runs");
    let network = loaded(&written);
    let runner = planned(network, ROWS, F64);
    // The runner outlives its network.
    // SAFETY: nobody uses the network from now on.
    unsafe { fc_network_free(network) };
    let given = inputs(&written.network, ROWS);
    let whole = expected(&written, ROWS, None);
    let mut output = vec![f64::NAN; whole.len()];
    let outputs = [output.as_mut_ptr().cast::<c_void>()];
    let from = addresses(&given);
    let call = NetworkCall::of(&from, &outputs);
    for _ in 0..2 {
        // SAFETY: the tensors fit the network.
        assert_eq!(unsafe { fc_network_run(runner, &raw const call) }, OK);
        assert_eq!(output, whole);
        output.fill(f64::NAN);
    }
    // SAFETY: nobody uses the runner from now on.
    unsafe { fc_network_runner_free(runner) };
}

#[test]
fn sequences_attend_within_themselves() {
    let written = transformer("sequences");
    let network = loaded(&written);
    let rows = Rows::new(1, 9);
    let runner = planned(network, rows, F64);
    let given = inputs(&written.network, rows);
    let offsets = [0, 2, 9];
    let ragged = expected(&written, rows, Some(&offsets));
    assert_ne!(ragged, expected(&written, rows, None));
    let mut output = vec![f64::NAN; ragged.len()];
    let (addresses, outputs) = (addresses(&given), [output.as_mut_ptr().cast::<c_void>()]);
    let call = NetworkCall::of(&addresses, &outputs).within(&offsets);
    let wrong = NetworkCall::of(&addresses, &outputs).within(&[0, 5]);
    // SAFETY: the tensors fit the network, and runner and network are not used after they are freed.
    unsafe {
        assert_eq!(fc_network_run(runner, &raw const call), OK);
        assert_eq!(output, ragged);
        refused(
            fc_network_run(runner, &raw const wrong),
            BAD_ARGUMENT,
            "sequences",
        );
        fc_network_runner_free(runner);
        fc_network_free(network);
    }
}

#[test]
fn ends_have_names_and_shapes() {
    let written = transformer("ends");
    let network = loaded(&written);
    let [mut inputs, mut outputs, mut parameters] = [0; 3];
    let (to_inputs, to_outputs) = (&raw mut inputs, &raw mut outputs);
    // SAFETY: the network lives, and numbers can be written.
    let status = unsafe { fc_network_counts(network, to_inputs, to_outputs, &raw mut parameters) };
    assert_eq!((status, inputs, outputs), (OK, 2, 1));
    assert_eq!(parameters, written.parameters.len());
    let mut end = std::mem::MaybeUninit::<NetworkEnd>::uninit();
    // SAFETY: the network lives, an end can be written, and is read where the status says that it was.
    unsafe {
        assert_eq!(
            fc_network_input(network, 0, batch(ROWS), end.as_mut_ptr()),
            OK
        );
        assert_eq!(end.assume_init_ref().len(), 12 * 18);
        assert_eq!(
            fc_network_input(network, 1, batch(ROWS), end.as_mut_ptr()),
            OK
        );
        assert_eq!(end.assume_init_ref().len(), 12);
        assert_eq!(
            fc_network_output(network, 0, batch(Rows::new(0, 4)), end.as_mut_ptr()),
            OK
        );
        assert_eq!(end.assume_init_ref().len(), 0);
        let beyond = fc_network_output(network, 1, batch(ROWS), end.as_mut_ptr());
        refused(
            beyond,
            BAD_ARGUMENT,
            "output: expected a number below 1, got 1",
        );
        let large = fc_network_input(network, 0, batch(LARGE), end.as_mut_ptr());
        refused(
            large,
            BAD_ARGUMENT,
            "as many elements as memory can have addresses",
        );
        refused(
            fc_network_input(network, 0, batch(ROWS), null_mut()),
            BAD_ARGUMENT,
            "end",
        );
        fc_network_free(network);
    }
}

/// Runs after the first one allocate nothing, nor does the list of tensors. With one thread they stay on this one, whose allocations are
/// counted.
#[test]
fn later_runs_of_operators_allocate_nothing() {
    let written = linear("allocations");
    let network = loaded(&written);
    let runner = planned(network, ROWS, F64);
    let given = inputs(&written.network, ROWS);
    let whole = expected(&written, ROWS, None);
    let mut output = vec![f64::NAN; whole.len()];
    let outputs = [output.as_mut_ptr().cast::<c_void>()];
    let from = addresses(&given);
    let call = NetworkCall::of(&from, &outputs);
    let run = || {
        let before = COUNT.get();
        // SAFETY: the tensors fit the network.
        let run = || unsafe { fc_network_run(runner, &raw const call) };
        assert_eq!(threads::at_most(1, run), OK);
        COUNT.get() - before
    };
    assert!(run() > 0);
    assert_eq!(run(), 0);
    assert_eq!(output, whole);
    // SAFETY: nobody uses them from now on.
    unsafe {
        fc_network_runner_free(runner);
        fc_network_free(network);
    }
}

#[test]
fn numbers_of_f32_are_those_of_the_file_rounded() {
    let written = linear("narrow");
    let network = loaded(&written);
    let runner = planned(network, ROWS, F32);
    let given = inputs(&written.network, ROWS);
    let narrow: Vec<Vec<f32>> = given
        .iter()
        .map(|own| own.iter().map(|&x| x as f32).collect())
        .collect();
    let whole = expected(&written, ROWS, None);
    let mut output = vec![f32::NAN; whole.len()];
    let outputs = [output.as_mut_ptr().cast::<c_void>()];
    let from = addresses(&narrow);
    let call = NetworkCall::of(&from, &outputs);
    // SAFETY: the tensors fit the network, and nobody uses runner and network from then on.
    unsafe {
        assert_eq!(fc_network_run(runner, &raw const call), OK);
        fc_network_runner_free(runner);
        fc_network_free(network);
    }
    for (narrow, wide) in output.iter().zip(&whole) {
        assert!((f64::from(*narrow) - wide).abs() < 1e-5);
    }
}

/// A path of Unix is any bytes.
#[test]
#[cfg(unix)]
fn paths_need_not_be_text() {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};

    let mut written = linear("bytes");
    let name = [written.path.as_os_str().as_bytes(), b"-\xff\xfe"].concat();
    let other = PathBuf::from(OsString::from_vec(name.clone()));
    std::fs::rename(&written.path, &other).unwrap();
    written.path = other;
    let (path, none) = (CString::new(name), CString::new(b"no/such/\xff"));
    let mut out = null_mut();
    // SAFETY: the texts live, and a pointer can be written to `out`.
    unsafe {
        assert_eq!(fc_network_load(path.unwrap().as_ptr(), &raw mut out), OK);
        fc_network_free(out);
        let status = fc_network_load(none.unwrap().as_ptr(), &raw mut out);
        refused(status, BAD_FILE, "no/such/");
    }
}

#[test]
fn wrong_calls_are_refused() {
    let written = linear("wrong");
    let network = loaded(&written);
    let runner = planned(network, ROWS, F64);
    let given = inputs(&written.network, ROWS);
    let mut output = vec![f64::NAN; 8 * 12 * 5];
    let (right, outputs) = (addresses(&given), [output.as_mut_ptr().cast::<c_void>()]);
    let mut out = null_mut();
    let odd = [right[0].wrapping_byte_add(1)];
    let same = [right[0].cast_mut()];
    let run = |inputs: &[*const c_void], outputs: &[*mut c_void]| {
        let call = NetworkCall::of(inputs, outputs);
        // SAFETY: wrong tensors are refused before they are read.
        unsafe { fc_network_run(runner, &raw const call) }
    };
    refused(
        run(&[], &outputs),
        BAD_ARGUMENT,
        "inputs: expected 1 tensors, got 0",
    );
    refused(
        run(&right, &[]),
        BAD_ARGUMENT,
        "outputs: expected 1 tensors, got 0",
    );
    refused(run(&[null()], &outputs), BAD_ARGUMENT, "x");
    refused(run(&right, &[null_mut()]), BAD_ARGUMENT, "y");
    refused(run(&odd, &outputs), BAD_ARGUMENT, "x");
    refused(run(&right, &same), BAD_ARGUMENT, "overlap");
    assert!(output.iter().all(|x| x.is_nan()));
    assert_eq!(run(&right, &outputs), OK);
    assert!(output.iter().all(|x| x.is_finite()));
    let none = CString::new("no/such/file").unwrap();
    let own = CString::new(std::env::current_exe().unwrap().to_str().unwrap()).unwrap();
    // SAFETY: null is refused everywhere; else the promises hold.
    unsafe {
        refused(
            fc_network_load(none.as_ptr(), &raw mut out),
            BAD_FILE,
            "no/such/file",
        );
        assert!(out.is_null());
        refused(
            fc_network_load(own.as_ptr(), &raw mut out),
            BAD_FILE,
            "safetensors",
        );
        refused(fc_network_load(null(), &raw mut out), BAD_ARGUMENT, "path");
        refused(
            fc_network_load(none.as_ptr(), null_mut()),
            BAD_ARGUMENT,
            "out",
        );
        let mut made = null_mut();
        refused(
            fc_network_plan(network, batch(ROWS), 2, null(), 0, &raw mut made),
            BAD_ARGUMENT,
            "dtype",
        );
        refused(
            fc_network_plan(network, batch(LARGE), F64, null(), 0, &raw mut made),
            BAD_ARGUMENT,
            "batch",
        );
        refused(
            fc_network_plan(null(), batch(ROWS), F64, null(), 0, &raw mut made),
            BAD_ARGUMENT,
            "network",
        );
        refused(
            fc_network_plan(network, batch(ROWS), F64, null(), 0, null_mut()),
            BAD_ARGUMENT,
            "out",
        );
        assert!(made.is_null());
        refused(
            fc_network_counts(network, null_mut(), null_mut(), null_mut()),
            BAD_ARGUMENT,
            "inputs",
        );
        refused(fc_network_run(null_mut(), null()), BAD_ARGUMENT, "runner");
        refused(fc_network_run(runner, null()), BAD_ARGUMENT, "call");
        let (mut page, nowhere) = (null(), null_mut());
        refused(
            fc_network_explain(null(), null(), &raw mut page),
            BAD_ARGUMENT,
            "runner",
        );
        refused(
            fc_network_explain(runner, null(), nowhere),
            BAD_ARGUMENT,
            "page",
        );
        let machine = Machine::of(1.0, 0.0, 1.0);
        page = c"a page of before".as_ptr();
        let explained = fc_network_explain(runner, &raw const machine, &raw mut page);
        refused(explained, BAD_ARGUMENT, "rates above 0");
        assert!(page.is_null());
        fc_network_runner_free(null_mut());
        fc_network_free(null_mut());
        fc_network_runner_free(runner);
        fc_network_free(network);
    }
}
