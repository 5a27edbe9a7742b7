//! Derivatives of operators, which are operators, and runs of operators with any number of outputs.

use super::{
    Derivative, Dims, Implementation, Kind, LaneOperator, Operator, Pass, Zero, each, lane,
};
use crate::tensor::{Tensor, TensorMut};
use crate::{Element, Error, kept, sizes};

impl Operator {
    /// The gradient as an operator: from the inputs, then the gradients of the outputs, to the gradients of the inputs. Its tensors are
    /// named `grad_` and the name of what they belong to. It saves nothing, and has a gradient itself: derivatives of every order are
    /// operators.
    ///
    /// [`Self::backward`] computes the same from what a forward pass saved, which is faster where there are norms.
    ///
    /// ```
    /// use flashcliff::{Algebra, ProductKind, Signature, Tensor, ops};
    ///
    /// // The square of a scalar is x x. Its second derivative is 2, whatever x is.
    /// let algebra = Algebra::new(Signature::new(2, 0, 0)?)?;
    /// let product = ops::product(algebra, ProductKind::Geometric, None, None)?;
    /// let gradient = product.gradient()?;
    /// let names: Vec<&str> = gradient.inputs().iter().map(|input| input.name).collect();
    /// assert_eq!(names, ["x", "y", "grad_o"]);
    /// let second = gradient.gradient()?;
    /// let names: Vec<&str> = second.inputs().iter().map(|input| input.name).collect();
    /// assert_eq!(names, ["x", "y", "grad_o", "grad_grad_x", "grad_grad_y"]);
    ///
    /// let one = |scalar: f32| [scalar, 0.0, 0.0, 0.0];
    /// let (x, g, v) = (one(5.0), one(1.0), one(1.0));
    /// let [x, g, v] = [&x, &g, &v].map(|data| Tensor::new(data, &[4, 1, 1]));
    /// let (x, g, v) = (x?, g?, v?);
    /// // The derivative of the gradient by x, along a change of both operands.
    /// let results = second.results(&[x, x, g, v, v])?;
    /// assert_eq!(results[0], [1.0, 0.0, 0.0, 0.0]);
    /// assert_eq!(results[1], [1.0, 0.0, 0.0, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotDifferentiable`] for derivatives of such a high order that kernels have no room for their tensors.
    pub fn gradient(&self) -> Result<Self, Error> {
        self.derived(Derivative::Gradient)
    }

    /// The directional derivative (forward mode) as an operator: from the inputs, then a tangent for each of them, to the tangents of the
    /// outputs. Its tensors are named `tangent_` and the name of what they belong to.
    ///
    /// # Errors
    /// The errors of [`Self::gradient`].
    pub fn tangent(&self) -> Result<Self, Error> {
        self.derived(Derivative::Tangent)
    }

    /// The directional derivative along changes of some inputs alone: after all inputs it has a tangent for each input
    /// for which `along` is true.
    ///
    /// ```
    /// use flashcliff::{Algebra, ProductKind, Signature, ops};
    ///
    /// let algebra = Algebra::new(Signature::new(2, 0, 0)?)?;
    /// let product = ops::product(algebra, ProductKind::Geometric, None, None)?;
    /// let along = product.tangent_along(&[false, true])?;
    /// let names: Vec<&str> = along.inputs().iter().map(|input| input.name).collect();
    /// assert_eq!(names, ["x", "y", "tangent_y"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TensorCount`] unless there is an item for each input; [`Error::NotDifferentiable`] if no input
    /// changes, for an operator with matrix products of which not all inputs change, and for programs that kernels
    /// have no room for.
    pub fn tangent_along(&self, along: &[bool]) -> Result<Self, Error> {
        if along.len() != self.inputs.len() {
            return Err(self.wrong_count("inputs", &self.inputs, along.len()));
        }
        let refused = |reason: &str| Error::NotDifferentiable {
            operator: self.name.to_owned(),
            what: "tangent".to_owned(),
            reason: reason.to_owned(),
        };
        match &self.kind {
            _ if !along.contains(&true) => Err(refused("none of its inputs changes")),
            _ if !along.contains(&false) => self.tangent(),
            Kind::Lanes(lane) => self.made("tangent", Kind::Lanes(lane.tangent_along(along))),
            _ => Err(refused(
                "it is no single program, so all of its inputs change",
            )),
        }
    }

