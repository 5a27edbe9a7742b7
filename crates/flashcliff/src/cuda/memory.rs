//! Memory of cudarc, for any element type.

use cudarc::driver::{
    CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop,
};

/// An address in the memory of a GPU.
pub type Address = u64;

/// Memory of cudarc that holds elements `T`: a [`CudaSlice`], [`CudaView`] or [`CudaViewMut`].
pub trait Memory<T>: DeviceSlice<T> + access::Read {}

/// Memory of cudarc that may be written: a [`CudaSlice`] or [`CudaViewMut`].
pub trait MemoryMut<T>: DeviceSlice<T> + access::Write {}

/// Memory without its element type. Sealed.
pub(super) mod access {
    use super::{Address, CudaStream, SyncOnDrop};

    #[allow(unreachable_pub, reason = "sealed: cannot be named outside")]
    pub trait Read: Send + Sync {
        /// The address, once the stream waits for earlier writes. The guard is to be dropped after the launch; it lets
        /// later writes wait for it.
        fn read<'s>(&'s self, stream: &'s CudaStream) -> (Address, SyncOnDrop<'s>);
    }

    #[allow(unreachable_pub, reason = "sealed: cannot be named outside")]
    pub trait Write: Send + Sync {
        /// Does the same as [`Read::read`], for writing.
        fn write<'s>(&'s mut self, stream: &'s CudaStream) -> (Address, SyncOnDrop<'s>);
    }
}

macro_rules! readable {
    ($($type:ty),*) => {$(
        impl<T: Send + Sync> Memory<T> for $type {}

        impl<T: Send + Sync> access::Read for $type {
            fn read<'s>(&'s self, stream: &'s CudaStream) -> (Address, SyncOnDrop<'s>) {
                self.device_ptr(stream)
            }
        }
    )*};
}

macro_rules! writable {
    ($($type:ty),*) => {$(
        impl<T: Send + Sync> MemoryMut<T> for $type {}

        impl<T: Send + Sync> access::Write for $type {
            fn write<'s>(&'s mut self, stream: &'s CudaStream) -> (Address, SyncOnDrop<'s>) {
                self.device_ptr_mut(stream)
            }
        }
    )*};
}

readable!(CudaSlice<T>, CudaView<'_, T>, CudaViewMut<'_, T>);
writable!(CudaSlice<T>, CudaViewMut<'_, T>);
