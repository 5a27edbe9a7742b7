//! The extension module `flashcliff._core`: the operators of [`flashcliff`] for Python.
//!
//! This crate knows no tensor of any framework. Tensors come as addresses with shapes and element types. The Python
//! modules above know who owns the memory, and on which stream it may be used. Errors of the library become Python
//! exceptions, and so would a panic.

mod algebra;
#[cfg(feature = "cuda")]
mod attention;
mod convert;
#[cfg_attr(not(feature = "cuda"), path = "without_cuda.rs")]
mod cuda;
#[cfg(feature = "cuda")]
mod devices;
mod dlpack;
mod error;
mod host;
mod jax;
mod lion;
mod logging;
mod messages;
mod native;
mod network;
mod operator;
#[cfg(feature = "cuda")]
mod optim;
mod options;
mod places;
mod program;
mod rotor;
mod runs;
mod segments;
mod slots;
mod threads;
mod triton;

use pyo3::prelude::*;

/// The compiled half of flashcliff. Use the package `flashcliff` instead.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    logging::start(module)?;
    threads::set_default(py)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("CUDA", cfg!(feature = "cuda"))?;
    module.add("UnsupportedError", py.get_type::<error::UnsupportedError>())?;
    module.add("CudaError", py.get_type::<error::CudaError>())?;
    module.add_class::<algebra::Algebra>()?;
    module.add_class::<operator::Operator>()?;
    module.add_class::<program::Program>()?;
    module.add_class::<slots::Slots>()?;
    module.add_class::<network::TokenGeometry>()?;
    module.add_class::<network::Network>()?;
    module.add_class::<network::NetworkFunction>()?;
    module.add_class::<network::NetworkPlan>()?;
    module.add_class::<network::StoredNetwork>()?;
    module.add_function(wrap_pyfunction!(network::network_file, module)?)?;
    #[cfg(feature = "cuda")]
    module.add_class::<attention::Attention>()?;
    #[cfg(feature = "cuda")]
    module.add_class::<segments::on_cuda::Segments>()?;
    #[cfg(feature = "cuda")]
    module.add_class::<messages::on_cuda::Messages>()?;
    #[cfg(feature = "cuda")]
    module.add_class::<optim::Optimiser>()?;
    module.add_class::<dlpack::Array>()?;
    module.add_function(wrap_pyfunction!(dlpack::read_dlpack, module)?)?;
    module.add_function(wrap_pyfunction!(algebra::shipped, module)?)?;
    module.add_function(wrap_pyfunction!(threads::get_num_threads, module)?)?;
    module.add_function(wrap_pyfunction!(threads::set_num_threads, module)?)?;
    module.add_function(wrap_pyfunction!(threads::after_fork, module)?)?;
    module.add_function(wrap_pyfunction!(places::addresses, module)?)?;
    module.add_function(wrap_pyfunction!(host::tier, module)?)?;
    module.add_function(wrap_pyfunction!(host::check_room, module)?)?;
    module.add_function(wrap_pyfunction!(lion::lion_step, module)?)?;
    module.add_function(wrap_pyfunction!(messages::run_messages, module)?)?;
    module.add_function(wrap_pyfunction!(segments::run_segments, module)?)?;
    module.add_function(wrap_pyfunction!(segments::run_kept, module)?)?;
    module.add_function(wrap_pyfunction!(rotor::rotor_operator, module)?)?;
    module.add_function(wrap_pyfunction!(native::native_table, module)?)?;
    module.add_function(wrap_pyfunction!(jax::jax_handlers, module)?)?;
    module.add_function(wrap_pyfunction!(jax::jax_layout, module)?)?;
    module.add_function(wrap_pyfunction!(jax::jax_prepare, module)?)?;
    module.add_function(wrap_pyfunction!(jax::jax_prepare_network, module)?)?;
    Ok(())
}
