//! The values that have the type of the model.

use crate::network::{Maker, Network};
use crate::work::Work;

/// For each value, whether it has the type of the model, also where features have another: inputs that are not
/// features, parameters and what is made of parameters alone, what a squared error reads and writes, and sums that
/// operators save. Computed values of an operator have one type, and so have values that are added, and values in the
/// memory of others. A gradient has the type of its value.
pub(crate) fn wide(network: &Network) -> Vec<bool> {
    let of_parameters = of_parameters(network);
    let mut wide: Vec<bool> = network
        .values
        .iter()
        .zip(&of_parameters)
        .map(|(info, of_parameters)| *of_parameters || !matches!(info.maker, Maker::Node(_)))
        .collect();
    network.features.iter().for_each(|own| wide[own.0] = false);
    for node in &network.nodes {
        match node.work {
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
    let is_computed = |value: usize| {
        matches!(network.values[value].maker, Maker::Node(_)) && !of_parameters[value]
    };
    loop {
        let mut changed = false;
        for group in groups(network) {
            let own: Vec<usize> = group
                .into_iter()
                .filter(|&value| is_computed(value))
                .collect();
            let count = own.iter().filter(|&&value| wide[value]).count();
            if count > 0 && count < own.len() {
                own.iter().for_each(|&value| wide[value] = true);
                changed = true;
            }
        }
        if !changed {
            return wide;
        }
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

    /// A network with the gradients of a squared error of its output.
    fn trained(layers: MessageLayers, output: crate::Value) -> Network {
        let mut network = layers.network;
        let axes = network.shape(output).unwrap().to_vec();
        let target = network.input("target", &axes);
        let [_, seed] = network.squared_error(output, target).unwrap();
        network.gradients(output, seed, crate::Keep::All).unwrap();
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
            let wide = wide(&network);
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

    #[test]
    fn features_of_simplices_have_the_type_of_features() {
        let [simplices, ..] = networks();
        let wide = wide(&simplices);
        let operators = simplices
            .nodes
            .iter()
            .filter(|node| matches!(node.work, Work::Operator(_)));
        let all: Vec<bool> = operators.map(|node| wide[node.outputs[0].0]).collect();
        assert!(all.len() > 30);
        assert!(all.iter().all(|wide| !wide), "{all:?}");
    }
}
