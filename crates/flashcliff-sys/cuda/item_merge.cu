// The heads of attention side by side, as the linear layer behind it reads them, and back. A thread copies one word.
#include "items.cuh"

namespace fc {
namespace {

constexpr int kThreads = 256;

struct MergeCall {
  fc_items items;
  fc_item_features features;
  fc_item_tensor merged;
};

template <class S, bool Back>
__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ MergeCall call) {
  const int64_t heads = call.features.heads, channels = call.items.channels, scalars = call.items.scalars;
  const int64_t of_blade = heads * channels, of_blades = call.items.blades * of_blade;
  const int64_t width = of_blades + heads * scalars;
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= call.items.rows * width) return;
  int64_t column, inner, head, channel, rest;
  const int64_t row = divided(at, width, &column);
  const int64_t outer = divided(row, call.features.inner, &inner);
  S *merged;
  int64_t feature;
  if (column < of_blades) {
    const int64_t blade = divided(column, of_blade, &rest);
    head = divided(rest, channels, &channel);
    feature = blade * channels + channel;
    merged = static_cast<S *>(call.merged.multivectors) + blade * call.merged.blade_stride + row * call.merged.row_stride + rest;
  } else {
    rest = column - of_blades;
    head = divided(rest, scalars, &channel);
    feature = call.items.blades * channels + channel;
    merged = static_cast<S *>(call.merged.scalars) + row * call.merged.scalar_stride + rest;
  }
  S *of_head = static_cast<S *>(call.features.features) + outer * call.features.outer_stride +
               head * call.features.head_stride + inner * call.features.inner_stride + feature;
  if constexpr (Back) {
    *of_head = *merged;
  } else {
    *merged = *of_head;
  }
}

template <class S>
int launch(const MergeCall &call, int back, void *stream) {
  const int64_t width = call.features.heads * (call.items.blades * call.items.channels + call.items.scalars);
  const int64_t ctas = ceil_quotient(call.items.rows * width, kThreads);
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  if (ctas == 0) return 0;
  const auto on = static_cast<cudaStream_t>(stream);
  if (back) {
    merge_kernel<S, true><<<unsigned(ctas), kThreads, 0, on>>>(call);
  } else {
    merge_kernel<S, false><<<unsigned(ctas), kThreads, 0, on>>>(call);
  }
  return cudaGetLastError();
}

// The numbers that count elements.
template <class F>
void for_counts(MergeCall &call, F &&f) {
  for (int64_t *count : {&call.items.channels, &call.items.scalars, &call.features.outer_stride, &call.features.head_stride,
                         &call.features.inner_stride, &call.merged.blade_stride, &call.merged.row_stride,
                         &call.merged.scalar_stride}) {
    f(*count);
  }
}

// Joins neighbouring elements to words of up to 16 bytes, as long as all counts and addresses allow it. Returns the bytes of a word.
int joined_words(MergeCall &call) {
  int bytes = element_bytes(call.items.dtype);
  while (bytes < 16) {
    bool whole = true;
    for_counts(call, [&](int64_t count) { whole = whole && count % 2 == 0; });
    for (const void *p : {call.features.features, call.merged.multivectors, call.merged.scalars}) {
      whole = whole && reinterpret_cast<uintptr_t>(p) % uintptr_t(2 * bytes) == 0;
    }
    if (!whole) break;
    for_counts(call, [](int64_t &count) { count /= 2; });
    bytes *= 2;
  }
  return bytes;
}

}  // namespace
}  // namespace fc

extern "C" int fc_item_merge(const fc_items *items, const fc_item_features *features, const fc_item_tensor *merged, int back,
                             void *stream) {
  if (!fc::good(items) || features == nullptr || !fc::good(*items, merged)) return FC_ERROR_BAD_CALL;
  if (features->inner < 1 || features->heads < 1 || (items->rows > 0 && features->features == nullptr)) {
    return FC_ERROR_BAD_CALL;
  }
  fc::MergeCall call = {*items, *features, *merged};
  switch (fc::joined_words(call)) {
    case 2: return fc::launch<uint16_t>(call, back, stream);
    case 4: return fc::launch<uint32_t>(call, back, stream);
    case 8: return fc::launch<uint2>(call, back, stream);
    default: return fc::launch<uint4>(call, back, stream);
  }
}
