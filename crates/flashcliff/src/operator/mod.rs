//! Operators at run time: checks, buffers, and the choice of the skeleton that does the work.

mod compiled;
pub(crate) mod composed;
mod derived;
mod evaluation;
pub(crate) mod footprint;
mod fully_connected;
pub(crate) mod gemm;
mod implementation;
mod items;
pub(crate) mod lane;
pub(crate) mod linear;
mod linear_sgp;
mod own;
mod shape;
mod zero;

use std::fmt::Display;

use crate::Element;
use crate::ops::Recipe;
use crate::tensor::{Tensor, TensorMut};
use crate::{Algebra, Error, Tier, environment, sizes};

pub(crate) use crate::pass::Pass;
pub(crate) use compiled::Compiled;
pub use evaluation::Evaluation;
pub use footprint::Footprint;
pub(crate) use fully_connected::FullyConnected;
pub(crate) use implementation::{Derivative, Given, Implementation, Kind, Specs, each};
pub(crate) use lane::LaneOperator;
pub(crate) use linear::Linear;
pub(crate) use linear_sgp::LinearSgp;
pub use own::ProgramOptions;
pub use shape::{Dim, Dims, TensorSpec};
pub(crate) use zero::Zero;

/// Floating-point operations of the two passes of an operator, for given [`Dims`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Operations of the forward pass.
    pub forward: usize,
    /// Operations of the backward pass, with those that recompute values of the forward pass.
    pub backward: usize,
}

/// An operator, bound to an algebra and its options; made by the functions of [`ops`](crate::ops), or of a program by
/// [`Self::of`].
///
/// All tensors are contiguous. Inputs and outputs cannot alias, since outputs are `&mut`. Every check happens before
/// anything is written. The kernels allocate no tensors: [`Self::saved_len`] and [`Self::workspace_len`] give the sizes
/// of the buffers that the caller brings.
#[derive(Clone, Debug)]
pub struct Operator {
    name: &'static str,
    algebra: Algebra,
    tier: Tier,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    kept: Option<TensorSpec>,
    kind: Kind,
    recipe: Option<Recipe>,
}

impl Operator {
    pub(crate) fn new(name: &'static str, algebra: Algebra, kind: Kind) -> Self {
        let ((inputs, outputs), kept) = each!(&kind, of => (of.specs(), of.kept()));
        Self {
            name,
            algebra,
            tier: Tier::best(),
            inputs,
            outputs,
            kept,
            kind,
            recipe: None,
        }
    }

    pub(crate) fn with_recipe(self, recipe: Recipe) -> Self {
        Self {
            recipe: Some(recipe),
            ..self
        }
    }

