//! The memory of a plan on a GPU, which is taken once and stays where it is, so a captured step uses no other.

use candle_core::backend::BackendDevice;
use candle_core::{CudaDevice, CudaStorage, DType};
use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::CudaSlice;

use super::super::plan::{Holder, Operand, Plan, ValueId, Wanted};
use super::super::planned::Part;
use super::beside::Line;
use crate::Error;
use crate::op::core_dtype;
use crate::op::gpu::memory::{self, View, misplaced};

/// Buffers. Each is taken out while a launch writes to it.
#[derive(Debug)]
pub(super) struct Buffers {
    /// The type of the features, and that of the model: of parameters and of wide values.
    dtypes: [Dtype; 2],
    /// For each place of memory of the plan; `None` where a tensor holds the value.
    pub(super) values: Vec<Option<CudaStorage>>,
    /// For each node the values that its forward pass saves.
    pub(super) saved: Vec<Option<CudaStorage>>,
    /// The gradients of values, for each buffer of the plan: those of features, and those of wide values if these have another type.
    pub(super) gradients: Vec<[Option<CudaStorage>; 2]>,
    /// The gradients of parameters.
    pub(super) sums: Vec<Option<CudaStorage>>,
    /// The gradients of parameters for one part of a batch, if there are several.
    pub(super) shares: Vec<Option<CudaStorage>>,
    /// The workspace of each line.
    workspaces: [Option<CudaSlice<u8>>; 2],
}

impl Buffers {
    /// Takes the memory of a plan. `candle` are the types of the features and of the model, `saved` the elements that each node saves, and
    /// `workspaces` the bytes of each line.
    pub(super) fn new(
        plan: &Plan,
        device: &CudaDevice,
        candle: [DType; 2],
        parts: usize,
        (saved, workspaces): (&[usize], [usize; 2]),
    ) -> Result<Self, Error> {
        let dtypes = types(candle)?;
        // An allocation of no bytes is an error for some drivers.
        let zeros = |len: usize, dtype: DType| -> Result<Option<CudaStorage>, Error> {
            Ok(Some(device.zeros_impl(&len.max(1).into(), dtype)?))
        };
        let mut values = Vec::with_capacity(plan.values.len());
        for (value, &len) in plan.values.iter().zip(plan.blocks.lens()) {
            values.push(match value.holder {
                Holder::Buffer if len > 0 => zeros(len, candle[usize::from(value.wide)])?,
                Holder::Buffer | Holder::Batch(_) | Holder::Parameter(_) => None,
            });
        }
        // Row sums are of the type of the arithmetic, which is that of the model.
        let saved = saved.iter().map(|&len| zeros(len, candle[1]));
        let parameters = |wanted: bool| {
            let parameters = plan.parameters.iter().filter(|_| wanted);
            let zeros = parameters.map(|tensor| zeros(tensor.elem_count(), candle[1]));
            zeros.collect::<Result<Vec<_>, Error>>()
        };
        let mut gradients: Vec<[Option<CudaStorage>; 2]> = Vec::new();
        for lens in plan.gradient_lens(dtypes) {
            let mut own = [None, None];
            for ((own, len), dtype) in own.iter_mut().zip(lens).zip(candle) {
                if len > 0 {
                    *own = zeros(len, dtype)?;
                }
            }
            gradients.push(own);
        }
        let [line, beside] = workspaces.map(|bytes| memory::allocate_bytes(device, bytes));
        Ok(Self {
            dtypes,
            values,
            saved: saved.collect::<Result<Vec<_>, Error>>()?,
            gradients,
            sums: parameters(true)?,
            shares: parameters(parts > 1)?,
            workspaces: [Some(line?), Some(beside?)],
        })
    }

    /// The workspace of a line.
    pub(super) fn workspace(&mut self, line: Line) -> &mut Option<CudaSlice<u8>> {
        &mut self.workspaces[usize::from(line == Line::Beside)]
    }

    /// The memory of a value in a buffer.
    pub(super) fn value(&self, plan: &Plan, value: ValueId) -> Option<&CudaStorage> {
        self.values[plan.blocks.memory(value)].as_ref()
    }

    /// The buffer of the gradient of a value.
    pub(super) fn gradient(
        &mut self,
        plan: &Plan,
        value: ValueId,
    ) -> Option<&mut Option<CudaStorage>> {
        let place = plan.values[value.0].gradient_place(self.dtypes);
        Some(&mut self.gradients[plan.gradient_of[value.0]?][place])
    }

    /// The buffer of the gradient of an input.
    pub(super) fn place(
        &mut self,
        plan: &Plan,
        wanted: Wanted,
        input: &Operand,
        part: Part,
    ) -> Option<&mut Option<CudaStorage>> {
        match wanted {
            Wanted::No => None,
            Wanted::Written | Wanted::Added => self.gradient(plan, input.value),
            Wanted::Parameter(parameter) if part.adds => Some(&mut self.shares[parameter]),
            Wanted::Parameter(parameter) => Some(&mut self.sums[parameter]),
        }
    }
}

/// The types of the features and of the model, as the library names them.
pub(super) fn types(candle: [DType; 2]) -> Result<[Dtype; 2], Error> {
    match candle.map(core_dtype) {
        [Some(features), Some(model)] => Ok([features, model]),
        _ => Err(misplaced("objective")),
    }
}

/// The first elements of a buffer.
pub(super) fn view(storage: Option<&CudaStorage>, len: usize) -> Result<View<'_>, Error> {
    let view = storage.and_then(|storage| View::of(storage, 0..len));
    view.ok_or_else(|| misplaced("objective"))
}

/// Takes a buffer out of its place.
pub(super) fn take<T>(place: &mut Option<T>) -> Result<T, Error> {
    place.take().ok_or_else(|| misplaced("objective"))
}
