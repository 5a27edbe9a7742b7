//! The functions of heads, compiled for each type of elements.

use super::{HeadFeatures, HeadItems, HeadItemsMut, HeadScales, HeadSizes};
use crate::Error;
use crate::compiled::compiled_here;

compiled_here! {
    /// The functions of [`HeadFeatures`].
    trait CompiledHeads {
        fn heads_forward(
            of: &HeadFeatures,
            sizes: HeadSizes,
            x: HeadItems<'_, Self>,
            weights: &[Self],
            scales: Option<HeadScales<'_, Self>>,
            features: &mut [Self],
        ) -> Result<(), Error> {
            of.forward_here(sizes, x, weights, scales, features)
        }

        fn heads_backward(
            of: &HeadFeatures,
            sizes: HeadSizes,
            x: HeadItems<'_, Self>,
            weights: &[Self],
            gradient: &[Self],
            to: HeadItemsMut<'_, Self>,
            of_weights: &mut [Self],
        ) -> Result<(), Error> {
            of.backward_here(sizes, x, weights, gradient, to, of_weights)
        }
    }
}
