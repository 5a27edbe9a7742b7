//! Parameters of many operators, packed for their matrix products by one kernel, and their gradients, added up by one kernel.
//!
//! ```text
//! pack       the parameters of all operators -> each in the form that its products read, for both passes
//! forward    of an operator reads its form
//! backward   of an operator reads its form, and leaves the parts of its gradients
//! add_up     the parts of all operators -> gradients: of matrix products by one kernel, of products by rows by another
//! ```
//! So it serves whoever runs many operators between two changes of their parameters: a training step. Numbers are those of
//! [`Operator::forward`] and [`Operator::backward`], bit for bit.

use cudarc::driver::CudaStream;
use flashcliff_sys as sys;

use super::call::{ALL_GRADIENTS, Kept, MAX_INPUTS, NO_GRADIENTS};
use super::check::{Checks, Label};
use super::device::Device;
use super::dtype::Dtypes;
use super::lane;
use super::linear::{self, Places};
use super::operator::{Given, Member, Operator, Work};
use super::queue::Queue;
use super::spans::WORKSPACE_ALIGNMENT;
use super::tensor::{Scratch, Tensor, TensorMut};
use crate::Error;
use crate::operator::{Dims, Pass};

/// The name of a packing in errors.
const NAME: &str = "packing";
/// The place of the weight among the inputs of a linear map.
const WEIGHT: usize = 1;

/// Operators with sizes and types, and the layout of the memory in which their parameters are packed. Operators of which nothing is packed
/// may be among them.
#[derive(Debug)]
pub struct Packing {
    device: Device,
    members: Vec<Own>,
    bytes: usize,
}

/// An operator of a packing.
#[derive(Debug)]
struct Own {
    operator: Operator,
    dims: Dims,
    dtypes: Dtypes,
    places: Places,
}

impl Packing {
    /// The operators of a device, each with the sizes and the types of its calls.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for an operator of another device, [`Error::DtypeMismatch`] for types without kernels.
    pub fn new(
        device: &Device,
        operators: impl IntoIterator<Item = (Operator, Dims, Dtypes)>,
    ) -> Result<Self, Error> {
        let (mut members, mut bytes) = (Vec::new(), 0_usize);
        let mut add = |more: usize| {
            let at = bytes;
            bytes += more.next_multiple_of(WORKSPACE_ALIGNMENT);
            at as u64
        };
        for (operator, dims, dtypes) in operators {
            let checks = Checks {
                operator: operator.operator(),
                ordinal: device.ordinal(),
            };
            checks.dtypes(dtypes)?;
            checks.device(Label::Tensor("operator"), operator.device().ordinal())?;
            let places = match &operator.work {
                Work::Linear(linear) => linear.places(&dims, dtypes, &mut add),
                Work::Lanes(lanes) => {
                    device.make_current()?;
                    let pass = Pass::Backward;
                    let bytes = lanes.workspace_bytes(&dims, pass, dtypes, &ALL_GRADIENTS)?;
                    Places {
                        parts: (bytes > 0).then(|| add(bytes)),
                        ..Places::default()
                    }
                }
                _ => Places::default(),
            };
            members.push(Own {
                operator,
                dims,
                dtypes,
                places,
            });
        }
        Ok(Self {
            device: device.clone(),
            members,
            bytes,
        })
    }

    /// The bytes of the memory of a packing.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of workspace that a pass of an operator needs if all gradients are wanted, beside what is packed.
    ///
    /// # Errors
    /// [`Error::TensorCount`] for a number that no operator has; the errors of [`Operator::workspace_bytes`].
    pub fn workspace_bytes(&self, operator: usize, pass: Pass) -> Result<usize, Error> {
        let own = self.member(operator)?;
        own.operator.device().make_current()?;
        let grads = match pass {
            Pass::Forward => &NO_GRADIENTS,
            Pass::Backward => &ALL_GRADIENTS,
        };
        let member = own.member(pass, 0);
        own.operator
            .needed_workspace(member.dims, pass, member.dtypes, grads, &member.kept)
    }

    /// Whether parameters of an operator are packed, by its number.
    pub fn packs(&self, operator: usize) -> bool {
        let own = self.members.get(operator);
        own.is_some_and(|own| own.places.forward.is_some() || own.places.backward.is_some())
    }

    /// Whether the backward pass of an operator leaves the gradient of an input in parts.
    pub fn leaves_parts(&self, operator: usize, input: usize) -> bool {
        let Some(own) = self.members.get(operator) else {
            return false;
        };
        let is_left = match &own.operator.work {
            Work::Lanes(lanes) => lanes.parameter(input).is_some(),
            _ => input == WEIGHT,
        };
        own.places.parts.is_some() && is_left
    }

