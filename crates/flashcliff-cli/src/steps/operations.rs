//! The operations of recorded steps, in order.

use std::sync::Arc;

use flashcliff_bench::steps::OperationTimes;
use flashcliff_candle::timeline::{Operation, Timeline};

use crate::profile::measure::mean;

/// The operations of a step in order, with their seconds.
pub(super) type List = Vec<(Arc<Operation>, f64)>;

pub(super) fn total(list: &[(Arc<Operation>, f64)]) -> f64 {
    list.iter().map(|(_, seconds)| seconds).sum()
}

/// The list of steps that have the same operations.
pub(super) fn mean_of(steps: &[List]) -> List {
    let first = steps.first().cloned().unwrap_or_default();
    let place = |(index, (operation, _)): (usize, (Arc<Operation>, f64))| {
        let all: Vec<f64> = steps.iter().map(|step| step[index].1).collect();
        (operation, mean(&all))
    };
    first.into_iter().enumerate().map(place).collect()
}

/// The operations of a recorded step.
pub(super) fn in_order(timeline: &Timeline) -> List {
    let mut list = List::new();
    for slice in timeline.slices() {
        let same = list.iter_mut().rev();
        let same = same.filter(|(operation, _)| *operation == slice.operation);
        let known = same.take(usize::from(!slice.begins)).next();
        match known {
            Some((_, seconds)) => *seconds += slice.seconds,
            None => list.push((slice.operation.clone(), slice.seconds)),
        }
    }
    list
}

/// The operations with their seconds for each batch. Those that are equal at the largest batch are added up.
pub(super) fn together(batches: &[List]) -> Vec<OperationTimes> {
    let mut made: Vec<(Arc<Operation>, OperationTimes)> = Vec::new();
    let largest = batches.last().map(Vec::as_slice).unwrap_or_default();
    for (place, (operation, _)) in largest.iter().enumerate() {
        // A step has the same operations at every batch.
        let at = |list: &List| list.get(place).map_or(0.0, |(_, seconds)| *seconds);
        let seconds: Vec<f64> = batches.iter().map(at).collect();
        if let Some((_, times)) = made.iter_mut().find(|(known, _)| known == operation) {
            let pairs = times.seconds.iter_mut().zip(&seconds);
            pairs.for_each(|(sum, seconds)| *sum += seconds);
            continue;
        }
        let phase = operation.phase.map_or("", flashcliff::Pass::name);
        let times = OperationTimes {
            operator: operation.operator.clone(),
            algebra: operation.algebra.clone(),
            phase: phase.to_owned(),
            shapes: operation.shapes.clone(),
            seconds,
        };
        made.push((operation.clone(), times));
    }
    made.into_iter().map(|(_, times)| times).collect()
}
