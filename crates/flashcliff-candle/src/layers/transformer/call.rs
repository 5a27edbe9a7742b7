//! The arguments of a call of a layer besides its tokens.

use candle_core::Tensor;

use super::{Draw, Scope, Tokens};

/// The arguments of a call of a layer besides its tokens. By default items attend to all items of their sample, and nothing is dropped.
///
/// ```
/// use candle_core::Device;
/// use flashcliff_candle::layers::transformer::{Call, Draws, Scope, Sequences};
///
/// let draws = Draws::new(1, &Device::Cpu)?;
/// let (draw, scope) = (draws.draw()?, Scope::Within(Sequences::new(&[0, 3, 7])?));
/// let training = Call { scope: &scope, draw: Some(&draw), ..Call::default() };
/// assert!(training.reference.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The reference of joins, `[samples, items]`. Layers with joins need one. A network makes its own if there is none.
    pub reference: Option<&'a Tensor>,
    /// Whom items attend to.
    pub scope: &'a Scope,
    /// More channels of the same items, for layers with [`extra`](super::AttentionOptions::extra) channels. A network
    /// takes them from its input.
    pub extra: Option<&'a Tokens>,
    /// The random numbers of dropout. Without any nothing is dropped, as in prediction.
    pub draw: Option<&'a Draw>,
}

impl<'a> Call<'a> {
    /// A call with a reference, if there is one, and a scope.
    pub(crate) fn within(reference: Option<&'a Tensor>, scope: &'a Scope) -> Self {
        Self {
            reference,
            scope,
            ..Self::default()
        }
    }
}

impl Default for Call<'_> {
    fn default() -> Self {
        Self {
            reference: None,
            scope: &Scope::Sample,
            extra: None,
            draw: None,
        }
    }
}
