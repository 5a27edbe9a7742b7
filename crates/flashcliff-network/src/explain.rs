//! A plan as a page: what runs, with bytes and operations, and times of a model.

use std::fmt::Write;

use crate::kernels::{Kernels, in_a_line};
use crate::network::{Set, Value};
use crate::plan::Plan;
use crate::tokens::Step;
use crate::work::{Activation, Gradient, Work};

/// What a call moves and computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Size {
    /// The bytes of all values that it reads or writes, each once.
    pub bytes: usize,
    /// Its floating-point operations.
    pub flops: usize,
}

/// The rates of a machine, for modelled times: from its data sheet, or measured with a copy and a product of large
/// matrices on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// The bytes a second that are read or written in memory.
    pub bytes_per_second: f64,
    /// The floating-point operations a second, in the type of the plan.
    pub flops_per_second: f64,
    /// Seconds of a call with next to no work: of a launch on a GPU.
    pub seconds_per_call: f64,
}

/// The parts of a page that its plan does not know.
#[derive(Clone, Copy)]
pub(crate) struct Told<'a> {
    /// The device, and how it computes; empty for a plan for the CPU.
    pub(crate) device: &'a str,
    pub(crate) machine: Option<&'a Machine>,
    pub(crate) kernels: &'a Kernels,
    pub(crate) advice: &'a [String],
}

impl Plan {
    /// The bytes and operations of a call, and of those that run with it in one kernel. Nothing for calls of values in one memory, and for
    /// calls whose work others do.
    pub fn size(&self, call: usize) -> Size {
        match self.chains.led_by(call) {
            Some(chain) => chain.iter().fold(Size::default(), |all, &own| {
                let own = self.own_size(own);
                Size {
                    bytes: all.bytes + own.bytes,
                    flops: all.flops + own.flops,
                }
            }),
            None if self.is_idle(call) => Size::default(),
            None => self.own_size(call),
        }
    }

    fn own_size(&self, call: usize) -> Size {
        let node = self.node(call);
        if matches!(node.work, Work::ExtendBlades { clears: false, .. }) {
            return Size::default();
        }
        let added = self.sum_before(call).map_or(&[][..], |sum| &sum.inputs);
        let apart = self.gradients_apart(call).iter();
        let apart = apart.map(|(_, _, gradient)| gradient);
        let values = node.inputs.iter().chain(&node.outputs).chain(added);
        let bytes = values.chain(apart).map(|&value| self.bytes_of(value)).sum();
        Size {
            bytes,
            flops: self.flops(call),
        }
    }

    /// The modelled seconds of a call: the time of its bytes or of its operations, whichever is longer, plus the time
    /// that any call takes. 0 for calls of values in one memory.
    ///
    /// It is a lower bound if no rate is below what the machine reaches, and it is not calibrated: a kernel may take
    /// several times as long. `flashcliff profile` measures. A call can be faster where a cache holds its values, and
    /// where [`Size::flops`] counts more than runs, as in attention over ragged batches. Times by rates that are not
    /// above 0 mean nothing.
    pub fn modelled_seconds(&self, call: usize, machine: &Machine) -> f64 {
        if self.is_idle(call) {
            return 0.0;
        }
        let size = self.size(call);
        let bytes = size.bytes as f64 / machine.bytes_per_second;
        let flops = size.flops as f64 / machine.flops_per_second;
        bytes.max(flops) + machine.seconds_per_call
    }

    /// The bytes of a value. Joined parameters that nothing joins are read one by one.
    fn bytes_of(&self, value: Value) -> usize {
        let parts = match self.gathered.is_absent(value) {
            true => self.network().parts(value).unwrap_or_default(),
            false => &[value],
        };
        let tensors = parts.iter().filter_map(|&part| self.tensor(part));
        let bytes = tensors.map(|(shape, dtype)| elements(shape) * dtype.bytes());
        bytes.sum()
    }

    fn len(&self, value: Value) -> usize {
        self.tensor(value).map_or(0, |(shape, _)| elements(shape))
    }

