//! All buffers of a call in one stretch of memory, as awkward as the contract allows.
//!
//! Every buffer is exactly as long as it must be and lies between guard bands. Buffers that are to be written are full
//! of NaN before. Guard bands are NaN too, of another pattern, so that reading them and using the values spoils the
//! result.

use flashcliff::Dtype;

use crate::dtypes;

/// The smallest number of bytes of a band.
const BAND: usize = 256;
/// Buffers start at multiples of this many bytes, before they are moved.
const ALIGNMENT: usize = 256;
/// The bytes of a NaN in every element type, at every even address.
const GUARD: [u8; 2] = [0xf5, 0xff];
const POISON: u8 = 0xff;

/// A buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    name: &'static str,
    dtype: Dtype,
    start: usize,
    len: usize,
    written: bool,
}

impl Region {
    /// The start of the buffer, in bytes from the start of the arena.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.len * self.dtype.bytes()
    }

    pub(crate) fn is_written(&self) -> bool {
        self.written
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.bytes()
    }
}

/// The contents of the memory before a call.
pub(crate) struct Arena {
    bytes: Vec<u8>,
    regions: Vec<Region>,
}

impl Arena {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            regions: Vec::new(),
        }
    }

    /// Adds a buffer that is only read, `offset` elements away from any alignment.
    pub(crate) fn input(
        &mut self,
        name: &'static str,
        dtype: Dtype,
        values: &[f64],
        offset: usize,
    ) -> Region {
        let region = self.add(name, dtype, values.len(), offset, false);
        dtypes::encode(dtype, values, &mut self.bytes[region.range()]);
        region
    }

    /// Adds a buffer that is to be written.
    pub(crate) fn output(
        &mut self,
        name: &'static str,
        dtype: Dtype,
        len: usize,
        offset: usize,
    ) -> Region {
        let region = self.add(name, dtype, len, offset, true);
        self.bytes[region.range()].fill(POISON);
        region
    }

    fn add(
        &mut self,
        name: &'static str,
        dtype: Dtype,
        len: usize,
        offset: usize,
        written: bool,
    ) -> Region {
        // The bytes so far already end with a band.
        let aligned = self.bytes.len().max(BAND).next_multiple_of(ALIGNMENT);
        let region = Region {
            name,
            dtype,
            start: aligned + offset * dtype.bytes(),
            len,
            written,
        };
        let end = region.range().end;
        let guards = (self.bytes.len()..end + BAND).map(|at| GUARD[at % 2]);
        self.bytes.extend(guards);
        self.regions.push(region);
        region
    }

    /// The memory.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Checks that nothing was written outside of the output buffers.
    pub(crate) fn check(&self, after: &[u8]) -> Result<(), String> {
        if after.len() != self.bytes.len() {
            return Err(format!(
                "{} bytes instead of {}",
                after.len(),
                self.bytes.len()
            ));
        }
        let mut from = 0;
        let written = self.regions.iter().filter(|region| region.written);
        let gaps = written
            .map(|region| (region.range().start, region.range().end))
            .chain([(self.bytes.len(), self.bytes.len())]);
        for (start, end) in gaps {
            let (before, now) = (&self.bytes[from..start], &after[from..start]);
            if before != now {
                let at = before.iter().zip(now).position(|(a, b)| a != b);
                return Err(self.describe(from + at.unwrap_or(0)));
            }
            from = end;
        }
        Ok(())
    }

    /// The elements of a buffer after a call.
    pub(crate) fn values(region: &Region, after: &[u8]) -> Vec<f64> {
        dtypes::decode(region.dtype, &after[region.range()])
    }

    fn describe(&self, at: usize) -> String {
        let inside = self.regions.iter().find(|r| r.range().contains(&at));
        if let Some(region) = inside {
            return format!("byte {} of {} was written", at - region.start, region.name);
        }
        let distance = |r: &&Region| match at < r.start {
            true => r.start - at,
            false => at - r.range().end + 1,
        };
        match self.regions.iter().min_by_key(distance) {
            Some(r) if at < r.start => {
                format!("byte {} before {} was written", r.start - at, r.name)
            }
            Some(r) => format!("byte {} behind {} was written", at - r.range().end, r.name),
            None => format!("byte {at} was written"),
        }
    }
}

/// The bytes of some buffers after a call, one after the other.
pub(crate) fn joined(regions: &[Region], after: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = regions.iter().map(|r| &after[r.range()]).collect();
    parts.concat()
}
