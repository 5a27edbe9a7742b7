//! The calls of a plan, as a timeline reports them.

use std::sync::Arc;

use flashcliff::{Dims, Dtype, Operator, Pass};
use flashcliff_network::{Plan, Value, Work};

use crate::timeline::{self, Operation, Sizes};

/// The operations of the calls of a plan; `None` for calls that launch nothing.
#[derive(Debug)]
pub(crate) struct Operations(Vec<Option<Arc<Operation>>>);

impl Operations {
    pub(crate) fn new(plan: &Plan) -> Self {
        let calls = 0..plan.call_count();
        Self(
            calls
                .map(|call| operation(plan, call).map(Arc::new))
                .collect(),
        )
    }
}

/// Reports to the timeline of the calling thread, if there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reports<'a>(pub(crate) Option<&'a Operations>);

impl Reports<'_> {
    /// Whether there is a timeline.
    pub(crate) fn is_heard(self) -> bool {
        self.0.is_some()
    }

    /// A call begins; after the last one, what follows the plan.
    pub(crate) fn call(self, call: usize) {
        let Some(operations) = self.0 else { return };
        match operations.0.get(call) {
            Some(Some(operation)) => timeline::begin(|| operation.clone()),
            Some(None) => {}
            None => timeline::begin(Operation::rest),
        }
    }
}

fn operation(plan: &Plan, call: usize) -> Option<Operation> {
    if plan.is_idle(call) {
        return None;
    }
    let (pass, work, wanted) = match plan.work(call) {
        Work::Gradient(gradient) => (Pass::Backward, &*gradient.of, gradient.wanted.clone()),
        work => {
            let reads = plan.reads(call).iter();
            let tracked = reads.map(|&value| plan.network().depends_on_parameter(value));
            (Pass::Forward, work, tracked.collect())
        }
    };
    let operation = match (work, plan.dims(call)) {
        (Work::Operator(operator), Some(dims)) => {
            of_operator(plan, call, (operator, dims), pass, &wanted)
        }
        _ => of_function(plan, call, work.name(), pass, &wanted),
    };
    let operation = operation.with_flops(plan.size(call).flops);
    Some(Operation {
        output_bytes: operation.output_bytes + extension(plan, call),
        ..operation
    })
}

fn of_operator(
    plan: &Plan,
    call: usize,
    (operator, dims): (&Operator, &Dims),
    pass: Pass,
    wanted: &[bool],
) -> Operation {
    let output = match pass {
        Pass::Forward => plan.writes(call)[0],
        Pass::Backward => plan.reads(call)[operator.inputs().len()],
    };
    let sizes = Sizes {
        lanes: dtype(plan, output),
        params: plan.types()[1],
    };
    Operation::of_operator(operator, dims, sizes, pass, wanted)
}

fn of_function(plan: &Plan, call: usize, name: &str, pass: Pass, wanted: &[bool]) -> Operation {
    let shape = |value: Value| {
        plan.tensor(value)
            .map_or(Vec::new(), |(shape, _)| shape.to_vec())
    };
    let reads = plan.reads(call);
    // The last value that a gradient reads is the gradient of the result; the first result is as long as the input.
    let written = vec![true; plan.writes(call).len()];
    let (shapes, output, wanted) = match pass {
        Pass::Forward => (reads, plan.writes(call)[0], wanted),
        Pass::Backward => (plan.writes(call), reads[reads.len() - 1], &written[..]),
    };
    let shapes: Vec<Vec<usize>> = shapes.iter().map(|&value| shape(value)).collect();
    let lanes = dtype(plan, output);
    Operation::of_function(name, &shapes, &shape(output), lanes, pass, wanted)
}

fn dtype(plan: &Plan, value: Value) -> Dtype {
    plan.tensor(value)
        .map_or(plan.types()[0], |(_, dtype)| dtype)
}

/// The bytes of the further blades that a result of a call has in its memory.
fn extension(plan: &Plan, call: usize) -> usize {
    let extends = |other: &usize| {
        let is_kept = matches!(plan.work(*other), Work::ExtendBlades { clears: false, .. });
        is_kept && plan.writes(call).contains(&plan.reads(*other)[0])
    };
    let Some(other) = (0..plan.call_count()).find(extends) else {
        return 0;
    };
    let bytes = |value: Value| {
        let tensor = plan.tensor(value);
        tensor.map_or(0, |(shape, dtype)| {
            shape.iter().product::<usize>() * dtype.bytes()
        })
    };
    bytes(plan.writes(other)[0]) - bytes(plan.reads(other)[0])
}
