//! Damaged files of networks: what can be loaded can be planned and run, and nothing panics.

use flashcliff::Dtype;
use flashcliff_network::file::{self, Conversion, Stored};
use flashcliff_network::tokens::{Geometry, Transformer};
use flashcliff_network::{Scales, Value};

use crate::files::{
    ROWS, bytes, converted, of_all_nodes, small, transformer, transformers, with_network,
};
use crate::networks::numbers;
use crate::runs::run;

/// The ordinary tests of damage take one case in so many, the long ones all.
const SHARE: usize = 11;

#[test]
fn a_share_of_damaged_headers_never_panics() {
    damaged_headers_never_panic(SHARE);
}

#[test]
#[ignore = "takes minutes: all cases"]
fn no_damaged_header_panics() {
    damaged_headers_never_panic(1);
}

/// Bytes of the header, with each bit and with all bits flipped. What can be loaded can be planned and run. Programs
/// of transformers are long, and of one form with the short one of all nodes, so one in 16 of their bytes is enough.
fn damaged_headers_never_panic(share: usize) {
    let geometry = Geometry::gatr().unwrap();
    let one = Transformer {
        blocks: 1,
        ..small(geometry)
    };
    for (made, step) in [(of_all_nodes(), 1), (transformer(&one), 16)] {
        let good = bytes(&made);
        let len = 8 + u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
        let text = String::from_utf8_lossy(&good[8..len]);
        let key = |name: &str| 8 + text.find(&format!("\\\"{name}\\\":")).unwrap();
        let programs = key("operators")..key("nodes");
        assert!(programs.len() > 100, "{programs:?}");
        let mut loaded = 0;
        let is_taken = |at: &usize| !programs.contains(at) || at.is_multiple_of(step);
        let flips = (0..8).map(|bit| 1 << bit).chain([0xff]);
        let cases = (0..len)
            .filter(is_taken)
            .flat_map(|at| flips.clone().map(move |flipped| (at, flipped)));
        for (at, flipped) in cases.step_by(share) {
            let mut bad = good.clone();
            bad[at] ^= flipped;
            let Ok(stored) = file::read(bad) else {
                continue;
            };
            loaded += 1;
            assert_runs(&stored);
        }
        // Names and a few numbers can be others.
        assert!(loaded > 100 / share, "{loaded}");
    }
}

/// The places of all numbers in JSON.
fn pointers(json: &serde_json::Value, at: &str, found: &mut Vec<String>) {
    match json {
        serde_json::Value::Number(_) => found.push(at.to_owned()),
        serde_json::Value::Array(list) => {
            for (index, own) in list.iter().enumerate() {
                pointers(own, &format!("{at}/{index}"), found);
            }
        }
        serde_json::Value::Object(map) => {
            for (key, own) in map {
                pointers(own, &format!("{at}/{key}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn a_share_of_other_numbers_never_panics() {
    other_numbers_never_panic(SHARE);
}

#[test]
#[ignore = "takes minutes: all cases"]
fn no_other_number_panics() {
    other_numbers_never_panic(1);
}

/// Numbers of a network become others: nothing, few, many, no whole number. One in 16 is enough of long programs, as above.
fn other_numbers_never_panic(share: usize) {
    use serde_json::json;
    let one = |options: Transformer| {
        transformer(&Transformer {
            blocks: 1,
            ..options
        })
    };
    let transformers = transformers().into_iter().map(|options| (one(options), 16));
    let made = transformers.chain([(of_all_nodes(), 1)]);
    let others = [
        json!(0),
        json!(1),
        json!(2),
        json!(3),
        json!(1 << 20),
        json!((1_u64 << 32) - 1),
        json!(u64::MAX),
        json!(-1),
        json!(0.5),
        json!(1e300),
    ];
    for (made, step) in made {
        let good = bytes(&made);
        let mut places = Vec::new();
        with_network(&good, |network| pointers(network, "", &mut places));
        let is_taken =
            |(at, place): (usize, &String)| !place.starts_with("/operators") || at % step == 0;
        let mut at = 0..;
        places.retain(|place| at.next().is_some_and(|at| is_taken((at, place))));
        assert!(places.len() > 100);
        let cases = places
            .iter()
            .flat_map(|place| others.iter().map(move |other| (place, other)));
        for (place, other) in cases.step_by(share) {
            let bad = with_network(&good, |network| {
                if let Some(number) = network.pointer_mut(place) {
                    *number = other.clone();
                }
            });
            if let Ok(stored) = file::read(bad) {
                assert_runs(&stored);
            }
        }
    }
}

/// Plans and runs what was loaded, unless it is a network that no plan has.
fn assert_runs(stored: &Stored) {
    let network = stored.network();
    let outputs: Vec<Value> = stored.outputs().iter().map(|own| own.1).collect();
    let Ok(plan) = network.plan(&outputs, ROWS, [Dtype::F32; 2]) else {
        return;
    };
    let parameters = stored.parameters::<f32>(Conversion::Rounded).unwrap();
    let inputs = converted::<f32>(&numbers(network, network.inputs(), ROWS, 5));
    run(&plan, [&inputs, &parameters], Scales::default());
}
