//! The size of the buffers of a plan.

use flashcliff::Dtype;

use super::plan::{Holder, Plan};

impl Plan {
    /// For each buffer of gradients the elements of the type of the features, and those of the type of the model where it has another. Gradients
    /// of one type share memory.
    pub(super) fn gradient_lens(&self, dtypes: [Dtype; 2]) -> Vec<[usize; 2]> {
        let mut lens = vec![[0; 2]; self.buffers.len()];
        for (value, buffer) in self.values.iter().zip(&self.gradient_of) {
            if let Some(buffer) = *buffer {
                let len = &mut lens[buffer][value.gradient_place(dtypes)];
                *len = value.len.max(*len);
            }
        }
        lens
    }

    /// The number of bytes of all buffers of values, with the types of the features and of the model.
    pub(super) fn value_bytes(&self, dtypes: [Dtype; 2]) -> usize {
        let values = self.values.iter().zip(self.blocks.lens());
        let values = values.filter(|(value, _)| matches!(value.holder, Holder::Buffer));
        values
            .map(|(value, len)| dtypes[usize::from(value.wide)].bytes() * len)
            .sum()
    }

    /// The number of bytes of all buffers of gradients of values.
    pub(super) fn gradient_bytes(&self, dtypes: [Dtype; 2]) -> usize {
        let gradients = self.gradient_lens(dtypes).into_iter();
        gradients
            .map(|[features, model]| features * dtypes[0].bytes() + model * dtypes[1].bytes())
            .sum()
    }

    /// The number of bytes of both.
    pub(super) fn bytes(&self, dtypes: [Dtype; 2]) -> usize {
        self.value_bytes(dtypes) + self.gradient_bytes(dtypes)
    }

    /// The number of elements of all buffers of values, and of all buffers of gradients.
    #[cfg(test)]
    pub(crate) fn elements(&self) -> [usize; 2] {
        let values = self.values.iter().zip(self.blocks.lens());
        let own = values.filter(|(value, _)| matches!(value.holder, Holder::Buffer));
        [own.map(|(_, len)| len).sum(), self.buffers.iter().sum()]
    }
}
