// The heads of attention side by side, as the linear layer after it reads them, and back. A thread copies a word of some rows, or converts
// a few elements of each between f32 and 16 bits: where a word goes is found by divisions, which take longer than the copy.
#include "items.cuh"
#include "skeleton/launch.cuh"

namespace fc {
namespace {

constexpr int kThreads = 256;
constexpr int kManyRows = 8;                      // of a thread, where there are threads enough
constexpr int64_t kManyWords = int64_t(1) << 20;  // from so many words on

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
  using Value = S;
  FC_INLINE explicit Copy(int) {}
  FC_INLINE S of_merged(const S *merged) const { return *merged; }
  FC_INLINE S of_feature(const S *feature) const { return *feature; }
  FC_INLINE void to_merged(S *merged, S value) const { *merged = value; }
  FC_INLINE void to_feature(S *feature, S value) const { *feature = value; }
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
  using Value = Lanes<float, N>;
  FC_INLINE Value of_merged(const Merged *merged) const { return load_lanes<float, float, N>(merged->elements, FC_F32); }
  FC_INLINE Value of_feature(const Feature *feature) const { return load_lanes<Bits16, float, N>(feature->elements, dtype); }
  FC_INLINE void to_merged(Merged *merged, const Value &value) const {
    store_lanes<float, float, N>(merged->elements, value, FC_F32);
  }
  FC_INLINE void to_feature(Feature *feature, const Value &value) const {
    store_lanes<Bits16, float, N>(feature->elements, value, dtype);
  }
};

// All counts of the call are of words.
template <class Words, int Rows, bool Back>
__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ MergeCall call) {
  take_turn();
  using Merged = typename Words::Merged;
  using Feature = typename Words::Feature;
  const int64_t heads = call.features.heads, channels = call.items.channels, scalars = call.items.scalars;
  const int64_t of_blade = heads * channels, of_blades = call.items.blades * of_blade;
  const int64_t width = of_blades + heads * scalars;
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  int64_t column, inner, head, channel, rest;
  const int64_t row = divided(at, width, &column) * Rows, left = call.items.rows - row;
  if (left <= 0) return;
  const int64_t outer = divided(row, call.features.inner, &inner);
  Merged *merged;
  int64_t feature, merged_stride;
  if (column < of_blades) {
    const int64_t blade = divided(column, of_blade, &rest);
    head = divided(rest, channels, &channel);
    feature = blade * channels + channel;
    merged = static_cast<Merged *>(call.merged.multivectors) + blade * call.merged.blade_stride + row * call.merged.row_stride + rest;
    merged_stride = call.merged.row_stride;
  } else {
    rest = column - of_blades;
    head = divided(rest, scalars, &channel);
    feature = call.items.blades * channels + channel;
    merged = static_cast<Merged *>(call.merged.scalars) + row * call.merged.scalar_stride + rest;
    merged_stride = call.merged.scalar_stride;
  }
  Feature *of_head = static_cast<Feature *>(call.features.features) + outer * call.features.outer_stride +
                     head * call.features.head_stride + inner * call.features.inner_stride + feature;
  const int64_t to_next_outer = call.features.outer_stride - call.features.inner * call.features.inner_stride;
  const Words words(call.features.dtype);
  typename Words::Value values[Rows];
  Feature *features[Rows];
#pragma unroll
  for (int i = 0; i < Rows; i++) {
    features[i] = of_head;
    if (i < left) values[i] = Back ? words.of_merged(merged + i * merged_stride) : words.of_feature(of_head);
    of_head += call.features.inner_stride;
    if (++inner == call.features.inner) {
      of_head += to_next_outer;
      inner = 0;
    }
  }
#pragma unroll
  for (int i = 0; i < Rows; i++) {
    if (i >= left) break;
    if constexpr (Back) {
      words.to_feature(features[i], values[i]);
    } else {
      words.to_merged(merged + i * merged_stride, values[i]);
    }
  }
}

template <class Words>
int start(const MergeCall &call, int back, void *stream) {
  const int64_t width = call.features.heads * (call.items.blades * call.items.channels + call.items.scalars);
  const auto run = [&](auto of_thread) {
    constexpr int kRows = decltype(of_thread)::value;
    const int64_t ctas = ceil_quotient(ceil_quotient(call.items.rows, kRows) * width, kThreads);
    if (ctas > 0x7fffffff) return int(FC_ERROR_TOO_LARGE);
    if (ctas == 0) return 0;
    const auto kernel = back ? merge_kernel<Words, kRows, true> : merge_kernel<Words, kRows, false>;
    return int(launch_in_turn(kernel, dim3(unsigned(ctas)), dim3(kThreads), 0, stream, call));
  };
  if (call.items.rows * width >= kManyWords) return run(std::integral_constant<int, kManyRows>{});
  return run(std::integral_constant<int, 1>{});
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
  if (!fc::good_features(items->dtype, features->dtype)) return FC_ERROR_BAD_CALL;
  // Rows of sequences without items: there are none, however many sequences there are.
  if (items->rows == 0) return 0;
  if (features->inner < 1 || features->heads < 1 || features->features == nullptr) return FC_ERROR_BAD_CALL;
  fc::MergeCall call = {*items, *features, *merged};
  const int joined = fc::joined_words(call);
  if (items->dtype != features->dtype) {
    switch (joined) {
      case 1: return fc::start<fc::Converted<1>>(call, back, stream);
      case 2: return fc::start<fc::Converted<2>>(call, back, stream);
      default: return fc::start<fc::Converted<4>>(call, back, stream);
    }
  }
  switch (joined * fc::element_bytes(items->dtype)) {
    case 2: return fc::start<fc::Copy<uint16_t>>(call, back, stream);
    case 4: return fc::start<fc::Copy<uint32_t>>(call, back, stream);
    case 8: return fc::start<fc::Copy<uint2>>(call, back, stream);
    default: return fc::start<fc::Copy<uint4>>(call, back, stream);
  }
}
