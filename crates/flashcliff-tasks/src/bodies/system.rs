//! The bodies of one trajectory, in the published program's order of operations.

use std::array::from_fn;

use super::legacy::LegacyRng;
use super::{BODIES, row};

const SPEED: f64 = 0.5;
pub(super) const TIME_STEP: f64 = 0.001;
/// The largest component of a force.
const MAX_FORCE: f64 = 100.0;
/// Half the width of the box that the bodies start in.
const WALL: f64 = 5.0;

/// A number of each body, one axis after the other.
pub(super) type Axes<const D: usize> = [[f64; BODIES]; D];

/// The bodies at one time, in a space of `D` dimensions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct System<const D: usize> {
    pub(super) charges: [f64; BODIES],
    pub(super) positions: Axes<D>,
    pub(super) velocities: Axes<D>,
}

impl<const D: usize> System<D> {
    /// Normal numbers that the program draws after a trajectory, for noise of variance 0 on 49
    /// frames of positions and of velocities.
    const NOISE: usize = 2 * 49 * D * BODIES;

    /// The start of the next trajectory. The stream is then where the trajectory after it begins.
    pub(super) fn draw(rng: &mut LegacyRng) -> Self {
        let charges = from_fn(|_| if rng.uniform() < 0.5 { -1.0 } else { 1.0 });
        let mut normals = || from_fn(|_| from_fn(|_| rng.normal()));
        let mut system = Self {
            charges,
            positions: normals(),
            velocities: normals(),
        };
        rng.skip_normals(Self::NOISE);
        system.scale_velocities();
        system.reflect();
        system
    }

    /// Does to the stream what [`Self::draw`] does.
    pub(super) fn skip(rng: &mut LegacyRng) {
        rng.skip_uniforms(BODIES);
        rng.skip_normals(2 * D * BODIES + Self::NOISE);
    }

    /// The bodies of a sample: the rows of all, one after the other.
    pub(super) fn of(bodies: &[f64]) -> Self {
        let number = |i: usize, at: usize| bodies[i * row(D) + at];
        let axes = |first: usize| from_fn(|axis| from_fn(|i| number(i, first + axis)));
        Self {
            charges: from_fn(|i| number(i, 0)),
            positions: axes(1),
            velocities: axes(1 + D),
        }
    }

    /// Writes positions and velocities to the bodies of a sample.
    pub(super) fn write(&self, bodies: &mut [f64]) {
        for (i, body) in bodies.chunks_exact_mut(row(D)).enumerate() {
            for axis in 0..D {
                body[1 + axis] = self.positions[axis][i];
                body[1 + D + axis] = self.velocities[axis][i];
            }
        }
    }

    fn scale_velocities(&mut self) {
        let squares = squares(&self.velocities);
        for axis in &mut self.velocities {
            *axis = from_fn(|i| axis[i] * SPEED / squares[i].sqrt());
        }
    }

    /// Brings bodies behind a wall back, and turns their velocities inwards.
    fn reflect(&mut self) {
        let positions = self.positions.as_flattened_mut().iter_mut();
        for (x, v) in positions.zip(self.velocities.as_flattened_mut()) {
            if *x > WALL {
                (*x, *v) = (2.0 * WALL - *x, -v.abs());
            }
            if *x < -WALL {
                (*x, *v) = (-2.0 * WALL - *x, v.abs());
            }
        }
    }

    /// Moves the bodies by some steps: a kick, then a drift. There are no walls any more.
    pub(super) fn advance(&mut self, steps: usize) {
        for _ in 0..steps {
            let forces = self.forces();
            let bodies = self.positions.as_flattened_mut().iter_mut();
            let bodies = bodies.zip(self.velocities.as_flattened_mut());
            for ((x, v), force) in bodies.zip(forces.as_flattened()) {
                *v += TIME_STEP * force;
                *x += TIME_STEP * *v;
            }
        }
    }

