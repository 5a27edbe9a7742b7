//! Second derivatives: a loss on the gradients of any node is an error.

use crate::trials::{Tests, gpu};

#[path = "../common/nodes.rs"]
mod nodes;

pub(crate) fn add(tests: &mut Tests) {
    tests.add("second_derivatives", || nodes::check_all(gpu()));
}