    /// Packs parameters into memory, and returns what passes need. `parameters` has the parameters of each operator in the order of its
    /// inputs; those of an operator that [packs](Self::packs) none may be left out. They are as they were packed until they are packed again.
    ///
    /// # Errors
    /// [`Error::TensorCount`], [`Error::ShapeMismatch`], [`Error::DtypeMismatch`], [`Error::DeviceMismatch`], [`Error::WorkspaceTooSmall`],
    /// [`Error::BadAddress`], [`Error::CudaContext`]: all of these before anything is launched. Also [`Error::Cuda`].
    pub fn pack<'m>(
        &'m self,
        stream: &CudaStream,
        parameters: &[Vec<Tensor<'_>>],
        mut memory: Scratch<'m>,
    ) -> Result<Packed<'m>, Error> {
        self.check(stream)?;
        let has = (memory.bytes(), memory.ordinal());
        if has.0 < self.bytes {
            return Err(Error::WorkspaceTooSmall {
                operator: NAME.to_owned(),
                expected: self.bytes,
                got: has.0,
            });
        }
        if has.1 != self.device.ordinal() {
            return Err(Error::DeviceMismatch {
                operator: NAME.to_owned(),
                tensor: "memory".to_owned(),
                expected: self.device.ordinal(),
                got: has.1,
            });
        }
        if parameters.len() != self.members.len() {
            return Err(count(
                "lists of parameters",
                self.members.len(),
                parameters.len(),
            ));
        }
        for (at, (own, given)) in self.members.iter().zip(parameters).enumerate() {
            if self.packs(at) {
                own.check_parameters(given)?;
            }
        }
        self.device.make_current()?;
        let queue = Queue::of(stream);
        if self.bytes > 0 {
            let (base, _guard) = memory.acquire(&queue);
            if base == 0 || !base.is_multiple_of(WORKSPACE_ALIGNMENT as u64) {
                return Err(Error::BadAddress {
                    operator: NAME.to_owned(),
                    tensor: "memory".to_owned(),
                    expected: WORKSPACE_ALIGNMENT,
                    got: base,
                });
            }
            let mut lists = Lists::default();
            let mut guards = Vec::new();
            for (at, (own, given)) in self.members.iter().zip(parameters).enumerate() {
                let (true, Work::Linear(linear)) = (self.packs(at), &own.operator.work) else {
                    continue;
                };
                let mut addresses = [0; 2];
                for (address, tensor) in addresses.iter_mut().zip(given) {
                    let (own, guard) = tensor.acquire(&queue);
                    *address = own;
                    guards.push(guard);
                }
                let places = (own.places, base);
                for packing in linear.packings(&own.dims, own.dtypes, addresses, places) {
                    lists.add(own.dtypes, packing);
                }
            }
            for (dtypes, list) in &lists.0 {
                // SAFETY: parameters have the shapes and types of their operators, and places lie within the memory, which is large enough;
                // all are on the device, whose context is current, as the stream is of it.
                unsafe { linear::pack(list, *dtypes, queue.raw()) }?;
            }
        }
        Ok(Packed {
            left: vec![Left::default(); self.members.len()],
            packing: self,
            memory,
        })
    }

    fn check(&self, stream: &CudaStream) -> Result<(), Error> {
        let context = stream.context();
        if context.cu_ctx() == self.device.context().cu_ctx() {
            return Ok(());
        }
        Err(Error::CudaContext {
            ordinal: context.ordinal(),
        })
    }

    fn member(&self, operator: usize) -> Result<&Own, Error> {
        let missing = || count("operators", self.members.len(), operator + 1);
        self.members.get(operator).ok_or_else(missing)
    }
}

impl Own {
    fn check_parameters(&self, given: &[Tensor<'_>]) -> Result<(), Error> {
        let specs = self.operator.operator().inputs().iter();
        let specs: Vec<_> = specs.filter(|spec| spec.is_parameter()).collect();
        if specs.len() != given.len() {
            let names: Vec<&str> = specs.iter().map(|spec| spec.name).collect();
            return Err(Error::TensorCount {
                operator: self.operator.operator().name().to_owned(),
                what: "parameters",
                expected: specs.len(),
                names: names.join(", "),
                got: given.len(),
            });
        }
        let checks = self.operator.checks();
        let mut pairs = specs.into_iter().zip(given);
        pairs.try_for_each(|(spec, tensor)| {
            checks.parameter(spec, &self.dims, self.dtypes, tensor.layout())
        })
    }

    /// What a pass finds in memory at an address.
    fn member(&self, pass: Pass, base: u64) -> Member<'_> {
        let Places {
            forward,
            backward,
            bias,
            parts,
        } = self.places;
        let kept = match pass {
            Pass::Forward => [forward, bias, None],
            Pass::Backward => [backward, None, parts],
        };
        let [weight, bias, parts] = kept.map(|at| at.map(|at| base + at));
        Member {
            dims: &self.dims,
            dtypes: self.dtypes,
            kept: Kept {
                weight,
                bias,
                parts,
                ..Kept::default()
            },
        }
    }
}

