//! Parameters of many operators, packed for their matrix products by one kernel, and their gradients, added up by one kernel.
//!
//! ```text
//! pack       the parameters of all operators -> each in the form that its products read, for both passes
//! forward    of an operator reads its form
//! backward   of an operator reads its form, and leaves the parts of its gradients
//! add_up     the parts of all operators -> gradients: of matrix products by one kernel, of products by rows by another
//! ```
//! So it serves whoever runs many operators between two changes of their parameters: a training step. Numbers equal the results of
//! [`Operator::forward`] and [`Operator::backward`], bit for bit, except for linear maps that [join](Packing::joining).
//!
//! [`Packing`] is the layout, and packs; [`Packed`] runs the passes, and `joined` the passes of linear maps that join.

mod joined;
mod packed;

use cudarc::driver::CudaStream;
use flashcliff_sys as sys;

use super::call::{ALL_GRADIENTS, Kept, NO_GRADIENTS};
use super::check::{Checks, Label};
use super::device::Device;
use super::dtype::Dtypes;
use super::operator::{Member, Operator};
use super::queue::Queue;
use super::spans::WORKSPACE_ALIGNMENT;
use super::tensor::{Scratch, Tensor};
use crate::Error;
use crate::operator::lane::cuda::Lanes;
pub use crate::operator::linear::cuda::few::{MOST_JOINED, join};
use crate::operator::linear::cuda::{self as linear, Places};
use crate::operator::{Dims, Pass};
pub use joined::{JoinedBackward, JoinedForward};
pub use packed::{Packed, PackedBackward, PackedGradient};

/// The name of a packing in errors.
const NAME: &str = "packing";
/// The place of the weight among the inputs of a linear map.
const WEIGHT: usize = 1;
/// That of the bias.
const BIAS: usize = 2;

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
    /// Whether it is a linear map that joins.
    joins: bool,
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
        Self::laid_out(device, operators, false)
    }

    /// Does the same for passes in which linear maps of few channels run together if they [`join`]: see
    /// [`Packed::forward_joined`]. Nothing of theirs is packed, and all their gradients of parameters are left in
    /// parts. Their numbers differ from the results of [`Operator::forward`] by rounding, since sums are taken in
    /// another order.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn joining(
        device: &Device,
        operators: impl IntoIterator<Item = (Operator, Dims, Dtypes)>,
    ) -> Result<Self, Error> {
        Self::laid_out(device, operators, true)
    }

    fn laid_out(
        device: &Device,
        operators: impl IntoIterator<Item = (Operator, Dims, Dtypes)>,
        joining: bool,
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
            let implementation = &operator.implementation;
            let mut places = Places::default();
            let joins = joining && join(&[operator.operator()], &dims, dtypes);
            if let Some(linear) = implementation.linear() {
                places = match joins {
                    true => Places::of_few(&linear.few_bytes(&dims, dtypes), &mut add),
                    false => linear.places(&dims, dtypes, &mut add),
                };
            } else if implementation.lanes().is_some_and(Lanes::leaves_parts) {
                device.make_current()?;
                let (pass, kept) = (Pass::Backward, Kept::default());
                let bytes =
                    implementation.workspace_bytes(&dims, pass, dtypes, &ALL_GRADIENTS, &kept)?;
                places.parts = (bytes > 0).then(|| add(bytes));
            }
            members.push(Own {
                operator,
                dims,
                dtypes,
                places,
                joins,
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
        if own.joins {
            return Ok(0);
        }
        own.operator.device().make_current()?;
        let grads = match pass {
            Pass::Forward => &NO_GRADIENTS,
            Pass::Backward => &ALL_GRADIENTS,
        };
        let member = own.member(pass, 0);
        let implementation = &own.operator.implementation;
        implementation.workspace_bytes(member.dims, pass, member.dtypes, grads, &member.kept)
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
        let lanes = own.operator.implementation.lanes();
        let is_left = lanes.map_or(input == WEIGHT, |lanes| lanes.parameter(input).is_some());
        let is_bias = input == BIAS && own.places.bias_parts.is_some();
        own.places.parts.is_some() && is_left || is_bias
    }

    /// Packs parameters into memory, and returns what passes need. `parameters` has the parameters of each operator
    /// in the order of its inputs; the parameters of an operator that [packs](Self::packs) none may be left out. Passes
    /// take parameters as they were packed until they are packed again.
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
                let (true, Some(linear)) = (self.packs(at), own.operator.implementation.linear())
                else {
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
        Ok(Packed::new(self, memory))
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
            bias_parts: _,
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
