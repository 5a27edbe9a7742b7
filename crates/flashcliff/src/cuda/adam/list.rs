//! Steps of AdamW and Lion for hosts that keep the state of their optimiser in their own tensors.

use flashcliff_sys as sys;

use super::settings::AdamRule;
use crate::cuda::Address;
use crate::cuda::dtype::code;
use crate::cuda::items::Target;
use crate::cuda::tensor::pointer;
use crate::{Dtype, Error};

const MEMBERS: usize = sys::FC_ADAM_MEMBERS as usize;
const GROUPS: usize = sys::FC_ADAM_GROUPS as usize;
/// The bytes ahead of the sums of squares.
const SHARED: usize = size_of::<sys::fc_adam_shared>().next_multiple_of(64);

/// A parameter with its state, by addresses in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdamMember {
    /// The parameter.
    pub parameter: Address,
    /// The mean of the gradients.
    pub mean: Address,
    /// The mean of the squared gradients; 0 for Lion.
    pub square: Address,
    /// One `f32`: the steps that the parameter has done; 0 for Lion.
    pub step: Address,
    /// The average of the parameter over the steps; 0 for none.
    pub average: Address,
    /// The elements of the parameter, the means and the average.
    pub count: usize,
    /// The place of its options among the groups of a step.
    pub group: usize,
    /// The type of parameter, gradient, means and average, `F32` or `F64`.
    pub dtype: Dtype,
}

/// The learning rate of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AdamRate {
    /// A number.
    Value(f64),
    /// The address of one element of type `F32` or `F64`, which the step reads when it runs.
    At(Address, Dtype),
}

/// Options of a group of parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamGroup {
    /// The learning rate.
    pub learning_rate: AdamRate,
    /// The decay rate of the mean of the gradients; for Lion that of the direction of a step.
    pub beta1: f64,
    /// The decay rate of the mean of the squared gradients; for Lion that of the mean of the gradients.
    pub beta2: f64,
    /// The number that is added to the root of the second moment. Lion has none.
    pub eps: f64,
    /// The decoupled decay of the parameters.
    pub weight_decay: f64,
    /// Whether steps go along the gradient.
    pub maximize: bool,
    /// The decay rate of the averages of parameters.
    pub average_decay: f64,
}

/// Some parameters of one type, for one list of a kernel.
#[derive(Debug)]
struct Part {
    rule: AdamRule,
    dtype: Dtype,
    /// Each member with its place among the parameters of the caller.
    members: Vec<(usize, AdamMember)>,
    /// The place of each group of the list among the groups of a step.
    groups: Vec<usize>,
    /// The sums of squares of the list.
    sums: usize,
}

/// AdamW or Lion over parameters whose state lies with a host, such as PyTorch: one launch for up to 512 parameters of one type in up to
/// 16 groups, two with clipping.
///
/// The arithmetic is that of [`Adam`](super::Adam) with decoupled decay, with step counts, options and learning rates
/// of each parameter's group. A parameter `p` with an average `a` is then followed by
/// `a <- a + (1 - average_decay) (p - a)`, in the same launch, also in steps in which it has no gradient.
///
/// Nothing is refused: gradients that are not numbers give parameters that are not. Clipping multiplies gradients by
/// `min(1, max_norm / (norm + 1e-6))`, as `torch.nn.utils.clip_grad_norm_` does, and leaves them as they are in memory.
///
/// Nothing waits, nothing is uploaded or allocated on the device, and steps can be captured into a CUDA graph, which then holds all
/// addresses and numbers. Results are the same bit for bit every time.
#[derive(Debug)]
pub struct AdamList {
    parts: Vec<Part>,
    members: usize,
    groups: usize,
}

impl AdamList {
    /// The offset of the norm of all gradients in the workspace: an `f64`, of the last step with clipping.
    pub const NORM: usize = std::mem::offset_of!(sys::fc_adam_shared, norm);

    /// The lists of some parameters.
    ///
    /// # Errors
    /// [`Error::DtypeMismatch`] for a type other than `F32` and `F64`.
    pub fn new(rule: AdamRule, members: &[AdamMember]) -> Result<Self, Error> {
        let wrong = |member: &&AdamMember| !matches!(member.dtype, Dtype::F32 | Dtype::F64);
        if let Some(member) = members.iter().find(wrong) {
            return Err(Error::DtypeMismatch {
                operator: super::launch::NAME.to_owned(),
                tensor: "parameter".to_owned(),
                expected: "f32 or f64".to_owned(),
                got: member.dtype,
            });
        }
        let mut parts: Vec<Part> = Vec::new();
        for dtype in [Dtype::F32, Dtype::F64] {
            let own = members.iter().enumerate();
            for (place, member) in own.filter(|(_, member)| member.dtype == dtype) {
                match parts.last_mut().filter(|part| part.takes(member)) {
                    Some(part) => part.push(place, *member),
                    None => parts.push(Part::of(rule, place, *member)),
                }
            }
        }
        for part in &mut parts {
            let list = part.list();
            // SAFETY: the function reads the list only.
            let sums = unsafe { sys::fc_adam_list_sums(&raw const *list) };
            part.sums = usize::try_from(sums).unwrap_or(0);
        }
        let groups = members.iter().map(|member| member.group + 1);
        Ok(Self {
            parts,
            members: members.len(),
            groups: groups.max().unwrap_or(0),
        })
    }

    /// The bytes of the workspace. They are zeros before the first step, and steps one after the other use the same.
    pub fn workspace_bytes(&self) -> usize {
        let sums: usize = self.parts.iter().map(|part| part.sums).sum();
        SHARED + sums * size_of::<f64>()
    }

