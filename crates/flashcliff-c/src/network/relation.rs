//! Relations between rows: edges to nodes, nodes to graphs.

use std::ffi::{CString, c_char, c_int};
use std::fmt;

use flashcliff_network::file::Stored;
use flashcliff_network::{Axis, Rows, Segments};

use super::call::NetworkBatch;
use super::{Network, known, made};
use crate::memory::slice;
use crate::status::{Failure, guarded};

/// `fc_relation`: the target of each row, sorted once, which C knows by its address only.
pub struct Relation {
    pub(super) segments: Segments,
    #[cfg(feature = "cuda")]
    pub(super) on_gpus: super::cuda::OnGpus,
}

/// `fc_network_relation_end`: the name and the sizes of a relation.
#[repr(C)]
pub struct NetworkRelationEnd {
    name: *const c_char,
    rows: usize,
    targets: usize,
}

#[cfg(test)]
impl NetworkRelationEnd {
    /// The rows and the targets.
    pub(crate) fn sizes(&self) -> [usize; 2] {
        [self.rows, self.targets]
    }
}

/// A relation of a network.
pub(super) struct Named {
    name: CString,
    axes: [Axis; 2],
}

/// The relations of a network.
///
/// # Errors
/// A name that C cannot have.
pub(super) fn relations_of(stored: &Stored) -> Result<Vec<Named>, Failure> {
    let network = stored.network();
    let own = network.relations().map(|relation| {
        let name = network.relation_name(relation);
        let name = CString::new(name).map_err(|_| {
            Failure::File(format!("expected names without zero bytes, got {name:?}"))
        })?;
        let axes = [relation.from(), relation.to()];
        Ok(Named { name, axes })
    });
    own.collect()
}

impl Named {
    fn sized(&self, rows: Rows) -> NetworkRelationEnd {
        let [own, targets] = self.axes.map(|axis| axis.size(rows));
        NetworkRelationEnd {
            name: self.name.as_ptr(),
            rows: own,
            targets,
        }
    }
}

impl Relation {
    fn new<I: Copy + fmt::Display + TryInto<u32>>(
        targets: &[I],
        count: usize,
    ) -> Result<Self, Failure> {
        Ok(Self {
            segments: Segments::new(targets, count).map_err(Failure::network)?,
            #[cfg(feature = "cuda")]
            on_gpus: super::cuda::OnGpus::default(),
        })
    }
}

/// The segments of the relations of a call.
pub(super) fn segments_of<'a>(
    relations: &'a [Option<&'a Relation>],
) -> impl Iterator<Item = Result<Segments, Failure>> + 'a {
    relations.iter().map(|own| {
        let own = own.ok_or_else(|| Failure::null("relations"))?;
        Ok(own.segments.clone())
    })
}

/// Makes a relation of 32-bit targets.
///
/// # Safety
/// `targets` has as many numbers as `rows` says; a pointer can be written to `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_relation_new(
    targets: *const u32,
    rows: usize,
    count: usize,
    out: *mut *mut Relation,
) -> c_int {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        made(out, || {
            Relation::new(slice("targets", targets, rows)?, count)
        })
    })
}

/// Makes a relation of 64-bit targets.
///
/// # Safety
/// `targets` has as many numbers as `rows` says; a pointer can be written to `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_relation_new_i64(
    targets: *const i64,
    rows: usize,
    count: usize,
    out: *mut *mut Relation,
) -> c_int {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        made(out, || {
            Relation::new(slice("targets", targets, rows)?, count)
        })
    })
}

/// Frees a relation. Null is left alone.
///
/// # Safety
/// `relation` comes from [`fc_relation_new`] or [`fc_relation_new_i64`], was not freed, nobody uses it from now on,
/// and the work of runs on GPUs that read it is done; or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_relation_free(relation: *mut Relation) {
    if !relation.is_null() {
        // SAFETY: the caller promises that the box is its own.
        drop(unsafe { Box::from_raw(relation) });
    }
}

/// Writes the number of relations.
///
/// # Safety
/// `network` is alive; a number can be written to `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_relation_count(
    network: *const Network,
    count: *mut usize,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let network = unsafe { known(network)? };
        if count.is_null() {
            return Err(Failure::null("count"));
        }
        // SAFETY: the caller promises it, and it is not null.
        unsafe { count.write(network.relations.len()) };
        Ok(())
    })
}

/// Writes the name and the sizes of a relation for a batch.
///
/// # Safety
/// `network` is alive; an end can be written to `end`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_network_relation(
    network: *const Network,
    index: usize,
    batch: NetworkBatch,
    end: *mut NetworkRelationEnd,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let relations = unsafe { &known(network)?.relations };
        let found = relations.get(index).ok_or_else(|| {
            let count = relations.len();
            Failure::Argument(format!(
                "relation: expected a number below {count}, got {index}"
            ))
        })?;
        if end.is_null() {
            return Err(Failure::null("end"));
        }
        // SAFETY: the caller promises room, and it is not null.
        unsafe { end.write(found.sized(batch.rows())) };
        Ok(())
    })
}
