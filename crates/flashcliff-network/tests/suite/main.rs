//! Tests of networks through their public face.

mod blocks;
mod checks;
mod components;
mod files;
mod frames;
mod gradients;
mod layers;
mod masks;
mod networks;
mod plans;
mod products;
mod slim;
mod slim_blocks;
mod stages;
mod text;
mod transformers;
