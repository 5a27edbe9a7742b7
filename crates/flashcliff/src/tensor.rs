//! Borrowed tensors.

use crate::Error;

const MAX_AXES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    axes: [usize; MAX_AXES],
    rank: usize,
}

impl Shape {
    /// A shape and its number of elements.
    pub(crate) fn new(shape: &[usize]) -> Result<(Self, usize), Error> {
        let too_large = || Error::ShapeTooLarge {
            shape: shape.to_vec(),
        };
        let mut axes = [0; MAX_AXES];
        let rank = shape.len();
        axes.get_mut(..rank)
            .ok_or_else(too_large)?
            .copy_from_slice(shape);
        // An axis of size zero makes the product zero, even if the other sizes overflow.
        let expected = match shape.contains(&0) {
            true => Some(0),
            false => shape
                .iter()
                .try_fold(1_usize, |n, &axis| n.checked_mul(axis)),
        };
        let expected = expected.ok_or_else(too_large)?;
        Ok((Self { axes, rank }, expected))
    }

    /// A shape that `len` elements fill.
    pub(crate) fn of(shape: &[usize], len: usize) -> Result<Self, Error> {
        let (this, expected) = Self::new(shape)?;
        if expected == len {
            return Ok(this);
        }
        Err(Error::LengthMismatch {
            shape: shape.to_vec(),
            expected,
            got: len,
        })
    }

    pub(crate) fn as_slice(&self) -> &[usize] {
        &self.axes[..self.rank]
    }
}

/// A contiguous tensor, row-major, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a, T> {
    data: &'a [T],
    shape: Shape,
}

impl<'a, T> Tensor<'a, T> {
    /// A tensor of `shape` over `data`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] if the data does not fill the shape, [`Error::ShapeTooLarge`] if the number of
    /// elements does not fit the address space, or if the shape has more than 4 axes.
    pub fn new(data: &'a [T], shape: &[usize]) -> Result<Self, Error> {
        let shape = Shape::of(shape, data.len())?;
        Ok(Self { data, shape })
    }

    /// The axes.
    pub fn shape(&self) -> &[usize] {
        self.shape.as_slice()
    }

    /// The elements.
    pub fn data(&self) -> &'a [T] {
        self.data
    }
}

/// A contiguous tensor, row-major, borrowed for writing.
#[derive(Debug)]
pub struct TensorMut<'a, T> {
    data: &'a mut [T],
    shape: Shape,
}

impl<'a, T> TensorMut<'a, T> {
    /// A tensor of `shape` over `data`.
    ///
    /// # Errors
    /// The errors of [`Tensor::new`].
    pub fn new(data: &'a mut [T], shape: &[usize]) -> Result<Self, Error> {
        let shape = Shape::of(shape, data.len())?;
        Ok(Self { data, shape })
    }

    /// The axes.
    pub fn shape(&self) -> &[usize] {
        self.shape.as_slice()
    }

    /// The elements.
    pub fn data(&self) -> &[T] {
        self.data
    }

    /// The elements, for writing.
    pub fn data_mut(&mut self) -> &mut [T] {
        self.data
    }
}
