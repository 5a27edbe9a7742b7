//! The memory that another language hands to a call: addresses, and what overlaps.
//!
//! Rust's borrows say that nothing overlaps what is written. Callers of another language promise it, and this module checks what can be
//! checked before their memory is borrowed.

use std::ops::Range;

use crate::{Error, Operator};

/// The memory of a call of an operator on the CPU.
///
/// ```
/// use flashcliff::host_memory::Spans;
/// use flashcliff::{Algebra, Error, ops};
///
/// let operator = ops::by_name("cl200".parse::<Algebra>()?, "reverse", &[])?;
/// let mut spans = Spans::new::<f32>(&operator);
/// spans.add(0x1000, 4, "x", false)?;
/// spans.add(0x1008, 4, "output", true)?;
/// assert!(matches!(spans.check(), Err(Error::Aliased { .. })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Spans<'a> {
    operator: &'a Operator,
    element: usize,
    spans: Vec<(Range<usize>, &'a str, bool)>,
}

impl<'a> Spans<'a> {
    /// The memory of a call with elements of type `T`, so far none.
    pub fn new<T>(operator: &'a Operator) -> Self {
        Self {
            operator,
            element: size_of::<T>(),
            spans: Vec::with_capacity(16),
        }
    }

    /// Adds `len` elements at an address, and whether they are written. No elements need no address.
    ///
    /// # Errors
    /// [`Error::BadAddress`] for an address of 0, one that is no multiple of the size of an element, and elements beyond the last address.
    pub fn add(
        &mut self,
        address: usize,
        len: usize,
        name: &'a str,
        written: bool,
    ) -> Result<(), Error> {
        if len == 0 {
            return Ok(());
        }
        let bytes = len.checked_mul(self.element);
        match bytes.and_then(|bytes| address.checked_add(bytes)) {
            Some(end) if address != 0 && address.is_multiple_of(self.element) => {
                self.spans.push((address..end, name, written));
                Ok(())
            }
            _ => Err(Error::BadAddress {
                operator: self.operator.name().to_owned(),
                tensor: name.to_owned(),
                expected: self.element,
                got: address as u64,
            }),
        }
    }

    /// Checks that written memory overlaps nothing else.
    ///
    /// # Errors
    /// [`Error::Aliased`] with the names of the first two that overlap.
    pub fn check(&self) -> Result<(), Error> {
        for (index, (span, first, written)) in self.spans.iter().enumerate() {
            let mut others = self.spans.iter().enumerate();
            let overlapping = others.find(|(at, (other, ..))| {
                *at != index && span.start < other.end && other.start < span.end
            });
            if let (true, Some((_, (_, second, _)))) = (*written, overlapping) {
                return Err(Error::Aliased {
                    operator: self.operator.name().to_owned(),
                    first: (*first).to_owned(),
                    second: (*second).to_owned(),
                });
            }
        }
        Ok(())
    }
}
