//! Networks of files as foreign functions of XLA: a run of a network, or of a gradient of one; and the two passes of
//! a network, of which the second reads what the first kept.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use flashcliff::{Dtype, Pass};
use flashcliff_network::{Error, Rows, Value};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Deserialize;

use super::failure::Failure;
use super::frame::{ALIGNMENT, Arrays, Call, List, aligned};
use crate::convert::{Gpu, Space, View};
use crate::error;
use crate::host::slice;
use crate::network::plan::{Given, Key, Planned, PySequences};
use crate::network::stored::{Function, Sizes, rows};

/// The most plans that are kept.
const MOST: usize = 256;
/// The alignment of what a pass keeps on a GPU, and of all arrays of XLA there.
const KEPT_ALIGNMENT: usize = 128;

/// What a call computes, as text.
#[derive(Debug, Deserialize)]
struct Description {
    network: String,
    /// The steps to a gradient: which results have gradients, and which arguments are wanted.
    steps: Vec<(Vec<bool>, Vec<bool>)>,
    /// For each argument whether a backward pass computes its gradient, from what the forward pass keeps. If there is
    /// none, there is no backward pass.
    wanted: Vec<bool>,
    sizes: Sizes,
    /// Of a ragged batch: the length of the longest sequence, or more.
    longest: Option<usize>,
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
    wanted: Vec<bool>,
    longest: Option<usize>,
    tf32: bool,
}

type Cached = (String, Option<usize>);

static TARGETS: LazyLock<Mutex<HashMap<Cached, Arc<Target>>>> = LazyLock::new(Mutex::default);

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
        let wanted = described.wanted;
        let planned = if wanted.contains(&true) {
            let function = function.in_two_passes().ok_or_else(|| {
                let got = function.results.len();
                Failure::refused(format!(
                    "a backward pass: expected a network with one output, got {got}, or a gradient"
                ))
            })?;
            function.planned(&Key {
                rows,
                types: [dtype; 2],
                wanted: wanted.clone(),
                gpu,
                keep: flashcliff_network::Keep::All,
            })?
        } else {
            function.planned(rows, dtype, gpu)?
        };
        Ok(Self {
            planned,
            shapes: [&function.arguments, &function.results]
                .map(|values| function.shapes(values, rows)),
            function,
            rows,
            dtype,
            wanted,
            longest: described.longest,
            tf32,
        })
    }

    /// Whether the forward pass keeps something for a backward pass.
    fn keeps(&self) -> bool {
        self.wanted.contains(&true)
    }
}

/// Plans a target on a GPU, or on the CPU: the bytes that the forward pass keeps for the backward pass, and the workspace bytes of each.
#[pyfunction]
pub(crate) fn jax_prepare_network(
    py: Python<'_>,
    digest: &str,
    target: &str,
    ordinal: Option<usize>,
) -> PyResult<(usize, [usize; 2])> {
    let found = error::detached(py, || {
        Ok::<_, flashcliff::Error>(Target::of(digest, target, ordinal))
    })?;
    let found = found.map_err(|failure| PyValueError::new_err(failure.into_message()))?;
    let padded = |bytes| match bytes {
        0 => 0,
        bytes => bytes + ALIGNMENT,
    };
    Ok((
        found.planned.plan().kept_bytes(),
        found.planned.spaces().map(padded),
    ))
}

/// A pass. Arguments are the lists of each relation and the starts of sequences, then the arguments of the function;
/// a backward pass also takes the result, what was kept, and the gradient of the result. A forward pass gives the results
/// of the function, and what is kept. A backward pass gives the gradients that are wanted.
///
/// # Safety
/// The contract of [`super::passes::Compute`] holds.
pub(super) unsafe fn run(call: &Call<'_>, pass: Pass, on_gpu: bool) -> Result<(), Failure> {
    let (digest, text) = (call.text("digest")?, call.text("target")?);
    let gpu = on_gpu.then(|| call.gpu(false)).transpose()?;
    let target = Target::of(digest, text, gpu.map(|gpu| gpu.ordinal))?;
    let gpu = gpu.map(|gpu| Gpu {
        tf32: target.tf32,
        ..gpu
    });
    let (stage, given) = match pass {
        Pass::Forward => (0, target.forward(call, gpu)?),
        Pass::Backward => (1, target.backward(call, gpu)?),
    };
    // SAFETY: the caller promises it, and all tensors have the sizes of the plan.
    unsafe { target.planned.run(stage, &given)? };
    Ok(())
}

impl Target {
    /// The tensors of a forward pass, after a comparison with the plan.
    fn forward(&self, call: &Call<'_>, gpu: Option<Gpu>) -> Result<Given, Failure> {
        let (given, made) = (call.arguments()?, call.results()?);
        let [arguments, results] = &self.shapes;
        self.check("arguments", &given.tensors, arguments)?;
        self.check("results", &made.tensors, results)?;
        let (kept, lent) = made
            .bytes
            .split_at(made.bytes.len().min(self.keeps().into()));
        let kept = self.kept(kept, gpu)?;
        let outputs = made.tensors.iter().map(|own| own.address).collect();
        self.given(&given, outputs, (kept, self.lent(lent, 0)?), gpu)
    }