    fn forces(&self) -> Axes<D> {
        let strengths = self.strengths();
        self.positions.map(|x| {
            from_fn(|i| {
                let pushes = (0..BODIES).map(|j| strengths[i][j] * (x[i] - x[j]));
                pushes.sum::<f64>().clamp(-MAX_FORCE, MAX_FORCE)
            })
        })
    }

    /// `q_i q_j / r_ij^3`, and 0 of a body to itself.
    ///
    /// Squares of distances are `x_i^2 + x_j^2 - 2 x_i . x_j`, whose last product is a chain of fused multiplications
    /// and additions, as that of BLAS on CPUs that have them.
    fn strengths(&self) -> [[f64; BODIES]; BODIES] {
        let squares = squares(&self.positions);
        let mut strengths = [[0.0; BODIES]; BODIES];
        for i in 0..BODIES {
            for j in 0..i {
                let axes = self.positions.iter();
                let dot = axes.fold(0.0, |sum, x| x[i].mul_add(x[j], sum));
                let square = squares[i] + squares[j] - 2.0 * dot;
                let strength = self.charges[i] * self.charges[j] / square.powf(1.5);
                (strengths[i][j], strengths[j][i]) = (strength, strength);
            }
        }
        strengths
    }
}

/// The square of the length of each body's vector.
fn squares<const D: usize>(axes: &Axes<D>) -> [f64; BODIES] {
    from_fn(|i| axes.iter().map(|x| x[i] * x[i]).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts<const D: usize>(seed: u32) -> Vec<System<D>> {
        let mut rng = LegacyRng::new(seed);
        (0..6).map(|_| System::draw(&mut rng)).collect()
    }

    #[test]
    fn walls_reflect_positions_and_turn_velocities_inwards() {
        let mut system = System {
            charges: [1.0; BODIES],
            positions: [[0.0, 5.25, -5.5, 6.0, -5.0]; 3],
            velocities: [[0.1, 0.2, 0.3, -0.4, -0.5]; 3],
        };
        system.reflect();
        assert_eq!(system.positions[2], [0.0, 4.75, -4.5, 4.0, -5.0]);
        assert_eq!(system.velocities[0], [0.1, -0.2, 0.3, -0.4, -0.5]);
    }

    /// The sum over pairs of `q_i q_j / r_ij`.
    fn potential<const D: usize>(system: &System<D>) -> f64 {
        let pairs = (0..BODIES).flat_map(|i| (0..i).map(move |j| (i, j)));
        let energy = |(i, j): (usize, usize)| {
            let along = system.positions.iter().map(|x| (x[i] - x[j]).powi(2));
            system.charges[i] * system.charges[j] / along.sum::<f64>().sqrt()
        };
        pairs.map(energy).sum()
    }

    fn check_forces<const D: usize>() {
        for start in starts::<D>(9) {
            let forces = start.forces();
            let step = 1e-5;
            for (axis, along) in forces.iter().enumerate() {
                assert!(along.iter().sum::<f64>().abs() < 1e-12, "forces cancel");
                for (body, force) in along.iter().enumerate() {
                    let moved = |by: f64| {
                        let mut system = start.clone();
                        system.positions[axis][body] += by;
                        potential(&system)
                    };
                    let slope = (moved(step) - moved(-step)) / (2.0 * step);
                    assert!((force + slope).abs() < 1e-6 * force.abs().max(1.0));
                }
            }
        }
    }

    #[test]
    fn forces_are_the_slopes_of_the_potential() {
        check_forces::<3>();
        check_forces::<5>();
    }

    #[test]
    fn large_forces_are_cut() {
        let mut system = starts::<5>(0).remove(0);
        for axis in 0..5 {
            system.positions[axis][1] = system.positions[axis][0] + 1e-3;
        }
        for along in system.forces() {
            assert_eq!([along[0].abs(), along[1]], [100.0, -along[0]]);
        }
    }
}
