//! Chains on a GPU: programs of rows and products with matrices, one after another on a tile of rows, in one kernel.
//!
//! What one part makes for the next one stays in shared memory, and what others read is written to memory too. Products are of `f32`
//! that is rounded to TF32, with sums in `f32`; all else is `f32`. Results are the same bit for bit every time.
//!
//! Needs the feature `jit`: a kernel is compiled when its chain is made.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{self, NonNull};

use codegen::emit::cuda::{
    self as emit, ChainPart as EmittedPart, ChainSlot, fits_in_chain, tensors_in_chain,
};
use cudarc::driver::result::{device as driver_device, function};
use cudarc::driver::sys::{self as driver, CUfunc_st};
use flashcliff_program::ir::{Argument, Program, Returned};
use flashcliff_sys as sys;

use super::device::Device;
use super::fault;
use super::items::Target;
use super::jit::{self, Loaded};
use super::launches;
use crate::cuda::Address;
use crate::operator::lane::cuda::gate_code;
use crate::{Error, Operator};

/// The threads of a CTA.
const THREADS: c_uint = 32 * Chain::WARPS as c_uint;

/// Rows in shared memory, of a tile. The rows `g` and `g + 8` alternate, number by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainTile {
    /// The first number, a multiple of four.
    pub first: usize,
    /// The numbers of a row and of the gap after it, so that rows have different banks.
    pub row_stride: usize,
}

impl ChainTile {
    /// A tile of rows of so many numbers from a place on.
    pub fn new(first: usize, width: usize) -> Self {
        Self {
            first,
            // Threads that read neighbouring rows then read other banks.
            row_stride: (width + 7) / 16 * 16 + 8,
        }
    }

    /// The numbers of so many rows.
    pub fn len(&self, rows: usize) -> usize {
        rows * self.row_stride
    }

    /// The tile from a column on.
    #[must_use]
    pub fn columns_from(self, column: usize) -> Self {
        Self {
            // Two rows alternate.
            first: self.first + 2 * column,
            ..self
        }
    }
}

/// A tensor of a program: parts of rows in memory, of rows in shared memory, or of both. Channels are neighbours.
#[derive(Clone, Copy, Debug)]
pub struct ChainTensor {
    /// The address, if it is in memory. A parameter, or numbers of rows, always are.
    pub memory: Option<Address>,
    /// The elements in memory from a row to the next.
    pub row_stride: usize,
    /// The elements from a blade to the next, in both.
    pub blade_stride: usize,
    /// The place in shared memory.
    pub tile: Option<ChainTile>,
    /// Whether products alone read an output in shared memory, where it is rounded then.
    pub rounds: bool,
}

/// A program on rows.
#[derive(Clone, Debug)]
pub struct ChainProgram<'a> {
    /// The operator, which [fits](Chain::fits).
    pub operator: &'a Operator,
    /// The channels, and the scalar channels.
    pub channels: [usize; 2],
    /// The inputs of the operator.
    pub inputs: Vec<ChainTensor>,
    /// The outputs of the operator.
    pub outputs: Vec<ChainTensor>,
}

/// Rows of a matrix that are copied to shared memory and rounded.
#[derive(Clone, Copy, Debug)]
pub struct ChainCopy {
    /// The address of the rows, aligned to 16 bytes.
    pub from: Address,
    /// The numbers of a row, a multiple of two, without gaps.
    pub width: usize,
    /// Where they go.
    pub to: ChainTile,
}

/// A product with a matrix.
#[derive(Clone, Copy, Debug)]
pub struct ChainProduct<'a> {
    /// The rounded rows.
    pub from: ChainTile,
    /// The weights in the order of steps, rounded, aligned to 16 bytes: [`Chain::STEP`] for each, and as many after the last for two more.
    pub weights: Address,
    /// The bias `[outputs]`, aligned to 16 bytes; `None` for none.
    pub bias: Option<Address>,
    /// The table of items, aligned to 8 bytes: `fc::ChainProduct` in `chain.cuh` has its layout.
    pub items: Address,
    /// The items and steps of each warp, as `fc::ChainProduct` says.
    pub warps: &'a [[i32; 4]; Chain::WARPS],
    /// Where the result goes in memory, if it does: rows without gaps of so many numbers, a multiple of four.
    pub memory: Option<(Address, usize)>,
    /// Where the result goes in shared memory, if it does.
    pub tile: Option<ChainTile>,
    /// Whether products alone read it there, where it is rounded then.
    pub rounds: bool,
}