    /// The operator without the inputs that it does not read, and for each input whether it reads it. Kernels have
    /// room for so many tensors, and derivatives read less than they are given. An operator of lanes keeps one of
    /// them, whose shape says how many there are.
    #[must_use]
    pub fn reading(&self) -> (Self, Vec<bool>) {
        let all = vec![true; self.inputs.len()];
        let Kind::Lanes(lane) = &self.kind else {
            return (self.clone(), all);
        };
        let reads = lane.reads();
        let own = Self::new(self.name, self.algebra, Kind::Lanes(lane.reading()));
        match own.with_tier(self.tier) {
            Ok(own) => (own, reads),
            Err(_) => (self.clone(), all),
        }
    }

    /// The operator with some of its outputs, those for which `wanted` is true: its gradient then has no argument for the others, and is
    /// smaller.
    ///
    /// # Errors
    /// [`Error::TensorCount`] unless there is an item for each output, and [`Error::NotDifferentiable`] if no output is wanted.
    pub fn selecting(&self, wanted: &[bool]) -> Result<Self, Error> {
        if wanted.len() != self.outputs.len() {
            return Err(self.wrong_count("outputs", &self.outputs, wanted.len()));
        }
        if !wanted.contains(&true) {
            return Err(Error::NotDifferentiable {
                operator: self.name.to_owned(),
                what: "part".to_owned(),
                reason: "none of its outputs is wanted".to_owned(),
            });
        }
        if !wanted.contains(&false) {
            return Ok(self.clone());
        }
        let Some(kind) = each!(&self.kind, of => of.selecting(wanted)) else {
            return Ok(self.clone());
        };
        Self::new(self.name, self.algebra, kind).with_tier(self.tier)
    }

