//! Arrays of ndarray as tensors, and results as arrays. No element is copied.
//!
//! Other layouts than the standard one are refused, not copied: the backward pass reads the inputs again, so a hidden copy
//! would be made in each pass, and a caller who copies once keeps it for both.

use ::ndarray::{
    Array3, ArrayBase, ArrayD, ArrayView, ArrayView3, ArrayViewMut, Data, DataMut, Dimension,
};

use crate::{Element, Error, Evaluation, Operator, Tensor, TensorMut};

/// The error of an array whose elements do not lie in standard layout.
fn not_standard<T, D: Dimension>(array: &ArrayView<'_, T, D>) -> Error {
    Error::NotStandardLayout {
        shape: array.shape().to_vec(),
        strides: array.strides().to_vec(),
    }
}

/// The error of a shape that elements fill, but ndarray refuses: an empty one with large other axes.
fn too_large(shape: &[usize]) -> Error {
    Error::ShapeTooLarge {
        shape: shape.to_vec(),
    }
}

impl<'a, T, D: Dimension> TryFrom<ArrayView<'a, T, D>> for Tensor<'a, T> {
    type Error = Error;

    /// The elements of a view as a tensor of the same shape, without a copy.
    ///
    /// # Errors
    /// [`Error::NotStandardLayout`] for a view that is not contiguous in row-major order, a transposed one for example;
    /// [`Error::ShapeTooLarge`] for more than 4 axes.
    fn try_from(array: ArrayView<'a, T, D>) -> Result<Self, Error> {
        let data = array.to_slice().ok_or_else(|| not_standard(&array))?;
        Self::new(data, array.shape())
    }
}

impl<'a, T, S: Data<Elem = T>, D: Dimension> TryFrom<&'a ArrayBase<S, D>> for Tensor<'a, T> {
    type Error = Error;

    /// The elements of an array as a tensor of the same shape, without a copy.
    ///
    /// # Errors
    /// [`Error::NotStandardLayout`], [`Error::ShapeTooLarge`] for more than 4 axes.
    fn try_from(array: &'a ArrayBase<S, D>) -> Result<Self, Error> {
        array.view().try_into()
    }
}

impl<'a, T, D: Dimension> TryFrom<ArrayViewMut<'a, T, D>> for TensorMut<'a, T> {
    type Error = Error;

    /// The elements of a view as a tensor of the same shape, to be written in place: the output of
    /// [`Operator::forward`] for example.
    ///
    /// # Errors
    /// [`Error::NotStandardLayout`], [`Error::ShapeTooLarge`] for more than 4 axes.
    fn try_from(array: ArrayViewMut<'a, T, D>) -> Result<Self, Error> {
        if !array.is_standard_layout() {
            return Err(not_standard(&array.view()));
        }
        let shape = array.raw_dim();
        // An array in standard layout is a slice; an empty one would not have its length.
        let data = array.into_slice().unwrap_or_default();
        Self::new(data, shape.slice())
    }
}

impl<'a, T, S: DataMut<Elem = T>, D: Dimension> TryFrom<&'a mut ArrayBase<S, D>>
    for TensorMut<'a, T>
{
    type Error = Error;

    /// The elements of an array as a tensor of the same shape, to be written in place.
    ///
    /// # Errors
    /// [`Error::NotStandardLayout`], [`Error::ShapeTooLarge`] for more than 4 axes.
    fn try_from(array: &'a mut ArrayBase<S, D>) -> Result<Self, Error> {
        array.view_mut().try_into()
    }
}

impl<T> Evaluation<T> {
    /// The output as an array `[blades, batch, channels]` of ndarray, without a copy (feature `ndarray`).
    ///
    /// ```
    /// use flashcliff::ndarray::{Array2, Array3, ArrayD};
    /// use flashcliff::{Algebra, Signature, Tensor, ops};
    ///
    /// let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
    /// let op = ops::sgp_norm(algebra, &ops::ProductOptions::default())?;
    /// // 8 blades, a batch of 2, 5 channels; each channel has a weight for each of the 20 paths.
    /// let x = Array3::from_shape_fn((8, 2, 5), |(blade, _, channel)| (blade + channel) as f32);
    /// let w = Array2::from_elem((5, 20), 0.1_f32);
    ///
    /// let inputs = [Tensor::try_from(&x)?, Tensor::try_from(&x)?, Tensor::try_from(&w)?];
    /// let evaluation = op.evaluate(&inputs)?;
    /// let o = evaluation.array()?;
    /// assert_eq!(o.dim(), (8, 2, 5));
    ///
    /// // The gradients of all inputs for the loss `(o * o).sum() / 2`, whose gradient is `o`.
    /// let gradients: Vec<ArrayD<f32>> =
    ///     op.gradient_arrays(&inputs, &evaluation, Tensor::try_from(o)?)?;
    /// assert_eq!(gradients[2].shape(), [5, 20]);
    /// # Ok::<(), flashcliff::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] or [`Error::ShapeMismatch`] if the fields were changed and no longer fit each other or
    /// have other than 3 axes.
    pub fn array(&self) -> Result<ArrayView3<'_, T>, Error> {
        let shape = self.axes()?;
        ArrayView3::from_shape(shape, &self.output).map_err(|_| too_large(&shape))
    }

    /// The output as an array `[blades, batch, channels]` of ndarray that owns its elements, without a copy (feature
    /// `ndarray`).
    ///
    /// # Errors
    /// The errors of [`Self::array`].
    pub fn into_array(self) -> Result<Array3<T>, Error> {
        let shape = self.axes()?;
        Array3::from_shape_vec(shape, self.output).map_err(|_| too_large(&shape))
    }

    /// The three axes of the output, which fills them.
    fn axes(&self) -> Result<[usize; 3], Error> {
        let tensor = self.tensor()?;
        let shape = tensor.shape();
        shape.try_into().map_err(|_| Error::ShapeMismatch {
            operator: "evaluation".to_owned(),
            tensor: "output".to_owned(),
            expected: "[blades, batch, channels]".to_owned(),
            got: shape.to_vec(),
        })
    }
}

impl Operator {
    /// Runs [`Self::gradients`]. Returns the gradients of all inputs, in order and of their shapes, as arrays of ndarray
    /// (feature `ndarray`). [`Evaluation::array`] has an example.
    ///
    /// # Errors
    /// The errors of [`Self::gradients`].
    pub fn gradient_arrays<T: Element>(
        &self,
        inputs: &[Tensor<'_, T>],
        evaluation: &Evaluation<T>,
        grad_output: Tensor<'_, T>,
    ) -> Result<Vec<ArrayD<T>>, Error> {
        let gradients = self.gradients(inputs, evaluation, grad_output)?;
        let shaped = gradients.into_iter().zip(inputs).map(|(gradient, input)| {
            let shape = input.shape();
            ArrayD::from_shape_vec(shape, gradient).map_err(|_| too_large(shape))
        });
        shaped.collect()
    }
}
