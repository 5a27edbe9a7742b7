// The features of attention: from items to the features of each head and back.
//
// A thread has one head of one row. The features of the rows of a CTA are one piece of memory, which goes through shared memory,
// so that it is read and written in order.
#include "items.cuh"

namespace fc {
namespace {

// The features of a head, and a CTA's threads: fewer where their features would not fit.
constexpr int kMostThreads = 64;
// Loads that a thread has under way at once.
constexpr int kAhead = 8;
constexpr int kSharedBytes = 48 * 1024;

struct HeadsCall {
  fc_item_split split;
  fc_item_tensor to[FC_ITEM_PARTS];
  int64_t features[FC_ITEM_PARTS];  // of a head
  int stride;                       // of a thread's features in shared memory: odd, against conflicts
};

extern __shared__ __align__(16) unsigned char shared[];

// A point and its weight w, scaled: p' = p w / (w^2 + eps), w' = w w / (w^2 + eps).
template <class T>
struct Scaling {
  T factor, slope;  // the factor of p and w, and its slope by w
  FC_INLINE Scaling(T w, T eps) {
    const T below = 1 / (w * w + eps);
    factor = w * below;
    slope = (eps - w * w) * below * below;
  }
};

// One head of one row.
template <int Blades, class T, class S>
struct Head {
  const fc_item_split &split;
  const fc_item_part &part;
  const Items<T, S> x;
  const int dtype;
  const int64_t row, head, channels, scalars;

  FC_INLINE Head(const HeadsCall &call, int at, int64_t own_row, int64_t own_head)
      : split(call.split),
        part(call.split.parts[at]),
        x(part.x, call.split.items.dtype),
        dtype(call.split.items.dtype),
        row(own_row),
        head(own_head),
        channels(call.split.items.channels),
        scalars(call.split.items.scalars) {}

  FC_INLINE void read(const Items<T, S> &from, int64_t c, T (&values)[Blades]) const {
#pragma unroll
    for (int b = 0; b < Blades; b++) values[b] = from.template load<1>(row, b, c * part.heads + head).v[0];
  }
  FC_INLINE T scalar(int64_t s) const { return x.template load_scalars<1>(row, s * part.heads + head).v[0]; }
  FC_INLINE T weight(int64_t c) const {
    if (part.weights == nullptr) return T(1);
    return load_lanes<S, T, 1>(static_cast<const S *>(part.weights) + c * part.heads + head, dtype).v[0];
  }
  FC_INLINE bool takes(int b) const { return part.taken >> b & 1; }
  FC_INLINE T sign(int b) const { return part.negative >> b & 1 ? T(-1) : T(1); }
  FC_INLINE T mean() const {
    T sum = 0;
    for (int64_t c = 0; c < channels; c++) {
      T values[Blades];
      read(x, c, values);
      sum += grade_magnitudes<Blades>(values, split.metric);
    }
    return sum / T(channels);
  }
  // The mean of the scalars, and the reciprocal of their standard deviation.
  FC_INLINE void moments(T *mean, T *scale) const {
    T sum = 0, squares = 0;
    for (int64_t s = 0; s < scalars; s++) sum += scalar(s);
    *mean = sum / T(scalars);
    for (int64_t s = 0; s < scalars; s++) squares += (scalar(s) - *mean) * (scalar(s) - *mean);
    *scale = reciprocal_root(squares / T(scalars) + T(split.scalar_eps));
  }

  // The features, one after another.
  FC_INLINE void write(T *to) const {
    const T scale = split.normalised ? reciprocal_root(larger(mean(), T(split.eps))) : T(1);
    for (int64_t c = 0; c < channels; c++) {
      T values[Blades];
      read(x, c, values);
      T *at = to + c;
#pragma unroll
      for (int b = 0; b < Blades; b++) {
        if (!takes(b)) continue;
        *at = values[b] * scale * sign(b);
        at += channels;
      }
      if (part.distances != FC_DISTANCES_NONE) distances(values, c, at);
    }
    T *at = to + offset_of_scalars();
    T middle = 0, spread = 1;
    if (split.normalised && scalars > 0) moments(&middle, &spread);
    for (int64_t s = 0; s < scalars; s++) at[s] = (scalar(s) - middle) * spread;
  }

