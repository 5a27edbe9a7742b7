//! The tables of steps: indices and factors, which a [`Gpu`](super::super::Gpu) copies to the device once.

use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;

use crate::Error;
use crate::cuda::room::ALIGNED;

/// The place of a table, in bytes after the first byte of all tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cuda) struct Table(usize);

impl Table {
    /// The place of the first table.
    pub(super) const FIRST: Self = Self(0);

    /// The address, with that of all tables.
    pub(super) fn at(self, tables: CUdeviceptr) -> CUdeviceptr {
        tables + self.0 as CUdeviceptr
    }

    /// The elements of so many bytes in front of it.
    pub(super) fn elements_before(self, bytes: usize) -> usize {
        self.0 / bytes
    }
}

/// All tables, one after another. Equal ones are there once.
#[derive(Debug, Default)]
pub(in crate::cuda) struct Constants {
    bytes: Vec<u8>,
    known: Vec<std::ops::Range<usize>>,
}

impl Constants {
    pub(in crate::cuda) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Indices, which kernels read as `i32`.
    pub(super) fn indices(&mut self, indices: &[i64]) -> Result<Table, Error> {
        let mut bytes = Vec::with_capacity(4 * indices.len());
        for &index in indices {
            let index = i32::try_from(index).map_err(|_| {
                super::not_served("a table", &format!("indices below 2^31, got {index}"))
            })?;
            bytes.extend(index.to_le_bytes());
        }
        Ok(self.add(&bytes))
    }

    /// Counts, which kernels read as `i32`.
    pub(super) fn counts(
        &mut self,
        counts: impl IntoIterator<Item = usize>,
    ) -> Result<Table, Error> {
        let counts = counts.into_iter();
        let indices = counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        self.indices(&indices.collect::<Vec<i64>>())
    }

    /// Numbers in a type: `f64`, or else `f32`.
    pub(super) fn numbers(&mut self, dtype: Dtype, numbers: &[f64]) -> Table {
        let bytes: Vec<u8> = match dtype {
            Dtype::F64 => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
            // The nearest number of the type.
            _ => numbers
                .iter()
                .flat_map(|&x| (x as f32).to_le_bytes())
                .collect(),
        };
        self.add(&bytes)
    }

    fn add(&mut self, bytes: &[u8]) -> Table {
        let mut known = self.known.iter();
        if let Some(range) = known.find(|range| &self.bytes[(*range).clone()] == bytes) {
            return Table(range.start);
        }
        let start = self.bytes.len().next_multiple_of(ALIGNED);
        self.bytes.resize(start, 0);
        self.bytes.extend(bytes);
        self.known.push(start..self.bytes.len());
        Table(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_tables_are_there_once() -> Result<(), Error> {
        let mut constants = Constants::default();
        let first = constants.indices(&[1, 2, 3])?;
        let other = constants.numbers(Dtype::F64, &[1.5]);
        assert_eq!(constants.indices(&[1, 2, 3])?, first);
        assert_ne!(other, first);
        assert_eq!(other.at(1024) % ALIGNED as CUdeviceptr, 0);
        let start = other.at(0) as usize;
        assert_eq!(constants.bytes()[start..], 1.5_f64.to_le_bytes());
        assert!(constants.indices(&[1 << 31]).is_err());
        Ok(())
    }
}
