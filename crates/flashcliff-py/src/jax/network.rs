//! Networks of files as foreign functions of XLA: a run of a network, or of a gradient of one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use flashcliff::Dtype;
use flashcliff_network::{Rows, Value};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Deserialize;

use super::failure::Failure;
use super::frame::{ALIGNMENT, Call, List};
use crate::convert::{Gpu, Space};
use crate::error;
use crate::network::host;
use crate::network::plan::{Given, On, Planned};
use crate::network::stored::{Function, Sizes, rows};

/// The most plans that are kept.
const MOST: usize = 256;

/// What a call computes, as text.
#[derive(Debug, Deserialize)]
struct Description {
    network: String,
    /// The steps to a gradient: which results have gradients, and which arguments are wanted.
    steps: Vec<(Vec<bool>, Vec<bool>)>,
    sizes: Sizes,
    float64: bool,
    tf32: bool,
}

impl Description {
    fn read(text: &str) -> Result<Self, Failure> {
        let read = serde_json::from_str::<Self>(text);
        read.map_err(|error| Failure::refused(format!("the attribute `target`: {error}")))
    }

    fn dtype(&self) -> Dtype {
        match self.float64 {
            true => Dtype::F64,
            false => Dtype::F32,
        }
    }
}

/// A function, planned.
struct Target {
    function: Function,
    planned: Planned,
    rows: Rows,
    /// The shapes of arguments and of results.
    shapes: [Vec<Vec<usize>>; 2],
    dtype: Dtype,
    tf32: bool,
}

type Key = (String, Option<usize>);

static TARGETS: LazyLock<Mutex<HashMap<Key, Arc<Target>>>> = LazyLock::new(Mutex::default);

impl Target {
    /// The target of a text, whose digest is `digest`, on the GPU of a number, or on the CPU.
    fn of(digest: &str, text: &str, ordinal: Option<usize>) -> Result<Arc<Self>, Failure> {
        let key = (digest.to_owned(), ordinal);
        let lock = || TARGETS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().get(&key) {
            return Ok(Arc::clone(found));
        }
        let made = Arc::new(Self::read(text, ordinal)?);
        let mut targets = lock();
        if targets.len() >= MOST {
            targets.clear();
        }
        targets.insert(key, Arc::clone(&made));
        Ok(made)
    }

    fn read(text: &str, ordinal: Option<usize>) -> Result<Self, Failure> {
        let described = Description::read(text)?;
        let mut function = Function::of_json(&described.network)?;
        for (there, wanted) in &described.steps {
            function = function.gradient(there, wanted)?.0;
        }
        let (rows, dtype, tf32) = (rows(described.sizes), described.dtype(), described.tf32);
        let gpu = ordinal.map(|ordinal| (ordinal, tf32));
        Ok(Self {
            planned: function.planned(rows, dtype, gpu)?,
            shapes: [&function.arguments, &function.results]
                .map(|values| function.shapes(values, rows)),
            function,
            rows,
            dtype,
            tf32,
        })
    }

    /// The bytes of memory on a GPU that a call needs.
    fn space(&self) -> usize {
        match &self.planned.on {
            On::Cpu(_) => 0,
            #[cfg(feature = "cuda")]
            On::Gpu(own) => own.space(0),
        }
    }
}

/// Plans a target on a GPU, and gives the bytes of workspace that a call needs there.
#[pyfunction]
pub(crate) fn jax_prepare_network(
    py: Python<'_>,
    digest: &str,
    target: &str,
    ordinal: usize,
) -> PyResult<usize> {
    let found = error::detached(py, || {
        Ok::<_, flashcliff::Error>(Target::of(digest, target, Some(ordinal)))
    })?;
    let found = found.map_err(|failure| PyValueError::new_err(failure.into_message()))?;
    Ok(match found.space() {
        0 => 0,
        bytes => bytes + ALIGNMENT,
    })
}

