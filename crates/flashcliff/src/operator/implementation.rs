//! What implements an operator on the CPU: the list of the kinds of operators, and what each of them answers.
//!
//! A kind is a folder beside this file. Its `mod.rs` implements [`Implementation`]. Its `cuda` has a function `on_cuda`, which makes what
//! implements the trait `OnCuda`; it names no type of cudarc. A new kind is such a folder, and a line in [`Kind`] and in [`each`].

use cayley::GradeSet;

use super::composed::Composed;
use super::fully_connected::FullyConnected;
use super::lane::LaneOperator;
use super::linear::Linear;
use super::linear_sgp::LinearSgp;
use super::zero::Zero;
use super::{Cost, Dims, Pass, TensorSpec};
use crate::tensor::Tensor;
use crate::{Algebra, Bias, Dtype, Element, Error, Norm, Tier};

/// The inputs and the outputs of an operator.
pub(crate) type Specs = (Vec<TensorSpec>, Vec<TensorSpec>);

/// The implementation of an operator. What it has to answer is in [`Implementation`]; [`each`] asks any of them.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Lanes(LaneOperator),
    FullyConnected(Box<FullyConnected>),
    Linear(Linear),
    LinearSgp(Box<LinearSgp>),
    Zero(Zero),
    Composed(Composed),
}

/// Asks the implementation of an operator, whatever its kind is: `each!(kind, of => of.row_sums())`. A trait object could not be asked for
/// functions of any type of elements.
macro_rules! each {
    ($kind:expr, $of:ident => $answer:expr) => {
        match $kind {
            $crate::operator::Kind::Lanes($of) => $answer,
            $crate::operator::Kind::FullyConnected($of) => $answer,
            $crate::operator::Kind::Linear($of) => $answer,
            $crate::operator::Kind::LinearSgp($of) => $answer,
            $crate::operator::Kind::Zero($of) => $answer,
            $crate::operator::Kind::Composed($of) => $answer,
        }
    };
}
pub(crate) use each;

/// The two derivatives that are operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Derivative {
    /// From the inputs and the gradients of the outputs to the gradients of the inputs.
    Gradient,
    /// From the inputs and their tangents to the tangents of the outputs.
    Tangent,
}

impl Derivative {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gradient => "gradient",
            Self::Tangent => "tangent",
        }
    }
}

/// The tensors that a backward pass reads.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a, T> {
    pub(super) inputs: &'a [Tensor<'a, T>],
    pub(super) output: Tensor<'a, T>,
    pub(super) saved: &'a [T],
    pub(super) grad_output: Tensor<'a, T>,
    /// Whether the gradient of the first input is added to what is there.
    pub(super) adds: bool,
}

/// An operator on the CPU. [`Operator`](super::Operator) has checked all shapes and the lengths of all buffers before it calls a pass.
///
/// Functions that are not stated answer for an operator with one output that saves nothing and takes no workspace.
pub(crate) trait Implementation {
    /// The inputs and the outputs.
    fn specs(&self) -> Specs;

    /// The operations of both passes.
    fn cost(&self, dims: &Dims) -> Cost;

    /// The derivative, which is an operator of some kind.
    fn derivative(&self, algebra: Algebra, derivative: Derivative) -> Result<Kind, Error>;

    /// Computes the outputs that are wanted. `saved` is empty where nothing is to be saved, which an operator with [matrix
    /// products](Self::has_matrix_products) does not allow.
    fn run<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        inputs: &[Tensor<'_, T>],
        outputs: &mut [Option<&mut [T]>],
        saved: &mut [T],
        workspace: &mut [T],
    ) -> Result<(), Error>;

    /// Computes the gradients that are wanted.
    fn backward<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        given: &Given<'_, T>,
        grads: &mut [Option<&mut [T]>],
        workspace: &mut [T],
    ) -> Result<(), Error>;

    /// The elements of workspace of a pass whose tensors are not empty.
    fn workspace_len<T: Element>(&self, _: Tier, _: &Dims, _: Pass) -> usize {
        0
    }

    /// The tensor that a forward pass keeps for the backward pass.
    fn kept(&self) -> Option<TensorSpec> {
        None
    }

    /// The number of sums that a forward pass saves for each batch element.
    fn row_sums(&self) -> usize {
        0
    }

    /// Whether most operations belong to matrix products over channels. Such a forward pass needs room for what it saves, even if no
    /// backward pass follows.
    fn has_matrix_products(&self) -> bool {
        false
    }

    /// Whether a backward pass can add the gradient of the first input to what is there.
    fn adds_to_gradient(&self) -> bool {
        false
    }

    /// Whether kernels of lanes are interpreted in this type.
    fn is_interpreted<T: Element>(&self, algebra: Algebra, _: Tier) -> bool {
        let has_type = T::DTYPE != Dtype::F64 || cfg!(feature = "f64");
        !(algebra.is_compiled() && has_type)
    }

    /// Checks that kernels have room for all programs.
    fn check_room(&self) -> Result<(), String> {
        Ok(())
    }

    /// Checks that there is a backward pass, which derivatives may lack.
    fn check_backward(&self) -> Result<(), String> {
        Ok(())
    }

    /// The operator with some of its outputs; `None` if it has but one.
    fn selecting(&self, _wanted: &[bool]) -> Option<Kind> {
        None
    }

    /// The operator as one lane program, if it is one.
    fn lanes(&self) -> Option<&LaneOperator> {
        None
    }

    /// The norm of the output.
    fn norm(&self) -> Norm {
        Norm::None
    }

    /// What is added to the output.
    fn bias(&self) -> Bias {
        Bias::None
    }

    /// The grades of the operands, which are the first inputs, and of the output; `None` if the names of components say them.
    fn tensor_grades(&self, _: Algebra) -> Option<(Vec<GradeSet>, GradeSet)> {
        None
    }
}
