//! Tests of networks through their public face.

mod affine;
mod blocks;
mod checks;
mod components;
mod damage;
mod derivatives;
mod files;
mod frames;
mod gradients;
mod graphs;
mod layers;
mod masks;
mod messages;
mod networks;
mod neurons;
mod plans;
mod products;
mod relations;
mod second;
mod settled;
mod simplices;
mod slim;
mod slim_blocks;
mod stages;
mod text;
mod transformers;
