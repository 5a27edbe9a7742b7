//! The names of the kernels of a plan: of a run of which nothing is launched, on tensors at addresses where nothing lies.
//!
//! The run makes the same choices between kernels as any other one, since it is the same code. So what it lists cannot
//! differ from what runs.

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::launches;
use flashcliff::cuda::segments::Addresses;
use flashcliff::cuda::{Address, Tensor};

use super::room::ALIGNED;
use super::{Course, Draw, Gpu, Lent, Moment, Sequences};
use crate::kernels::Kernels;
use crate::network::sizes;
use crate::{Error, Value};

/// Addresses of memory that is not there, each as aligned as an allocation.
struct Nowhere(Address);

impl Nowhere {
    fn new() -> Self {
        // An address of 0 would stand for nothing.
        Self(ALIGNED as Address)
    }

    /// The address of so many bytes, which overlap no others.
    fn next(&mut self, bytes: usize) -> CUdeviceptr {
        let end = self.0 + bytes.max(1) as Address;
        std::mem::replace(&mut self.0, end.next_multiple_of(ALIGNED as Address))
    }
}

impl Gpu {
    /// The kernels of all calls, in all stages, by name. Nothing is launched, and no memory is taken. Kernels that are
    /// compiled at their first use are compiled.
    ///
    /// They are the kernels of a run with tensors as aligned as allocations, and with dropout. Without `sequences` each
    /// sample is one sequence. With sequences, whose addresses are not used, attention may have other kernels.
    ///
    /// # Errors
    /// [`Error::Sequences`] for other sequences than the plan's, and the errors of [`Self::run`].
    pub fn kernels(&self, sequences: Option<[Sequences<'_>; 2]>) -> Result<Kernels, Error> {
        let mut all = Kernels {
            calls: vec![Vec::new(); self.plan.call_count()],
            ends: vec![Vec::new(); self.plan.stage_count()],
        };
        for stage in 0..self.plan.stage_count() {
            self.list(stage, sequences, &mut all)?;
        }
        Ok(all)
    }

    fn list(
        &self,
        stage: usize,
        sequences: Option<[Sequences<'_>; 2]>,
        to: &mut Kernels,
    ) -> Result<(), Error> {
        let (plan, mut nowhere) = (&self.plan, Nowhere::new());
        let network = plan.network();
        let inputs = self.stand_ins(network.inputs(), &mut nowhere)?;
        let parameters = self.stand_ins(network.parameters(), &mut nowhere)?;
        let outputs = &plan.outputs()[..plan.stages[stage].outputs.end];
        let outputs: Result<Vec<CUdeviceptr>, Error> = outputs
            .iter()
            .map(|&own| {
                let spot = plan.spot(own)?;
                Ok(nowhere.next(spot.len() * spot.dtype.bytes()))
            })
            .collect();
        // An address of 0 would stand for sequences without bounds.
        let sequences = sequences.map(|both| {
            both.map(|own| Sequences {
                address: match own.bounds.len() {
                    0 => 0,
                    count => nowhere.next(count * size_of::<i32>()),
                },
                ..own
            })
        });
        let relations = network.relations().map(|own| {
            let [rows, targets] = [own.from(), own.to()].map(|axis| axis.size(plan.batch()));
            Addresses {
                target: nowhere.next(rows * size_of::<u32>()),
                starts: nowhere.next((targets + 1) * size_of::<u32>()),
                order: nowhere.next(rows * size_of::<u32>()),
                rows,
                targets,
            }
        });
        let relations: Vec<Addresses> = relations.collect();
        let draw = Draw {
            key: 0,
            step: nowhere.next(size_of::<u32>()),
        };
        let lent = Lent {
            inputs: &inputs,
            parameters: &parameters,
            outputs: &outputs?,
            kept: nowhere.next(plan.kept_bytes()),
            error_scale: 1.0,
            adds_error: false,
            loss_scale: None,
            sequences,
            relations: &relations,
            draw: Some(draw),
        };
        let tables = nowhere.next(
            self.steps
                .as_ref()
                .map_or(0, |own| own.constants().bytes().len()),
        );
        let mut memory = self.memory(stage, nowhere.next(self.memory_bytes(stage)), None);
        self.check(&memory, &lent)?;
        // The number of names before each call, and before what comes after all of them.
        let mut starts: Vec<(Option<usize>, usize)> = Vec::new();
        let mut watch = |moment| -> Result<(), Error> {
            match moment {
                Moment::Call(call) => starts.push((Some(call), launches::so_far())),
                Moment::End => starts.push((None, launches::so_far())),
                Moment::Stop(_) => {}
            }
            Ok(())
        };
        let (stream, course) = (
            self.device.default_stream(),
            Course {
                forks: false,
                stops: &[],
            },
        );
        let run = || {
            // SAFETY: nothing is launched, so nothing reads or writes what is not there.
            unsafe { self.start(&mut memory, &stream, (lent, tables), course, &mut watch) }
        };
        let (done, names) = launches::listed(run);
        done?;
        let ends = starts.iter().skip(1).map(|&(_, start)| start);
        for (&(call, start), end) in starts.iter().zip(ends.chain([names.len()])) {
            let own = match call {
                Some(call) => &mut to.calls[call],
                None => &mut to.ends[stage],
            };
            own.extend_from_slice(&names[start..end]);
        }
        Ok(())
    }

    /// Tensors of values at no place.
    fn stand_ins<'t>(
        &self,
        values: &[Value],
        nowhere: &mut Nowhere,
    ) -> Result<Vec<Tensor<'t>>, Error> {
        let plan = &self.plan;
        let tensors = values.iter().map(|&value| {
            // Values that no call reads have the sizes of the network.
            let (shape, dtype) = match plan.tensor(value) {
                Some((shape, dtype)) => (shape.to_vec(), dtype),
                None => {
                    let axes = plan.network().shape(value).unwrap_or_default();
                    (sizes(axes, plan.batch()), plan.types()[1])
                }
            };
            let address = nowhere.next(shape.iter().product::<usize>() * dtype.bytes());
            // SAFETY: no work is launched with the tensor.
            let tensor = unsafe { Tensor::from_raw(address, dtype, &shape, self.device.ordinal()) };
            Ok(tensor?)
        });
        tensors.collect()
    }
}