    /// Launches a step of the parameters whose gradient has an address other than 0, in the order of the members.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for another number of gradients than of members, or too few groups; [`Error::Cuda`].
    ///
    /// # Safety
    /// Addresses are of memory on the device of the call of the types and lengths that are stated, aligned to an element, until the work
    /// on the stream is done. Memory that is written overlaps no other of the call, nor is it used by other work at the same time.
    pub unsafe fn step(
        &self,
        target: Target<'_>,
        gradients: &[Address],
        groups: &[AdamGroup],
        max_norm: Option<f64>,
        workspace: Address,
    ) -> Result<(), Error> {
        for (option, expected, got, fits) in [
            (
                "gradients",
                "one for each parameter",
                gradients.len(),
                gradients.len() == self.members,
            ),
            (
                "groups",
                "the groups of all parameters",
                groups.len(),
                groups.len() >= self.groups,
            ),
        ] {
            if !fits {
                return Err(Error::InvalidOption {
                    option,
                    expected,
                    got: got as f64,
                });
            }
        }
        let lists: Vec<_> = self
            .parts
            .iter()
            .map(|part| part.filled(gradients, groups))
            .collect();
        let shared = pointer::<sys::fc_adam_shared>(workspace);
        if let Some(max_norm) = max_norm {
            let first = pointer::<f64>(workspace + SHARED as u64);
            let all: usize = self.parts.iter().map(|part| part.sums).sum();
            let (mut before, last) = (0, self.parts.len().saturating_sub(1));
            for (index, (part, list)) in self.parts.iter().zip(&lists).enumerate() {
                let all = if index == last { all as i64 } else { 0 };
                target.launch("fc_adam_list_norm", |stream| {
                    // SAFETY: the caller promises it; the workspace has room for the sums of all lists, and these sums come after the sums
                    // of the lists before.
                    unsafe {
                        let sums = first.add(before);
                        sys::fc_adam_list_norm(
                            &raw const **list,
                            shared,
                            sums,
                            first,
                            all,
                            max_norm,
                            stream,
                        )
                    }
                })?;
                before += part.sums;
            }
        }
        for list in &lists {
            let count = list.count as usize;
            if list.members[..count]
                .iter()
                .all(|member| member.gradient.is_null() && member.average.is_null())
            {
                continue;
            }
            target.launch("fc_adam_list_update", |stream| {
                // SAFETY: the caller promises it.
                unsafe {
                    sys::fc_adam_list_update(
                        &raw const **list,
                        shared,
                        max_norm.is_some().into(),
                        stream,
                    )
                }
            })?;
        }
        Ok(())
    }
}

impl Part {
    fn of(rule: AdamRule, place: usize, member: AdamMember) -> Self {
        Self {
            rule,
            dtype: member.dtype,
            members: vec![(place, member)],
            groups: vec![member.group],
            sums: 0,
        }
    }

    /// Whether there is room for a further member.
    fn takes(&self, member: &AdamMember) -> bool {
        let known = self.groups.contains(&member.group);
        self.dtype == member.dtype
            && self.members.len() < MEMBERS
            && (known || self.groups.len() < GROUPS)
    }

    fn push(&mut self, place: usize, member: AdamMember) {
        if !self.groups.contains(&member.group) {
            self.groups.push(member.group);
        }
        self.members.push((place, member));
    }

    /// The list without gradients and options.
    fn list(&self) -> Box<sys::fc_adam_list> {
        let mut list = Box::<sys::fc_adam_list>::default();
        list.dtype = code(self.dtype);
        list.rule = self.rule.raw();
        list.count = self.members.len() as i32;
        for (own, (_, member)) in list.members.iter_mut().zip(&self.members) {
            let group = self.groups.iter().position(|group| *group == member.group);
            let group = group.unwrap_or(0);
            *own = sys::fc_adam_member {
                parameter: pointer(member.parameter),
                gradient: std::ptr::null(),
                mean: pointer(member.mean),
                square: pointer(member.square),
                step: pointer(member.step),
                average: pointer(member.average),
                // No memory has so many elements that this is more than a word.
                extent: (member.count as u64).wrapping_mul(GROUPS as u64) | group as u64,
            };
        }
        list
    }

    /// The list of a step.
    fn filled(&self, gradients: &[Address], groups: &[AdamGroup]) -> Box<sys::fc_adam_list> {
        let mut list = self.list();
        for (own, group) in list.groups.iter_mut().zip(&self.groups) {
            *own = groups[*group].raw();
        }
        for (own, (place, _)) in list.members.iter_mut().zip(&self.members) {
            own.gradient = pointer::<std::ffi::c_void>(gradients[*place]).cast_const();
        }
        list
    }
}

impl AdamGroup {
    fn raw(&self) -> sys::fc_adam_group {
        let (learning_rate, at, dtype) = match self.learning_rate {
            AdamRate::Value(value) => (value, 0, Dtype::F64),
            AdamRate::At(at, dtype) => (0.0, at, dtype),
        };
        sys::fc_adam_group {
            learning_rate,
            learning_rate_at: pointer::<std::ffi::c_void>(at).cast_const(),
            learning_rate_dtype: code(dtype),
            maximize: self.maximize.into(),
            beta1: self.beta1,
            beta2: self.beta2,
            eps: self.eps,
            weight_decay: self.weight_decay,
            average_decay: self.average_decay,
        }
    }
}
