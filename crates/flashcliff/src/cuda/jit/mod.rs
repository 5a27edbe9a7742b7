//! Kernels that are compiled when they are first used, for algebras and grades that no build has kernels of. Needs the feature
//! `jit`, and NVRTC when the program runs.
//!
//! The generator writes the same functions as in a build, [`source`] joins them with the skeleton, [`compiler`] compiles them, and
//! [`cache`] keeps the code in a folder. Kernels stay loaded for the life of the process.

mod cache;
mod compiler;
mod nvrtc;
mod source;

use std::ffi::{CString, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};
use std::{panic, thread};

use cayley::{Algebra, Signature};
use codegen::emit::cuda::{self as emit, Kernel, Shape, Walker};
use cudarc::driver::result::module;
use cudarc::driver::sys::CUfunc_st;
use flashcliff_program::ir::Digest;
use flashcliff_sys as sys;

use super::device::Device;
use super::fault;
use crate::Error;
use crate::programs::Known;
use cache::Code;
use compiler::{Compiler, Target};

/// Finds NVRTC, so that its absence is known before the first call.
pub(crate) fn check() -> Result<(), Error> {
    Compiler::get().map(drop)
}

/// The key of a loaded kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    digest: Digest,
    is_f64: bool,
    /// The kernel for tensors with strides; `None`: those for contiguous ones.
    walker: Option<Walker>,
    capability: (i32, i32),
}

/// The key of loaded kernels of path products.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BlocksKey {
    signature: Signature,
    variants: &'static [usize],
    capability: (i32, i32),
}

/// Kernels that are loaded, with their keys.
pub(super) struct Loaded<K, T>(Mutex<Vec<(K, NonNull<T>)>>);

// SAFETY: kernels are never freed, and the library or the driver synchronises the state that it keeps for them.
unsafe impl<K: Send, T> Sync for Loaded<K, T> {}

impl<K: PartialEq, T> Loaded<K, T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The kernels of a key. Threads that ask for the same at once may both make them; the first ones stay.
    pub(super) fn get_or_make(
        &self,
        key: K,
        make: impl FnOnce() -> Result<NonNull<T>, Error>,
    ) -> Result<NonNull<T>, Error> {
        if let Some(known) = self.find(&key) {
            return Ok(known);
        }
        let made = make()?;
        if let Some(known) = self.find(&key) {
            return Ok(known);
        }
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.push((key, made));
        Ok(made)
    }

    fn find(&self, key: &K) -> Option<NonNull<T>> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = list.iter();
        list.find(|(known, _)| known == key).map(|(_, made)| *made)
    }
}

/// The kernels of a program in one arithmetic, for GPUs of a compute capability: those for contiguous tensors, or one
/// for tensors with strides. `operator` is for messages.
pub(crate) fn kernels(
    operator: &str,
    program: &Known,
    is_f64: bool,
    walker: Option<Walker>,
    capability: (i32, i32),
) -> Result<NonNull<sys::fc_kernel>, Error> {
    static LOADED: Loaded<Key, sys::fc_kernel> = Loaded::new();
    let key = Key {
        digest: program.digest(),
        is_f64,
        walker,
        capability,
    };
    LOADED.get_or_make(key, || {
        let name = format!(
            "{operator} ({}, {})",
            program.source().name,
            if is_f64 { "f64" } else { "f32" },
        );
        let single = match walker {
            None => emit::single(program.source(), is_f64),
            Some(walker) => emit::strided(program.source(), walker),
        };
        let single = single.map_err(too_large(&name))?;
        // Rows that are copied ahead in f32, as in a build, and kernels that start beside the end of the kernel
        // before take the special instructions of 90a.
        let special = walker.is_some() || !(single.shape.is_pointwise || is_f64);
        let target = Target::of(capability, special);
        let kernels: Vec<&[Kernel]> = single.kernels.chunks(1).collect();
        let codes = compile(&name, &single.text, &kernels, target)?;
        let mut image = sys::fc_image {
            codes: [ptr::null(); _],
            functions: [ptr::null(); _],
            shape: shape(&single.shape),
            pointwise: single.shape.is_pointwise.into(),
            walks: single.tiles.is_some().into(),
            tiles: single.tiles.unwrap_or_default().map(number),
            wide: walker.map_or(0, |walker| walker.wide),
            is_f64: is_f64.into(),
        };
        for (kernel, code) in single.kernels.iter().zip(&codes) {
            image.codes[kernel.variant] = address(&code.image);
            image.functions[kernel.variant] = code.names[0].as_ptr();
        }
        let mut made = ptr::null();
        // SAFETY: code and names live during the call, which copies the code.
        let done = unsafe { sys::fc_load(&raw const image, &raw mut made) };
        fault::kernel("fc_load", done)?;
        NonNull::new(made.cast_mut()).ok_or_else(|| unreachable!("a kernel without error is there"))
    })
}