  FC_INLINE int64_t offset_of_scalars() const {
    const int more = part.distances == FC_DISTANCES_NONE ? 0 : split.dim + 2;
    return channels * (__popc(part.taken) + more);
  }

  // Query: (2 w' p', -w'^2, -|p'|^2) times the weight; key: (w' p', |p'|^2, w'^2).
  FC_INLINE void distances(const T (&values)[Blades], int64_t c, T *at) const {
    const int last = split.first + split.dim;
    const Scaling<T> scaling(chosen(values, last), T(split.distance_eps));
    const T w = chosen(values, last) * scaling.factor, factor = weight(c);
    const bool query = part.distances == FC_DISTANCES_QUERY;
    T square = 0;
    for (int i = 0; i < split.dim; i++) {
      const T p = chosen(values, split.first + i) * scaling.factor;
      square += p * p;
      *at = (query ? 2 * w * p : w * p) * factor;
      at += channels;
    }
    *at = (query ? -w * w : square) * factor;
    at += channels;
    *at = (query ? -square : w * w) * factor;
  }

  // An element whose place is known at run time only, without an array in local memory.
  FC_INLINE static T chosen(const T (&values)[Blades], int at) {
    T found = 0;
#pragma unroll
    for (int b = 0; b < Blades; b++) found = b == at ? values[b] : found;
    return found;
  }
  FC_INLINE static void add_to(T (&values)[Blades], int at, T more) {
#pragma unroll
    for (int b = 0; b < Blades; b++) values[b] += b == at ? more : T(0);
  }

  // The channels that a thread keeps in registers while it reads all others.
  static constexpr int kKept = Blades * sizeof(T) <= 64 ? 2 : 1;

  // The gradient of the items from that of the features, g. A few channels at a time are read before anything is written, because the
  // compiler may not move a load across a store.
  FC_INLINE void gradient(const T *g, const Items<T, S> &to) const {
    T values[kKept][Blades], slopes[kKept][Blades];
    const auto each = [&](int64_t first, auto &&f) {
#pragma unroll
      for (int k = 0; k < kKept; k++) {
        if (first + k < channels) f(first + k, values[k], slopes[k]);
      }
    };
    const auto load = [&](int64_t first) {
      each(first, [&](int64_t c, T (&value)[Blades], T (&slope)[Blades]) {
        read(x, c, value);
        of_blades(g + c, slope);
      });
    };
    T scale = 1, share = 0, sum = 0, dot = 0;
    // The first channels come last, and stay in registers.
    for (int64_t first = channels > 0 ? (channels - 1) / kKept * kKept : 0; first >= 0; first -= kKept) {
      if (first > 0 && !split.normalised) continue;
      load(first);
      each(first, [&](int64_t, T (&value)[Blades], T (&slope)[Blades]) {
        sum += grade_magnitudes<Blades>(value, split.metric);
#pragma unroll
        for (int b = 0; b < Blades; b++) dot += slope[b] * value[b];
      });
    }
    if (split.normalised) {
      const T average = sum / T(channels);
      scale = reciprocal_root(larger(average, T(split.eps)));
      if (average > T(split.eps)) share = -dot * scale * scale * scale / T(channels);
    }
    for (int64_t first = 0; first < channels; first += kKept) {
      if (first > 0) load(first);
      each(first, [&](int64_t c, T (&value)[Blades], T (&slope)[Blades]) {
        if (split.normalised) {
          T turned[Blades];
          grade_slopes<Blades>(value, split.metric, turned);
#pragma unroll
          for (int b = 0; b < Blades; b++) slope[b] = slope[b] * scale + share * turned[b] * value[b];
        }
        if (part.distances != FC_DISTANCES_NONE) {
          distance_gradient(value, c, g + c + channels * __popc(part.taken), slope);
        }
      });
      each(first, [&](int64_t c, T (&)[Blades], T (&slope)[Blades]) {
#pragma unroll
        for (int b = 0; b < Blades; b++) to.template store<1>(row, b, c * part.heads + head, Lanes<T, 1>{{slope[b]}});
      });
    }
    scalar_gradient(g + offset_of_scalars(), to);
  }

