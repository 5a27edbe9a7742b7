// The arguments of a kernel on rows with scalar channels beside the channels, or on tensors with their own strides.
#pragma once

#include "../types.h"

namespace fc {

// The most threads of a CTA.
constexpr int kWalkThreads = 128;

struct Walk {
  const void *inputs[FC_MAX_TENSORS];
  void *outputs[FC_MAX_TENSORS];
  const void *params[FC_MAX_PARAMS];
  fc_strides input_strides[FC_MAX_TENSORS];
  fc_strides output_strides[FC_MAX_TENSORS];
  void *saved;
  // Of the channels and of the scalar channels: [CTAs, sums over the batch, channels], in the arithmetic type; null if nobody wants sums.
  void *partials[2];
  int64_t batch;
  int64_t channels[2];
  // Epsilon and 1 / channels in both arithmetics, so that no thread converts them.
  double eps, inv_channels;
  float eps_f32, inv_channels_f32;
  int gate;
  int lane_dtype;
  int param_dtype;
  int threads_per_row;  // a power of two up to 32
};

}  // namespace fc
