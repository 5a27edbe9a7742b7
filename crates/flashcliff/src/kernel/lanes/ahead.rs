//! Which stage asks for later rows of an input.
//!
//! Several stages of a program read the same input, and one of them is enough to ask for a row ahead. A core waits for few lines at a time:
//! a stage that asks for all inputs waits for memory, and does not compute meanwhile as much as it could.

use super::Operand;
use flashcliff_kernels::program::{Slot, StageCall};

/// The number of stages that may read an input and all ask for it: a product and its gate. They do not crowd each other.
const FEW_READERS: usize = 2;

/// The number of the stage that asks for later rows of each input; `None` if every stage that reads it does. The components of inputs are
/// shared out by the number of tensors that stages read, which tells how long these take.
pub(super) fn askers<T, const N: usize>(
    stages: &[StageCall],
    inputs: &[Operand<T>],
) -> [Option<usize>; N] {
    let mut askers = [None; N];
    for input in 0..inputs.len().min(N) {
        let (before, _) = askers.split_at(input);
        let share = |stage: usize| {
            let known = before.iter().zip(inputs);
            let asked = known.filter(|(asker, _)| **asker == Some(stage));
            let components: usize = asked.map(|(_, operand)| operand.components).sum();
            components + inputs[input].components
        };
        let tensors = |stage: usize| stages[stage].inputs.len();
        let readers = (0..stages.len()).filter(|&stage| reads(&stages[stage], input));
        if readers.clone().count() <= FEW_READERS {
            continue;
        }
        // Of equal shares that of the longer stage, then that of the later one.
        askers[input] = readers.min_by(|&one, &other| {
            let shares = (share(one) * tensors(other)).cmp(&(share(other) * tensors(one)));
            let longer = tensors(other).cmp(&tensors(one));
            shares.then(longer).then(other.cmp(&one))
        });
    }
    askers
}

fn reads(stage: &StageCall, input: usize) -> bool {
    let mut slots = stage.inputs.iter();
    slots.any(|slot| matches!(slot, Slot::External(index) if *index == input))
}
