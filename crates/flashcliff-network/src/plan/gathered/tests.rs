use flashcliff::Dtype;

use super::*;
use crate::network::Node;
use crate::plan::{Fuses, Joins, Saves, Target, Uses};
use crate::tokens::{Channels, Geometry, Linear, Transformer};
use crate::{Axis, Error, Keep, Rows};

const ROWS: Rows = Rows::new(3, 4);
const CHANNELS: Channels = Channels::new(2, 3);

/// A plan for a GPU, whose steps work together and whose norms compute sums, or each by itself.
pub(in crate::plan) fn plan(network: &Network, stages: &[&[Value]], gathers: bool) -> Plan {
    plan_with(network, stages, ROWS, (gathers, None, None))
}

/// A plan for a GPU, whose linear maps run together.
pub(in crate::plan) fn plan_joining(network: &Network, stages: &[&[Value]], joins: Joins) -> Plan {
    plan_with(
        network,
        stages,
        Rows::of_graphs(2, 6, 8),
        (true, Some(joins), None),
    )
}

/// A plan for a GPU, whose steps run together.
pub(in crate::plan) fn plan_fusing(
    network: &Network,
    stages: &[&[Value]],
    fuses: &Fuses<'_>,
) -> Plan {
    plan_with(network, stages, ROWS, (true, None, Some(fuses)))
}

fn plan_with(
    network: &Network,
    stages: &[&[Value]],
    rows: Rows,
    (gathers, joins, fuses): (bool, Option<Joins>, Option<&Fuses<'_>>),
) -> Plan {
    let saved_len = |saves: &Saves<'_>, _: [Dtype; 2]| -> Result<usize, Error> {
        Ok(match saves {
            Saves::Step(Step::Linear(step), ..) => {
                let [from, to] = [step.input, step.output()].map(|own| step.geometry.width(own));
                (from + 1) * to
            }
            Saves::Step(Step::Gains(step), ..) => step.geometry.width(step.channels),
            _ => 5,
        })
    };
    let target = Target {
        slack: 6,
        has_chunks: false,
        gathers,
        adds: gathers,
        joins,
        fuses,
        takes_16_bits: None,
    };
    Plan::new(network, stages, rows, [Dtype::F32; 2], &saved_len, target).unwrap()
}

/// A transformer of three blocks with gains of heads, with a seed, and the gradients of all parameters.
pub(in crate::plan) fn transformer(keep: Keep) -> (Network, Value, Vec<Value>) {
    let geometry = Geometry::gatr().unwrap();
    let mut options = Transformer {
        blocks: 3,
        ..Transformer::new(geometry, Channels::new(1, 1), CHANNELS, Channels::new(4, 8))
    };
    options.attention.heads = 2;
    options.attention.head_scale = true;
    let (mut network, ends) = options.network().unwrap();
    let axes = network.shape(ends.output).unwrap().to_vec();
    let seed = network.features("seed", &axes);
    let pairs = network.gradients(ends.output, seed, keep).unwrap();
    assert_eq!(pairs.len(), network.parameters().len());
    let gradients = pairs.into_iter().map(|(_, gradient)| gradient);
    let gradients = gradients.collect();
    (network, ends.output, gradients)
}

/// The launches of parameters: of what joins and parts them, of matrices, and of their gradients.
fn launches(plan: &Plan) -> usize {
    let gathered = &plan.gathered;
    let of_call = |call: usize| {
        let made = usize::from(gathered.made_before(call).is_some());
        let read = usize::from(gathered.is_read_behind(call));
        let own = match plan.work(call) {
            _ if plan.is_idle(call) => 0,
            Work::Step(step) if has_matrix(step) => gathered.matrix_of(call).is_none().into(),
            Work::Concatenate(_) => 1,
            Work::Gradient(gradient) => match &*gradient.of {
                Work::Step(step) if has_matrix(step) && gradient.wanted[1] => {
                    gathered.gradient_of(call).is_none().into()
                }
                Work::Concatenate(_) => 1,
                _ => 0,
            },
            _ => 0,
        };
        made + read + own
    };
    (0..plan.call_count()).map(of_call).sum()
}

