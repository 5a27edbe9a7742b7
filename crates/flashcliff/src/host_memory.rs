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
    spans: Vec<Span<'a>>,
}

/// A tensor of a call, by its addresses.
#[derive(Clone, Debug)]
pub struct Span<'a> {
    range: Range<usize>,
    name: &'a str,
    written: bool,
}

impl<'a> Span<'a> {
    /// `len` elements of some bytes each at an address, under a name in a call, and whether they are written. No elements need no address.
    ///
    /// # Errors
    /// [`Error::BadAddress`] for an address of 0, one that is not a multiple of the size of an element, and elements beyond the last
    /// address.
    pub fn new(
        call: &str,
        name: &'a str,
        [address, len, element]: [usize; 3],
        written: bool,
    ) -> Result<Self, Error> {
        let bytes = len.checked_mul(element);
        let range = match bytes.and_then(|bytes| address.checked_add(bytes)) {
            _ if len == 0 => 0..0,
            Some(end) if address != 0 && address.is_multiple_of(element) => address..end,
            _ => {
                return Err(Error::BadAddress {
                    operator: call.to_owned(),
                    tensor: name.to_owned(),
                    expected: element,
                    got: address as u64,
                });
            }
        };
        Ok(Self {
            range,
            name,
            written,
        })
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.range.start < other.range.end && other.range.start < self.range.end
    }
}

/// Checks that the written tensors of a call overlap none of the others. Nothing is allocated.
///
/// # Errors
/// [`Error::Aliased`] with the names of the first two that overlap.
pub fn check_overlaps<'a>(
    call: &str,
    spans: impl Iterator<Item = Span<'a>> + Clone,
) -> Result<(), Error> {
    for (index, span) in spans.clone().enumerate().filter(|(_, span)| span.written) {
        let mut others = spans.clone().enumerate();
        if let Some((_, other)) = others.find(|(at, other)| *at != index && span.overlaps(other)) {
            return Err(Error::Aliased {
                operator: call.to_owned(),
                first: span.name.to_owned(),
                second: other.name.to_owned(),
            });
        }
    }
    Ok(())
}

/// Does the same as [`check_overlaps`] for many tensors, which it sorts.
///
/// ```
/// use flashcliff::host_memory::{Span, check_overlaps_of_many};
///
/// let span = |name, start, written| Span::new("call", name, [start, 4, 4], written);
/// let mut spans = [span("y", 0x1008, true)?, span("w", 0x2000, false)?, span("x", 0x1000, false)?];
/// assert!(check_overlaps_of_many("call", &mut spans).is_err());
/// assert!(check_overlaps_of_many("call", &mut spans[1..]).is_ok());
/// # Ok::<(), flashcliff::Error>(())
/// ```
///
/// # Errors
/// [`Error::Aliased`] with the names of two that overlap.
pub fn check_overlaps_of_many(call: &str, spans: &mut [Span<'_>]) -> Result<(), Error> {
    spans.sort_unstable_by_key(|span| span.range.start);
    // The spans that end last so far: of all, and of those that are written.
    let (mut last, mut last_written): (Option<&Span<'_>>, Option<&Span<'_>>) = (None, None);
    let ends_later = |span: &Span<'_>, than: Option<&Span<'_>>| {
        than.is_none_or(|other| span.range.end > other.range.end)
    };
    for span in &*spans {
        let before = if span.written { last } else { last_written };
        if let Some(other) = before.filter(|other| other.overlaps(span)) {
            return Err(Error::Aliased {
                operator: call.to_owned(),
                first: other.name.to_owned(),
                second: span.name.to_owned(),
            });
        }
        if ends_later(span, last) {
            last = Some(span);
        }
        if span.written && ends_later(span, last_written) {
            last_written = Some(span);
        }
    }
    Ok(())
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
    /// [`Error::BadAddress`] for an address of 0, one that is not a multiple of the size of an element, and elements beyond the last
    /// address.
    pub fn add(
        &mut self,
        address: usize,
        len: usize,
        name: &'a str,
        written: bool,
    ) -> Result<(), Error> {
        let place = [address, len, self.element];
        let span = Span::new(self.operator.name(), name, place, written)?;
        self.spans.push(span);
        Ok(())
    }

    /// Checks that written memory overlaps nothing else.
    ///
    /// # Errors
    /// [`Error::Aliased`] with the names of the first two that overlap.
    pub fn check(&self) -> Result<(), Error> {
        check_overlaps(self.operator.name(), self.spans.iter().cloned())
    }
}
