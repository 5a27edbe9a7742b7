//! Gradients through the C interface: beside the library and differences of outputs, with parameters of the caller, and wrong calls.

use super::*;
use crate::{
    NetworkGradients, fc_network_backward, fc_network_parameter, fc_network_parameter_values,
};

/// A runner with gradients by those inputs and parameters that are chosen.
pub(super) fn with_gradients(
    network: *const Network,
    rows: Rows,
    wanted: &[c_int],
) -> *mut NetworkRunner {
    let mut out = null_mut();
    // SAFETY: the network lives, the numbers are there, and a pointer can be written to `out`.
    let status = unsafe {
        let (from, count) = (wanted.as_ptr(), wanted.len());
        fc_network_plan(network, batch(rows), F64, from, count, &raw mut out)
    };
    assert_eq!(status, OK);
    out
}

pub(super) fn places(all: &mut [Vec<f64>]) -> Vec<*mut c_void> {
    all.iter_mut().map(|own| own.as_mut_ptr().cast()).collect()
}

/// The gradients that the library computes in a plan of one stage.
pub(super) fn of_the_library(
    written: &Written,
    rows: Rows,
    seed: &[f64],
    scales: Scales<'_>,
) -> Vec<Vec<f64>> {
    let mut network = written.network.clone();
    let by = [network.inputs(), network.parameters()].concat();
    let axes = network.shape(written.output).unwrap().to_vec();
    let seed_value = network.features("seed", &axes);
    let pairs = network.gradients_by(written.output, seed_value, &by, Keep::All);
    let gradients: Vec<Value> = pairs.unwrap().into_iter().map(|(_, own)| own).collect();
    assert_eq!(gradients.len(), by.len());
    let plan = network.plan(&gradients, rows, [Dtype::F64; 2]).unwrap();
    let given = inputs(&written.network, rows);
    let parameters: Vec<&[f64]> = written.parameters.iter().map(Vec::as_slice).collect();
    let inputs: Vec<&[f64]> = given.iter().map(Vec::as_slice).chain([seed]).collect();
    let sources = Slices {
        inputs: &inputs,
        parameters: &parameters,
    };
    let len = |&value: &Value| plan.tensor(value).unwrap().0.iter().product();
    let mut outputs: Vec<Vec<f64>> = gradients.iter().map(|own| vec![0.0; len(own)]).collect();
    let mut memory = Cpu::new(&plan).unwrap();
    memory
        .run(&plan, &sources, &mut outputs, scales, &mut |_| {})
        .unwrap();
    outputs
}

#[test]
fn gradients_are_those_of_the_library() {
    let written = transformer("gradients");
    let network = loaded(&written);
    let given = inputs(&written.network, ROWS);
    let whole = expected(&written, ROWS, None);
    let seed = numbers(whole.len(), 9);
    let right = of_the_library(&written, ROWS, &seed, Scales::default());
    let runner = with_gradients(network, ROWS, &vec![1; right.len()]);
    // The runner outlives its network.
    // SAFETY: nobody uses the network from now on.
    unsafe { fc_network_free(network) };
    let mut output = [vec![f64::NAN; whole.len()]];
    let mut grads: Vec<Vec<f64>> = right.iter().map(|own| vec![f64::NAN; own.len()]).collect();
    let (from, outputs, into) = (addresses(&given), places(&mut output), places(&mut grads));
    let call = NetworkCall::of(&from, &outputs);
    let seeds = [seed.as_ptr().cast()];
    let gradients = NetworkGradients::of(&seeds, &into);
    // SAFETY: the tensors fit the network, and nobody uses the runner after it is freed.
    unsafe {
        for _ in 0..2 {
            assert_eq!(fc_network_run(runner, &raw const call), OK);
            assert_eq!(output[0], whole);
            // One run serves several gradients of its output.
            for _ in 0..2 {
                let (call, gradients) = (&raw const call, &raw const gradients);
                assert_eq!(fc_network_backward(runner, call, gradients), OK);
                assert_eq!(grads, right);
                grads.iter_mut().for_each(|own| own.fill(f64::NAN));
            }
        }
        fc_network_runner_free(runner);
    }
}

