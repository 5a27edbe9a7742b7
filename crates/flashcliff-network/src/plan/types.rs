//! The values that have the type of the model.

use crate::network::{Maker, Network, Set};
use crate::tokens::Step;
use crate::work::Work;
use crate::{Error, Value};

/// Whether kernels have tokens of 16 bits that a step on items of a set reads, and tokens that it writes.
pub(crate) type Takes16Bits<'a> = dyn Fn(&Step, Set) -> Result<[bool; 2], Error> + 'a;

/// For each value, whether it has the type of the model, also where features have another: inputs that are not
/// features, parameters and what is made of parameters alone, what a squared error reads and writes, and sums that
/// operators save. Computed values of an operator have one type, and so have values that are added, and values in the
/// memory of others. A gradient has the type of its value.
///
/// Tokens have the type of the model too, but for those between steps that take 16 bits: sums of tokens, which pass
/// whole networks, keep their digits, and so do outputs.
pub(crate) fn wide(
    network: &Network,
    outputs: &[Value],
    takes_16_bits: Option<&Takes16Bits<'_>>,
) -> Result<Vec<bool>, Error> {
    let of_parameters = of_parameters(network);
    let mut wide: Vec<bool> = network
        .values
        .iter()
        .zip(&of_parameters)
        .map(|(info, of_parameters)| *of_parameters || !matches!(info.maker, Maker::Node(_)))
        .collect();
    network.features.iter().for_each(|own| wide[own.0] = false);
    for node in &network.nodes {
        match &node.work {
            Work::SquaredError => {
                let ends = node.inputs.iter().chain(&node.outputs);
                ends.for_each(|end| wide[end.0] = true);
            }
            Work::Operator(_) | Work::Step(_) => {
                let saved = node.outputs.iter().filter(|own| network.is_saved(**own));
                saved.for_each(|own| wide[own.0] = true);
            }
            _ => {}
        }
    }
    let of_steps = Tokens::new(network);
    of_steps.widen(network, outputs, takes_16_bits, &mut wide)?;
    let is_computed = |value: usize| {
        matches!(network.values[value].maker, Maker::Node(_)) && !of_parameters[value]
    };
    let groups = groups(network).into_iter().map(|group| {
        let computed = group.into_iter().filter(|&value| is_computed(value));
        computed.collect::<Vec<usize>>()
    });
    let groups: Vec<Vec<usize>> = groups.chain(of_steps.alike).collect();
    loop {
        let mut changed = false;
        for group in &groups {
            let count = group.iter().filter(|&&value| wide[value]).count();
            if count > 0 && count < group.len() {
                group.iter().for_each(|&value| wide[value] = true);
                changed = true;
            }
        }
        if !changed {
            return Ok(wide);
        }
    }
}

/// The tokens of steps.
struct Tokens {
    /// Tokens that one kernel reads or writes as one type: of a step, of the same step that runs again, and of its gradient.
    alike: Vec<Vec<usize>>,
    /// Values that are tokens of a step, in its forward pass.
    are_tokens: Vec<bool>,
}

impl Tokens {
    fn new(network: &Network) -> Self {
        let (mut alike, mut are_tokens) = (Vec::new(), vec![false; network.values.len()]);
        for node in &network.nodes {
            let origin = &network.nodes[node.origin];
            match (&node.work, &origin.work) {
                (Work::Step(_), _) => {
                    let ends = [node.inputs[0].0, node.outputs[0].0];
                    ends.iter().for_each(|&end| are_tokens[end] = true);
                    alike.push(vec![ends[0], origin.inputs[0].0]);
                    alike.push(vec![ends[1], origin.outputs[0].0]);
                }
                (Work::Gradient(gradient), Work::Step(step)) => {
                    let given = node.inputs[step.read_by_gradient() + 1];
                    alike.push(vec![given.0, origin.outputs[0].0]);
                    if gradient.wanted[0] {
                        alike.push(vec![node.outputs[0].0, origin.inputs[0].0]);
                    }
                }
                _ => {}
            }
        }
        Self { alike, are_tokens }
    }

    /// Widens the tokens that steps do not take in 16 bits, or that other nodes read or write, such as sums; outputs; and what
    /// steps read and write beside tokens.
    fn widen(
        &self,
        network: &Network,
        outputs: &[Value],
        takes_16_bits: Option<&Takes16Bits<'_>>,
        wide: &mut [bool],
    ) -> Result<(), Error> {
        let is_token = |own: &&Value| self.are_tokens[own.0];
        let mut all: Vec<usize> = outputs.iter().filter(is_token).map(|own| own.0).collect();
        for node in &network.nodes {
            let origin = &network.nodes[node.origin];
            match (&node.work, &origin.work) {
                (Work::Step(step), _) => {
                    let set = network.set_of(node.outputs[0]).unwrap_or(Set::Items);
                    let taken = takes_16_bits.map_or(Ok([false; 2]), |taken| taken(step, set))?;
                    let ends = [node.inputs[0], node.outputs[0]].into_iter().zip(taken);
                    all.extend(ends.filter(|(_, taken)| !taken).map(|(end, _)| end.0));
                    all.extend(node.inputs[1..].iter().map(|own| own.0));
                }
                (Work::Gradient(gradient), Work::Step(_)) => {
                    let first = usize::from(gradient.wanted[0]);
                    all.extend(node.outputs[first..].iter().map(|own| own.0));
                }
                (Work::Gradient(_), _) => {}
                (work, _) => {
                    let ends = || node.inputs.iter().chain(&node.outputs);
                    // The last sum of a network is read by no step, which would tell that it is of tokens.
                    let is_sum =
                        matches!(work, Work::ScaledSum(_)) && ends().any(|own| is_token(&own));
                    let own = ends().filter(|own| is_sum || is_token(own));
                    all.extend(own.map(|own| own.0));
                }
            }
        }
        all.into_iter().for_each(|value| wide[value] = true);
        Ok(())
    }
}

