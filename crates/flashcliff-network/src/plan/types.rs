//! The values that have the type of the model.

use crate::network::{Maker, Network};
use crate::work::Work;

/// For each value whether it has the type of the model, also where features have another: inputs but those of features, parameters and what is
/// made of parameters alone, what a squared error reads and writes, and sums that operators save. Computed values of an operator have one type,
/// and so have values in the memory of others. A gradient has the type of its value.
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
