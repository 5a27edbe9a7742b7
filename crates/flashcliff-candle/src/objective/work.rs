//! The calls of a plan, for those who count work.

use flashcliff::Pass;

use super::plan::{Node, Operand, Plan, Wanted, Work};
use crate::work::Call;

impl Plan {
    /// The calls of both passes in order. `sizes` are the bytes of an element of features, and of the type of the model.
    pub(super) fn calls(&self, sizes: [usize; 2]) -> Vec<Call> {
        let call = |node: &Node, pass| self.call(node, pass, sizes);
        let forward = self.nodes.iter().map(|node| call(node, Pass::Forward));
        let nodes = self.nodes.iter().zip(&self.wanted);
        let backward = nodes.rev().filter(|(_, wanted)| {
            let mut wanted = wanted.iter();
            wanted.any(|&wanted| wanted != Wanted::No)
        });
        let backward = backward.map(|(node, _)| call(node, Pass::Backward));
        forward.chain(backward).collect()
    }

    fn call(&self, node: &Node, pass: Pass, sizes: [usize; 2]) -> Call {
        let output = &self.values[node.output.value.0];
        let size = sizes[usize::from(output.wide)];
        let call = call_of(node, pass, size);
        // A value may have more room than its operator fills.
        let room = match pass {
            Pass::Forward => size * (output.len - node.output.len()),
            Pass::Backward => 0,
        };
        Call {
            kept_bytes: call.kept_bytes + room,
            ..call
        }
    }
}

fn call_of(node: &Node, pass: Pass, size: usize) -> Call {
    let name = match &node.work {
        Work::Operator(operator, dims) => {
            return Call::of_operator(operator, dims, pass, size);
        }
        Work::Points => "points",
        Work::Norm => "blade_norm",
        Work::Activation(_) => "activation",
        Work::ScaledSum(_) => "scaled_sum",
        Work::Blade(_) => "blade",
        Work::ReverseAxes => "reverse_axes",
    };
    let input = node.inputs.iter().map(Operand::len).sum();
    Call::simple(name, pass, [input, node.output.len()], size)
}
