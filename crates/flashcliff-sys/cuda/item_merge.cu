// The heads of attention side by side, as the linear layer behind it reads them, and back. A thread copies one word, or
// converts a few elements between f32 and 16 bits.
#include "items.cuh"

namespace fc {
namespace {

constexpr int kThreads = 256;

struct MergeCall {
  fc_items items;
  fc_item_features features;
  fc_item_tensor merged;
};

// Copies a word.
template <class S>
struct Copy {
  using Merged = S;
  using Feature = S;
  FC_INLINE explicit Copy(int) {}
  FC_INLINE void there(S *merged, const S *feature) const { *merged = *feature; }
  FC_INLINE void back(S *feature, const S *merged) const { *feature = *merged; }
};

// N neighbouring elements, of f32 and of 16 bits.
template <int N>
struct Converted {
  struct alignas(4 * N) Merged {
    float elements[N];
  };
  struct alignas(2 * N) Feature {
    Bits16 elements[N];
  };
  int dtype;
  FC_INLINE explicit Converted(int of_features) : dtype(of_features) {}
  FC_INLINE void there(Merged *merged, const Feature *feature) const {
    store_lanes<float, float, N>(merged->elements, load_lanes<Bits16, float, N>(feature->elements, dtype), FC_F32);
  }
  FC_INLINE void back(Feature *feature, const Merged *merged) const {
    store_lanes<Bits16, float, N>(feature->elements, load_lanes<float, float, N>(merged->elements, FC_F32), dtype);
  }
};

// All counts of the call are of words.
template <class Words, bool Back>
__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ MergeCall call) {
  using Merged = typename Words::Merged;
  using Feature = typename Words::Feature;
  const int64_t heads = call.features.heads, channels = call.items.channels, scalars = call.items.scalars;
  const int64_t of_blade = heads * channels, of_blades = call.items.blades * of_blade;
  const int64_t width = of_blades + heads * scalars;
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= call.items.rows * width) return;
  int64_t column, inner, head, channel, rest;
  const int64_t row = divided(at, width, &column);
  const int64_t outer = divided(row, call.features.inner, &inner);
  Merged *merged;
  int64_t feature;
  if (column < of_blades) {
    const int64_t blade = divided(column, of_blade, &rest);
    head = divided(rest, channels, &channel);
    feature = blade * channels + channel;
    merged = static_cast<Merged *>(call.merged.multivectors) + blade * call.merged.blade_stride + row * call.merged.row_stride + rest;
  } else {
    rest = column - of_blades;
    head = divided(rest, scalars, &channel);
    feature = call.items.blades * channels + channel;
    merged = static_cast<Merged *>(call.merged.scalars) + row * call.merged.scalar_stride + rest;
  }
  Feature *of_head = static_cast<Feature *>(call.features.features) + outer * call.features.outer_stride +
                     head * call.features.head_stride + inner * call.features.inner_stride + feature;
  const Words words(call.features.dtype);
  if constexpr (Back) {
    words.back(of_head, merged);
  } else {
    words.there(merged, of_head);
  }
}

template <class Words>
int launch(const MergeCall &call, int back, void *stream) {
  const int64_t width = call.features.heads * (call.items.blades * call.items.channels + call.items.scalars);
  const int64_t ctas = ceil_quotient(call.items.rows * width, kThreads);
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  if (ctas == 0) return 0;
  const auto on = static_cast<cudaStream_t>(stream);
  if (back) {
    merge_kernel<Words, true><<<unsigned(ctas), kThreads, 0, on>>>(call);
  } else {
    merge_kernel<Words, false><<<unsigned(ctas), kThreads, 0, on>>>(call);
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

// Joins neighbouring elements to words of up to 16 bytes, as long as all counts and addresses allow it. Returns the elements of a
// word.
int joined_words(MergeCall &call) {
  const int of_items = element_bytes(call.items.dtype), of_features = element_bytes(call.features.dtype);
  int joined = 1;
  while (joined * of_items < 16) {
    bool whole = true;
    for_counts(call, [&](int64_t count) { whole = whole && count % 2 == 0; });
    const auto aligned = [&](const void *p, int bytes) {
      whole = whole && reinterpret_cast<uintptr_t>(p) % uintptr_t(2 * joined * bytes) == 0;
    };
    aligned(call.features.features, of_features);
    aligned(call.merged.multivectors, of_items);
    aligned(call.merged.scalars, of_items);
    if (!whole) break;
    for_counts(call, [](int64_t &count) { count /= 2; });
    joined *= 2;
  }
  return joined;
}

}  // namespace
}  // namespace fc

extern "C" int fc_item_merge(const fc_items *items, const fc_item_features *features, const fc_item_tensor *merged, int back,
                             void *stream) {
  if (!fc::good(items) || features == nullptr || !fc::good(*items, merged)) return FC_ERROR_BAD_CALL;
  if (features->inner < 1 || features->heads < 1 || (items->rows > 0 && features->features == nullptr)) {
    return FC_ERROR_BAD_CALL;
  }
  if (!fc::good_features(items->dtype, features->dtype)) return FC_ERROR_BAD_CALL;
  fc::MergeCall call = {*items, *features, *merged};
  const int joined = fc::joined_words(call);
  if (items->dtype != features->dtype) {
    switch (joined) {
      case 1: return fc::launch<fc::Converted<1>>(call, back, stream);
      case 2: return fc::launch<fc::Converted<2>>(call, back, stream);
      default: return fc::launch<fc::Converted<4>>(call, back, stream);
    }
  }
  switch (joined * fc::element_bytes(items->dtype)) {
    case 2: return fc::launch<fc::Copy<uint16_t>>(call, back, stream);
    case 4: return fc::launch<fc::Copy<uint32_t>>(call, back, stream);
    case 8: return fc::launch<fc::Copy<uint2>>(call, back, stream);
    default: return fc::launch<fc::Copy<uint4>>(call, back, stream);
  }
}
