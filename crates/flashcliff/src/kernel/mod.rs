//! Running kernels over whole tensors: [`lanes`] is the skeleton that runs a program, [`tasks`] spreads
//! chunks of rows over threads, [`rows`] copies rows out of scratch memory. The kernels themselves are in
//! `flashcliff-kernels`.

pub(crate) mod lanes;
pub(crate) mod rows;
pub(crate) mod tasks;
pub(crate) mod vectors;