    /// What [`ops::by_name`](crate::ops::by_name) makes this operator of; `None` for an operator of a custom program, and for a derivative.
    /// The [tier](Self::tier) is not part of it.
    ///
    /// ```
    /// use flashcliff::{Algebra, ProductKind, ops};
    ///
    /// let operator = ops::product("cl300".parse::<Algebra>()?, ProductKind::Exterior, None, None)?;
    /// let recipe = operator.recipe().ok_or("an operator of the table")?;
    /// let again = ops::by_name(operator.algebra(), recipe.name(), recipe.settings())?;
    /// assert_eq!(again.recipe(), operator.recipe());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recipe(&self) -> Option<&Recipe> {
        self.recipe.as_ref()
    }

    /// The options of the program that computes the operator, if it is one: see [`Self::program`]. [`Self::of`] makes the operator of both.
    pub fn program_options(&self) -> Option<ProgramOptions> {
        self.lanes().map(LaneOperator::options)
    }

    /// The name of the operator.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The algebra of the operator.
    pub fn algebra(&self) -> Algebra {
        self.algebra
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The operator as one lane program, if it is one.
    pub(crate) fn lanes(&self) -> Option<&LaneOperator> {
        each!(&self.kind, of => of.lanes())
    }

    /// The SIMD tier that the operator runs on.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Makes the operator run on another tier.
    ///
    /// # Errors
    /// [`Error::TierUnavailable`] if the CPU does not have it.
    pub fn with_tier(mut self, tier: Tier) -> Result<Self, Error> {
        if !tier.is_available() {
            let names: Vec<&str> = Tier::available().map(Tier::name).collect();
            return Err(Error::TierUnavailable {
                tier,
                available: names.join(", "),
            });
        }
        self.tier = tier;
        Ok(self)
    }

    /// The inputs and the outputs.
    fn tensors(&self) -> impl Iterator<Item = &TensorSpec> {
        self.inputs.iter().chain(&self.outputs)
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    /// The output; the first one of an operator with several.
    pub fn output(&self) -> &TensorSpec {
        &self.outputs[0]
    }

    /// The outputs, in order. The functions of [`ops`](crate::ops) make operators with one; a [gradient](Self::gradient) has one for each
    /// input of its operator.
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// The tensor that the forward pass keeps for the backward pass, at the start of the saved values. Few operators
    /// have one.
    pub fn kept(&self) -> Option<&TensorSpec> {
        self.kept.as_ref()
    }

    /// The sizes that the shapes of the inputs stand for.
    ///
    /// # Errors
    /// [`Error::TensorCount`] or [`Error::ShapeMismatch`] if the shapes do not fit the operator
    /// or each other, [`Error::ShapeTooLarge`] if the output could not be addressed,
    /// [`Error::Environment`] for a [variable](environment) that means nothing.
    pub fn bind(&self, shapes: &[&[usize]]) -> Result<Dims, Error> {
        self.unify(shapes.iter().copied())
    }

    /// The shape of the output.
    pub fn output_shape(&self, dims: &Dims) -> Vec<usize> {
        self.output().shape(dims)
    }

    /// The number of elements that the forward pass saves for the backward pass: the elements of [`Self::kept`], then
    /// [`Self::row_sums`] for each batch element.
    pub fn saved_len(&self, dims: &Dims) -> usize {
        let row_sums = sizes::product([self.row_sums(), dims.batch]);
        sizes::sum([self.kept_len(dims), row_sums])
    }

    /// The number of elements of the tensor that is kept.
    pub(crate) fn kept_len(&self, dims: &Dims) -> usize {
        let kept = self.kept.as_ref();
        kept.map_or(0, |kept| sizes::product(kept.sizes(dims)))
    }

    /// The number of sums that the forward pass saves for each batch element.
    pub fn row_sums(&self) -> usize {
        each!(&self.kind, of => of.row_sums())
    }

    /// The number of elements of workspace that a pass needs with [`threads::count`](crate::threads::count) threads. A pass that is large
    /// enough starts these threads. The largest number stands for sizes that no call has, since tensors of theirs could not be addressed.
    #[inline]
    pub fn workspace_len<T: Element>(&self, dims: &Dims, pass: Pass) -> usize {
        T::workspace_len(self, dims, pass)
    }

    fn workspace_len_here<T: Element>(&self, dims: &Dims, pass: Pass) -> usize {
        if shape::larger(self.tensors(), dims, shape::MAX_COUNTED).is_some() {
            return usize::MAX;
        }
        // Such a pass has nothing to compute.
        if self.is_empty(dims) {
            return 0;
        }
        each!(&self.kind, of => of.workspace_len::<T>(self.tier, dims, pass))
    }

    /// The program that computes the operator, if it is one: not of operators with matrix products, nor of those that are always zero.
    pub fn program(&self) -> Option<&'static flashcliff_program::ir::Program> {
        self.lanes().map(LaneOperator::source)
    }

    /// The floating-point operations of the two passes.
    pub fn cost(&self, dims: &Dims) -> Cost {
        each!(&self.kind, of => of.cost(dims))
    }

    /// The least number of elements that a pass moves: each tensor that it reads or writes, once.
    pub fn moved_elements(&self, dims: &Dims, pass: Pass) -> usize {
        let elements = |spec: &TensorSpec| sizes::product(spec.sizes(dims));
        let inputs = sizes::sum(self.inputs.iter().map(elements));
        let outputs = sizes::sum(self.outputs.iter().map(elements));
        match pass {
            Pass::Forward => sizes::sum([inputs, outputs]),
            // The inputs and the gradients of the outputs are read, the gradients of the inputs written.
            Pass::Backward => sizes::sum([inputs, inputs, outputs]),
        }
    }

    /// Whether kernels of lanes are interpreted on the CPU in this type: the build has none of the program, or none in f64.
    pub fn is_interpreted<T: Element>(&self) -> bool {
        each!(&self.kind, of => of.is_interpreted::<T>(self.algebra, self.tier))
    }

    /// Whether most operations belong to matrix products over channels.
    pub fn has_matrix_products(&self) -> bool {
        each!(&self.kind, of => of.has_matrix_products())
    }

    /// Computes the output.
    ///
    /// `saved` and `workspace` need at least [`Self::saved_len`] and [`Self::workspace_len`]
    /// elements; what they hold before does not matter.
    ///
    /// # Errors
    /// The errors of [`Self::bind`], and [`Error::BufferTooSmall`].
    #[inline]
    pub fn forward<T: Element>(
        &self,
        inputs: &[Tensor<'_, T>],
        output: TensorMut<'_, T>,
        saved: &mut [T],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        T::forward(self, inputs, output, saved, workspace)
    }

    fn forward_here<T: Element>(
        &self,
        inputs: &[Tensor<'_, T>],
        mut output: TensorMut<'_, T>,
        saved: &mut [T],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        self.check_one_output()?;
        let dims = self.bind_tensors(inputs)?;
        self.check_output(&dims, output.shape())?;
        self.check_buffer("saved", self.saved_len(&dims), saved.len())?;
        let needed = self.workspace_len::<T>(&dims, Pass::Forward);
        self.check_buffer("workspace", needed, workspace.len())?;
        let output = output.data_mut();
        // The other sizes of an empty tensor may be any numbers.
        if self.is_empty(&dims) {
            output.fill(T::default());
            return Ok(());
        }
        let outputs = &mut [Some(output)];
        each!(&self.kind, of => of.run(self.tier, &dims, inputs, outputs, saved, workspace))
    }

    /// Computes the gradients of the inputs from the gradient of the output.
    ///
    /// `output` and `saved` are the values that [`Self::forward`] wrote. `grads` has one entry for each input. A
    /// gradient that is `None` is not written, and where possible not computed.
    ///
    /// # Errors
    /// The errors of [`Self::forward`]; [`Error::NoBackwardPass`] for [derivatives](Self::gradient) with a gate, whose gradients are
    /// separate operators, and for derivatives for whose adjoints kernels have no room.
    #[inline]
    pub fn backward<T: Element>(
        &self,
        inputs: &[Tensor<'_, T>],
        output: Tensor<'_, T>,
        saved: &[T],
        grad_output: Tensor<'_, T>,
        grads: &mut [Option<TensorMut<'_, T>>],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        let given = Given {
            inputs,
            output,
            saved,
            grad_output,
            adds: false,
        };
        T::backward(self, &given, grads, workspace)
    }

    /// Does the same as [`Self::backward`], but adds the gradient of the first input to the values that are there. This
    /// saves a pass over memory where several operators read one tensor. Only [`mv_linear`](crate::ops::mv_linear) can.
    ///
    /// # Errors
    /// The errors of [`Self::backward`]; [`Error::NotAdded`] for other operators.
    #[inline]
    pub fn backward_adding<T: Element>(
        &self,
        inputs: &[Tensor<'_, T>],
        output: Tensor<'_, T>,
        saved: &[T],
        grad_output: Tensor<'_, T>,
        grads: &mut [Option<TensorMut<'_, T>>],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        self.check_adds()?;
        let given = Given {
            inputs,
            output,
            saved,
            grad_output,
            adds: true,
        };
        T::backward(self, &given, grads, workspace)
    }

    /// Whether [`Self::backward_adding`] works.
    pub fn adds_to_gradient(&self) -> bool {
        each!(&self.kind, of => of.adds_to_gradient())
    }

    /// Checks that the operator can add to the gradient of its first input.
    pub(crate) fn check_adds(&self) -> Result<(), Error> {
        match self.adds_to_gradient() {
            true => Ok(()),
            false => Err(Error::NotAdded {
                operator: self.name.to_owned(),
            }),
        }
    }

    fn backward_here<T: Element>(
        &self,
        given: &Given<'_, T>,
        grads: &mut [Option<TensorMut<'_, T>>],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        self.check_one_output()?;
        each!(&self.kind, of => of.check_backward()).map_err(|reason| Error::NoBackwardPass {
            operator: self.name.to_owned(),
            reason,
        })?;
        let dims = self.bind_tensors(given.inputs)?;
        self.check_output(&dims, given.output.shape())?;
        let grad_output = given.grad_output;
        self.check_shape("grad_o", self.output(), &dims, grad_output.shape())?;
        self.check_count("gradients", grads.len())?;
        for (grad, spec) in grads.iter().zip(&self.inputs) {
            if let Some(grad) = grad {
                let name = format_args!("grad_{}", spec.name);
                self.check_shape(name, spec, &dims, grad.shape())?;
            }
        }
        self.check_buffer("saved", self.saved_len(&dims), given.saved.len())?;
        let needed = self.workspace_len::<T>(&dims, Pass::Backward);
        self.check_buffer("workspace", needed, workspace.len())?;
        let mut data: [Option<&mut [T]>; lane::MAX_INPUTS] = std::array::from_fn(|_| None);
        for (data, grad) in data.iter_mut().zip(grads.iter_mut()) {
            *data = grad.as_mut().map(TensorMut::data_mut);
        }
        let grads = &mut data[..self.inputs.len()];
        if self.is_empty(&dims) {
            let kept = usize::from(given.adds);
            let written = grads.iter_mut().skip(kept).flatten();
            written.for_each(|grad| grad.fill(T::default()));
            return Ok(());
        }
        each!(&self.kind, of => of.backward(self.tier, &dims, given, grads, workspace))
    }

    /// Runs [`Self::forward`] into new buffers.
    ///
    /// # Errors
    /// The errors of [`Self::forward`].
    #[inline]
    pub fn evaluate<T: Element>(&self, inputs: &[Tensor<'_, T>]) -> Result<Evaluation<T>, Error> {
        T::evaluate(self, inputs)
    }

    fn evaluate_here<T: Element>(&self, inputs: &[Tensor<'_, T>]) -> Result<Evaluation<T>, Error> {
        let dims = self.bind_tensors(inputs)?;
        self.check_room(&dims, T::DTYPE, Pass::Forward)?;
        let output_shape = self.output_shape(&dims);
        let mut output = vec![T::default(); output_shape.iter().product()];
        let mut saved = vec![T::default(); self.saved_len(&dims)];
        let len = self.workspace_len::<T>(&dims, Pass::Forward);
        let mut workspace = vec![T::default(); len];
        let view = TensorMut::new(&mut output, &output_shape)?;
        self.forward(inputs, view, &mut saved, &mut workspace)?;
        Ok(Evaluation {
            output,
            output_shape,
            saved,
        })
    }

    /// Runs [`Self::backward`] into new buffers. Returns the gradients of all inputs, in order.
    ///
    /// # Errors
    /// The errors of [`Self::backward`].
    #[inline]
    pub fn gradients<T: Element>(
        &self,
        inputs: &[Tensor<'_, T>],
        evaluation: &Evaluation<T>,
        grad_output: Tensor<'_, T>,
    ) -> Result<Vec<Vec<T>>, Error> {
        T::gradients(self, inputs, evaluation, grad_output)
    }

    fn gradients_here<T: Element>(
        &self,
        inputs: &[Tensor<'_, T>],
        evaluation: &Evaluation<T>,
        grad_output: Tensor<'_, T>,
    ) -> Result<Vec<Vec<T>>, Error> {
        let dims = self.bind_tensors(inputs)?;
        let output = evaluation.tensor()?;
        self.check_room(&dims, T::DTYPE, Pass::Backward)?;
        let mut grads: Vec<Vec<T>> = inputs
            .iter()
            .map(|input| vec![T::default(); input.data().len()])
            .collect();
        let mut views = Vec::with_capacity(grads.len());
        for (grad, input) in grads.iter_mut().zip(inputs) {
            views.push(Some(TensorMut::new(grad, input.shape())?));
        }
        let len = self.workspace_len::<T>(&dims, Pass::Backward);
        let mut workspace = vec![T::default(); len];
        let saved = &evaluation.saved;
        self.backward(
            inputs,
            output,
            saved,
            grad_output,
            &mut views,
            &mut workspace,
        )?;
        Ok(grads)
    }

    fn bind_tensors<T>(&self, inputs: &[Tensor<'_, T>]) -> Result<Dims, Error> {
        self.unify(inputs.iter().map(Tensor::shape))
    }

    /// Does the same as [`Self::bind`], without a slice of shapes.
    pub(crate) fn unify<'s>(
        &self,
        shapes: impl ExactSizeIterator<Item = &'s [usize]> + Clone,
    ) -> Result<Dims, Error> {
        environment::check()?;
        self.check_count("inputs", shapes.len())?;
        shape::unify(self.name, &self.inputs, &self.outputs, shapes)
    }

    /// Whether a run for such sizes has nothing to compute: all outputs are empty, or sums over nothing.
    fn is_empty(&self, dims: &Dims) -> bool {
        let lanes = [dims.in_channels, dims.out_channels, dims.scalar_channels];
        let is_empty = |output: &TensorSpec| output.sizes(dims).any(|size| size == 0);
        dims.batch == 0 || lanes == [0; 3] || self.outputs.iter().all(is_empty)
    }

    pub(crate) fn check_count(&self, what: &'static str, got: usize) -> Result<(), Error> {
        let expected = self.inputs.len();
        if got == expected {
            return Ok(());
        }
        Err(self.wrong_count(what, &self.inputs, got))
    }

    /// The error of a list with more or fewer tensors than expected.
    fn wrong_count(&self, what: &'static str, expected: &[TensorSpec], got: usize) -> Error {
        let names: Vec<&str> = expected.iter().map(|spec| spec.name).collect();
        Error::TensorCount {
            operator: self.name.to_owned(),
            what,
            expected: expected.len(),
            names: names.join(", "),
            got,
        }
    }

    pub(crate) fn check_output(&self, dims: &Dims, got: &[usize]) -> Result<(), Error> {
        self.check_shape(self.output().name, self.output(), dims, got)
    }

    pub(crate) fn check_shape(
        &self,
        tensor: impl Display,
        spec: &TensorSpec,
        dims: &Dims,
        got: &[usize],
    ) -> Result<(), Error> {
        if spec.sizes(dims).eq(got.iter().copied()) {
            return Ok(());
        }
        Err(Error::ShapeMismatch {
            operator: self.name.to_owned(),
            tensor: tensor.to_string(),
            expected: format!("{:?}", spec.shape(dims)),
            got: got.to_vec(),
        })
    }

    pub(crate) fn check_buffer(
        &self,
        buffer: &'static str,
        expected: usize,
        got: usize,
    ) -> Result<(), Error> {
        if got >= expected {
            return Ok(());
        }
        Err(Error::BufferTooSmall {
            operator: self.name.to_owned(),
            buffer,
            expected,
            got,
        })
    }
}
