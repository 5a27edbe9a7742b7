//! Gated nonlinearities, as a program.

use flashcliff::program::{Function, Program, Width};
use flashcliff::{Gate, Operator, ProgramOptions};

use super::programs::{blades, gelu_tanh_gate, one};
use super::{Channels, Geometry, Lanes};
use crate::Error;

impl Lanes {
    /// Multivectors times GELU of their scalar blade in its tanh form, and GELU of scalars, exact or in that form too.
    ///
    /// # Errors
    /// [`Error::Geometry`] for [vectors](Geometry::slim).
    pub fn gated(geometry: Geometry, channels: Channels) -> Result<Self, Error> {
        geometry.check_multivectors("a gate by the scalar blade")?;
        let algebra = geometry.algebra;
        let mut p = Program::new("scalar_gate", "o = gelu(x_0) x, t = gelu(s)");
        let all = 0..geometry.blades();
        let x = (channels.multivectors > 0).then(|| p.input("x", blades(algebra, all.clone())));
        let s = (channels.scalars > 0).then(|| p.input_of(Width::Scalars, "s", one())[0]);
        if let Some(x) = x {
            let g = &mut p.graph;
            let gate = gelu_tanh_gate(g, x[0]);
            let gate = g.mul(gate, x[0]);
            let o = x.iter().map(|&x| g.mul(x, gate)).collect();
            p.output("o", blades(algebra, all), o);
        }
        if let Some(s) = s {
            let g = &mut p.graph;
            let gate = match geometry.tanh_scalars {
                true => gelu_tanh_gate(g, s),
                // The gate of the operator is the normal distribution function.
                false => g.call(Function::Gate { order: 0 }, s),
            };
            let t = g.mul(s, gate);
            p.output_of(Width::Scalars, "t", one(), vec![t]);
        }
        let options = ProgramOptions {
            gate: Gate::Gelu,
            ..ProgramOptions::default()
        };
        let operator = Operator::of(algebra, &p, &options)?;
        Self::new(operator, geometry.blades(), channels)
    }
}