  // The gradients of the blades of a channel.
  FC_INLINE void of_blades(const T *g, T (&slopes)[Blades]) const {
#pragma unroll
    for (int b = 0; b < Blades; b++) {
      slopes[b] = 0;
      if (!takes(b)) continue;
      slopes[b] = *g * sign(b);
      g += channels;
    }
  }

  FC_INLINE void distance_gradient(const T (&values)[Blades], int64_t c, const T *g, T (&slopes)[Blades]) const {
    const int last = split.first + split.dim;
    const T weight_of_point = chosen(values, last);
    const Scaling<T> scaling(weight_of_point, T(split.distance_eps));
    const T w = weight_of_point * scaling.factor, factor = weight(c);
    const bool query = part.distances == FC_DISTANCES_QUERY;
    const T g_first = g[split.dim * channels], g_second = g[(split.dim + 1) * channels];
    const T of_square = query ? -g_second : g_first, of_w_square = query ? -g_first : g_second;
    const T of_product = query ? T(2) : T(1);
    T of_w = 2 * w * of_w_square, of_factor = 0, of_weight = w * w * of_w_square;
    for (int i = 0; i < split.dim; i++) {
      const T coordinate = chosen(values, split.first + i), p = coordinate * scaling.factor;
      const T slope = g[i * channels] * of_product;
      const T of_p = slope * w + 2 * p * of_square;
      of_weight += slope * w * p + p * p * of_square;
      of_w += slope * p;
      of_factor += of_p * coordinate;
      add_to(slopes, split.first + i, of_p * scaling.factor * factor);
    }
    of_factor += of_w * weight_of_point;
    add_to(slopes, last, (of_w * scaling.factor + of_factor * scaling.slope) * factor);
    if (part.of_weights != nullptr) {
      S *place = static_cast<S *>(part.of_weights) + (row * channels + c) * part.heads + head;
      store_lanes<S, T, 1>(place, Lanes<T, 1>{{of_weight}}, dtype);
    }
  }

