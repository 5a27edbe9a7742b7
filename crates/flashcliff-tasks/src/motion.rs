//! Bodies that move on from any start, as the programs move them that made the targets of gravity and nbody.

use rayon::prelude::*;

use crate::{Task, bodies, gravity};

/// A body, as the row of a sample: mass or charge, position, velocity.
pub type Body = [f64; 7];

/// How the bodies of a task move.
///
/// ```
/// use flashcliff_tasks::{Body, Sizes, Task};
///
/// let motion = Task::Bodies.motion().expect("charged bodies move");
/// let data = Task::Bodies.generate(Sizes { train: 1, val: 0, test: 0 }, 43)?;
/// let rows = data.train.inputs.as_chunks().0.iter();
/// let mut bodies: Vec<Body> = rows.map(|row: &[f32; 7]| row.map(f64::from)).collect();
/// motion.advance(&mut bodies, motion.steps);
/// assert!((bodies[0][1] - f64::from(data.train.targets[0])).abs() < 1e-3);
/// # Ok::<(), flashcliff_tasks::TaskError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Motion {
    /// Bodies of a sample.
    pub bodies: usize,
    /// Steps of the simulation from the inputs of a sample to its targets.
    pub steps: usize,
    /// The time of these steps.
    pub time: f64,
    pub(crate) advance: fn(&mut [Body], usize),
}

impl Motion {
    /// Moves the bodies of samples, one sample after the other, by some steps in `f64`, in parallel on rayon's current pool. A sample that lacks
    /// bodies at the end stays.
    pub fn advance(&self, bodies: &mut [Body], steps: usize) {
        let samples = bodies.par_chunks_exact_mut(self.bodies);
        samples.for_each(|sample| (self.advance)(sample, steps));
    }
}

impl Task {
    /// How its bodies move; `None` where no sample is bodies that move.
    pub const fn motion(self) -> Option<Motion> {
        match self {
            Self::Gravity => Some(gravity::MOTION),
            Self::Bodies => Some(bodies::MOTION),
            Self::Hulls | Self::Regression | Self::Volumes | Self::Complexes => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sizes;

    const SIZES: Sizes = Sizes {
        train: 1,
        val: 0,
        test: 40,
    };

    fn starts(task: Task) -> (Motion, Vec<Body>, Vec<f32>) {
        let test = task.generate(SIZES, 43).unwrap().test;
        let rows = test.inputs.as_chunks().0.iter();
        let bodies = rows.map(|row: &[f32; 7]| row.map(f64::from)).collect();
        (task.motion().unwrap(), bodies, test.targets)
    }

    /// Targets come from inputs that are not rounded to `f32`, so bodies that meet may end elsewhere. In most samples none do.
    #[test]
    fn the_steps_of_a_target_lead_to_it() {
        for task in [Task::Gravity, Task::Bodies] {
            let (motion, mut bodies, targets) = starts(task);
            let before = bodies.clone();
            motion.advance(&mut bodies, motion.steps);
            let positions = bodies.iter().flat_map(|body| &body[1..4]);
            let near = positions.zip(&targets);
            let near = near.filter(|(x, target)| (**x - f64::from(**target)).abs() < 1e-3);
            assert!(near.count() * 100 > targets.len() * 97, "{task}");
            let moved = bodies.iter().zip(&before);
            assert!(moved.clone().all(|(end, start)| end[0] == start[0]));
            assert!(moved.clone().all(|(end, start)| end[4..] != start[4..]));
        }
    }

    #[test]
    fn steps_add_up_bit_for_bit() {
        for task in [Task::Gravity, Task::Bodies] {
            let (motion, mut at_once, _) = starts(task);
            let mut in_parts = at_once.clone();
            motion.advance(&mut at_once, motion.steps);
            for _ in 0..10 {
                motion.advance(&mut in_parts, motion.steps / 10);
            }
            assert_eq!(at_once, in_parts, "{task}");
        }
        assert!(Task::Hulls.motion().is_none());
    }
}
