//! A custom algebra: Cl(2,0,1), whose versors move the plane. No build has its kernels unless it is told to.
//!
//! The program learns the motion between two figures by gradient descent on the three numbers of a bivector, and draws the
//! way there. There are three ways to compute:
//!
//! ```sh
//! # Interpreted: nothing to do.
//! cargo run --release --package flashcliff --example own_signature
//! # Compiled with the library, by the environment of the build.
//! FLASHCLIFF_ALGEBRAS="2,0,1" cargo run --release --package flashcliff --example own_signature
//! # Compiled with this program, by the macro.
//! cargo run --release --package flashcliff --features macros --example own_signature
//! ```

use flashcliff::rotor::{Parity, RotorMap, Rotors};
use flashcliff::{Algebra, Error, Operator, Tensor, TensorMut, ops};

#[cfg(feature = "macros")]
fn motions_of_the_plane() -> Result<Algebra, Error> {
    Ok(flashcliff::algebra!(2, 0, 1))
}

#[cfg(not(feature = "macros"))]
fn motions_of_the_plane() -> Result<Algebra, Error> {
    Algebra::new(flashcliff::Signature::new(2, 0, 1)?)
}

/// The corners of a figure without symmetry, the letter F.
const FIGURE: [[f32; 2]; 8] = [
    [0.0, 0.0],
    [0.0, 1.0],
    [0.0, 2.0],
    [0.0, 3.0],
    [0.0, 4.0],
    [1.0, 4.0],
    [2.0, 4.0],
    [1.0, 2.0],
];
const POINTS: usize = FIGURE.len();

/// Blades are 1, e0, e1, e2, e01, e02, e12, e012, where e0 squares to 0. The point (x, y) is e12 + y e01 - x e02.
fn points(figure: &[[f32; 2]; POINTS]) -> Vec<f32> {
    let mut blades = vec![0.0; 8 * POINTS];
    for (at, [x, y]) in figure.iter().enumerate() {
        blades[4 * POINTS + at] = *y;
        blades[5 * POINTS + at] = -x;
        blades[6 * POINTS + at] = 1.0;
    }
    blades
}

/// The even blades of a motor, once for each point.
fn repeated(motor: &[f32]) -> Vec<f32> {
    let mut blades = vec![0.0; 8 * POINTS];
    for (&blade, &value) in [0, 4, 5, 6].iter().zip(motor) {
        blades[blade * POINTS..][..POINTS].fill(value);
    }
    blades
}

struct Plane {
    rotors: Rotors,
    sandwich: Operator,
}

impl Plane {
    fn exp(&self, bivector: &[f32]) -> Result<[f32; 4], Error> {
        let mut motor = [0.0; 4];
        let b = Tensor::new(bivector, &[3, 1, 1])?;
        let out = TensorMut::new(&mut motor, &[4, 1, 1])?;
        self.rotors.map(RotorMap::Exp, b, out)?;
        Ok(motor)
    }

    /// The motor at a part of the way from rest to a motor.
    fn on_the_way(&self, motor: &[f32; 4], t: f32) -> Result<[f32; 4], Error> {
        let mut between = [0.0; 4];
        let shape = [4, 1, 1];
        self.rotors.interpolate(
            Parity::Even,
            [
                Tensor::new(&[1.0, 0.0, 0.0, 0.0], &shape)?,
                Tensor::new(motor, &shape)?,
            ],
            Tensor::new(&[t], &[1, 1])?,
            TensorMut::new(&mut between, &shape)?,
        )?;
        Ok(between)
    }

    fn moved(&self, motor: &[f32], figure: &[[f32; 2]; POINTS]) -> Result<Vec<f32>, Error> {
        let (motor, points) = (repeated(motor), points(figure));
        let shape = [8, POINTS, 1];
        let inputs = [Tensor::new(&motor, &shape)?, Tensor::new(&points, &shape)?];
        Ok(self.sandwich.evaluate(&inputs)?.output)
    }

