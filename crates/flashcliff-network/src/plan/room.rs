//! Whether a process can have the memory of a plan's values.

use flashcliff::memory;

use crate::network::{Extent, Network, Rows, Set, in_words};
use crate::work::Work;
use crate::{Axis, Error};

/// The most bytes of a plan: sums of a few such numbers are still addresses.
const MOST_BYTES: u128 = 1 << 60;

/// Checks the sizes of all values, and of what steps keep, before anything is computed from them.
pub(super) fn check(network: &Network, rows: Rows) -> Result<(), Error> {
    let mut bytes = 0_u128;
    for info in &network.values {
        let Extent::Shape(axes) = &info.extent else {
            continue;
        };
        let own = bytes_of(axes, rows);
        bytes = bytes.saturating_add(own);
        if bytes > MOST_BYTES {
            return Err(no_room(&format!("{} {}", info.name, in_words(axes)), own));
        }
    }
    for node in &network.nodes {
        if let Work::Step(step) = &node.work {
            // A step on the context keeps as much of its rows.
            let sets = [Set::Items, Set::Context].map(|set| step.kept(set));
            let [own, context] = [0, 1].map(|at| sets[0][at].max(sets[1][at]));
            let own = bytes_of(&[Axis::Fixed(own), Axis::Rows], rows);
            let context = bytes_of(&[Axis::Fixed(context), Axis::ContextRows], rows);
            let kept = own.saturating_add(context);
            bytes = bytes.saturating_add(kept);
            if bytes > MOST_BYTES {
                return Err(no_room(step.name(), kept));
            }
        }
    }
    Ok(())
}

/// The bytes of a value in the widest type.
fn bytes_of(axes: &[Axis], rows: Rows) -> u128 {
    let size = |axis: &Axis| match axis {
        Axis::Rows => (rows.samples as u128).saturating_mul(rows.items as u128),
        Axis::ContextRows => (rows.samples as u128).saturating_mul(rows.context as u128),
        axis => axis.size(rows) as u128,
    };
    axes.iter().map(size).fold(8, u128::saturating_mul)
}

fn no_room(what: &str, wanted: u128) -> Error {
    let remedy = "make the batch smaller".to_owned();
    Error::Core(memory::no_room(what.to_owned(), wanted, None, remedy))
}