    /// The tensors of a backward pass, after a comparison with the plan.
    fn backward(&self, call: &Call<'_>, gpu: Option<Gpu>) -> Result<Given, Failure> {
        if !self.keeps() {
            return Err(Failure::refused(
                "expected arguments whose gradients are wanted, got none".to_owned(),
            ));
        }
        let (given, made) = (call.arguments()?, call.results()?);
        let [arguments, results] = &self.shapes;
        let of_result = results.iter().chain(results);
        let expected: Vec<_> = arguments.iter().chain(of_result).cloned().collect();
        self.check("arguments", &given.tensors, &expected)?;
        let wanted = arguments.iter().zip(&self.wanted).filter(|(_, own)| **own);
        let wanted: Vec<_> = wanted.map(|(shape, _)| shape.clone()).collect();
        self.check("gradients", &made.tensors, &wanted)?;
        let [result, seed] = [0, 1].map(|at| given.tensors[arguments.len() + at].address);
        let gradients = made.tensors.iter().map(|own| own.address);
        let outputs = [result].into_iter().chain(gradients).collect();
        let memory = (self.kept(&given.bytes, gpu)?, self.lent(&made.bytes, 1)?);
        let mut given = self.given(&given, outputs, memory, gpu)?;
        given.inputs.push(seed);
        Ok(given)
    }

    /// The tensors of a pass, with the inputs of the function.
    fn given(
        &self,
        arrays: &Arrays,
        outputs: Vec<usize>,
        (kept, space): (usize, usize),
        gpu: Option<Gpu>,
    ) -> Result<Given, Failure> {
        let Function {
            network, arguments, ..
        } = &self.function;
        let relations = network.relations();
        let relations: Vec<_> = relations
            .map(|own| [own.from(), own.to()].map(|axis| axis.size(self.rows)))
            .collect();
        let sets = self.longest.map_or(0, |_| self.sets().len());
        let expected = 3 * relations.len() + sets;
        if arrays.lists.len() != expected {
            let got = arrays.lists.len();
            return Err(Failure::refused(format!(
                "expected {expected} lists of int32, got {got}"
            )));
        }
        let (lists, sequences) = arrays.lists.split_at(3 * relations.len());
        let places: HashMap<Value, usize> = arguments
            .iter()
            .zip(&arrays.tensors)
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
            outputs,
            kept,
            space,
            stream: gpu.map_or(0, |gpu| gpu.stream),
            sequences: self.sequences(sequences, gpu.is_some())?,
            draw: None,
            relations: segments.collect::<Result<_, Failure>>()?,
        })
    }

    /// The rows that sequences divide: items, and the items of their context, if there is one.
    fn sets(&self) -> Vec<usize> {
        let all = [self.rows.count(), self.rows.samples * self.rows.context];
        let there = all.into_iter().enumerate();
        let there = there.filter(|&(at, rows)| at == 0 || rows > 0);
        there.map(|(_, rows)| rows).collect()
    }

    /// The starts of sequences. On a GPU they stay there: the host takes as many sequences, each as long as the longest.
    fn sequences(&self, lists: &[List], on_gpu: bool) -> Result<Option<[PySequences; 2]>, Failure> {
        let Some(longest) = self.longest else {
            return Ok(None);
        };
        let mut found = [const { (Vec::new(), 0) }; 2];
        let sets = self.sets();
        for ((own, &(address, len)), &rows) in found.iter_mut().zip(lists).zip(&sets) {
            let bounds = if on_gpu {
                let starts = (0..len).map(|at| at.saturating_mul(longest).min(rows));
                starts.collect()
            } else {
                // SAFETY: the runtime says that there are so many numbers, which nobody writes during a call.
                let given = unsafe { slice::<i32>(address, len) };
                let starts = given.iter().map(|&start| usize::try_from(start));
                let starts = starts.collect::<Result<Vec<_>, _>>();
                starts.map_err(|_| Error::Sequences {
                    rows,
                    count: len.saturating_sub(1),
                    got: format!("{given:?}"),
                })?
            };
            *own = (bounds, address);
        }
        Ok(Some(found))
    }

    fn check(&self, what: &str, got: &[View], shapes: &[Vec<usize>]) -> Result<(), Failure> {
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

    /// The address of what is kept, of as many bytes as the plan of this device needs.
    fn kept(&self, given: &[Space], gpu: Option<Gpu>) -> Result<usize, Failure> {
        if !self.keeps() {
            return Ok(0);
        }
        let own = given.first().copied().unwrap_or_default();
        let alignment = gpu.map_or(self.dtype.bytes(), |_| KEPT_ALIGNMENT);
        let needed = self.planned.plan().kept_bytes();
        match own.bytes >= needed && own.address.is_multiple_of(alignment) {
            true => Ok(own.address),
            false => Err(Failure::refused(format!(
                "what a forward pass keeps: expected {needed} bytes aligned to {alignment}, got {} at {:#x}: compile the program on this device",
                own.bytes, own.address
            ))),
        }
    }

    /// The address of a workspace that is large enough for a pass.
    fn lent(&self, given: &[Space], stage: usize) -> Result<usize, Failure> {
        let lent = aligned(given.first().copied().unwrap_or_default());
        let needed = self.planned.spaces()[stage];
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
