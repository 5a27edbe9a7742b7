//! The functions of rotors and motors, measured as layers are.
//!
//! A map is one operator in `f64`, an interpolation four; bytes, and so floors, count these operators, without the
//! casts around them.

use candle_core::{Result, Tensor};
use candle_nn::Init;
use flashcliff::rotor::Parity;
use flashcliff_candle::rotors;

use super::layers::{Apply, Input, Layer, Size, of_rotors};

/// The numbers of versors that a layer begins with.
const VERSORS: Init = Init::Uniform { lo: -0.5, up: 0.5 };

/// A function of one multivector.
fn map(size: &Size, map: fn(flashcliff::Algebra, &Tensor) -> Result<Tensor>) -> Apply {
    let algebra = size.algebra;
    Box::new(move |inputs| map(algebra, &inputs[0]))
}

/// All functions of `flashcliff_candle::rotors`, of even versors.
pub(super) const ROTORS: &[Layer] = &[
    of_rotors("rotors::exp", Input::Bivectors, |size, _| {
        Ok(map(size, rotors::exp))
    }),
    of_rotors("rotors::log", Input::Rotors, |size, _| {
        Ok(map(size, rotors::log))
    }),
    of_rotors("rotors::inverse", Input::Rotors, |size, _| {
        Ok(map(size, |algebra, x| {
            rotors::inverse(algebra, Parity::Even, x)
        }))
    }),
    of_rotors("rotors::normalized", Input::Rotors, |size, _| {
        Ok(map(size, |algebra, x| {
            rotors::normalized(algebra, Parity::Even, x)
        }))
    }),
    of_rotors("rotors::interpolate", Input::TwoRotors, |size, _| {
        let algebra = size.algebra;
        Ok(Box::new(move |inputs| {
            rotors::interpolate(algebra, Parity::Even, &inputs[0], &inputs[1], &inputs[2])
        }))
    }),
    of_rotors("rotors::action", Input::Multivectors, |size, vars| {
        let (algebra, channels) = (size.algebra, size.channels);
        let shape = (size.rotor_blades(), channels, channels);
        let versors = vars.get_with_hints(shape, "versors", VERSORS)?;
        let weight = vars.get_with_hints((channels, channels), "weight", VERSORS)?;
        Ok(Box::new(move |inputs| {
            rotors::action(algebra, Parity::Even, None, &inputs[0], &versors, &weight)
        }))
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The functions of the module, as its source has them.
    #[test]
    fn every_function_of_rotors_is_measured() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../flashcliff-candle/src");
        let source = std::fs::read_to_string(format!("{folder}/rotors.rs")).unwrap();
        let names = source.lines().filter_map(|line| {
            let rest = line.strip_prefix("pub fn ")?;
            rest.split(['(', '<']).next()
        });
        let names: Vec<String> = names.map(|name| format!("rotors::{name}")).collect();
        let measured: Vec<&str> = ROTORS.iter().map(|layer| layer.name).collect();
        assert_eq!(names, measured);
    }
}