    /// The mean squared distance from a target, and its gradient by the bivector.
    fn loss(&self, bivector: &[f32], target: &[f32]) -> Result<(f32, [f32; 3]), Error> {
        let motor = self.exp(bivector)?;
        let (versors, points) = (repeated(&motor), points(&FIGURE));
        let shape = [8, POINTS, 1];
        let inputs = [
            Tensor::new(&versors, &shape)?,
            Tensor::new(&points, &shape)?,
        ];
        let found = self.sandwich.evaluate(&inputs)?;
        let errors = found.output.iter().zip(target).map(|(o, t)| o - t);
        let scale = 1.0 / POINTS as f32;
        let loss = errors.clone().map(|error| scale * error * error).sum();
        let slopes: Vec<f32> = errors.map(|error| 2.0 * scale * error).collect();
        let gradients = self
            .sandwich
            .gradients(&inputs, &found, Tensor::new(&slopes, &shape)?)?;
        // Every point had the same motor, so their gradients are added.
        let of_motor = [0, 4, 5, 6].map(|blade| {
            let own = &gradients[0][blade * POINTS..][..POINTS];
            own.iter().sum::<f32>()
        });
        let mut gradient = [0.0; 3];
        self.rotors.gradient(
            RotorMap::Exp,
            Tensor::new(bivector, &[3, 1, 1])?,
            Tensor::new(&of_motor, &[4, 1, 1])?,
            TensorMut::new(&mut gradient, &[3, 1, 1])?,
        )?;
        Ok((loss, gradient))
    }
}

/// Draws characters at places; a unit is four columns or two rows.
fn draw(places: &[(f32, f32, char)]) {
    let left = places.iter().map(|p| p.0).fold(f32::INFINITY, f32::min);
    let top = places.iter().map(|p| p.1).fold(f32::NEG_INFINITY, f32::max);
    let mut rows: Vec<Vec<char>> = Vec::new();
    for &(x, y, character) in places {
        let (column, row) = ((4.0 * (x - left)) as usize, (2.0 * (top - y)) as usize);
        if rows.len() <= row {
            rows.resize(row + 1, Vec::new());
        }
        if rows[row].len() <= column {
            rows[row].resize(column + 1, ' ');
        }
        rows[row][column] = character;
    }
    for row in rows {
        println!("    {}", row.iter().collect::<String>());
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let algebra = motions_of_the_plane()?;
    let way = match (algebra.is_compiled(), cfg!(feature = "macros")) {
        (false, _) => "interpreted",
        (true, true) => "compiled by the macro, in this program",
        (true, false) => "compiled with the library",
    };
    println!("{}, {way}", algebra.signature());
    let plane = Plane {
        rotors: Rotors::new(algebra)?,
        sandwich: ops::sandwich(algebra, None, None)?,
    };
    let hidden = plane.exp(&[-0.7, -4.2, 0.7])?;
    let target = plane.moved(&hidden, &FIGURE)?;

    let mut bivector = [0.0; 3];
    let mut speed = [0.0; 3];
    let mut last = f32::INFINITY;
    for step in 0..=500 {
        let (loss, gradient) = plane.loss(&bivector, &target)?;
        if step % 100 == 0 {
            println!("step {step:3}  distance {:.1e}", loss.sqrt());
        }
        for ((b, speed), gradient) in bivector.iter_mut().zip(&mut speed).zip(gradient) {
            *speed = 0.9 * *speed - 0.004 * gradient;
            *b += *speed;
        }
        last = loss;
    }

    println!("the way from the figure (0) to its target (4):");
    let motor = plane.exp(&bivector)?;
    let mut places = Vec::new();
    for stage in 0..5_u8 {
        let t = f32::from(stage) / 4.0;
        let moved = plane.moved(&plane.on_the_way(&motor, t)?, &FIGURE)?;
        let digit = char::from(b'0' + stage);
        places.extend((0..POINTS).map(|at| {
            let [x, y] = [-moved[5 * POINTS + at], moved[4 * POINTS + at]];
            (x, y, digit)
        }));
    }
    draw(&places);
    if last.sqrt() > 1e-3 {
        return Err(format!("the motion was not found: the distance is {}", last.sqrt()).into());
    }
    Ok(())
}