    fn flops(&self, call: usize) -> usize {
        let node = self.node(call);
        let (gradient, work) = match &node.work {
            Work::Gradient(gradient) => (Some(gradient), &*gradient.of),
            work => (None, work),
        };
        let (first, last) = (self.len(node.inputs[0]), self.len(node.outputs[0]));
        let second = node.inputs.get(1).map_or(0, |&value| self.len(value));
        match (work, self.dims(call), gradient) {
            (Work::Operator(operator), Some(dims), None) => operator.cost(dims).forward,
            (Work::Operator(operator), Some(dims), Some(gradient)) => {
                let backward = operator.cost(dims).backward;
                match operator.adds_to_gradient() {
                    // A matrix product for the gradient of the input, another one for that of the weight.
                    true => backward * products(&gradient.wanted) / 2,
                    false => backward,
                }
            }
            (Work::Step(step), _, gradient) => {
                let of_tokens = |value: &Value| self.network().set_of(*value);
                let set = node.outputs.iter().chain(&node.inputs).find_map(of_tokens);
                self.flops_of_step(step, set.unwrap_or(Set::Items), gradient)
            }
            _ => flops(work, gradient.is_some(), [first, second], last),
        }
    }

    /// The operations of a step, or of its gradient. Each item of a ragged batch counts as one that attends to all others.
    fn flops_of_step(&self, step: &Step, set: Set, gradient: Option<&Gradient>) -> usize {
        let rows = self.batch();
        let keys = match step.attends() {
            Some(own) if own.crossing => rows.context,
            _ => rows.items,
        };
        let [forward, backward] = step.flops(rows.of(set), keys);
        match (gradient, step) {
            (None, _) => forward,
            // A product for the gradient of the tokens, another one for that of the parameters.
            (Some(gradient), Step::Linear(_)) => backward * products(&gradient.wanted) / 2,
            (Some(_), _) => backward,
        }
    }

    /// The calls in order, on one page: a line for each, with its shapes, the bytes that it moves and its operations;
    /// then the memory, and the [advice](Self::advice).
    pub fn explain(&self) -> String {
        self.page_of_cpu(None)
    }

    /// The page of [`Self::explain`] with the [modelled](Self::modelled_seconds) time of each call, and their sum for each stage.
    pub fn explain_on(&self, machine: &Machine) -> String {
        self.page_of_cpu(Some(machine))
    }

    fn page_of_cpu(&self, machine: Option<&Machine>) -> String {
        self.page(Told {
            device: "",
            machine,
            kernels: &Kernels::default(),
            advice: &self.advice(),
        })
    }

    pub(crate) fn page(&self, told: Told<'_>) -> String {
        let Told {
            device,
            machine,
            kernels,
            advice,
        } = told;
        let [features, model] = self.types();
        let mut page = format!(
            "{} calls for {} rows, features in {features}, model in {model}{device}\n",
            self.call_count(),
            self.rows()
        );
        let mut all = Size::default();
        for stage in 0..self.stage_count() {
            let mut stage_seconds = 0.0;
            for call in self.calls(stage) {
                let size = self.size(call);
                all.bytes += size.bytes;
                all.flops += size.flops;
                let _ = write!(page, "{call:4}  {}", self.line(call, size));
                if let Some(machine) = machine {
                    let seconds = self.modelled_seconds(call, machine);
                    stage_seconds += seconds;
                    let _ = write!(page, ", modelled {}", in_us(seconds));
                }
                page.push('\n');
                note(&mut page, "kernels", kernels.of_call(call));
            }
            note(&mut page, "kernels after all calls", kernels.after(stage));
            if machine.is_some() {
                let _ = writeln!(page, "stage {stage} modelled {}", in_us(stage_seconds));
            }
        }
        let _ = writeln!(
            page,
            "in all {} moved, {:.3} Gflop; memory between inputs and outputs {}",
            in_mib(all.bytes),
            all.flops as f64 / 1e9,
            in_mib(self.kept_bytes() + self.arena_bytes())
        );
        for line in advice {
            let _ = writeln!(page, "faster on a GPU: {line}");
        }
        page
    }