/// Sequences of a ragged batch, some gradients, and parameters of the caller: the gradients are differences of outputs.
#[test]
fn chosen_gradients_are_differences_of_outputs() {
    let written = transformer("differences");
    let network = loaded(&written);
    let (rows, offsets) = (Rows::new(1, 9), [0, 2, 9]);
    let given = inputs(&written.network, rows);
    let mut own = written.parameters.clone();
    own.iter_mut().flatten().for_each(|number| *number *= 0.5);
    let (input, parameter) = (0, 3);
    let mut wanted = vec![0; given.len() + own.len()];
    (wanted[input], wanted[given.len() + parameter]) = (1, 1);
    let runner = with_gradients(network, rows, &wanted);
    let len = expected(&written, rows, None).len();
    let seed = numbers(len, 9);
    let mut output = [vec![f64::NAN; len]];
    let mut grads = [
        vec![f64::NAN; given[input].len()],
        vec![f64::NAN; own[parameter].len()],
    ];
    let mut into = vec![null_mut(); wanted.len()];
    into[input] = grads[0].as_mut_ptr().cast();
    into[given.len() + parameter] = grads[1].as_mut_ptr().cast();
    let outputs = places(&mut output);
    let value = |inputs: &[Vec<f64>], parameters: &[Vec<f64>], backward: bool| {
        let (from, parameters) = (addresses(inputs), addresses(parameters));
        let call = NetworkCall::of(&from, &outputs)
            .within(&offsets)
            .with(&parameters);
        let seeds = [seed.as_ptr().cast()];
        let gradients = NetworkGradients::of(&seeds, &into);
        // SAFETY: the tensors fit the network.
        unsafe {
            assert_eq!(fc_network_run(runner, &raw const call), OK);
            if backward {
                let (call, gradients) = (&raw const call, &raw const gradients);
                assert_eq!(fc_network_backward(runner, call, gradients), OK);
            }
        }
        let pairs = output[0].iter().zip(&seed);
        pairs.map(|(y, seed)| y * seed).sum::<f64>()
    };
    value(&given, &own, true);
    let step = 1e-5;
    for at in 0..given[input].len() {
        let [above, below] = [step, -step].map(|step| {
            let mut moved = given.clone();
            moved[input][at] += step;
            value(&moved, &own, false)
        });
        let (got, slope) = (grads[0][at], (above - below) / (2.0 * step));
        assert!((got - slope).abs() < 1e-6, "{at}: {got}, {slope}");
    }
    for at in 0..own[parameter].len() {
        let [above, below] = [step, -step].map(|step| {
            let mut moved = own.clone();
            moved[parameter][at] += step;
            value(&given, &moved, false)
        });
        let (got, slope) = (grads[1][at], (above - below) / (2.0 * step));
        assert!((got - slope).abs() < 1e-6, "{at}: {got}, {slope}");
    }
    // SAFETY: nobody uses them from now on.
    unsafe {
        fc_network_runner_free(runner);
        fc_network_free(network);
    }
}

#[test]
fn parameters_are_those_of_the_file() {
    let written = linear("parameters");
    let network = loaded(&written);
    let mut end = std::mem::MaybeUninit::<NetworkEnd>::uninit();
    for (at, own) in written.parameters.iter().enumerate() {
        let mut wide = vec![f64::NAN; own.len()];
        let mut narrow = vec![f32::NAN; own.len()];
        // SAFETY: the network lives, and there is room for the end, which was written, and for the numbers.
        unsafe {
            assert_eq!(fc_network_parameter(network, at, end.as_mut_ptr()), OK);
            assert_eq!(end.assume_init_ref().len(), own.len());
            let (to_wide, to_narrow) = (wide.as_mut_ptr().cast(), narrow.as_mut_ptr().cast());
            assert_eq!(fc_network_parameter_values(network, at, F64, to_wide), OK);
            assert_eq!(fc_network_parameter_values(network, at, F32, to_narrow), OK);
        }
        assert_eq!(wide, *own);
        assert!(narrow.iter().zip(own).all(|(a, b)| *a == *b as f32));
    }
    // SAFETY: null and wrong numbers are refused before anything is written; nobody uses the network after it is freed.
    unsafe {
        let values = |at, dtype| fc_network_parameter_values(network, at, dtype, null_mut());
        refused(
            values(2, F64),
            BAD_ARGUMENT,
            "parameter: expected a number below 2, got 2",
        );
        refused(values(0, 2), BAD_ARGUMENT, "dtype");
        refused(values(0, F64), BAD_ARGUMENT, "values");
        fc_network_free(network);
    }
}