/// Values of one type.
fn groups(network: &Network) -> Vec<Vec<usize>> {
    let mut groups = Vec::new();
    for node in &network.nodes {
        let has_one_type = matches!(
            node.work,
            Work::Operator(_)
                | Work::FirstBlades(_)
                | Work::ExtendBlades { .. }
                | Work::Gather(_)
                | Work::SegmentSum(_)
                | Work::Join(_)
                | Work::Split(_)
                | Work::BladesToChannels
                | Work::ChannelsToBlades(_)
        );
        if has_one_type {
            let ends = node.inputs.iter().chain(&node.outputs);
            let ends = ends.filter(|own| !network.is_saved(**own));
            groups.push(ends.map(|value| value.0).collect());
        }
        if matches!(node.work, Work::ScaledSum(_)) {
            groups.push(node.inputs.iter().map(|value| value.0).collect());
        }
    }
    for (value, info) in network.values.iter().enumerate() {
        groups.extend(info.gradient_of.map(|of| vec![value, of.0]));
    }
    groups
}

/// For each value whether a node makes it of parameters alone.
fn of_parameters(network: &Network) -> Vec<bool> {
    let mut own = vec![false; network.values.len()];
    for node in &network.nodes {
        let of_parameters = node.inputs.iter().all(|input| {
            own[input.0] || matches!(network.values[input.0].maker, Maker::Parameter(_))
        });
        for output in &node.outputs {
            own[output.0] |= of_parameters;
        }
    }
    // The gradient of such a value has its type.
    for (value, info) in network.values.iter().enumerate() {
        if let Some(of) = info.gradient_of {
            let is_parameter = matches!(network.values[of.0].maker, Maker::Parameter(_));
            own[value] |= own[of.0] || is_parameter;
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{AffineHulls, Bodies, MessageLayers, SimplicialHulls};
    use crate::plan::gathered::tests::transformer;
    use crate::tokens::{Attention, Channels, Geometry, Linear};
    use crate::{Axis, Keep};

    /// A network with the gradients of a squared error of its output.
    fn trained(layers: MessageLayers, output: crate::Value) -> Network {
        let mut network = layers.network;
        let axes = network.shape(output).unwrap().to_vec();
        let target = network.input("target", &axes);
        let [_, seed] = network.squared_error(output, target).unwrap();
        network.gradients(output, seed, Keep::All).unwrap();
        network
    }

    fn networks() -> [Network; 3] {
        let (simplices, ends) = SimplicialHulls::default().on_skeletons().unwrap();
        let (bodies, of_bodies) = Bodies::default().layers().unwrap();
        let (affine, of_affine) = AffineHulls::default().layers().unwrap();
        [
            trained(simplices, ends.volumes),
            trained(bodies, of_bodies.positions),
            trained(affine, of_affine.volumes),
        ]
    }

    #[test]
    fn values_that_are_added_have_one_type() {
        for network in networks() {
            let wide = wide(&network, &[], None).unwrap();
            let sums = network
                .nodes
                .iter()
                .filter(|node| matches!(node.work, Work::ScaledSum(_)) && node.inputs.len() == 2);
            let mut count = 0;
            for node in sums {
                let [x, y] = [node.inputs[0], node.inputs[1]].map(|own| wide[own.0]);
                assert_eq!(x, y, "{:?}", network.name(node.outputs[0]));
                count += 1;
            }
            assert!(count > 0);
        }
    }

    /// Maps and programs take tokens of 16 bits on both sides, attention reads them.
    fn takes(step: &Step, _: Set) -> Result<[bool; 2], Error> {
        Ok(match step {
            Step::Linear(_) | Step::Lanes(_) => [true; 2],
            Step::Attention(_) => [true, false],
            _ => [false; 2],
        })
    }

    /// Checks the types of tokens, and gives back how many results of steps have 16 bits, and how many gradients.
    fn check(network: &Network, outputs: &[Value]) -> [usize; 2] {
        let types = wide(network, outputs, Some(&takes)).unwrap();
        let is_wide = |value: Value| types[value.0];
        assert!(outputs.iter().all(|own| is_wide(*own)));
        let mut narrow = [0; 2];
        for node in &network.nodes {
            let origin = &network.nodes[node.origin];
            let ends = [origin.inputs[0], origin.outputs[0]].map(is_wide);
            match (&node.work, &origin.work) {
                (Work::Step(step), _) => {
                    let own = [node.inputs[0], node.outputs[0]].map(is_wide);
                    let taken = takes(step, Set::Items).unwrap();
                    assert!(own.iter().zip(taken).all(|(wide, taken)| *wide || taken));
                    // A step that runs again has the types of its first run.
                    assert_eq!(own, ends);
                    assert!(node.inputs[1..].iter().all(|own| is_wide(*own)));
                    narrow[0] += usize::from(!own[1]);
                }
                (Work::Gradient(gradient), Work::Step(step)) => {
                    let given = node.inputs[step.read_by_gradient() + 1];
                    assert_eq!(is_wide(given), ends[1]);
                    if gradient.wanted[0] {
                        assert_eq!(is_wide(node.outputs[0]), ends[0]);
                        narrow[1] += usize::from(!ends[0]);
                    }
                }
                (Work::ScaledSum(_), _) => {
                    let all = node.inputs.iter().chain(&node.outputs);
                    assert!(all.copied().all(is_wide), "a sum");
                }
                _ => {}
            }
        }
        narrow
    }

    #[test]
    fn tokens_between_steps_that_take_16_bits_are_narrow() {
        for keep in [Keep::All, Keep::BetweenBlocks, Keep::Maps] {
            let (network, output, gradients) = transformer(keep);
            let narrow = check(&network, &[&[output], &gradients[..]].concat());
            // Each of three blocks has two norms, and values between its maps and products.
            assert!(narrow.iter().all(|count| *count >= 3 * 5), "{narrow:?}");
        }
    }

    /// Attention reads the tokens of a context as `f32`, and gradients of inputs have the type of these.
    #[test]
    fn a_context_and_gradients_of_inputs_are_wide() {
        let (geometry, channels) = (Geometry::lgatr_2().unwrap(), Channels::new(2, 4));
        let blades = geometry.blades();
        let token = Axis::Token { blades, channels };
        let mut network = Network::new();
        let x = network.input("x", &[Axis::Rows, token]);
        let context = network.input("context", &[Axis::ContextRows, token]);
        let seed = network.input("seed", &[Axis::Rows, token]);
        let linear = |network: &mut Network, x: Value, input, layers: &[Channels]| {
            let step = Linear::new(geometry, input, layers.to_vec()).unwrap();
            let own = network.parameter("own", &[step.lens().iter().sum()]);
            network.step(Step::Linear(step), &[x, own]).unwrap()
        };
        let attention = Attention::new(geometry, 2, channels, true).crossing();
        let [query, key, value] = attention.parts();
        let queries = linear(&mut network, x, channels, &[query]);
        let keys = linear(&mut network, context, channels, &[key, value]);
        let attended = network.step(Step::Attention(attention), &[queries, keys]);
        let all = channels.times(2);
        let y = linear(&mut network, attended.unwrap(), all, &[channels]);
        // The queries alone.
        assert_eq!(check(&network, &[y]), [1, 0]);
        let by = [&[x, context], network.parameters()].concat();
        let pairs = network.gradients_by(y, seed, &by, Keep::All).unwrap();
        let gradients = pairs.into_iter().map(|(_, gradient)| gradient);
        let outputs: Vec<Value> = [y].into_iter().chain(gradients).collect();
        assert_eq!(check(&network, &outputs), [1, 1]);
    }

    /// No step reads the sum.
    #[test]
    fn a_sum_that_is_the_result_is_wide() {
        let (geometry, channels) = (Geometry::lgatr_2().unwrap(), Channels::new(2, 4));
        let blades = geometry.blades();
        let mut network = Network::new();
        let x = network.input("x", &[Axis::Rows, Axis::Token { blades, channels }]);
        let mut y = x;
        for _ in 0..2 {
            let step = Linear::new(geometry, channels, vec![channels]).unwrap();
            let own = network.parameter("own", &[step.lens().iter().sum()]);
            y = network.step(Step::Linear(step), &[y, own]).unwrap();
        }
        let y = network.scaled_sum([x, y], 1.0).unwrap();
        assert_eq!(check(&network, &[y]), [1, 0]);
    }

    #[test]
    fn tokens_are_wide_where_no_kernel_takes_others() {
        let (network, output, _) = transformer(Keep::All);
        let types = wide(&network, &[output], None).unwrap();
        for node in &network.nodes {
            if matches!(node.work, Work::Step(_)) {
                assert!(types[node.inputs[0].0] && types[node.outputs[0].0]);
            }
        }
    }

    #[test]
    fn features_of_simplices_have_the_type_of_features() {
        let [simplices, ..] = networks();
        let wide = wide(&simplices, &[], None).unwrap();
        let operators = simplices
            .nodes
            .iter()
            .filter(|node| matches!(node.work, Work::Operator(_)));
        let all: Vec<bool> = operators.map(|node| wide[node.outputs[0].0]).collect();
        assert!(all.len() > 30);
        assert!(all.iter().all(|wide| !wide), "{all:?}");
    }
}