/// A run: the lists of each relation, then the arguments, to all results.
///
/// # Safety
/// The contract of [`super::passes::Compute`] holds.
pub(super) unsafe fn run(call: &Call<'_>, on_gpu: bool) -> Result<(), Failure> {
    let (digest, text) = (call.text("digest")?, call.text("target")?);
    let gpu = on_gpu.then(|| call.gpu(false)).transpose()?;
    let target = Target::of(digest, text, gpu.map(|gpu| gpu.ordinal))?;
    let gpu = gpu.map(|gpu| Gpu {
        tf32: target.tf32,
        ..gpu
    });
    let given = target.given(call, gpu)?;
    let planned = &target.planned;
    // SAFETY: the caller promises it, and all tensors have the sizes of the plan.
    unsafe {
        match &planned.on {
            On::Cpu(plan) => match target.dtype {
                Dtype::F64 => host::run::<f64>(planned, plan, 0, &given)?,
                _ => host::run::<f32>(planned, plan, 0, &given)?,
            },
            #[cfg(feature = "cuda")]
            On::Gpu(own) => own.run(planned, 0, &given)?,
        }
    }
    Ok(())
}

impl Target {
    /// The tensors of a call, after a comparison with the plan.
    fn given(&self, call: &Call<'_>, gpu: Option<Gpu>) -> Result<Given, Failure> {
        let Function {
            network, arguments, ..
        } = &self.function;
        let relations = network.relations();
        let relations: Vec<_> = relations
            .map(|own| [own.from(), own.to()].map(|axis| axis.size(self.rows)))
            .collect();
        let (lists, views) = call.lists_and_inputs(3 * relations.len())?;
        let (outputs, lent) = call.outputs()?;
        self.check("arguments", &views, &self.shapes[0])?;
        self.check("results", &outputs, &self.shapes[1])?;
        let places: HashMap<Value, usize> = arguments
            .iter()
            .zip(&views)
            .map(|(&value, view)| (value, view.address))
            .collect();
        let addresses = |values: &[Value]| values.iter().map(|own| places[own]).collect();
        let segments = relations.iter().zip(lists.chunks_exact(3));
        let segments = segments.map(|(&[rows, targets], own)| {
            check_lists(own, rows, targets)?;
            let [target, starts, order] = [0, 1, 2].map(|at| own[at].0);
            Ok(((target, starts, order), rows, targets))
        });
        Ok(Given {
            inputs: addresses(network.inputs()),
            parameters: addresses(network.parameters()),
            outputs: outputs.iter().map(|own| own.address).collect(),
            kept: 0,
            space: self.lent(lent)?,
            stream: gpu.map_or(0, |gpu| gpu.stream),
            sequences: None,
            draw: None,
            relations: segments.collect::<Result<_, Failure>>()?,
        })
    }

    fn check(
        &self,
        what: &str,
        got: &[crate::convert::View],
        shapes: &[Vec<usize>],
    ) -> Result<(), Failure> {
        if got.len() != shapes.len() {
            let (expected, got) = (shapes.len(), got.len());
            return Err(Failure::refused(format!(
                "expected {expected} {what}, got {got}"
            )));
        }
        let mut pairs = got.iter().zip(shapes);
        match pairs.find(|(own, shape)| own.shape != **shape || own.dtype != self.dtype) {
            None => Ok(()),
            Some((own, shape)) => Err(Failure::refused(format!(
                "{what} of a network: expected {} {shape:?}, got {} {:?}",
                self.dtype, own.dtype, own.shape
            ))),
        }
    }

    /// The address of a workspace that is large enough.
    fn lent(&self, lent: Space) -> Result<usize, Failure> {
        let needed = self.space();
        match lent.bytes >= needed {
            true => Ok(lent.address),
            false => Err(Failure::refused(format!(
                "expected {needed} bytes of workspace, got {}: compile the program on this GPU",
                lent.bytes
            ))),
        }
    }
}

/// The lists of a relation: targets and order of as many numbers as it has rows, starts of one more than it has targets.
fn check_lists(lists: &[List], rows: usize, targets: usize) -> Result<(), Failure> {
    let expected = [rows, targets + 1, rows];
    let got = [0, 1, 2].map(|at| lists[at].1);
    match got == expected {
        true => Ok(()),
        false => Err(Failure::refused(format!(
            "the lists of a relation: expected {expected:?} numbers, got {got:?}"
        ))),
    }
}