  FC_INLINE void scalar_gradient(const T *g, const Items<T, S> &to) const {
    T middle = 0, spread = 1, slopes = 0, projected = 0;
    if (split.normalised && scalars > 0) {
      moments(&middle, &spread);
      for (int64_t s = 0; s < scalars; s++) {
        slopes += g[s];
        projected += g[s] * ((scalar(s) - middle) * spread);
      }
      slopes /= T(scalars);
      projected /= T(scalars);
    }
    for (int64_t s = 0; s < scalars; s++) {
      T slope = g[s];
      if (split.normalised) slope = (slope - slopes - (scalar(s) - middle) * spread * projected) * spread;
      to.template store_scalars<1>(row, s * part.heads + head, Lanes<T, 1>{{slope}});
    }
  }
};

template <int Blades, class T, bool Backward>
__global__ void __launch_bounds__(kMostThreads) heads_kernel(const __grid_constant__ HeadsCall call) {
  const int at = int(blockIdx.y);
  const fc_item_part &part = call.split.parts[at];
  const int64_t pairs = call.split.items.rows * part.heads, first = int64_t(blockIdx.x) * blockDim.x;
  if (first >= pairs) return;
  const int64_t features = call.features[at];
  const int64_t count = pairs - first < blockDim.x ? pairs - first : int64_t(blockDim.x);
  T *tile = reinterpret_cast<T *>(shared);
  T *own = tile + threadIdx.x * call.stride;
  with_storage<T>(call.split.items.dtype, [&](auto *type) {
    using S = typename Element<decltype(type)>::Type;
    S *memory = static_cast<S *>(part.features) + first * features;
    const int dtype = call.split.items.dtype;
    int64_t head;
    const int64_t pair = first + threadIdx.x;
    const int64_t row = divided(pair < pairs ? pair : pairs - 1, part.heads, &head);
    const Head<Blades, T, S> mine(call, at, row, head);
    if (!Backward && pair < pairs) mine.write(own);
    if (!Backward) __syncthreads();
    const auto place = [&](int64_t i) {
      int64_t feature;
      const int64_t thread = divided(i, features, &feature);
      return tile + thread * call.stride + feature;
    };
    const int64_t all = count * features;
    if constexpr (Backward) {
      // Several loads are under way at once.
      for (int64_t first = threadIdx.x; first < all; first += kAhead * blockDim.x) {
        T values[kAhead];
        FC_EACH(kAhead, const int64_t at = first + i * blockDim.x;
                if (at < all) values[i] = load_lanes<S, T, 1>(memory + at, dtype).v[0];)
        FC_EACH(kAhead, const int64_t at = first + i * blockDim.x; if (at < all) *place(at) = values[i];)
      }
    } else {
      for (int64_t i = threadIdx.x; i < all; i += blockDim.x) {
        store_lanes<S, T, 1>(memory + i, Lanes<T, 1>{{*place(i)}}, dtype);
      }
    }
    if (!Backward) return;
    __syncthreads();
    if (pair < pairs) mine.gradient(own, Items<T, S>(call.to[at], dtype));
  });
}

int64_t features_of(const fc_item_split &split, const fc_item_part &part) {
  const int more = part.distances == FC_DISTANCES_NONE ? 0 : split.dim + 2;
  return split.items.channels * (__builtin_popcount(part.taken) + more) + split.items.scalars;
}

bool good_part(const fc_item_split &split, const fc_item_part &part) {
  if (part.heads < 1 || !good(split.items, &part.x)) return false;
  if (split.items.rows > 0 && part.features == nullptr) return false;
  if (split.items.blades < 32 && part.taken >> split.items.blades != 0) return false;
  if (part.distances == FC_DISTANCES_NONE) return true;
  // Distances are those of points that were not normalised.
  if (split.normalised) return false;
  const bool known = part.distances == FC_DISTANCES_QUERY || part.distances == FC_DISTANCES_KEY;
  return known && split.first >= 0 && split.dim >= 0 && split.first + split.dim < split.items.blades;
}

template <bool Backward>
int launch(HeadsCall &call, void *stream) {
  const fc_item_split &split = call.split;
  if (!good(&split.items) || split.count < 1 || split.count > FC_ITEM_PARTS) return FC_ERROR_BAD_CALL;
  int64_t most_features = 0, most_heads = 0;
  for (int i = 0; i < split.count; i++) {
    if (!good_part(split, split.parts[i])) return FC_ERROR_BAD_CALL;
    if (Backward && !good(split.items, &call.to[i])) return FC_ERROR_BAD_CALL;
    call.features[i] = features_of(split, split.parts[i]);
    most_features = call.features[i] > most_features ? call.features[i] : most_features;
    most_heads = split.parts[i].heads > most_heads ? split.parts[i].heads : most_heads;
  }
  if (split.items.rows == 0 || most_features == 0) return 0;
  const int64_t bytes = (most_features | 1) * (split.items.dtype == FC_F64 ? 8 : 4);
  int threads = kMostThreads;
  while (threads > 1 && threads * bytes > kSharedBytes) threads /= 2;
  if (threads * bytes > kSharedBytes) return FC_ERROR_TOO_LARGE;
  call.stride = int(most_features | 1);
  const int64_t ctas = ceil_quotient(split.items.rows * most_heads, threads);
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  const dim3 grid(unsigned(ctas), unsigned(split.count));
  return with_types(split.items, [&](auto blades, auto *type) {
    using T = typename Element<decltype(type)>::Type;
    constexpr int kBlades = decltype(blades)::value;
    heads_kernel<kBlades, T, Backward>
        <<<grid, threads, size_t(threads * bytes), static_cast<cudaStream_t>(stream)>>>(call);
    return int(cudaGetLastError());
  });
}

}  // namespace
}  // namespace fc

extern "C" int fc_item_heads(const fc_item_split *split, void *stream) {
  if (split == nullptr) return FC_ERROR_BAD_CALL;
  fc::HeadsCall call = {};
  call.split = *split;
  return fc::launch<false>(call, stream);
}

extern "C" int fc_item_heads_gradient(const fc_item_split *split, const fc_item_tensor *to, void *stream) {
  if (split == nullptr || to == nullptr) return FC_ERROR_BAD_CALL;
  fc::HeadsCall call = {};
  call.split = *split;
  for (int i = 0; i < split->count && i < FC_ITEM_PARTS; i++) call.to[i] = to[i];
  return fc::launch<true>(call, stream);
}
