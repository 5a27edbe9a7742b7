//! Gradients of gradients of L-GATr-slim, which no layer of this crate is, and what is left of a backward pass that fails.

use candle_core::{CpuStorage, Layout, Var};
use flashcliff::{Algebra, Signature};
use flashcliff_network::tokens::{Channels, Slim};

use super::*;
use crate::op::gradients;
use crate::op::network::{Around, Node};

#[path = "../../../../tests/kept/mod.rs"]
mod kept;

/// Whether this process keeps the graph of gradients. If not, the test of a name is run in one that does.
fn keeps(name: &str) -> bool {
    kept::keeps(&format!("op::network::again::tests::{name}"))
}

fn numbers(shape: &[usize], phase: f64) -> Tensor {
    let count: usize = shape.iter().product();
    let data: Vec<f64> = (0..count)
        .map(|at| (phase + 0.7 * at as f64).sin())
        .collect();
    Tensor::from_vec(data, shape, &Device::Cpu).unwrap()
}

fn dot(x: &Tensor, y: &Tensor) -> Tensor {
    (x * y).unwrap().sum_all().unwrap()
}

fn number(x: &Tensor) -> f64 {
    x.to_scalar().unwrap()
}

/// L-GATr-slim of one block, with its tokens and then its parameters.
fn slim() -> (Node, Vec<Var>) {
    let algebra = Algebra::new(Signature::new(1, 3, 0).unwrap()).unwrap();
    let (ends, hidden) = (Channels::new(2, 3), Channels::new(4, 6));
    let options = Slim {
        blocks: 1,
        heads: 2,
        ..Slim::new(algebra, ends, ends, hidden)
    };
    let (network, ends) = options.network().unwrap();
    let shape = |&own| {
        let axes = network.shape(own).unwrap().iter();
        axes.map(|axis| axis.size(1)).collect::<Vec<usize>>()
    };
    let shapes = network.parameters().iter().map(shape).enumerate();
    let start = |(at, shape): (usize, Vec<usize>)| {
        Var::from_tensor(&(numbers(&shape, at as f64) * 0.4).unwrap()).unwrap()
    };
    let parameters: Vec<Var> = shapes.map(start).collect();
    let tensors = parameters.iter().map(|var| var.as_tensor().clone());
    let tensors = tensors.collect();
    let node = Node::of("slim", network, ends.output, tensors);
    let mut all = vec![Var::from_tensor(&numbers(&[2, 3, 11], 0.3)).unwrap()];
    all.extend(parameters);
    (node, all)
}

fn energy(node: &Node, tokens: &Tensor) -> Tensor {
    let around = Around {
        rows: Rows::new(2, 3),
        sequences: None,
        draw: None,
        graphs: None,
    };
    let out = node.apply(&[tokens], Some(around)).unwrap();
    dot(&out.sin().unwrap(), &numbers(out.dims(), 1.3))
}

fn loss(node: &Node, tokens: &Tensor) -> Tensor {
    let forces = gradients(&energy(node, tokens), &[tokens]).unwrap();
    dot(&forces[0], &numbers(tokens.dims(), 2.0))
}

#[test]
fn losses_on_forces_of_slim_have_the_gradients_of_differences() {
    if !keeps("losses_on_forces_of_slim_have_the_gradients_of_differences") {
        return;
    }
    let (node, vars) = slim();
    let found = loss(&node, &vars[0]).backward().unwrap();
    let mut largest = 0.0_f64;
    for (at, var) in vars.iter().enumerate() {
        let along = numbers(var.dims(), 5.0);
        let before = var.as_tensor().copy().unwrap();
        let moved = |step: f64| {
            let to = (&before + (&along * step).unwrap()).unwrap();
            var.set(&to).unwrap();
            number(&loss(&node, &vars[0]))
        };
        let across = |step: f64| moved(step) - moved(-step);
        let want = (8.0 * across(1e-4) - across(2e-4)) / 12e-4;
        var.set(&before).unwrap();
        let got = number(&dot(found.get(var).unwrap(), &along));
        largest = largest.max(got.abs());
        let error = (got - want).abs();
        assert!(error <= 1e-7 * (1.0 + got.abs()), "{at}: {got}, {want}");
    }
    assert!(largest > 1e-2, "{largest}");
}

/// A backward pass that fails after gradients of gradients leaves none of them to the next pass.
#[test]
fn a_pass_that_fails_leaves_nothing() {
    if !keeps("a_pass_that_fails_leaves_nothing") {
        return;
    }
    let (node, vars) = slim();
    let by: Vec<&Tensor> = vars.iter().map(Var::as_tensor).collect();
    let gradients = gradients(&energy(&node, by[0]), &by).unwrap();
    let own = |at: usize| dot(&gradients[at], &numbers(by[at].dims(), 2.0));
    let second = |of: &Tensor| {
        let found = of.backward().unwrap();
        found
            .get(by[0])
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_vec1::<f64>()
            .unwrap()
    };
    let alone = second(&own(2));
    assert_ne!(second(&(own(2) + own(1)).unwrap()), alone);
    // Whichever side comes first, one pass fails when the gradient with number 1 has left its own.
    let fails = gradients[0].apply_op1(Fails).unwrap().sum_all().unwrap();
    for both in [(own(1) + &fails).unwrap(), (&fails + own(1)).unwrap()] {
        both.backward().unwrap_err();
        assert_eq!(second(&own(2)), alone);
    }
}

/// The identity, without a gradient.
struct Fails;

impl CustomOp1 for Fails {
    fn name(&self) -> &'static str {
        "fails"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((x.clone(), layout.shape().clone()))
    }
}