fn count(network: &Network, is_own: impl Fn(&Step) -> bool) -> usize {
    let nodes = network.nodes.iter();
    nodes
        .filter(|node| matches!(&node.work, Work::Step(step) if is_own(step)))
        .count()
}

#[test]
fn a_stage_has_a_launch_for_matrices_and_one_for_gradients() {
    let (network, output, gradients) = transformer(Keep::All);
    let (steps, gains) = (
        count(&network, has_matrix),
        count(&network, |step| matches!(step, Step::Gains(_))),
    );
    assert_eq!((steps, gains), (20, 3));
    let all = [&[output], &gradients[..]].concat();
    let alone = plan(&network, &[&all], false);
    // Each step joins, gathers, adds up and parts.
    assert_eq!(launches(&alone), 4 * steps);
    for stages in [&[&all[..]][..], &[&[output], &gradients]] {
        let plan = plan(&network, stages, true);
        assert_eq!(launches(&plan), 2, "{} stages", stages.len());
        let (matrices, gradients) = (&plan.gathered.matrices, &plan.gathered.gradients);
        assert_eq!([matrices.len(), gradients.len()], [steps; 2]);
        // Attention takes its weights of distances as they are.
        let parts = matrices.iter().flat_map(|own| &own.parts);
        assert_eq!(parts.count(), network.parameters().len() - 3);
        let parts = gradients.iter().flat_map(|own| &own.parts);
        assert_eq!(parts.count(), network.parameters().len() - 3);
    }
    // Nodes that are computed again make their matrices with the others.
    let (network, output, gradients) = transformer(Keep::BetweenBlocks);
    let all = [&[output], &gradients[..]].concat();
    let plan = plan(&network, &[&all], true);
    assert_eq!(launches(&plan), 2);
    assert!(plan.gathered.matrices.len() > steps);
}

/// The values that lie in memory, and what branches of a captured step do with it.
#[derive(Default)]
struct Memories {
    there: Vec<(Memory, Value)>,
    uses: Uses<usize>,
    branches: Vec<Vec<(Memory, Use)>>,
    /// The branches that the line has waited for.
    waited: usize,
}

impl Memories {
    fn write(&mut self, plan: &Plan, value: Value) {
        let memory = plan.spot(value).unwrap().memory;
        self.there.retain(|(other, _)| !memory.meets(*other));
        self.there.push((memory, value));
    }

    fn read(&self, plan: &Plan, value: Value, call: usize) {
        let memory = plan.spot(value).unwrap().memory;
        let is_of_host = matches!(memory, Memory::Input(_) | Memory::Parameter(_));
        let name = plan.network().name(value);
        let is_there = self.there.contains(&(memory, value));
        assert!(is_of_host || is_there, "{name} is not there at {call}");
    }

    /// Notes that a value has the numbers of another one.
    fn show(&mut self, plan: &Plan, call: usize) {
        let shown = match plan.work(call) {
            Work::FirstBlades(_) | Work::ExtendBlades { .. } => plan.reads(call)[0],
            _ => plan.network().shown_by(plan.writes(call)[0]).unwrap(),
        };
        self.read(plan, shown, call);
        let writes = plan.writes(call).iter();
        self.there
            .extend(writes.map(|&value| (plan.spot(value).unwrap().memory, value)));
    }

    /// Notes what the line does.
    fn on_line(&mut self, uses: &[(Memory, Use)]) {
        let last = self.uses.ends(uses).into_iter().max();
        self.waited = self.waited.max(last.map_or(0, |end| end + 1));
        for (memory, own) in self.branches[self.waited..].iter().flatten() {
            let meets = |(other, its): &(Memory, Use)| {
                memory.meets(*other) && [*own, *its].contains(&Use::Written)
            };
            assert!(!uses.iter().any(meets), "{memory:?} is in use");
        }
    }