/// Packed parameters, which the passes of their operators read, and the parts of gradients that backward passes leave. Operators go by their
/// numbers, in the order in which the [`Packing`] has them.
#[derive(Debug)]
pub struct Packed<'m> {
    packing: &'m Packing,
    memory: Scratch<'m>,
    /// For each operator the parts of gradients that are left to be added up.
    left: Vec<Left>,
}

/// The parts of gradients of an operator that a backward pass has left.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    /// The inputs whose gradients have parts.
    inputs: [bool; MAX_INPUTS],
    /// The partial sums of a product by rows.
    sums: sys::fc_partials,
}

/// A gradient of an input of an operator.
#[derive(Debug)]
pub struct PackedGradient<'a> {
    /// The number of the operator.
    pub operator: usize,
    /// The number of the input.
    pub input: usize,
    /// The gradient.
    pub gradient: TensorMut<'a>,
}

impl Packed<'_> {
    /// Does the same as [`Operator::forward`], with the parameters as they were packed. Those among the inputs have the shapes and
    /// the types, but may not be read.
    ///
    /// # Errors
    /// The errors of [`Operator::forward`]; [`Error::NotPacked`] for other sizes or types than those of the packing;
    /// [`Error::TensorCount`] for a number that no operator has.
    pub fn forward(
        &mut self,
        operator: usize,
        stream: &CudaStream,
        inputs: &[Tensor<'_>],
        output: TensorMut<'_>,
        saved: Option<TensorMut<'_>>,
        workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        self.packing.check(stream)?;
        let own = self.packing.member(operator)?;
        let queue = Queue::of(stream);
        let (base, _guard) = self.memory.acquire(&queue);
        let member = Some(own.member(Pass::Forward, base));
        // SAFETY: the stream is alive, and of the context of the device, which is that of the operator. Places of the operator have room for
        // what its sizes and types need.
        unsafe {
            own.operator
                .forward_on(&queue, inputs, output, saved, workspace, member)
        }
    }

    /// Does the same as [`Operator::backward`], with the parameters as they were packed. Gradients of inputs that [leave
    /// parts](Packing::leaves_parts) are not written before [`add_up`](Self::add_up); the next backward pass of the operator that makes them replaces the parts.
    ///
    /// # Errors
    /// The errors of [`Self::forward`].
    #[allow(
        clippy::too_many_arguments,
        reason = "those of the operator, and its number"
    )]
    pub fn backward(
        &mut self,
        operator: usize,
        stream: &CudaStream,
        inputs: &[Tensor<'_>],
        output: Tensor<'_>,
        saved: Option<Tensor<'_>>,
        grad_output: Tensor<'_>,
        grads: &mut [Option<TensorMut<'_>>],
        workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        let given = Given::new(inputs, output, saved, grad_output);
        self.backward_of(operator, stream, given, grads, workspace)
    }

    /// Does the same as [`Self::backward`], but adds the gradient of the first input to the values that are there, like
    /// [`Operator::backward_adding`].
    ///
    /// # Errors
    /// The errors of [`Self::backward`]; [`Error::NotAdded`] for operators that cannot.
    #[allow(
        clippy::too_many_arguments,
        reason = "those of the operator, and its number"
    )]
    pub fn backward_adding(
        &mut self,
        operator: usize,
        stream: &CudaStream,
        inputs: &[Tensor<'_>],
        output: Tensor<'_>,
        saved: Option<Tensor<'_>>,
        grad_output: Tensor<'_>,
        grads: &mut [Option<TensorMut<'_>>],
        workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        let own = self.packing.member(operator)?;
        own.operator.operator().check_adds()?;
        let given = Given::new(inputs, output, saved, grad_output).adding();
        self.backward_of(operator, stream, given, grads, workspace)
    }

    fn backward_of(
        &mut self,
        operator: usize,
        stream: &CudaStream,
        given: Given<'_>,
        grads: &mut [Option<TensorMut<'_>>],
        workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        self.packing.check(stream)?;
        let own = self.packing.member(operator)?;
        let mut leaves = [false; MAX_INPUTS];
        for ((input, grad), leaves) in grads.iter().enumerate().zip(&mut leaves) {
            *leaves = grad.is_some() && self.packing.leaves_parts(operator, input);
        }
        let queue = Queue::of(stream);
        let (base, _guard) = self.memory.acquire(&queue);
        let given = Given {
            member: Some(own.member(Pass::Backward, base)),
            ..given
        };
        // SAFETY: the same holds as in `forward`.
        let sums = unsafe { own.operator.backward_on(&queue, &given, grads, workspace) }?;
        // A pass without these gradients leaves the parts of the pass before.
        if leaves.contains(&true) {
            self.left[operator] = Left {
                inputs: leaves,
                sums,
            };
        }
        Ok(())
    }

    /// Adds up the parts that backward passes have left of these gradients. Other gradients stay as they are, and parts of other gradients
    /// are left.
    ///
    /// # Errors
    /// [`Error::TensorCount`], [`Error::ShapeMismatch`], [`Error::DtypeMismatch`], [`Error::DeviceMismatch`], [`Error::CudaContext`]: all of
    /// these before anything is launched. Also [`Error::Cuda`].
    pub fn add_up(
        &mut self,
        stream: &CudaStream,
        gradients: &mut [PackedGradient<'_>],
    ) -> Result<(), Error> {
        let packing = self.packing;
        packing.check(stream)?;
        let is_left = |gradient: &PackedGradient<'_>| {
            packing.leaves_parts(gradient.operator, gradient.input)
                && self.left[gradient.operator].inputs[gradient.input]
        };
        for gradient in gradients.iter().filter(|gradient| is_left(gradient)) {
            let own = packing.member(gradient.operator)?;
            let spec = &own.operator.operator().inputs()[gradient.input];
            let layout = gradient.gradient.layout();
            let checks = own.operator.checks();
            checks.gradient(spec, &own.dims, layout, own.dtypes.of(spec))?;
        }
        packing.device.make_current()?;
        let queue = Queue::of(stream);
        let (base, _guard) = self.memory.acquire(&queue);
        let mut lists = Lists::default();
        let mut sums: Vec<(usize, sys::fc_partials)> = Vec::new();
        let mut guards = Vec::with_capacity(gradients.len());
        for gradient in gradients.iter_mut().filter(|gradient| is_left(gradient)) {
            let (operator, input) = (gradient.operator, gradient.input);
            let own = packing.member(operator)?;
            let (address, guard) = gradient.gradient.acquire(&queue);
            guards.push((operator, input, guard));
            if let Work::Lanes(lanes) = &own.operator.work
                && let Some(param) = lanes.parameter(input)
            {
                let known = sums.iter().position(|(of, _)| *of == operator);
                let at = known.unwrap_or_else(|| {
                    let grads = [std::ptr::null_mut(); _];
                    let left = self.left[operator].sums;
                    sums.push((operator, sys::fc_partials { grads, ..left }));
                    sums.len() - 1
                });
                sums[at].1.grads[param] = lane::address(address);
                continue;
            }
            let (Work::Linear(linear), Some(parts)) = (&own.operator.work, own.places.parts) else {
                continue;
            };
            let from = linear.gradient_type(&own.dims, own.dtypes);
            let addresses = [base + parts, address];
            let unpacking = linear.unpacking(&own.dims, own.dtypes, addresses);
            lists.add([from, own.dtypes.params], unpacking);
        }
        for (types, list) in &lists.0 {
            // SAFETY: gradients have the shapes and types of their operators, and parts lie within the memory; all are on the device, whose
            // context is current, as the stream is of it.
            unsafe { linear::unpack(list, *types, queue.raw()) }?;
        }
        let sums: Vec<sys::fc_partials> = sums.into_iter().map(|(_, sums)| sums).collect();
        // SAFETY: the same holds; the partial sums are those of the last backward passes of their operators.
        unsafe { lane::add_up(&sums, queue.raw()) }?;
        for (operator, input, _guard) in guards {
            self.left[operator].inputs[input] = false;
        }
        Ok(())
    }
}

/// The work of a kernel for each combination of types.
struct Lists<T>(Vec<(T, Vec<sys::fc_linear_packing>)>);

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> Lists<T> {
    fn add(&mut self, types: T, packing: sys::fc_linear_packing) {
        match self.0.iter_mut().find(|(of, _)| *of == types) {
            Some((_, list)) => list.push(packing),
            None => self.0.push((types, vec![packing])),
        }
    }
}

fn count(what: &'static str, expected: usize, got: usize) -> Error {
    Error::TensorCount {
        operator: NAME.to_owned(),
        what,
        expected,
        names: "one for each operator".to_owned(),
        got,
    }
}
