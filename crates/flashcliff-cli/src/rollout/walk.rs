//! Bodies that the network, the simulation and simple motions move from the same starts.

use std::array::from_fn;

use flashcliff_tasks::{Body, Motion};
use serde::Serialize;

use super::flow::{Flow, Vector, position};
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
pub(super) struct Trajectory {
    pub(super) truth: Vec<Vec<Vector>>,
    pub(super) model: Vec<Vec<Vector>>,
}

/// Samples that move.
#[derive(Debug)]
pub(super) struct Walk {
    motion: Motion,
    step: usize,
    start: Vec<Body>,
    truth: Vec<Body>,
    model: Vec<Body>,
    rule: Vec<Body>,
    drawn: Vec<Trajectory>,
}

impl Walk {
    /// Samples at their start, of which the first ones are drawn.
    pub(super) fn new(motion: Motion, start: Vec<Body>, drawn: usize) -> Self {
        let samples = start.chunks_exact(motion.bodies).take(drawn);
        let begin = |sample: &[Body]| {
            let places: Vec<_> = sample.iter().map(|body| vec![position(body)]).collect();
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
    ///
    /// # Errors
    /// The errors of candle.
    pub(super) fn step(&mut self, flow: &Flow) -> Result<Errors, Error> {
        let Motion { steps, time, .. } = self.motion;
        for _ in 0..POINTS {
            self.motion.advance(&mut self.truth, steps / POINTS);
            let lines = self.drawn.iter_mut().flat_map(|drawn| &mut drawn.truth);
            record(lines, &self.truth);
        }
        let predicted = flow.positions(&self.model)?;
        follow(&mut self.model, &predicted, time);
        let lines = self.drawn.iter_mut().flat_map(|drawn| &mut drawn.model);
        record(lines, &self.model);
        let mut exact = self.rule.clone();
        self.motion.advance(&mut exact, steps);
        follow(&mut self.rule, &places(&exact), time);
        self.step += 1;
        Ok(self.errors())
    }

    /// The bodies that are drawn, so far.
    pub(super) fn trajectories(&self) -> &[Trajectory] {
        &self.drawn
    }

    fn errors(&self) -> Errors {
        let time = self.step as f64 * self.motion.time;
        let error = |places: &[Vector]| {
            let samples = places.chunks_exact(self.motion.bodies);
            let truths = self.truth.chunks_exact(self.motion.bodies);
            Squared::of(samples.zip(truths).map(|(places, truth)| {
                let pairs = places.iter().zip(truth).flat_map(|(x, body)| {
                    let truth = position(body);
                    from_fn::<f64, 3, _>(|axis| (x[axis] - truth[axis]).powi(2))
                });
                pairs.sum::<f64>() / (3 * truth.len()) as f64
            }))
        };
        let straight: Vec<Vector> = self.start.iter().map(|body| moved(body, time)).collect();
        Errors {
            step: self.step,
            time,
            model: error(&places(&self.model)),
            rule: error(&places(&self.rule)),
            straight: error(&straight),
            still: error(&places(&self.start)),
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

/// Adds the places of bodies to their trajectories. Those of samples that are not drawn have none.
fn record<'a>(lines: impl Iterator<Item = &'a mut Vec<Vector>>, bodies: &[Body]) {
    for (line, body) in lines.zip(bodies) {
        line.push(position(body));
    }
}

fn places(bodies: &[Body]) -> Vec<Vector> {
    bodies.iter().map(position).collect()
}

/// Where a body is after some time if it keeps its velocity.
fn moved(body: &Body, time: f64) -> Vector {
    from_fn(|axis| body[1 + axis] + time * body[4 + axis])
}

/// Puts bodies at the places that they have after some time, with velocities by the rule.
fn follow(bodies: &mut [Body], places: &[Vector], time: f64) {
    for (body, place) in bodies.iter_mut().zip(places) {
        for (axis, x) in place.iter().enumerate() {
            body[4 + axis] = (x - body[1 + axis]) / time;
            body[1 + axis] = *x;
        }
    }
}
