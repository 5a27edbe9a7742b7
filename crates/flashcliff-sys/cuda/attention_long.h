// Attention within long sequences, for attention.cu.
#pragma once

#include "attention.h"

namespace fc {

// Whether the kernels below serve the long sequences of an attention that fc_attention_forward takes, on the current device, and there may
// be any.
bool long_serves(const fc_attention &of);

// Of long sequences alone: fc_attention_forward, and fc_attention_backward. `means` is room for the products of the result and its
// gradient, [heads, queries].
int long_forward(const fc_attention &of, void *stream);
int long_backward(const fc_attention &of, const fc_attention_tensor &gradient, const fc_attention_tensor *gradients, float *means,
                  void *stream);

}  // namespace fc
