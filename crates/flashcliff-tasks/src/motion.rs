//! Bodies that move on from any start, as the programs move them that made the targets of gravity,
//! nbody and nbody5d.

use rayon::prelude::*;

use crate::bodies::{self, DIM, DIM_5D};
use crate::{Task, gravity};

/// How the bodies of a task move.
///
/// ```
/// use flashcliff_tasks::{Sizes, Task};
///
/// let motion = Task::Bodies.motion().expect("charged bodies move");
/// let data = Task::Bodies.generate(Sizes { train: 1, val: 0, test: 0 }, 43)?;
/// let mut bodies: Vec<f64> = data.train.inputs.iter().map(|&x| f64::from(x)).collect();
/// motion.advance(&mut bodies, motion.steps);
/// assert!((bodies[1] - f64::from(data.train.targets[0])).abs() < 1e-3);
/// # Ok::<(), flashcliff_tasks::TaskError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Motion {
    /// Bodies of a sample.
    pub bodies: usize,
    /// Dimension of their space.
    pub dim: usize,
    /// Steps of the simulation from the inputs of a sample to its targets.
    pub steps: usize,
    /// The time of these steps.
    pub time: f64,
    pub(crate) advance: fn(&mut [f64], usize),
}

impl Motion {
    /// Numbers of a body, the row of a sample: mass or charge, position, velocity.
    pub const fn row(&self) -> usize {
        1 + 2 * self.dim
    }

    /// Moves the bodies of samples, `[samples, bodies, row]`, by some steps in `f64`, in parallel
    /// on rayon's current pool. A sample that lacks numbers at the end stays.
    pub fn advance(&self, bodies: &mut [f64], steps: usize) {
        let samples = bodies.par_chunks_exact_mut(self.bodies * self.row());
        samples.for_each(|sample| (self.advance)(sample, steps));
    }
}

impl Task {
    /// How its bodies move; `None` where no sample is bodies that move.
    pub const fn motion(self) -> Option<Motion> {
        match self {
            Self::Gravity => Some(gravity::MOTION),
            Self::Bodies => Some(bodies::motion::<DIM>()),
            Self::Bodies5d => Some(bodies::motion::<DIM_5D>()),
            Self::Hulls | Self::Regression | Self::Volumes | Self::Complexes | Self::Forces => None,
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

    const MOVING: [Task; 3] = [Task::Gravity, Task::Bodies, Task::Bodies5d];

    fn starts(task: Task) -> (Motion, Vec<f64>, Vec<f32>) {
        let test = task.generate(SIZES, 43).unwrap().test;
        let motion = task.motion().unwrap();
        assert_eq!(motion.row(), task.dim());
        let bodies = test.inputs.iter().map(|&x| f64::from(x)).collect();
        (motion, bodies, test.targets)
    }

    /// Targets come from inputs that are not rounded to `f32`, so bodies that meet may end elsewhere. In most samples none do.
    #[test]
    fn the_steps_of_a_target_lead_to_it() {
        for task in MOVING {
            let (motion, mut bodies, targets) = starts(task);
            let before = bodies.clone();
            motion.advance(&mut bodies, motion.steps);
            let ends = bodies.chunks_exact(motion.row());
            let positions = ends.clone().flat_map(|body| &body[1..=motion.dim]);
            let near = positions.zip(&targets);
            let near = near.filter(|(x, target)| (**x - f64::from(**target)).abs() < 1e-3);
            assert!(near.count() * 100 > targets.len() * 97, "{task}");
            let mut moved = ends.zip(before.chunks_exact(motion.row()));
            let speed = 1 + motion.dim;
            assert!(moved.all(|(end, start)| end[0] == start[0] && end[speed..] != start[speed..]));
        }
    }

    #[test]
    fn steps_add_up_bit_for_bit() {
        for task in MOVING {
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