/// A part of a chain.
#[derive(Clone, Debug)]
pub enum ChainPart<'a> {
    /// Rows of a matrix are copied.
    Copy(ChainCopy),
    /// A program.
    Program(ChainProgram<'a>),
    /// A product.
    Product(ChainProduct<'a>),
}

/// A chain whose kernel is compiled.
#[derive(Debug)]
pub struct Chain {
    kernel: NonNull<CUfunc_st>,
    shared_bytes: usize,
    /// The most CTAs that are worth to launch.
    ctas: usize,
    /// The rows of a tile.
    rows: usize,
}

// SAFETY: a function of a module that is never unloaded.
unsafe impl Send for Chain {}
// SAFETY: as above; launches do not change it.
unsafe impl Sync for Chain {}

/// The key of a loaded kernel.
#[derive(PartialEq, Eq)]
struct Key {
    text: String,
    expression: String,
    device: usize,
}

#[repr(C)]
struct RawProgram {
    eps: f32,
    inv_channels: f32,
    gate: sys::fc_gate,
    unused: i32,
}

#[repr(C)]
struct RawCopy {
    from: Address,
    width: i32,
    shared: i32,
    shared_row: i32,
    unused: i32,
}

#[repr(C)]
struct RawProduct {
    weights: Address,
    bias: Address,
    items: Address,
    memory: Address,
    row: i64,
    shared: i32,
    shared_row: i32,
    from: i32,
    from_row: i32,
    warps: [[i32; 4]; Chain::WARPS],
}

impl Chain {
    /// The rows that a tile may have.
    pub const ROWS: [usize; 2] = [32, 16];
    /// The warps of a CTA, each of which has some columns of a product.
    pub const WARPS: usize = 16;
    /// The columns of a unit of a product.
    pub const UNIT: usize = 8;
    /// The most pairs of units with the same weights that a warp takes together.
    pub const MEMBERS: usize = 2;
    /// The weights of a step.
    pub const STEP: usize = 256;
    /// The bit of a unit of inputs whose weights have the other sign.
    pub const NEGATIVE: i64 = 0x8000;
    /// A unit of outputs that is not there.
    pub const NONE: i64 = 0xffff;
    /// The columns of a matrix, at most.
    pub const COLUMNS: usize = 8 << 14;

    /// Whether an operator may be a part of a chain: it is one program, which computes outputs of lanes alone.
    pub fn fits(operator: &Operator) -> bool {
        operator.lanes().is_some_and(|lanes| {
            let source = lanes.program().source();
            let most = sys::FC_MAX_TENSORS as usize;
            fits_in_chain(source) && source.inputs.len() <= most && source.outputs.len() <= most
        })
    }

    /// The bytes of shared memory that a tile may have.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn most_bytes(device: &Device) -> Result<usize, Error> {
        use driver::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN as OF_CTA;
        attribute(device, OF_CTA)
    }

    /// The multiprocessors of a device, each of which has one tile at a time.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn multiprocessors(device: &Device) -> Result<usize, Error> {
        use driver::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as COUNT;
        attribute(device, COUNT)
    }

    /// The source of the kernel of a chain in CUDA C++, for tiles of so many rows, and the kernel in it.
    ///
    /// # Errors
    /// [`Error::CudaCompilation`] for a program that kernels have no room for.
    pub fn source(parts: &[ChainPart<'_>], rows: usize) -> Result<[String; 2], Error> {
        let emitted: Vec<EmittedPart<'_>> = parts.iter().map(emitted).collect();
        let made = emit::chain(&emitted, rows).map_err(jit::too_large("a chain"))?;
        Ok([made.text, made.expression])
    }

    /// Compiles the kernel of a chain, whose addresses are not read, for tiles of [so many](Self::ROWS) rows that take so much shared
    /// memory.
    ///
    /// # Errors
    /// [`Error::CudaLibrary`] without NVRTC, [`Error::CudaCompilation`], [`Error::Cuda`].
    pub fn new(
        device: &Device,
        parts: &[ChainPart<'_>],
        (rows, shared_bytes): (usize, usize),
    ) -> Result<Self, Error> {
        static LOADED: Loaded<Key, CUfunc_st> = Loaded::new();
        let [text, expression] = Self::source(parts, rows)?;
        device.make_current()?;
        let key = Key {
            text: text.clone(),
            expression: expression.clone(),
            device: device.ordinal(),
        };
        let kernel = LOADED.get_or_make(key, || {
            jit::of_skeleton("a chain", &text, &expression, device)
        })?;
        let bytes = c_int::try_from(shared_bytes).unwrap_or(c_int::MAX);
        let most =
            driver::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // Chains of one text have the same tiles. SAFETY: the function is loaded, and its context is current.
        let set = unsafe { function::set_function_attribute(kernel.as_ptr(), most, bytes) };
        set.map_err(fault::driver("cuFuncSetAttribute"))?;
        Ok(Self {
            kernel,
            shared_bytes,
            ctas: Self::multiprocessors(device)?,
            rows,
        })
    }

    /// Launches the chain on so many rows. The parts are the parts of [`Self::new`], with addresses.
    ///
    /// Nothing waits, nothing is allocated, and the call can be captured into a CUDA graph.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Safety
    /// Addresses are of memory on the device of the target that holds what the parts say, until the work on the
    /// stream is done. What is written overlaps nothing but what the same rows of an earlier part have written.
    pub unsafe fn run(
        &self,
        target: Target<'_>,
        rows: usize,
        parts: &[ChainPart<'_>],
    ) -> Result<(), Error> {
        if rows == 0 {
            return Ok(());
        }
        let mut call = raw(rows, parts);
        let mut arguments = [call.as_mut_ptr().cast::<c_void>()];
        target.device.make_current()?;
        // SAFETY: all zeros are an attribute without meaning.
        let mut in_turn: driver::CUlaunchAttribute = unsafe { std::mem::zeroed() };
        in_turn.id =
            driver::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        in_turn.value.programmaticStreamSerializationAllowed = 1;
        let takes_turns = target.device.compute_capability().0 >= 9;
        let config = driver::CUlaunchConfig {
            gridDimX: rows.div_ceil(self.rows).min(self.ctas) as c_uint,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: THREADS,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared_bytes as c_uint,
            hStream: target.stream,
            attrs: &raw mut in_turn,
            numAttrs: takes_turns.into(),
        };
        // SAFETY: the kernel takes this structure, which lives during the call; the caller promises the rest.
        let run = || unsafe {
            driver::cuLaunchKernelEx(
                &raw const config,
                self.kernel.as_ptr(),
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
            .result()
        };
        launches::driver(|| name(self.rows, parts), "cuLaunchKernelEx", run)
    }
}

/// The name of a launch: the rows of a tile, and the parts.
fn name(rows: usize, parts: &[ChainPart<'_>]) -> String {
    let parts = parts.iter().map(|part| match part {
        ChainPart::Copy(_) => "copy",
        ChainPart::Product(_) => "product",
        ChainPart::Program(own) => &source(own.operator).name,
    });
    let parts: Vec<&str> = parts.collect();
    format!("chain_kernel<{rows} rows: {}>", parts.join(", "))
}

fn attribute(device: &Device, attribute: driver::CUdevice_attribute) -> Result<usize, Error> {
    // SAFETY: the device is that of an open context.
    let found = unsafe { driver_device::get_attribute(device.context().cu_device(), attribute) };
    let found = found.map_err(fault::driver("cuDeviceGetAttribute"))?;
    Ok(usize::try_from(found).unwrap_or_default())
}

/// The program of an operator of a chain.
fn source(operator: &Operator) -> &'static Program {
    match operator.lanes() {
        Some(lanes) => lanes.program().source(),
        None => unreachable!("parts of chains are operators of one program"),
    }
}

/// The tensors of a program, from the order of the caller to the order of the kernel.
fn ordered<'t>(program: &Program, own: &'t ChainProgram<'_>) -> Vec<&'t ChainTensor> {
    let [inputs, outputs, params] = tensors_in_chain(program);
    let mut places = vec![None; inputs + outputs + params];
    for (argument, tensor) in program.arguments.iter().zip(&own.inputs) {
        let at = match *argument {
            Argument::Input(at) => at,
            Argument::RowValue(at) => program.inputs.len() + at,
            Argument::Param(at) => inputs + outputs + at,
        };
        places[at] = Some(tensor);
    }
    for (result, tensor) in program.results.iter().zip(&own.outputs) {
        if let Returned::Output(at) = *result {
            places[inputs + at] = Some(tensor);
        }
    }
    places.into_iter().flatten().collect()
}

/// A part as it is emitted.
fn emitted<'a>(part: &ChainPart<'a>) -> EmittedPart<'a> {
    match part {
        ChainPart::Copy(_) => EmittedPart::Copy,
        ChainPart::Product(own) => {
            EmittedPart::Product([own.tile.is_some(), own.memory.is_some(), own.rounds])
        }
        ChainPart::Program(own) => {
            let program = source(own.operator);
            let slots = ordered(program, own).into_iter().map(|own| ChainSlot {
                memory: own.memory.is_some(),
                strides: [own.row_stride, own.blade_stride],
                shared: own.tile.map(|tile| [tile.first, tile.row_stride]),
                rounds: own.rounds,
            });
            EmittedPart::Program(program, own.channels, slots.collect())
        }
    }
}

/// A call as the kernel takes it: `fc::ChainCall`, in words.
fn raw(rows: usize, parts: &[ChainPart<'_>]) -> Vec<u64> {
    let (mut memory, mut programs, mut products, mut copies) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let spot = |tile: ChainTile| (tile.first as i32, tile.row_stride as i32);
    for part in parts {
        match part {
            ChainPart::Copy(own) => {
                let (shared, shared_row) = spot(own.to);
                copies.push(RawCopy {
                    from: own.from,
                    width: own.width as i32,
                    shared,
                    shared_row,
                    unused: 0,
                });
            }
            ChainPart::Product(own) => {
                let (shared, shared_row) = own.tile.map(spot).unwrap_or_default();
                let (from, from_row) = spot(own.from);
                let (memory, width) = own.memory.unwrap_or_default();
                products.push(RawProduct {
                    weights: own.weights,
                    bias: own.bias.unwrap_or_default(),
                    items: own.items,
                    memory,
                    row: width as i64,
                    shared,
                    shared_row,
                    from,
                    from_row,
                    warps: *own.warps,
                });
            }
            ChainPart::Program(own) => {
                let program = source(own.operator);
                let options = own.operator.lanes().map(|lanes| lanes.options());
                let (gate, eps) =
                    options.map_or((crate::Gate::None, 0.0), |own| (own.gate, own.eps));
                programs.push(RawProgram {
                    eps: eps as f32,
                    inv_channels: (1.0 / own.channels[0] as f64) as f32,
                    gate: gate_code(gate),
                    unused: 0,
                });
                let tensors = ordered(program, own).into_iter();
                memory.extend(tensors.map(|own| own.memory.unwrap_or_default()));
            }
        }
    }
    let mut words = vec![rows as u64];
    words.extend(words_of(&memory));
    words.extend(words_of(&programs));
    words.extend(words_of(&products));
    words.extend(words_of(&copies));
    words
}

/// The words of a list, which has one at least in a call.
fn words_of<T>(list: &[T]) -> Vec<u64> {
    let words = size_of::<T>() / 8;
    if list.is_empty() {
        return vec![0; words];
    }
    const { assert!(size_of::<T>().is_multiple_of(8)) };
    // SAFETY: the structures are numbers without gaps, of whole words.
    let all =
        unsafe { std::slice::from_raw_parts(list.as_ptr().cast::<u64>(), words * list.len()) };
    all.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_have_room_for_their_rows_and_other_banks_for_each() {
        for width in 1..200 {
            let tile = ChainTile::new(64, width);
            assert!(
                tile.row_stride >= width && tile.row_stride % 16 == 8,
                "{width}"
            );
            assert!(tile.row_stride < width + 16, "{width}");
            assert_eq!(tile.len(32), 2 * tile.len(16));
            // Two rows alternate.
            assert_eq!(tile.columns_from(3).first, 70);
        }
    }

    #[test]
    fn calls_are_words_in_the_order_of_the_kernel() {
        let tile = ChainTile::new(0, 16);
        let warps = [[1, 2, 3, 4]; Chain::WARPS];
        let product = ChainProduct {
            from: tile,
            weights: 10,
            bias: None,
            items: 11,
            warps: &warps,
            memory: Some((12, 48)),
            tile: None,
            rounds: false,
        };
        let copy = ChainCopy {
            from: 13,
            width: 16,
            to: tile,
        };
        let words = raw(5, &[ChainPart::Copy(copy), ChainPart::Product(product)]);
        // Without programs there is one address and one program that nothing reads.
        assert_eq!(words[..4], [5, 0, 0, 0]);
        assert_eq!(words[4..9], [10, 0, 11, 12, 48]);
        assert_eq!(
            words.len(),
            4 + size_of::<RawProduct>() / 8 + size_of::<RawCopy>() / 8
        );
        assert_eq!(words[11], 1 | 2 << 32);
        assert_eq!(words[words.len() - 3], 13);
    }
}
