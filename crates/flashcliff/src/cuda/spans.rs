//! The memory of a call: addresses, alignment, overlaps.

use cudarc::driver::SyncOnDrop;

use super::call::MAX_INPUTS;
use super::check::Label;
use super::tensor::{Acquired, Layout};
use crate::Error;
use crate::cuda::Address;

/// The alignment in bytes that kernels need of a workspace.
pub(crate) const WORKSPACE_ALIGNMENT: usize = 256;

/// The largest number of tensors and buffers of a call: inputs and their gradients, the output and its gradient, saved
/// row sums and workspace.
const MOST_SPANS: usize = 2 * MAX_INPUTS + 4;

/// A range of device memory.
#[derive(Clone, Copy)]
struct Span {
    label: Label,
    written: bool,
    start: Address,
    bytes: usize,
    alignment: usize,
}

impl Span {
    fn overlaps(&self, other: &Self) -> bool {
        let end = |span: &Self| span.start.saturating_add(span.bytes as u64);
        self.bytes > 0 && other.bytes > 0 && self.start < end(other) && other.start < end(self)
    }
}

/// All memory of a call, with the guards of cudarc, which are dropped after the launch.
pub(super) struct Spans<'s> {
    spans: [Option<Span>; MOST_SPANS],
    guards: [Option<SyncOnDrop<'s>>; MOST_SPANS],
    len: usize,
}

impl<'s> Spans<'s> {
    pub(super) fn new() -> Self {
        Self {
            spans: [None; MOST_SPANS],
            guards: [const { None }; MOST_SPANS],
            len: 0,
        }
    }

    /// Adds memory that is only read, and returns its address.
    pub(super) fn read(
        &mut self,
        label: Label,
        acquired: Acquired<'s>,
        layout: &Layout,
    ) -> Address {
        self.push(label, acquired, false, layout.bytes(), layout.dtype.bytes())
    }

    /// Adds memory that is written, and returns its address.
    pub(super) fn write(
        &mut self,
        label: Label,
        acquired: Acquired<'s>,
        layout: &Layout,
    ) -> Address {
        self.push(label, acquired, true, layout.bytes(), layout.dtype.bytes())
    }

    /// Adds the used part of the workspace, and returns its address.
    pub(super) fn workspace(&mut self, acquired: Acquired<'s>, bytes: usize) -> Address {
        let label = Label::Tensor("workspace");
        self.push(label, acquired, true, bytes, WORKSPACE_ALIGNMENT)
    }

    fn push(
        &mut self,
        label: Label,
        (start, guard): Acquired<'s>,
        written: bool,
        bytes: usize,
        alignment: usize,
    ) -> Address {
        self.spans[self.len] = Some(Span {
            label,
            written,
            start,
            bytes,
            alignment,
        });
        self.guards[self.len] = guard;
        self.len += 1;
        start
    }

    /// Checks that all addresses are usable, and that written memory overlaps nothing else.
    pub(super) fn check(&self, operator: &str) -> Result<(), Error> {
        let spans = || self.spans.iter().flatten();
        for (index, span) in spans().enumerate() {
            let aligned = span.start % span.alignment as u64 == 0;
            if span.bytes > 0 && (span.start == 0 || !aligned) {
                return Err(Error::BadAddress {
                    operator: operator.to_owned(),
                    tensor: span.label.to_string(),
                    expected: span.alignment,
                    got: span.start,
                });
            }
            let mut others = spans().enumerate();
            let other = others.find(|&(at, other)| at != index && span.overlaps(other));
            if let (true, Some((_, other))) = (span.written, other) {
                return Err(Error::Aliased {
                    operator: operator.to_owned(),
                    first: span.label.to_string(),
                    second: other.label.to_string(),
                });
            }
        }
        Ok(())
    }
}
