//! Functions of nodes as programs: their kernels compute values and first gradients, and programs have derivatives of every order.

use flashcliff::program::{Function, Graph, Id, Program};
use flashcliff::{Algebra, Operator, ProgramOptions, Signature};

use crate::Error;
use crate::network::Axis;
use crate::work::{Activation, Work};

/// The operator that computes the same as a node from a value of some axes; `None` for other nodes, and for axes that
/// operators do not have.
pub(super) fn operator(work: &Work, axes: &[Axis]) -> Result<Option<Operator>, Error> {
    let &[Axis::Fixed(components), rows, Axis::Fixed(_)] = axes else {
        return Ok(None);
    };
    let function: fn(&mut Graph, &[Id]) -> Vec<Id> = match work {
        _ if !rows.is_batch() => return Ok(None),
        Work::BladeNorm => blade_norm,
        Work::Activation(Activation::Silu) => silu,
        Work::Activation(Activation::Relu) => relu,
        _ => return Ok(None),
    };
    let mut program = Program::new(work.name(), "o = f(x)");
    let x = program.input("x", numbers(components));
    let o = function(&mut program.graph, &x);
    program.output("o", numbers(o.len()), o);
    // A program says by itself what it computes, whatever the algebra.
    let algebra = Algebra::new(Signature::of(1, 0, 0))?;
    let options = ProgramOptions::default();
    Ok(Some(Operator::of(algebra, &program, &options)?))
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|at| at.to_string()).collect()
}

/// The Euclidean norm. Its gradient is 0 where the norm is.
fn blade_norm(g: &mut Graph, x: &[Id]) -> Vec<Id> {
    let (square, zero, one) = (g.dot(x, x), g.constant(0.0), g.constant(1.0));
    let positive = g.select(square, zero, square, one);
    let root = g.call(Function::Sqrt, positive);
    vec![g.select(square, zero, root, zero)]
}

fn silu(g: &mut Graph, x: &[Id]) -> Vec<Id> {
    let each = |&x: &Id| {
        let sigmoid = g.call(Function::Sigmoid, x);
        g.mul(x, sigmoid)
    };
    x.iter().map(each).collect()
}

fn relu(g: &mut Graph, x: &[Id]) -> Vec<Id> {
    let zero = g.constant(0.0);
    x.iter().map(|&x| g.select(x, zero, x, zero)).collect()
}