    /// The operator of sums of two tensors: each multivector or scalar that it reads is the sum of an input and a
    /// further input. Further inputs come after all others, and the sums are further outputs after all others. So one
    /// pass over memory adds a residual and normalises.
    ///
    /// `None` for an operator with matrix products, or if kernels, for CPUs or for CUDA, have no room for so many tensors.
    ///
    /// ```
    /// use flashcliff::{Algebra, Norm, Signature, ops};
    ///
    /// let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
    /// let rms = ops::grade_rms(algebra, Norm::default(), 1e-6)?;
    /// let of_sums = rms.of_sums().ok_or("one program")?;
    /// let names: Vec<&str> = of_sums.inputs().iter().map(|input| input.name).collect();
    /// assert_eq!(names, ["x", "added_x"]);
    /// let names: Vec<&str> = of_sums.outputs().iter().map(|output| output.name).collect();
    /// assert_eq!(names, ["o", "total_x"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_sums(&self) -> Option<Self> {
        self.with_additions("of_sums", LaneOperator::of_sums)
    }

    /// The operator whose multivectors and scalars are added to further inputs after all others. Each may lie in the memory of its sum.
    ///
    /// `None` as for [`Self::of_sums`].
    pub fn adding(&self) -> Option<Self> {
        self.with_additions("adding", LaneOperator::adding)
    }

    fn with_additions(
        &self,
        what: &str,
        with: impl Fn(&LaneOperator) -> LaneOperator,
    ) -> Option<Self> {
        let lane = Some(with(self.lanes()?)).filter(LaneOperator::has_room_everywhere)?;
        let name = kept::text(format!("{}_{what}", self.name));
        let own = Self::new(name, self.algebra, Kind::Lanes(lane));
        own.with_tier(self.tier).ok()
    }

    fn derived(&self, derivative: Derivative) -> Result<Self, Error> {
        let kind = each!(&self.kind, of => of.derivative(self.algebra, derivative))?;
        self.made(derivative.name(), kind)
    }

    /// The operator of a kind that is a derivative of this one, if kernels have room for it.
    fn made(&self, what: &str, kind: Kind) -> Result<Self, Error> {
        let room = each!(&kind, of => of.check_room());
        room.map_err(|reason| Error::NotDifferentiable {
            operator: self.name.to_owned(),
            what: what.to_owned(),
            reason,
        })?;
        let name = kept::text(format!("{}_{what}", self.name));
        let derived = Self::new(name, self.algebra, kind);
        derived.with_tier(self.tier)
    }

    /// The number of elements of workspace that [`Self::run`] needs: [`Self::workspace_len`] for the forward pass and,
    /// for operators with matrix products, [`Self::saved_len`].
    pub fn run_workspace_len<T: Element>(&self, dims: &Dims) -> usize {
        let pass = self.workspace_len::<T>(dims, Pass::Forward);
        sizes::sum([pass, self.saved_in_run(dims)])
    }

    /// The elements at the end of a run's workspace that a forward pass saves there, because it reads what it saves.
    fn saved_in_run(&self, dims: &Dims) -> usize {
        match self.has_matrix_products() && !self.is_empty(dims) {
            true => self.saved_len(dims),
            false => 0,
        }
    }

    /// Computes the outputs that are wanted, and saves nothing. `outputs` has one entry for each of
    /// [`Self::outputs`]; one that is `None` is not written, and where possible not computed.
    ///
    /// `workspace` needs at least [`Self::run_workspace_len`] elements.
    ///
    /// # Errors
    /// The errors of [`Self::bind`], and [`Error::BufferTooSmall`].
    #[inline]
    pub fn run<T: Element>(
        &self,
        inputs: &[Tensor<'_, T>],
        outputs: &mut [Option<TensorMut<'_, T>>],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        T::run(self, inputs, outputs, workspace)
    }

    pub(super) fn run_here<T: Element>(
        &self,
        inputs: &[Tensor<'_, T>],
        outputs: &mut [Option<TensorMut<'_, T>>],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        let dims = self.bind_tensors(inputs)?;
        self.check_outputs(
            &dims,
            outputs.iter().map(|o| o.as_ref().map(TensorMut::shape)),
        )?;
        let needed = self.run_workspace_len::<T>(&dims);
        self.check_buffer("workspace", needed, workspace.len())?;
        let mut data: [Option<&mut [T]>; lane::MAX_INPUTS] = std::array::from_fn(|_| None);
        for (data, output) in data.iter_mut().zip(outputs.iter_mut()) {
            *data = output.as_mut().map(TensorMut::data_mut);
        }
        let data = &mut data[..self.outputs.len()];
        if self.is_empty(&dims) {
            // Sums over an empty batch are zero.
            Zero::fill(data);
            return Ok(());
        }
        let saved_from = workspace.len() - self.saved_in_run(&dims);
        let (workspace, saved) = workspace.split_at_mut(saved_from);
        each!(&self.kind, of => of.run(self.tier, &dims, inputs, data, saved, workspace))
    }

    /// Runs [`Self::run`] into new buffers, and returns all outputs, in order.
    ///
    /// # Errors
    /// The errors of [`Self::run`].
    #[inline]
    pub fn results<T: Element>(&self, inputs: &[Tensor<'_, T>]) -> Result<Vec<Vec<T>>, Error> {
        T::results(self, inputs)
    }

    pub(super) fn results_here<T: Element>(
        &self,
        inputs: &[Tensor<'_, T>],
    ) -> Result<Vec<Vec<T>>, Error> {
        let dims = self.bind_tensors(inputs)?;
        self.check_room(&dims, T::DTYPE, Pass::Forward)?;
        let shapes: Vec<Vec<usize>> = self.outputs.iter().map(|spec| spec.shape(&dims)).collect();
        let zeros = |shape: &Vec<usize>| vec![T::default(); shape.iter().product()];
        let mut results: Vec<Vec<T>> = shapes.iter().map(zeros).collect();
        let mut views = Vec::with_capacity(results.len());
        for (result, shape) in results.iter_mut().zip(&shapes) {
            views.push(Some(TensorMut::new(result, shape)?));
        }
        let mut workspace = vec![T::default(); self.run_workspace_len::<T>(&dims)];
        self.run(inputs, &mut views, &mut workspace)?;
        Ok(results)
    }

    /// Checks the number and the shapes of outputs. A shape is `None` for an output that is not wanted.
    pub(crate) fn check_outputs<'s>(
        &self,
        dims: &Dims,
        shapes: impl ExactSizeIterator<Item = Option<&'s [usize]>>,
    ) -> Result<(), Error> {
        if shapes.len() != self.outputs.len() {
            return Err(self.wrong_count("outputs", &self.outputs, shapes.len()));
        }
        for (shape, spec) in shapes.zip(&self.outputs) {
            if let Some(shape) = shape {
                self.check_shape(spec.name, spec, dims, shape)?;
            }
        }
        Ok(())
    }

    /// Checks that the operator has one output, as its forward and backward passes ask for.
    pub(crate) fn check_one_output(&self) -> Result<(), Error> {
        match &self.outputs[..] {
            [_] => Ok(()),
            outputs => Err(self.wrong_count("outputs", outputs, 1)),
        }
    }
}
