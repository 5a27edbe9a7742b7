//! Bodies that the network, the simulation and simple motions move from the same starts.

use std::array::from_fn;

use flashcliff_tasks::Motion;
use serde::Serialize;

use super::flow::{Bodies, Flow, Vector, position, velocity};
use crate::error::Error;

/// The points of a true trajectory in a step.
pub(super) const POINTS: usize = 10;

/// The squared errors of positions, in the mean over coordinates and bodies of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Squared {
    /// The mean over samples.
    pub(super) mean: f64,
    /// The median over samples.
    pub(super) median: f64,
}

/// The errors after a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Errors {
    pub(super) step: usize,
    pub(super) time: f64,
    /// The network.
    pub(super) model: Squared,
    /// The simulation with the velocities of the rule.
    pub(super) rule: Squared,
    /// Bodies that keep the velocities of the start.
    pub(super) straight: Squared,
    /// Bodies that stay.
    pub(super) still: Squared,
}

/// The bodies of a sample that are drawn: the places of each, one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Trajectory<const D: usize> {
    pub(super) truth: Vec<Vec<Vector<D>>>,
    pub(super) model: Vec<Vec<Vector<D>>>,
}

/// Samples that move.
#[derive(Debug)]
pub(super) struct Walk<const D: usize> {
    motion: Motion,
    step: usize,
    start: Bodies<D>,
    truth: Bodies<D>,
    model: Bodies<D>,
    rule: Bodies<D>,
    drawn: Vec<Trajectory<D>>,
}

impl<const D: usize> Walk<D> {
    /// Samples at their start, of which the first ones are drawn.
    pub(super) fn new(motion: Motion, start: Bodies<D>, drawn: usize) -> Self {
        let places = start.positions();
        let samples = places.chunks_exact(motion.bodies).take(drawn);
        let begin = |sample: &[Vector<D>]| {
            let places: Vec<_> = sample.iter().map(|&place| vec![place]).collect();
            Trajectory {
                truth: places.clone(),
                model: places,
            }
        };
        Self {
            motion,
            step: 0,
            drawn: samples.map(begin).collect(),
            truth: start.clone(),
            model: start.clone(),
            rule: start.clone(),
            start,
        }
    }

    /// One step of all.
    pub(super) fn step(&mut self, flow: &Flow) -> Result<Errors, Error> {
        let Motion { steps, time, .. } = self.motion;
        for _ in 0..POINTS {
            self.motion.advance(&mut self.truth.0, steps / POINTS);
            let lines = self.drawn.iter_mut().flat_map(|drawn| &mut drawn.truth);
            record(lines, &self.truth);
        }
        let predicted = flow.positions(&self.model.0)?;
        follow(&mut self.model, &predicted, time);
        let lines = self.drawn.iter_mut().flat_map(|drawn| &mut drawn.model);
        record(lines, &self.model);
        let mut exact = self.rule.clone();
        self.motion.advance(&mut exact.0, steps);
        follow(&mut self.rule, &exact.positions(), time);
        self.step += 1;
        Ok(self.errors())
    }

    /// The bodies that are drawn, so far.
    pub(super) fn trajectories(&self) -> &[Trajectory<D>] {
        &self.drawn
    }

    fn errors(&self) -> Errors {
        let time = self.step as f64 * self.motion.time;
        let truth = self.truth.positions();
        let error = |places: &[Vector<D>]| {
            let samples = places.chunks_exact(self.motion.bodies);
            let truths = truth.chunks_exact(self.motion.bodies);
            Squared::of(samples.zip(truths).map(|(places, truth)| {
                let pairs = places.as_flattened().iter().zip(truth.as_flattened());
                let squares = pairs.map(|(x, truth)| (x - truth).powi(2));
                squares.sum::<f64>() / (D * truth.len()) as f64
            }))
        };
        let straight = self.start.rows().map(|body| moved(body, time));
        let straight: Vec<Vector<D>> = straight.collect();
        Errors {
            step: self.step,
            time,
            model: error(&self.model.positions()),
            rule: error(&self.rule.positions()),
            straight: error(&straight),
            still: error(&self.start.positions()),
        }
    }
}

impl Squared {
    /// Of the errors of samples.
    fn of(samples: impl Iterator<Item = f64>) -> Self {
        let mut samples: Vec<f64> = samples.collect();
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        samples.sort_by(f64::total_cmp);
        let median = samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN);
        Self { mean, median }
    }
}

/// Adds the places of bodies to their trajectories. Bodies of samples that are not drawn have none.
fn record<'a, const D: usize>(
    lines: impl Iterator<Item = &'a mut Vec<Vector<D>>>,
    bodies: &Bodies<D>,
) {
    for (line, body) in lines.zip(bodies.rows()) {
        line.push(position(body));
    }
}

/// Where a body is after some time if it keeps its velocity.
fn moved<const D: usize>(body: &[f64], time: f64) -> Vector<D> {
    let (x, v): (Vector<D>, Vector<D>) = (position(body), velocity(body));
    from_fn(|axis| x[axis] + time * v[axis])
}

/// Puts bodies at the places that they have after some time, with velocities by the rule.
fn follow<const D: usize>(bodies: &mut Bodies<D>, places: &[Vector<D>], time: f64) {
    let rows = bodies.0.chunks_exact_mut(Bodies::<D>::ROW);
    for (body, place) in rows.zip(places) {
        for (axis, x) in place.iter().enumerate() {
            body[1 + D + axis] = (x - body[1 + axis]) / time;
            body[1 + axis] = *x;
        }
    }
}
