//! Relations on GPUs.

use std::sync::{Mutex, PoisonError};

use flashcliff::cuda::Device;
use flashcliff::cuda::segments::Addresses;
use flashcliff_network::cuda::DeviceSegments;

use super::super::super::relation::Relation;
use crate::status::Failure;

/// The copies of a relation, by the numbers of GPUs.
#[derive(Default)]
pub(in super::super::super) struct OnGpus(Mutex<Vec<(usize, DeviceSegments)>>);

/// The addresses of relations on a GPU. Those that are not there are copied, which waits.
pub(super) fn addresses_of(
    relations: &[Option<&Relation>],
    device: &Device,
) -> Result<Vec<Addresses>, Failure> {
    let own = relations.iter().map(|own| {
        let own = own.ok_or_else(|| Failure::null("relations"))?;
        own.addresses(device)
    });
    own.collect()
}

impl Relation {
    fn addresses(&self, device: &Device) -> Result<Addresses, Failure> {
        let there = self.on_gpus.0.lock();
        // The list is whole even after a panic.
        let mut there = there.unwrap_or_else(PoisonError::into_inner);
        let ordinal = device.ordinal();
        if let Some((_, own)) = there.iter().find(|(own, _)| *own == ordinal) {
            return Ok(own.addresses());
        }
        // The stream of a caller may be gone when this memory goes.
        let made = DeviceSegments::new(&device.default_stream(), &self.segments);
        let made = made.map_err(Failure::network)?;
        let addresses = made.addresses();
        there.push((ordinal, made));
        Ok(addresses)
    }
}