    fn join(&mut self) {
        self.waited = self.branches.len();
        self.uses = Uses::default();
    }
}

/// Runs a plan as a GPU does, and checks that values are in memory when they are read.
pub(in crate::plan) fn check_memory(plan: &Plan) {
    let gathered = &plan.gathered;
    let mut memories = Memories::default();
    for stage in 0..plan.stage_count() {
        let mut due = gathered.gradients_from(plan, stage);
        for call in plan.calls(stage) {
            // Both values are there.
            let extends = matches!(
                plan.work(call),
                Work::FirstBlades(_) | Work::ExtendBlades { .. }
            );
            if extends || plan.is_idle(call) {
                if extends || plan.shows(call) {
                    memories.show(plan, call);
                }
                continue;
            }
            let chain = plan.chains.led_by(call);
            for &call in chain.map_or(&[call][..], |own| own) {
                let Some(matrices) = gathered.made_before(call) else {
                    continue;
                };
                memories.on_line(&plan.uses_of_matrices(matrices.clone()));
                for own in &gathered.matrices[matrices] {
                    memories.write(plan, own.value);
                }
            }
            let uses = plan.uses(call);
            if plan.forks(call) {
                memories.uses.note(&uses, &memories.branches.len());
                memories.branches.push(uses);
            } else {
                memories.on_line(&uses);
            }
            let is_there = |value: &&Value| !plan.is_absent(**value);
            // A launch reads what all its calls read, but for what they write, and then writes.
            let calls: Vec<usize> = match chain {
                Some(own) => own.clone(),
                None => plan.joined.led_by(call).unwrap_or(call..call + 1).collect(),
            };
            let sums = calls.iter().filter_map(|&call| plan.sum_before(call));
            let sums: Vec<&Node> = sums.collect();
            let written = calls.iter().flat_map(|&call| plan.writes(call));
            let written = written.chain(sums.iter().map(|sum| &sum.outputs[0]));
            let written: Vec<Value> = written.copied().collect();
            let read = calls.iter().flat_map(|&call| plan.reads(call));
            let read = read.chain(sums.iter().flat_map(|sum| &sum.inputs));
            let from_others = read.filter(|value| !written.contains(value));
            for &value in from_others.filter(is_there) {
                memories.read(plan, value, call);
            }
            for sum in sums.iter().filter(|sum| is_there(&&sum.outputs[0])) {
                memories.write(plan, sum.outputs[0]);
            }
            for &call in &calls {
                let values = plan.writes(call).iter().enumerate();
                for (at, &value) in values.filter(|(_, value)| is_there(value)) {
                    match gathered.matrix_of(call) {
                        // It has been there since it was made.
                        Some(_) if at == 1 => memories.read(plan, value, call),
                        _ => memories.write(plan, value),
                    }
                }
            }
            if let Some(gradient) = gathered.gradient_of(call) {
                assert_eq!(due.end, gradient, "in order");
                due.end = gradient + 1;
            }
            if gathered.is_read_behind(call) {
                memories.join();
                for own in &gathered.gradients[std::mem::take(&mut due)] {
                    memories.read(plan, own.value, call);
                    for &(.., value) in &own.parts {
                        memories.write(plan, value);
                    }
                }
                due = gathered.gradients_from(plan, stage);
                due = due.start..due.start;
            }
        }
    }
    for &output in plan.outputs() {
        memories.read(plan, output, plan.call_count());
    }
}

#[test]
fn matrices_and_their_gradients_are_in_memory_while_they_are_needed() {
    for keep in [Keep::All, Keep::BetweenBlocks] {
        let (network, output, gradients) = transformer(keep);
        let all = [&[output], &gradients[..]].concat();
        for stages in [&[&all[..]][..], &[&[output], &gradients]] {
            for gathers in [false, true] {
                check_memory(&plan(&network, stages, gathers));
            }
        }
    }
}

