//! Networks on graphs through the C interface: beside the library, and wrong relations.

use flashcliff_network::Segments;
use flashcliff_network::messages::Bodies;

use super::gradients::{of_the_library, places, with_gradients};
use super::*;
use crate::{NetworkGradients, fc_network_backward};

/// The nodes that edges go to and come from: one twice, a node with none, a loop.
const RECEIVERS: [u32; 8] = [1, 0, 4, 1, 1, 0, 3, 1];
const SENDERS: [u32; 8] = [0, 1, 2, 2, 4, 1, 3, 0];
const GRAPHS: [u32; 6] = [0, 0, 1, 0, 1, 1];
const ON_GRAPHS: Rows = Rows::of_graphs(2, 6, 8);

/// A network of charged bodies.
fn bodies(name: &str) -> Written {
    let options = Bodies {
        channels: 3,
        layers: 2,
        ..Bodies::default()
    };
    let (layers, ends) = options.layers().unwrap();
    written(name, layers.network, ends.positions)
}

fn segments() -> [Segments; 3] {
    let of = |targets: &[u32], count| Segments::new(targets, count).unwrap();
    [of(&RECEIVERS, 6), of(&SENDERS, 6), of(&GRAPHS, 2)]
}

fn made(targets: &[u32], count: usize) -> *mut Relation {
    let mut out = null_mut();
    // SAFETY: the numbers are there, and a pointer can be written to `out`.
    let status = unsafe { fc_relation_new(targets.as_ptr(), targets.len(), count, &raw mut out) };
    assert_eq!(status, OK);
    out
}

/// Relations that are freed in the end.
struct Relations([*const Relation; 3]);

impl Relations {
    fn new() -> Self {
        let wide = SENDERS.map(i64::from);
        let mut senders = null_mut();
        // SAFETY: the numbers are there, and a pointer can be written.
        let status = unsafe { fc_relation_new_i64(wide.as_ptr(), 8, 6, &raw mut senders) };
        assert_eq!(status, OK);
        Self([made(&RECEIVERS, 6), senders, made(&GRAPHS, 2)])
    }
}

impl Drop for Relations {
    fn drop(&mut self) {
        for own in self.0 {
            // SAFETY: nobody uses the relation from now on.
            unsafe { fc_relation_free(own.cast_mut()) };
        }
    }
}

#[test]
fn runs_and_gradients_are_those_of_the_library() {
    let (written, segments, relations) = (bodies("bodies"), segments(), Relations::new());
    let network = loaded(&written);
    let scales = Scales {
        relations: &segments,
        ..Scales::default()
    };
    let given = inputs(&written.network, ON_GRAPHS);
    let whole = expected_with(&written, ON_GRAPHS, scales);
    let seed = numbers(whole.len(), 9);
    let right = of_the_library(&written, ON_GRAPHS, &seed, scales);
    let alone = planned(network, ON_GRAPHS, F64);
    let runner = with_gradients(network, ON_GRAPHS, &vec![1; right.len()]);
    let mut output = [vec![f64::NAN; whole.len()]];
    let mut grads: Vec<Vec<f64>> = right.iter().map(|own| vec![f64::NAN; own.len()]).collect();
    let (from, outputs, into) = (addresses(&given), places(&mut output), places(&mut grads));
    let call = NetworkCall::of(&from, &outputs).along(&relations.0);
    let seeds = [seed.as_ptr().cast()];
    let gradients = NetworkGradients::of(&seeds, &into);
    // SAFETY: the tensors and relations fit the network, and nobody uses runners and network after they are freed.
    unsafe {
        for _ in 0..2 {
            assert_eq!(fc_network_run(alone, &raw const call), OK);
            assert_eq!(output[0], whole);
            output[0].fill(f64::NAN);
            assert_eq!(fc_network_run(runner, &raw const call), OK);
            assert_eq!(output[0], whole);
            let status = fc_network_backward(runner, &raw const call, &raw const gradients);
            assert_eq!(status, OK);
            assert_eq!(grads, right);
            grads.iter_mut().for_each(|own| own.fill(f64::NAN));
        }
        fc_network_runner_free(alone);
        fc_network_runner_free(runner);
        fc_network_free(network);
    }
}

#[test]
fn relations_have_names_and_sizes() {
    let written = bodies("names");
    let network = loaded(&written);
    let mut count = 0;
    let mut end = std::mem::MaybeUninit::<NetworkRelationEnd>::uninit();
    // SAFETY: the network lives, and numbers and ends can be written and are read where the status says that they were.
    unsafe {
        assert_eq!(fc_network_relation_count(network, &raw mut count), OK);
        assert_eq!(count, 3);
        for (at, sizes) in [[8, 6], [8, 6], [6, 2]].into_iter().enumerate() {
            let status = fc_network_relation(network, at, batch(ON_GRAPHS), end.as_mut_ptr());
            assert_eq!(status, OK);
            assert_eq!(end.assume_init_ref().sizes(), sizes);
        }
        refused(
            fc_network_relation(network, 3, batch(ON_GRAPHS), end.as_mut_ptr()),
            BAD_ARGUMENT,
            "relation: expected a number below 3, got 3",
        );
        refused(
            fc_network_relation(network, 0, batch(ON_GRAPHS), null_mut()),
            BAD_ARGUMENT,
            "end",
        );
        refused(
            fc_network_relation_count(network, null_mut()),
            BAD_ARGUMENT,
            "count",
        );
        fc_network_free(network);
    }
}

#[test]
fn targets_out_of_range_are_refused() {
    let mut out = null_mut();
    // SAFETY: the numbers are there, and a pointer can be written to `out`.
    unsafe {
        let status = fc_relation_new([0, 6].as_ptr(), 2, 6, &raw mut out);
        refused(status, BAD_ARGUMENT, "got 6 for row 1");
        assert!(out.is_null());
        let status = fc_relation_new_i64([-1].as_ptr(), 1, 6, &raw mut out);
        refused(status, BAD_ARGUMENT, "got -1 for row 0");
        let status = fc_relation_new(null(), 1, 6, &raw mut out);
        refused(status, BAD_ARGUMENT, "targets");
        let status = fc_relation_new([0].as_ptr(), 1, 6, null_mut());
        refused(status, BAD_ARGUMENT, "out");
        fc_relation_free(null_mut());
    }
}

#[test]
fn relations_of_other_sizes_are_refused() {
    let (written, relations) = (bodies("sizes"), Relations::new());
    let network = loaded(&written);
    let runner = planned(network, ON_GRAPHS, F64);
    let given = inputs(&written.network, ON_GRAPHS);
    let mut output = [vec![f64::NAN; 18]];
    let (from, outputs) = (addresses(&given), places(&mut output));
    let [receivers, senders, graphs] = relations.0;
    let cases: [(&[*const Relation], &str); 4] = [
        (&[], "the segments of relations"),
        (&[receivers, senders], "expected 3"),
        (&[receivers, graphs, graphs], "relation 1"),
        (&[receivers, senders, null()], "relations"),
    ];
    // SAFETY: the tensors fit the network, and nobody uses runner and network after they are freed.
    unsafe {
        for (own, words) in cases {
            let call = NetworkCall::of(&from, &outputs).along(own);
            refused(fc_network_run(runner, &raw const call), BAD_ARGUMENT, words);
        }
        fc_network_runner_free(runner);
        fc_network_free(network);
    }
    assert!(output[0].iter().all(|x| x.is_nan()));
}
