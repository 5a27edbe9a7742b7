//! AdamW and Lion on NVIDIA GPUs, over memory that Python owns.

use flashcliff::cuda::items::Target;
use flashcliff::cuda::{AdamGroup, AdamList, AdamMember, AdamRate, AdamRule};
use pyo3::prelude::*;

use crate::convert::dtype_of;
use crate::devices::{Devices, PyStream};
use crate::error::{caught, raise};

/// The addresses of parameter, both means, step count and average, 0 for what there is not; elements, group, type.
type PyMember = ([u64; 5], usize, usize, String);

/// The learning rate, or 0 with its address and type; both decay rates, the number below fractions, the decay of parameters; whether
/// steps go along the gradient; the decay rate of averages.
type PyGroup = (
    f64,
    Option<(usize, String)>,
    (f64, f64),
    f64,
    f64,
    bool,
    f64,
);

/// AdamW or Lion over some parameters on one GPU.
///
/// Not for users: memory is not checked. All addresses hold what `flashcliff::cuda::AdamList` says, and nobody else uses what is
/// written until the stream is done.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct Optimiser {
    inner: AdamList,
    devices: Devices,
}

#[pymethods]
impl Optimiser {
    #[new]
    fn new(is_lion: bool, members: Vec<PyMember>) -> PyResult<Self> {
        let rule = match is_lion {
            true => AdamRule::Lion,
            false => AdamRule::Adam,
        };
        let members = members.iter().map(member).collect::<PyResult<Vec<_>>>()?;
        Ok(Self {
            inner: AdamList::new(rule, &members).map_err(raise)?,
            devices: Devices::default(),
        })
    }

    /// The offset of the norm of all gradients in the workspace, an f64.
    #[classattr]
    const NORM: usize = AdamList::NORM;

    /// The bytes of a workspace, which are zeros at first.
    #[getter]
    fn workspace_bytes(&self) -> usize {
        self.inner.workspace_bytes()
    }

    /// Launches a step; a gradient of 0 stands for none.
    fn step(
        &self,
        gradients: Vec<u64>,
        groups: Vec<PyGroup>,
        max_norm: Option<f64>,
        workspace: usize,
        stream: PyStream,
    ) -> PyResult<()> {
        let groups = groups.iter().map(group).collect::<PyResult<Vec<_>>>()?;
        // SAFETY: the caller's, who is the Python package itself.
        let step = |target: Target<'_>| unsafe {
            self.inner
                .step(target, &gradients, &groups, max_norm, workspace as u64)
        };
        caught(|| self.devices.with(stream, step))
    }
}

fn member((addresses, count, group, dtype): &PyMember) -> PyResult<AdamMember> {
    let [parameter, mean, square, step, average] = *addresses;
    Ok(AdamMember {
        parameter,
        mean,
        square,
        step,
        average,
        count: *count,
        group: *group,
        dtype: dtype_of(dtype)?,
    })
}

fn group(options: &PyGroup) -> PyResult<AdamGroup> {
    let (rate, at, (beta1, beta2), eps, weight_decay, maximize, average_decay) = options;
    let learning_rate = match at {
        None => AdamRate::Value(*rate),
        Some((address, dtype)) => AdamRate::At(*address as u64, dtype_of(dtype)?),
    };
    Ok(AdamGroup {
        learning_rate,
        beta1: *beta1,
        beta2: *beta2,
        eps: *eps,
        weight_decay: *weight_decay,
        maximize: *maximize,
        average_decay: *average_decay,
    })
}
