//! Chains of a plan: the kernels of steps that run together.
//!
//! * `draft` - the parts of a chain, with the places of their tensors; `table` - which warp has which columns of a product.
//!
//! Products round to TF32, as products of single steps do where that is allowed. Sums over a row and of a product have
//! other orders than in the kernels of single steps.

mod draft;
mod table;

use std::collections::HashMap;

use flashcliff::cuda::MatmulPrecision;
use flashcliff::cuda::chains::{
    Chain as Kernel, ChainCopy, ChainPart, ChainProduct, ChainProgram, ChainTensor,
};
use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::{Device, Dtype};

use super::{Sizes, Steps, constants};
use crate::cuda::Run;
use crate::cuda::addresses::Guards;
use crate::plan::{Chain, Plan};
use crate::tokens::lanes::Place;
use crate::tokens::{Channels, Linear};
use crate::{Error, Value};
pub(in crate::cuda) use draft::Unfit;
use draft::{Draft, Operand, Part, Tokens};
pub(super) use table::Table;

/// Bytes of shared memory that chains may have on a device; `None` if plans of these types and this precision have none.
pub(in crate::cuda) fn room(
    device: &Device,
    types: [Dtype; 2],
    precision: MatmulPrecision,
) -> Result<Option<usize>, Error> {
    let serves = types == [Dtype::F32; 2] && precision == MatmulPrecision::Tf32;
    let room = serves.then(|| Kernel::most_bytes(device));
    Ok(room.transpose()?)
}

/// Whether a linear map may be a part of a chain of a plan.
pub(super) fn may_have(step: &Linear, sizes: &Sizes) -> bool {
    let sides = [step.input, step.output()];
    sizes.dtype == Dtype::F32
        && sizes.features == Dtype::F32
        && sizes.precision == MatmulPrecision::Tf32
        && table::fits(sides, step.geometry.blades())
}

/// Checks that one kernel takes some calls, with so much shared memory.
pub(in crate::cuda) fn fuses(plan: &Plan, calls: &[usize], room: usize) -> Result<(), Unfit> {
    // Kernels count rows by 32 bits.
    if plan.rows() > i32::MAX as usize {
        return Err(Unfit::Work);
    }
    match Draft::of(plan, calls, Kernel::ROWS[1])?.bytes() {
        bytes if bytes > room => Err(Unfit::Room(bytes)),
        _ => Ok(()),
    }
}

/// The rows of the tiles of chains on so many rows. With more of them a CTA reads weights for more rows at once; with fewer, a small
/// batch keeps more multiprocessors busy, and there is room for longer rows.
fn rows_of_tiles(
    drafted: &dyn Fn(usize) -> Option<usize>,
    rows: usize,
    device: &Device,
) -> Result<usize, Error> {
    let [most, least] = Kernel::ROWS;
    let (room, multiprocessors) = (
        Kernel::most_bytes(device)?,
        Kernel::multiprocessors(device)?,
    );
    let fits = drafted(most).is_some_and(|bytes| bytes <= room);
    Ok(if fits && rows > least * multiprocessors {
        most
    } else {
        least
    })
}

/// Which warp has which columns of a product.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct Columns {
    pub(super) items: constants::Table,
    pub(super) warps: [[i32; 4]; Kernel::WARPS],
}

/// A table that is not read, of a chain that is compiled.
const NO_COLUMNS: Columns = Columns {
    items: constants::Table::FIRST,
    warps: [[0; 4]; Kernel::WARPS],
};

/// A chain whose kernel is compiled.
#[derive(Debug)]
pub(super) struct Chained {
    draft: Draft,
    sizes: Sizes,
    /// The tables of products, by the nodes of their steps.
    tables: HashMap<usize, Columns>,
    kernel: Kernel,
}

/// Where the values of a chain are.
struct Places<'a> {
    /// The address of a value.
    of: &'a mut dyn FnMut(Value) -> Result<CUdeviceptr, Error>,
    tables: CUdeviceptr,
}