/// The parameters of a layer with these shapes, one after another.
fn joined(network: &mut Network, layer: usize, shapes: &[Vec<usize>]) -> Value {
    let named = shapes.iter().enumerate();
    let parts: Vec<Value> = named
        .map(|(at, shape)| network.parameter(&format!("{layer}.{at}"), shape))
        .collect();
    network.concatenate(&parts).unwrap()
}

/// Three linear layers with their parameters: the network, its result with the gradients of all parameters, and the
/// joined parameters with their gradients.
fn layers(
    mut parameters: impl FnMut(&mut Network, usize, &[Vec<usize>]) -> Value,
) -> (Network, Vec<Value>, Vec<Value>) {
    let geometry = Geometry::gatr().unwrap();
    let (blades, channels) = (geometry.blades(), CHANNELS);
    let axes = [Axis::Rows, Axis::Token { blades, channels }];
    let mut network = Network::new();
    let (mut x, mut all) = (network.input("x", &axes), Vec::new());
    for layer in 0..3 {
        let step = Linear::new(geometry, channels, vec![channels]).unwrap();
        let own = parameters(&mut network, layer, &step.shapes());
        all.push(own);
        x = network.step(Step::Linear(step), &[x, own]).unwrap();
    }
    let seed = network.input("seed", &axes);
    let by = [network.parameters(), &all].concat();
    let pairs = network.gradients_by(x, seed, &by, Keep::All).unwrap();
    let gradients: Vec<Value> = pairs.iter().map(|&(_, gradient)| gradient).collect();
    let (of_parameters, of_joined) = gradients.split_at(network.parameters().len());
    let outputs = [&[x], of_parameters].concat();
    (network, outputs, [&all[..], of_joined].concat())
}

/// The matrices and the gradients that are made together, and the calls that have nothing to do.
fn found(network: &Network, stages: &[&[Value]]) -> [usize; 3] {
    let plan = plan(network, stages, true);
    check_memory(&plan);
    let Gathered {
        matrices,
        gradients,
        ..
    } = &plan.gathered;
    let idle = (0..plan.call_count()).filter(|&call| plan.is_idle(call));
    [matrices.len(), gradients.len(), idle.count()]
}

#[test]
fn what_is_an_output_stays() {
    let (network, outputs, joined) = layers(joined);
    assert_eq!(found(&network, &[&outputs]), [3, 3, 6]);
    // Joined parameters, which are there for that alone.
    let more = [&outputs[..], &joined[..1]].concat();
    assert_eq!(found(&network, &[&more]), [3, 3, 5]);
    // The gradient of all parameters of a layer.
    let more = [&outputs[..], &joined[4..5]].concat();
    assert_eq!(found(&network, &[&more]), [3, 2, 5]);
}

#[test]
fn parameters_of_several_layers_have_a_matrix_each_and_sums_of_gradients() {
    let mut first = None;
    let shared = |network: &mut Network, layer: usize, shapes: &[Vec<usize>]| match layer {
        2 => joined(network, layer, shapes),
        _ => *first.get_or_insert_with(|| joined(network, layer, shapes)),
    };
    let (network, outputs, _) = layers(shared);
    // Only the third gradient is not in a sum. The first two layers share what is joined.
    assert_eq!(found(&network, &[&outputs]), [3, 1, 3]);
    let mut first = Vec::new();
    let shared = |network: &mut Network, layer: usize, shapes: &[Vec<usize>]| {
        if layer == 0 {
            let bias = shapes.last().unwrap();
            first = vec![network.parameter("bias", bias)];
        }
        let mut parts: Vec<Value> = Vec::new();
        for (at, shape) in shapes[..shapes.len() - 1].iter().enumerate() {
            parts.push(network.parameter(&format!("{layer}.{at}"), shape));
        }
        parts.push(match layer {
            1 => network.parameter("1.bias", shapes.last().unwrap()),
            _ => first[0],
        });
        network.concatenate(&parts).unwrap()
    };
    let (network, outputs, _) = layers(shared);
    assert_eq!(found(&network, &[&outputs]), [3, 1, 4]);
}

