//! Tests of networks through their public face.

mod checks;
mod gradients;
mod networks;
mod plans;
mod text;