impl Steps {
    /// Makes the chains of a plan ready, whose steps are.
    pub(super) fn add_chains(&mut self, plan: &Plan, device: &Device) -> Result<(), Error> {
        let mut drafts: Vec<(usize, Draft, Sizes)> = Vec::new();
        for calls in (0..plan.call_count()).filter_map(|call| plan.chains.led_by(call)) {
            let Some((sizes, _)) = self.ready.get(&plan.node(calls[0]).origin) else {
                continue;
            };
            let drafted = |rows| Draft::of(plan, calls, rows).ok();
            let bytes = |rows| drafted(rows).map(|draft| draft.bytes());
            let draft = drafted(rows_of_tiles(&bytes, sizes.rows(), device)?);
            drafts.extend(draft.map(|draft| (calls[0], draft, *sizes)));
        }
        // Chains of one text have one kernel. Others are compiled at the same time.
        let mut texts: Vec<[String; 2]> = Vec::new();
        std::thread::scope(|scope| {
            for (_, draft, _) in &drafts {
                let text = draft.text()?;
                if !texts.contains(&text) {
                    texts.push(text);
                    // Errors come below, where each kernel is taken from the loaded ones.
                    scope.spawn(move || drop(draft.compiled(device)));
                }
            }
            Ok::<(), Error>(())
        })?;
        for (leader, draft, sizes) in drafts {
            let mut tables = HashMap::new();
            for part in &draft.parts {
                if let Part::Product { origin, .. } = part
                    && let Some(table) = self.ready.get(origin).and_then(|(_, own)| own.columns())
                {
                    tables.insert(*origin, table);
                }
            }
            let own = Chained {
                kernel: draft.compiled(device)?,
                draft,
                sizes,
                tables,
            };
            self.chains.insert(leader, own);
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Launches the calls of a chain.
    pub(in crate::cuda) fn chain(&self, calls: &Chain, stream: &CudaStream) -> Result<(), Error> {
        let Some(own) = self.steps.and_then(|steps| steps.chains.get(&calls[0])) else {
            return Ok(());
        };
        let rows = own.sizes.rows();
        if rows == 0 {
            return Ok(());
        }
        let mut guards: Guards<'_> = Vec::new();
        let mut places = Places {
            of: &mut |value| self.place(value, stream, &mut guards),
            tables: self.tables,
        };
        let parts = own.draft.parts(&own.tables, &mut places)?;
        let set = self.plan.set_of_node(self.plan.node(calls[0]).origin);
        let site = self.site(own.sizes, set, stream);
        // SAFETY: the addresses are the places of values of the plan; see `value` and `result`.
        Ok(unsafe { own.kernel.run(site.target(), rows, &parts) }?)
    }
}

impl Draft {
    /// Calls a function with the parts, of which no address is that of a tensor.
    fn without_addresses<R>(
        &self,
        work: impl FnOnce(&[ChainPart<'_>]) -> Result<R, flashcliff::Error>,
    ) -> Result<R, Error> {
        let mut nowhere = Places {
            of: &mut |_| Ok(0),
            tables: 0,
        };
        let tables = HashMap::new();
        Ok(work(&self.parts(&tables, &mut nowhere)?)?)
    }

    fn text(&self) -> Result<[String; 2], Error> {
        self.without_addresses(|parts| Kernel::source(parts, self.rows))
    }

    fn compiled(&self, device: &Device) -> Result<Kernel, Error> {
        let tile = (self.rows, self.bytes());
        self.without_addresses(|parts| Kernel::new(device, parts, tile))
    }

    /// The parts with addresses, as the kernel takes them.
    fn parts<'a>(
        &'a self,
        tables: &'a HashMap<usize, Columns>,
        places: &mut Places<'_>,
    ) -> Result<Vec<ChainPart<'a>>, Error> {
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            parts.push(match part {
                Part::Copy { from, width, to } => ChainPart::Copy(ChainCopy {
                    from: (places.of)(*from)?,
                    width: *width,
                    to: *to,
                }),
                Part::Program {
                    operator,
                    blades,
                    each,
                    inputs,
                    outputs,
                } => {
                    let mut all = |operands: &[Operand]| {
                        let tensors = operands.iter();
                        let tensors = tensors.map(|own| own.tensor(*blades, *each, places));
                        tensors.collect::<Result<Vec<_>, Error>>()
                    };
                    let inputs = all(inputs)?;
                    ChainPart::Program(ChainProgram {
                        operator,
                        channels: [each.multivectors, each.scalars],
                        inputs,
                        outputs: all(outputs)?,
                    })
                }
                Part::Product {
                    origin,
                    layout,
                    matrix,
                    from,
                    to,
                } => {
                    let bytes = |elements: usize| (elements * Dtype::F32.bytes()) as CUdeviceptr;
                    let own = (places.of)(*matrix)?;
                    let memory = to.value.map(|value| (places.of)(value)).transpose()?;
                    let Columns { items, warps } = tables.get(origin).unwrap_or(&NO_COLUMNS);
                    ChainPart::Product(ChainProduct {
                        from: *from,
                        weights: own + bytes(layout.packed()),
                        bias: Some(own + bytes(layout.bias)),
                        items: items.at(places.tables),
                        warps,
                        memory: memory.map(|address| (address, layout.outputs)),
                        tile: to.tile,
                        rounds: to.rounds,
                    })
                }
            });
        }
        Ok(parts)
    }
}

impl Operand {
    /// The tensor of a program on multivectors of so many blades.
    fn tensor(
        &self,
        blades: usize,
        each: Channels,
        places: &mut Places<'_>,
    ) -> Result<ChainTensor, Error> {
        let nowhere = ChainTensor {
            memory: None,
            row_stride: 0,
            blade_stride: 0,
            tile: None,
            rounds: false,
        };
        let bytes = |elements: usize| (elements * Dtype::F32.bytes()) as CUdeviceptr;
        Ok(match *self {
            Self::Rows(value) => ChainTensor {
                memory: Some((places.of)(value)?),
                row_stride: 1,
                ..nowhere
            },
            Self::Parameters(value, first) => ChainTensor {
                memory: Some((places.of)(value)? + bytes(first)),
                ..nowhere
            },
            Self::Tokens(
                Tokens {
                    value,
                    tile,
                    rounds,
                },
                all,
                place,
            ) => {
                let (first, blade_stride) = match place {
                    Place::Multivectors(at) => (at * each.multivectors, all.multivectors),
                    Place::Scalars(at) => (blades * all.multivectors + at * each.scalars, 0),
                    Place::Rows | Place::Parameters { .. } => (0, 0),
                };
                let memory = value.map(|value| Ok::<_, Error>((places.of)(value)? + bytes(first)));
                ChainTensor {
                    memory: memory.transpose()?,
                    row_stride: all.width_over(blades),
                    blade_stride,
                    tile: tile.map(|own| own.columns_from(first)),
                    rounds,
                }
            }
        })
    }
}