#[test]
fn wrong_gradients_are_refused() {
    let written = linear("wrong-gradients");
    let network = loaded(&written);
    let given = inputs(&written.network, ROWS);
    let len = expected(&written, ROWS, None).len();
    let (seed, mut output) = (numbers(len, 9), [vec![f64::NAN; len]]);
    let mut grad = vec![f64::NAN; written.parameters[0].len()];
    let (from, outputs) = (addresses(&given), places(&mut output));
    let call = NetworkCall::of(&from, &outputs);
    let (seeds, into) = (
        [seed.as_ptr().cast()],
        [null_mut(), grad.as_mut_ptr().cast(), null_mut()],
    );
    let backward = |runner, seeds: &[*const c_void], into: &[*mut c_void]| {
        let gradients = NetworkGradients::of(seeds, into);
        // SAFETY: wrong tensors are refused before they are read.
        unsafe { fc_network_backward(runner, &raw const call, &raw const gradients) }
    };
    let without = planned(network, ROWS, F64);
    refused(
        backward(without, &seeds, &into),
        BAD_ARGUMENT,
        "planned with gradients",
    );
    let runner = with_gradients(network, ROWS, &[0, 1, 0]);
    refused(
        backward(runner, &seeds, &into),
        BAD_ARGUMENT,
        "expected a run before",
    );
    // SAFETY: the tensors fit the network.
    assert_eq!(unsafe { fc_network_run(runner, &raw const call) }, OK);
    refused(
        backward(runner, &[], &into),
        BAD_ARGUMENT,
        "gradients of outputs: expected 1 tensors, got 0",
    );
    refused(
        backward(runner, &seeds, &into[1..]),
        BAD_ARGUMENT,
        "gradients of inputs and parameters: expected 3 tensors, got 2",
    );
    refused(
        backward(runner, &[null()], &into),
        BAD_ARGUMENT,
        "the gradient of y",
    );
    refused(
        backward(runner, &seeds, &[null_mut(); 3]),
        BAD_ARGUMENT,
        "the gradient of weight",
    );
    refused(
        backward(runner, &seeds, &[into[1], into[1], null_mut()]),
        BAD_ARGUMENT,
        "gradient 0: expected NULL",
    );
    let seed_written = [null_mut(), seeds[0].cast_mut(), null_mut()];
    refused(
        backward(runner, &seeds, &seed_written),
        BAD_ARGUMENT,
        "overlap",
    );
    assert!(grad.iter().all(|x| x.is_nan()));
    assert_eq!(backward(runner, &seeds, &into), OK);
    assert!(grad.iter().all(|x| x.is_finite()));
    let mut made = null_mut();
    // SAFETY: null and wrong numbers are refused; nobody uses runners and network after they are freed.
    unsafe {
        let two = [1, 1];
        let count = fc_network_plan(network, batch(ROWS), F64, two.as_ptr(), 2, &raw mut made);
        refused(count, BAD_ARGUMENT, "wanted gradients");
        assert!(made.is_null());
        refused(
            fc_network_backward(runner, &raw const call, null()),
            BAD_ARGUMENT,
            "gradients",
        );
        refused(
            fc_network_backward(null_mut(), &raw const call, null()),
            BAD_ARGUMENT,
            "runner",
        );
        let few = NetworkCall::of(&from, &outputs).with(&from);
        refused(
            fc_network_run(runner, &raw const few),
            BAD_ARGUMENT,
            "parameters: expected 2 tensors, got 1",
        );
        fc_network_runner_free(without);
        fc_network_runner_free(runner);
        fc_network_free(network);
    }
}
