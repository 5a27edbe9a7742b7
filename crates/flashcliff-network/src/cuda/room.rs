//! The parts of a piece of memory.

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;

/// The alignment of parts in bytes, which kernels and matrix products ask for.
pub(in crate::cuda) const ALIGNED: usize = 256;

/// The bytes of parts that lie one after another.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct Room<const N: usize>([usize; N]);

impl<const N: usize> Room<N> {
    pub(in crate::cuda) fn new(bytes: [usize; N]) -> Self {
        Self(bytes)
    }

    /// The bytes of all parts.
    pub(in crate::cuda) fn bytes(&self) -> usize {
        let aligned = self.0.iter().map(|bytes| bytes.next_multiple_of(ALIGNED));
        aligned.sum()
    }

    /// The addresses of the parts in memory at an address.
    pub(in crate::cuda) fn at(&self, address: CUdeviceptr) -> [CUdeviceptr; N] {
        let mut next = address;
        self.0.map(|bytes| {
            let own = next;
            next += bytes.next_multiple_of(ALIGNED) as CUdeviceptr;
            own
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_aligned_and_apart() {
        let room = Room::new([3, 0, 257, 256]);
        assert_eq!(room.bytes(), 256 + 512 + 256);
        assert_eq!(room.at(4096), [4096, 4352, 4352, 4864]);
    }
}