/// The kernels of path products for tensors of some types. `variants` are the variants of `flashcliff-sys` that such calls take.
pub(crate) fn blocks(
    algebra: &Algebra,
    variants: &'static [usize],
    capability: (i32, i32),
) -> Result<NonNull<sys::fc_block_kernels>, Error> {
    static LOADED: Loaded<BlocksKey, sys::fc_block_kernels> = Loaded::new();
    let key = BlocksKey {
        signature: algebra.signature(),
        variants,
        capability,
    };
    LOADED.get_or_make(key, || {
        let name = format!("path products of {}", algebra.signature());
        let blocks = emit::blocks(algebra).map_err(too_large(&name))?;
        let kernels: Vec<&[Kernel]> = variants.iter().map(|v| &blocks.kernels[*v][..]).collect();
        let target = Target::of(capability, false);
        let codes = compile(&name, &blocks.text, &kernels, target)?;
        let mut image = sys::fc_block_image {
            codes: [ptr::null(); _],
            functions: [[ptr::null(); _]; _],
            channels: blocks.channels.map(number),
            paths: number(blocks.paths),
        };
        for (&variant, code) in variants.iter().zip(&codes) {
            image.codes[variant] = address(&code.image);
            for (kernel, name) in blocks.kernels[variant].iter().zip(&code.names) {
                image.functions[variant][kernel.variant] = name.as_ptr();
            }
        }
        let mut made = ptr::null();
        // SAFETY: code and names live during the call, which copies the code.
        let done = unsafe { sys::fc_block_load(&raw const image, &raw mut made) };
        fault::kernel("fc_block_load", done)?;
        NonNull::new(made.cast_mut()).ok_or_else(|| unreachable!("kernels without error are there"))
    })
}

/// The kernels of a text that includes nothing, compiled now or read from the cache, and loaded on a device whose context is current.
/// Modules are never unloaded. `name` is for messages.
pub(super) fn text(
    name: &str,
    text: &str,
    expressions: &[&str],
    device: &Device,
) -> Result<Vec<NonNull<CUfunc_st>>, Error> {
    let target = Target::of(device.compute_capability(), false);
    load(&Compiler::get()?.code(name, text, expressions, target)?)
}

/// The kernel of a text that includes files of the skeleton, as [`text`].
pub(super) fn of_skeleton(
    name: &str,
    text: &str,
    expression: &str,
    device: &Device,
) -> Result<NonNull<CUfunc_st>, Error> {
    let target = Target::of(device.compute_capability(), true);
    let code = Compiler::get()?.code(name, &source::whole(text), &[expression], target)?;
    match load(&code)?[..] {
        [kernel] => Ok(kernel),
        _ => unreachable!("one expression has one kernel"),
    }
}

/// The kernels of code, loaded into the current context.
fn load(code: &Code) -> Result<Vec<NonNull<CUfunc_st>>, Error> {
    // SAFETY: the code is that of the compiler, which ends it by a zero byte, and the context is current.
    let module = unsafe { module::load_data(code.image.as_ptr().cast()) };
    let module = module.map_err(fault::driver("cuModuleLoadData"))?;
    let kernel = |name: &CString| {
        // SAFETY: the module is loaded, and the name is that of a kernel in it.
        let found = unsafe { module::get_function(module, name.clone()) };
        let found = found.map_err(fault::driver("cuModuleGetFunction"))?;
        NonNull::new(found).ok_or_else(|| unreachable!("a function without error is there"))
    };
    code.names.iter().map(kernel).collect()
}

/// Compiles groups of kernels of one text at once, or reads their code from the cache.
fn compile(
    name: &str,
    text: &str,
    groups: &[&[Kernel]],
    target: Target,
) -> Result<Vec<Code>, Error> {
    let compiler = Compiler::get()?;
    let text = source::whole(text);
    let one = |kernels: &[Kernel]| {
        let expressions: Vec<&str> = kernels.iter().map(|k| k.expression.as_str()).collect();
        compiler.code(name, &text, &expressions, target)
    };
    thread::scope(|scope| {
        let running: Vec<_> = groups
            .iter()
            .map(|kernels| scope.spawn(|| one(kernels)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(code) => code,
            Err(panicked) => panic::resume_unwind(panicked),
        };
        running.into_iter().map(join).collect()
    })
}

fn shape(shape: &Shape) -> sys::fc_shape {
    fn list<const N: usize>(numbers: &[usize]) -> [i32; N] {
        let mut list = [0; N];
        for (own, &given) in list.iter_mut().zip(numbers) {
            *own = number(given);
        }
        list
    }
    sys::fc_shape {
        lanes: number(shape.lanes),
        threads: number(shape.threads),
        params_shared: shape.params_shared.into(),
        inputs: number(shape.inputs.len()),
        outputs: number(shape.outputs.len()),
        params: number(shape.params.len()),
        sums: number(shape.sums.len()),
        input_components: list(&shape.inputs),
        output_components: list(&shape.outputs),
        param_counts: list(&shape.params),
        sum_counts: list(&shape.sums),
        saved_sums: number(shape.saved_row_sums),
        row_sums: number(shape.row_sums),
        reductions: number(shape.reductions),
        scalar_inputs: shape.scalars[0],
        scalar_outputs: shape.scalars[1],
        scalar_params: shape.scalars[2],
        scalar_sums: shape.scalars[3],
        row_values: number(shape.row_values),
        totals: number(shape.totals),
    }
}

/// A number of components or threads, which is far below 2^31.
fn number(count: usize) -> i32 {
    count as i32
}

fn address(image: &[u8]) -> *const c_void {
    image.as_ptr().cast()
}

/// The error of a program that kernels have no room for.
pub(crate) fn too_large(name: &str) -> impl Fn(codegen::Error) -> Error {
    move |error| Error::CudaCompilation {
        kernel: name.to_owned(),
        reason: error.to_string(),
    }
}
