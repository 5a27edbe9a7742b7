//! A network as a function on slices.

use std::sync::Arc;

use candle_core::{Storage, Tensor};
use flashcliff::{Element, Pass, threads};
use flashcliff_network::scratch::Buffer;
use flashcliff_network::tokens::Draw;
use flashcliff_network::{Kept, LaterSlices, Machine, Plan, Room, Rows, Scales, Slices, Sources};

use super::{Key, NetworkFunction, Staged};
use crate::op::Scalar;
use crate::op::function::{Array, Derived, Function, Slots, check_room};
use crate::op::graphs::Graphs;
use crate::op::node;
use crate::timeline::{self, Operation};
use crate::{Error, explain};

/// The plan of a forward pass, and the values that its gradients read.
pub(crate) struct Saved<T: Scalar> {
    pub(super) staged: Arc<Staged<Plan>>,
    kept: Buffer<T>,
}

impl<T: Scalar> Function<T> for NetworkFunction {
    type Saved = Saved<T>;

    fn name(&self) -> &str {
        self.shared.name
    }

    fn arity(&self) -> usize {
        self.input_count() + self.shared.network.parameters().len()
    }

    /// `None`: the calls of the plan report themselves.
    fn operation(&self, _: &[Vec<usize>], _: &[usize], _: Pass, _: &[bool]) -> Option<Operation> {
        None
    }

    fn derived(&self) -> Option<Derived> {
        Some(Derived::Network(self.clone()))
    }

    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|input| input.shape).collect();
        Ok(self.result_shape(self.rows(&shapes)?))
    }

    fn forward(
        &self,
        inputs: &[Array<T>],
        output: &mut [T],
        wanted: &[bool],
    ) -> Result<Saved<T>, Error> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|input| input.shape).collect();
        let key = Key {
            rows: self.rows(&shapes)?,
            types: [<T as Element>::DTYPE; 2],
            wanted: wanted.to_vec(),
        };
        let staged = self.shared.on_cpu.get(key, |key| {
            let halves = self.halves(&key.wanted)?;
            let stages = halves.stages();
            let plan = halves.network().plan_stages(&stages, key.rows, key.types)?;
            Ok::<_, Error>(Staged::new(plan, &key.wanted, halves.found()))
        })?;
        let mut kept = Buffer::take(staged.plan.kept_bytes() / size_of::<T>());
        let elements = elements(inputs);
        let (inputs, parameters) = elements.split_at(self.input_count());
        let sources = Slices { inputs, parameters };
        self.run(
            &staged,
            0,
            &sources,
            &mut [output],
            Kept::Written(&mut kept),
        )?;
        Ok(Saved { staged, kept })
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        output: Array<T>,
        saved: &Saved<T>,
        grad_output: Array<T>,
        slots: Slots<T>,
    ) -> Result<(), Error> {
        let mut elements = elements(inputs);
        elements.insert(self.input_count(), grad_output.data);
        let (inputs, parameters) = elements.split_at(self.input_count() + 1);
        let sources = LaterSlices {
            slices: Slices { inputs, parameters },
            outputs: &[output.data],
        };
        let mut gradients = Vec::with_capacity(slots.len());
        for (slot, found) in slots.into_iter().flatten().zip(&saved.staged.found) {
            match found {
                true => gradients.push(slot),
                false => slot.fill(T::zero()),
            }
        }
        let kept = Kept::Read(&saved.kept);
        self.run(&saved.staged, 1, &sources, &mut gradients, kept)
    }
}

impl NetworkFunction {
    /// Computes the results of a network of gradients.
    pub(super) fn results_on_cpu<T: Scalar>(
        &self,
        rows: Rows,
        arguments: &[Tensor],
    ) -> Result<Vec<Storage>, Error> {
        let key = Key {
            rows,
            types: [<T as Element>::DTYPE; 2],
            wanted: vec![false; arguments.len()],
        };
        let staged = self.shared.on_cpu.get(key, |key| {
            let (network, stages) = (&self.shared.network, self.alone());
            let plan = network.plan_stages(&stages, key.rows, key.types)?;
            Ok::<_, Error>(Staged::new(plan, &key.wanted, &[]))
        })?;
        let mut results = Vec::with_capacity(self.shared.outputs.len());
        for &output in staged.plan.outputs() {
            let shape = staged
                .plan
                .tensor(output)
                .map_or(&[][..], |(shape, _)| shape);
            check_room::<T>(self.shared.name, "gradient", shape)?;
            results.push(vec![T::zero(); shape.iter().product()]);
        }
        let shapes: Vec<Vec<usize>> = arguments.iter().map(|own| own.dims().to_vec()).collect();
        node::with_arrays(arguments, &shapes, |arrays| {
            let elements = elements(arrays);
            let (inputs, parameters) = elements.split_at(self.input_count());
            let sources = Slices { inputs, parameters };
            let mut outputs: Vec<&mut [T]> = results.iter_mut().map(Vec::as_mut_slice).collect();
            let nothing = Kept::Written(&mut []);
            self.run(&staged, 0, &sources, &mut outputs, nothing)
        })?;
        let storages = results.into_iter().map(T::to_cpu_storage_owned);
        Ok(storages.map(Storage::Cpu).collect())
    }

    /// Runs a stage, in memory that goes back after it.
    fn run<T: Scalar>(
        &self,
        staged: &Staged<Plan>,
        stage: usize,
        sources: &(impl Sources<T, Error = flashcliff_network::Error> + Sync),
        outputs: &mut [&mut [T]],
        kept: Kept<'_, T>,
    ) -> Result<(), Error> {
        let plan = &staged.plan;
        let [_, arena, workspace] = plan.room::<T>(stage);
        let (mut arena, mut workspace) = (Buffer::take(arena), Buffer::take(workspace));
        let room = Room {
            kept,
            arena: &mut arena,
            workspace: &mut workspace,
        };
        let own = plan.calls(stage);
        let sequences = self.around.as_ref().and_then(|own| own.sequences.as_ref());
        let graphs = self.around.as_ref().and_then(|own| own.graphs.as_ref());
        let scales = Scales {
            draw: self.draw()?,
            sequences: sequences.map(|(items, context)| {
                let context = context.as_ref().map_or(&[][..], |own| own.offsets());
                [items.offsets(), context]
            }),
            relations: graphs.map_or(&[][..], Graphs::segments),
            ..Scales::default()
        };
        let page = |machine: Option<&Machine>| Ok(explain::of_plan(plan, machine));
        explain::add(self.shared.name, page)?;
        // A layer of tokens is one operation of a timeline, which does not hear of its calls.
        let is_heard = self.around.is_none() && timeline::is_recording();
        self.reporting((staged, plan), stage, |report| {
            if !is_heard {
                return threads::together(|| {
                    plan.run_stage(stage, sources, (outputs, room), scales, &mut |_| {})
                });
            }
            // A timeline belongs to the calling thread.
            let mut watch = |call| {
                if own.contains(&call) {
                    report(call);
                }
            };
            plan.run_stage(stage, sources, (outputs, room), scales, &mut watch)
        })?;
        Ok(())
    }

    /// The random numbers of dropout on the host.
    fn draw(&self) -> Result<Option<Draw>, Error> {
        let draw = self.around.as_ref().and_then(|own| own.draw.as_ref());
        let known = draw.map(|draw| {
            Ok::<_, Error>(Draw {
                key: draw.key(),
                step: draw.number()?,
            })
        });
        known.transpose()
    }
}

fn elements<'a, T>(arrays: &[Array<'a, T>]) -> Vec<&'a [T]> {
    arrays.iter().map(|array| array.data).collect()
}
