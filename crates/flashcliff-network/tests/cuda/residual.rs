//! Norms that compute the sum in front of them: in f64 with the bits of a sum and a norm. In f32 a kernel that also
//! adds may give its threads fewer channels, and so sum a row in another order.

use flashcliff::cuda::{DeviceElement, MatmulPrecision};
use flashcliff::{Dtype, Element};
use flashcliff_network::tokens::{Channels, Geometry, Lanes, NormOptions, Step};
use flashcliff_network::{Axis, Keep, Network, Plan, Rows};

use crate::compare::{Case, There, Whole, assert_close, assert_same};
use crate::trials::Tests;

pub(crate) fn add(tests: &mut Tests) {
    let geometries = [
        ("gatr", Geometry::gatr().unwrap()),
        ("lgatr", Geometry::lgatr_2().unwrap()),
    ];
    for (name, geometry) in geometries {
        for channels in [Channels::new(3, 5), Channels::new(8, 16)] {
            let Channels {
                multivectors,
                scalars,
            } = channels;
            let title = format!("residual::{name}::{multivectors}_{scalars}");
            tests.add(title, move || {
                let networks = [false, true].map(|apart| case(geometry, channels, apart));
                for keep in [Keep::All, Keep::BetweenBlocks] {
                    compare::<f64>(&networks, keep);
                    compare::<f32>(&networks, keep);
                }
            });
        }
    }
}

/// Three blocks of a residual sum and the norm of the sum. Apart, there is another step between both.
fn case(geometry: Geometry, channels: Channels, apart: bool) -> Case {
    let blades = geometry.blades();
    let axes = [Axis::Rows, Axis::Token { blades, channels }];
    let mut network = Network::new();
    let [first, other] = ["x", "other"].map(|name| network.input(name, &axes));
    let gate = |network: &mut Network, x| {
        let step = Lanes::gated(geometry, channels, geometry.gates()).unwrap();
        network.step(Step::Lanes(step), &[x]).unwrap()
    };
    let mut x = gate(&mut network, first);
    let mut made = gate(&mut network, x);
    for _ in 0..3 {
        network.block();
        let mut more = (!apart).then(|| gate(&mut network, other));
        let sum = network.scaled_sum([x, made], 1.0).unwrap();
        let more = *more.get_or_insert_with(|| gate(&mut network, other));
        let step = Lanes::norm(geometry, channels, NormOptions::default()).unwrap();
        let normed = network.step(Step::Lanes(step), &[sum]).unwrap();
        made = gate(&mut network, normed);
        x = network.scaled_sum([sum, more], 0.5).unwrap();
    }
    let mut more = (!apart).then(|| gate(&mut network, other));
    let last = network.scaled_sum([x, made], 1.0).unwrap();
    let more = *more.get_or_insert_with(|| gate(&mut network, other));
    let last = gate(&mut network, last);
    let output = network.scaled_sum([last, more], 0.5).unwrap();
    let seed = network.input("seed", &axes);
    let mut case = Case::new(network, [output, seed], Rows::new(9, 5));
    case.by = vec![first, other];
    case
}

/// The sums that move nothing by themselves.
fn idle(plan: &Plan) -> usize {
    let is_idle = |call: &usize| plan.is_idle(*call) && plan.work(*call).name() == "scaled_sum";
    (0..plan.call_count()).filter(is_idle).count()
}

fn compare<T: DeviceElement + Element>(networks: &[Case; 2], keep: Keep) {
    let precision = MatmulPrecision::Highest;
    let name = format!("{}, {keep:?}", <T as Element>::DTYPE);
    let [together, apart] = networks.each_ref().map(|case| Whole::new::<T>(case, keep));
    let mut own = There::<T>::new(&apart, precision);
    assert_eq!(idle(own.gpu.plan()), 0, "{name}, apart");
    let expected = own.eager();
    let mut own = There::<T>::new(&together, precision);
    assert!(idle(own.gpu.plan()) >= 3, "{name}, together");
    let got = own.eager();
    match <T as Element>::DTYPE {
        Dtype::F64 => assert_same(&got, &expected, &name),
        _ => assert_close(&got, &expected, 1e-5, &name),
    }
    let (_, captured) = own.captured();
    assert_same(&captured, &got, &format!("{name}, captured"));
    let mut own = There::<T>::in_two_stages(&together, precision);
    assert_same(&own.eager(), &got, &format!("{name}, in two stages"));
}
