//! Programs: your own operators.
//!
//! A [`Program`] is a graph of expressions over the components of multivectors, one lane (a batch element and a channel) at a
//! time, with sums over the channels of a row. [`Operator::of`](crate::Operator::of) makes it an operator: its gradient is
//! derived, it is vectorised on the CPU, and compiled on CUDA when it is first called there.
//!
//! ```
//! use flashcliff::program::{Multivector, Program};
//! use flashcliff::{Algebra, GradeSet, Operator, ProductKind, ProgramOptions, Signature, Tensor};
//!
//! // The commutator of two multivectors, with a weight for each channel.
//! let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
//! let all = GradeSet::full(3);
//! let mut p = Program::new("weighted_commutator", "o = w (x y - y x)");
//! let x = Multivector::input(&mut p, &algebra, "x", all);
//! let y = Multivector::input(&mut p, &algebra, "y", all);
//! let w = p.param("w", 1)[0];
//! let xy = x.product(&mut p.graph, &algebra, ProductKind::Geometric, &y);
//! let yx = y.product(&mut p.graph, &algebra, ProductKind::Geometric, &x);
//! let mut components = Vec::new();
//! for (xy, yx) in xy.components.into_iter().zip(yx.components) {
//!     let difference = p.graph.sub(xy, yx);
//!     components.push(p.graph.mul(w, difference));
//! }
//! Multivector { grades: all, components }.output(&mut p, &algebra);
//!
//! let commutator = Operator::of(algebra, &p, &ProgramOptions::default())?;
//! let e1: Vec<f32> = (0..8).map(|blade| f32::from(blade == 1)).collect();
//! let e2: Vec<f32> = (0..8).map(|blade| f32::from(blade == 2)).collect();
//! let (e1, e2) = (Tensor::new(&e1, &[8, 1, 1])?, Tensor::new(&e2, &[8, 1, 1])?);
//! let found = commutator.evaluate(&[e1, e2, Tensor::new(&[3.0], &[1, 1])?])?;
//! assert_eq!(found.output[4], 6.0); // 3 (e1 e2 - e2 e1) = 6 e12
//! let gradients = commutator.gradients(&[e1, e2, Tensor::new(&[3.0], &[1, 1])?], &found, found.tensor()?)?;
//! assert_eq!(gradients[2], [12.0]); // of w: 2 e12, times the gradient 6 of e12
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Tensors are of the channels, or of scalar channels beside them ([`Width`]), whose number is another one:
//! [`Program::input_of`], [`param_of`](Program::param_of), [`output_of`](Program::output_of). Values of both meet in
//! [`Program::row_sum`], the sum over the channels that a value has. [`Program::row_value`] is one number for each
//! row, which its lanes share, and [`Program::total`] a result with one number for each row, as the gradient of such
//! a value is one.
//!
//! # Compiled ahead
//! On the CPU such a program is interpreted. A build script with the crate `flashcliff-build` compiles it, with its adjoint, and on request
//! second derivatives: the results have the same bits. The chapter "An operator of your own in Rust" of the guide shows it.

pub use flashcliff_program::ir::{
    Argument, Digest, Function, Graph, Id, LaneTensor, Node, Parameter, Program, Returned, Total,
    Uniform, Width,
};
pub use flashcliff_program::spec::Multivector;