#[test]
fn parameters_that_come_another_way_stay() {
    let twice = |network: &mut Network, layer: usize, shapes: &[Vec<usize>]| {
        let own = joined(network, layer, shapes);
        match layer {
            1 => network.concatenate(&[own]).unwrap(),
            _ => own,
        }
    };
    let (network, outputs, _) = layers(twice);
    assert_eq!(found(&network, &[&outputs]), [2, 2, 4]);
    // A parameter by itself needs no join, and its gradient is the output.
    let alone = |network: &mut Network, layer: usize, shapes: &[Vec<usize>]| match layer {
        1 => {
            let len = shapes.iter().map(|own| own.iter().product::<usize>()).sum();
            network.parameter("alone", &[len])
        }
        _ => joined(network, layer, shapes),
    };
    let (network, outputs, _) = layers(alone);
    assert_eq!(found(&network, &[&outputs]), [3, 2, 4]);
}

#[test]
fn a_launch_has_so_many_bytes_of_one_stage() {
    let half = MOST_BYTES / 2;
    let all = [
        (0, half),
        (0, half),
        (0, 1),
        (1, 3 * half),
        (1, 1),
        (2, 1),
        (2, 1),
    ];
    let expected = [0..2, 2..3, 3..4, 4..5, 5..7];
    assert_eq!(together(all.into_iter()), expected);
}

#[test]
fn gradients_of_joined_values_are_made_together_without_their_matrices() {
    let mut inner = Vec::new();
    let (mut network, outputs, _) = layers(|network, layer, shapes| {
        inner.push(joined(network, layer, shapes));
        network.concatenate(&inner[layer..]).unwrap()
    });
    let (x, seed) = (outputs[0], network.inputs()[1]);
    let pairs = network.gradients_by(x, seed, &inner, Keep::All).unwrap();
    let gradients = pairs.into_iter().map(|(_, gradient)| gradient);
    let outputs: Vec<Value> = [x].into_iter().chain(gradients).collect();
    assert_eq!(found(&network, &[&outputs]), [0, 3, 3]);
}

/// A linear map of tokens reads parameters that nothing joins, and its gradient writes theirs; on a
/// GPU a matrix of them comes on top.
#[test]
fn maps_move_their_parameters() {
    let (network, output, gradients) = transformer(Keep::All);
    let outputs = [&[output], &gradients[..]].concat();
    // The bytes of the first map, and of its gradient, which comes last. The input has no gradient.
    let ends = |plan: &Plan| {
        let step = |call: usize| match plan.work(call).own() {
            Work::Step(step) => Some(&**step),
            _ => None,
        };
        let is_map = |call: &usize| matches!(step(*call), Some(Step::Linear(_)));
        let mut maps = (0..plan.call_count()).filter(is_map);
        let ends = [maps.next(), maps.next_back()];
        ends.map(|call| plan.size(call.unwrap()).bytes)
    };
    // From one multivector and one scalar to four and eight: nine maps of multivectors, maps of scalars with both, and
    // biases.
    let [from, to] = [16 + 1, 4 * 16 + 8];
    let parameters = 4 * (9 + 1 + 1) + 8 * (1 + 1 + 1);
    let [moved, matrix] = [12 * (from + to) + parameters, (from + 1) * to];
    let apart = network.plan(&outputs, ROWS, [Dtype::F32; 2]).unwrap();
    assert_eq!(ends(&apart), [moved, moved + parameters].map(|len| 4 * len));
    let gathers = plan(&network, &[&outputs], true);
    let of_matrices = [moved + matrix, moved + parameters + 2 * matrix];
    assert_eq!(ends(&gathers), of_matrices.map(|len| 4 * len));
}