    fn line(&self, call: usize, size: Size) -> String {
        let shapes = |values: &[Value]| {
            let shapes = values.iter().filter_map(|&value| self.tensor(value));
            let shapes: Vec<String> = shapes.map(|(shape, _)| format!("{shape:?}")).collect();
            shapes.join(" ")
        };
        let node = self.node(call);
        let with = match self.chains.of(call) {
            Some(chain) if chain[0] == call => {
                let others: Vec<String> = chain[1..].iter().map(usize::to_string).collect();
                format!(", in one kernel with {}", others.join(", "))
            }
            Some(chain) => format!(", in the kernel of {}", chain[0]),
            None => String::new(),
        };
        format!(
            "{:32} {} -> {}  {}, {:.3} Gflop{with}",
            node.work.to_string(),
            shapes(&node.inputs),
            shapes(&node.outputs),
            in_mib(size.bytes),
            size.flops as f64 / 1e9
        )
    }
}

/// Adds a line with the names of kernels, if there are some.
fn note(page: &mut String, what: &str, names: &[String]) {
    if !names.is_empty() {
        let _ = writeln!(page, "      {what}: {}", in_a_line(names));
    }
}

/// The matrix products of the gradients of a linear map: of its first two inputs.
fn products(wanted: &[bool]) -> usize {
    wanted[..2].iter().filter(|wanted| **wanted).count()
}

/// The operations of a node that is not an operator, by the elements of the first two values that it reads and of the
/// first one that it writes.
fn flops(work: &Work, is_gradient: bool, [first, second]: [usize; 2], last: usize) -> usize {
    match (work, is_gradient) {
        // A square and a sum of each element, and a root; backward a quotient, and a product of each element.
        (Work::BladeNorm, false) => 2 * first + last,
        (Work::BladeNorm, true) => second + last,
        // An exponential, a sum, a quotient and a product; three more operations of the slope and one product.
        (Work::Activation(Activation::Silu), false) => 4 * last,
        (Work::Activation(Activation::Silu), true) => 8 * last,
        (Work::Activation(Activation::Relu), _) => last,
        // A sum and a product of each element; a product for each gradient.
        (Work::ScaledSum(_), false) => 2 * last,
        (Work::ScaledSum(_), true) => last,
        // A difference, its square, a sum and the gradient of each row.
        (Work::SquaredError, _) => 4 * first,
        _ => 0,
    }
}

fn elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

fn in_us(seconds: f64) -> String {
    format!("{:.3} us", seconds * 1e6)
}

fn in_mib(bytes: usize) -> String {
    format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Network};
    use flashcliff::Dtype;

    #[test]
    fn names_of_kernels_stand_below_their_calls() {
        let mut network = Network::new();
        let x = network.input("x", &[Axis::Rows, Axis::Fixed(2)]);
        let y = network.activation(x, Activation::Relu).unwrap();
        let z = network.activation(y, Activation::Silu).unwrap();
        let plan = network.plan(&[z], 4, [Dtype::F32; 2]).unwrap();
        let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let kernels = Kernels {
            calls: vec![named(&["fc_activate", "fc_activate"]), named(&[])],
            ends: vec![named(&["fc_add_up"])],
        };
        let page = plan.page(Told {
            device: ", on a GPU",
            machine: None,
            kernels: &kernels,
            advice: &["less work".to_owned()],
        });
        let expected = "\
2 calls for 4 rows, features in f32, model in f32, on a GPU
   0  relu                             [4, 2] -> [4, 2]  0.00 MiB, 0.000 Gflop
      kernels: 2 x fc_activate
   1  silu                             [4, 2] -> [4, 2]  0.00 MiB, 0.000 Gflop
      kernels after all calls: fc_add_up
in all 0.00 MiB moved, 0.000 Gflop; memory between inputs and outputs 0.00 MiB
faster on a GPU: less work
";
        assert_eq!(page, expected);
    }
}
