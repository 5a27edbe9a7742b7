//! Steps that make their matrices together have the bits of steps that make them alone.

use flashcliff::Element;
use flashcliff::cuda::{DeviceElement, MatmulPrecision};
use flashcliff_network::tokens::{Channels, Gains, Geometry, Linear, Step};
use flashcliff_network::{Axis, Keep, Network, Plan, Rows, Value};

use crate::blocks::flat;
use crate::compare::{Case, There, Whole, assert_same};
use crate::trials::Tests;

/// Sides of matrices are whole units, so kernels that leave out zeros have a part in it.
const CHANNELS: Channels = Channels::new(8, 16);
const ROWS: Rows = Rows::new(6, 7);

pub(crate) fn add(tests: &mut Tests) {
    let geometries = [
        ("gatr", Geometry::gatr().unwrap()),
        ("lgatr", Geometry::lgatr_2().unwrap()),
    ];
    for (name, geometry) in geometries {
        for sharing in [Sharing::Nothing, Sharing::All, Sharing::One] {
            let title = format!("gathered::{name}::sharing_{sharing:?}").to_lowercase();
            tests.add(title, move || {
                let networks = [false, true].map(|alone| case(geometry, sharing, alone));
                let (highest, tf32) = (MatmulPrecision::Highest, MatmulPrecision::Tf32);
                for keep in [Keep::All, Keep::BetweenBlocks] {
                    compare::<f64>(&networks, sharing, keep, highest);
                    compare::<f32>(&networks, sharing, keep, highest);
                    compare::<f32>(&networks, sharing, keep, tf32);
                }
            });
        }
    }
}

/// The parameters that the first two blocks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Nothing,
    /// All parameters of their first map.
    All,
    /// One parameter of their first map.
    One,
}

/// Three blocks of a map, gains of heads and another map, in a residual sum. Alone, steps read parameters that are joined twice.
fn case(geometry: Geometry, sharing: Sharing, alone: bool) -> Case {
    let (blades, channels) = (geometry.blades(), CHANNELS);
    let axes = [Axis::Rows, Axis::Token { blades, channels }];
    let mut network = Network::new();
    let first = network.input("x", &axes);
    let joined = |network: &mut Network, own: Value| match alone {
        true => network.concatenate(&[own]).unwrap(),
        false => own,
    };
    let (mut x, mut shared, mut bias) = (first, None, None);
    for block in 0..3 {
        network.block();
        let step = Linear::new(geometry, channels, vec![channels]).unwrap();
        let (shapes, order) = (step.shapes(), step.order());
        let own = match (sharing, block, shared) {
            (Sharing::All, 1, Some(shared)) => shared,
            (Sharing::One, ..) => {
                let mut parts: Vec<Value> = Vec::new();
                for (at, shape) in order.iter().map(|&at| &shapes[at]).enumerate() {
                    let name = format!("block {block}, {at}");
                    parts.push(match (block, at, bias) {
                        (1, 2, Some(bias)) => bias,
                        _ => network.parameter(&name, shape),
                    });
                }
                bias = bias.or(Some(parts[2]));
                let own = network.concatenate(&parts).unwrap();
                joined(&mut network, own)
            }
            _ => {
                let own = flat(&mut network, &shapes, &order);
                joined(&mut network, own)
            }
        };
        shared = shared.or(Some(own));
        let made = network.step(Step::Linear(step), &[x, own]).unwrap();
        let step = Gains::of_heads(geometry, channels, 4);
        let own = flat(&mut network, &step.shapes(), &[0]);
        let own = joined(&mut network, own);
        let made = network.step(Step::Gains(step), &[made, own]).unwrap();
        let step = Linear::beside_scalars(geometry, channels, &[8]).unwrap();
        let own = flat(&mut network, &step.shapes(), &step.order());
        let own = joined(&mut network, own);
        let made = network.step(Step::Linear(step), &[made, own]).unwrap();
        x = network.scaled_sum([x, made], 1.0).unwrap();
    }
    let seed = network.input("seed", &axes);
    let mut case = Case::new(network, [x, seed], ROWS);
    case.by = vec![first];
    case
}

/// The number of calls that join or part parameters, and how many of them have nothing to do.
fn joins(plan: &Plan) -> [usize; 2] {
    let calls = (0..plan.call_count()).filter(|&call| plan.work(call).name() == "concatenate");
    let calls: Vec<usize> = calls.collect();
    let idle = calls.iter().filter(|&&call| plan.is_idle(call));
    [calls.len(), idle.count()]
}

fn compare<T: DeviceElement + Element>(
    networks: &[Case; 2],
    sharing: Sharing,
    keep: Keep,
    precision: MatmulPrecision,
) {
    let name = format!("{}, {keep:?}, {precision:?}", <T as Element>::DTYPE);
    let [together, alone] = networks.each_ref().map(|case| Whole::new::<T>(case, keep));
    let mut own = There::<T>::new(&alone, precision);
    assert_eq!(joins(own.gpu.plan())[1], 0, "{name}, alone");
    let expected = own.eager();
    let mut own = There::<T>::new(&together, precision);
    let [all, idle] = joins(own.gpu.plan());
    match sharing {
        Sharing::Nothing => assert_eq!(idle, all, "{name}, together"),
        // Gradients that are added up are parted.
        _ => assert!(idle > 0 && idle < all, "{name}, together: {idle} of {all}"),
    }
    assert_same(&own.eager(), &expected, &name);
    assert_same(&own.at_stops(), &expected, &format!("{name}, at stops"));
    let (_, captured) = own.captured();
    assert_same(&captured, &expected, &format!("{name}, captured"));
    let mut own = There::<T>::in_two_stages(&together, precision);
    for _ in 0..2 {
        assert_same(&own.eager(), &expected, &format!("{name}, in two stages"));
    }
}
