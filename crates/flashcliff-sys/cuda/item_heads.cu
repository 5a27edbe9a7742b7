// The features of attention: from items to the features of each head and back.
//
// A few threads share one head of one row: each has some of the channels and of the scalars. The features of the rows of a CTA are one
// piece of memory, which goes through shared memory, so that it is read and written in order. Loops over channels and scalars stay
// loops: a longer kernel waits for its own instructions.
#include "items.cuh"
#include "skeleton/launch.cuh"

namespace fc {
namespace {

// A CTA's threads: fewer where their features would not fit.
constexpr int kMostThreads = 128;
// The most threads that share a head.
constexpr int kMostLanes = 8;
// Loads that a thread has under way at once. A thread has a few scalars and features; what it does for those that it
// does not have costs as much as for others.
constexpr int kAhead = 4;
constexpr int kSharedBytes = 48 * 1024;

struct HeadsCall {
  fc_item_split split;
  fc_item_tensor to[FC_ITEM_PARTS];
  int stride;  // of a head's features in shared memory: odd, against conflicts
  int lanes;   // threads of a head: 1 << shift
  int shift;
  int joined;  // the features that go to and from memory at a time: 1, 2 or 4
};

// A call for numbers of a type. A thread would convert what is the same for all: integers are slow to convert.
template <class T>
struct TypedCall {
  HeadsCall of;
  T norms[FC_ITEM_BLADES];  // the squared norms of blades
};

// A number with the other sign where a bit is set.
FC_INLINE float negated(float x, uint32_t bits, int bit) { return __uint_as_float(__float_as_uint(x) ^ (bits << (31 - bit) & 0x80000000u)); }
FC_INLINE double negated(double x, uint32_t bits, int bit) {
  return __hiloint2double(int(uint32_t(__double2hiint(x)) ^ (bits << (31 - bit) & 0x80000000u)), __double2loint(x));
}

extern __shared__ __align__(16) unsigned char shared[];

// The blades of points: coordinates and, after them, the weight.
template <int Blades>
struct Points {
  static constexpr int kCoordinates = dimensions(Blades) - 1;
  static constexpr int kWeight = Blades - 2;
  static constexpr int kFirst = kWeight - kCoordinates;
};

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

// The elements of one head of one row.
template <class T, class S>
struct Place {
  S *multivectors, *scalars;
  int64_t blade_stride;
  int heads, dtype;

  FC_INLINE Place(const fc_item_tensor &t, int64_t row, int head, int count, int type)
      : multivectors(static_cast<S *>(t.multivectors) + row * t.row_stride + head),
        scalars(static_cast<S *>(t.scalars) + row * t.scalar_stride + head),
        blade_stride(t.blade_stride),
        heads(count),
        dtype(type) {}

  template <int Blades>
  FC_INLINE void read(int c, T (&values)[Blades]) const {
    const S *at = multivectors + c * heads;
#pragma unroll
    for (int b = 0; b < Blades; b++, at += blade_stride) values[b] = load_lanes<S, T, 1>(at, dtype).v[0];
  }
  template <int Blades>
  FC_INLINE void write(int c, const T (&values)[Blades]) const {
    S *at = multivectors + c * heads;
#pragma unroll
    for (int b = 0; b < Blades; b++, at += blade_stride) store_lanes<S, T, 1>(at, Lanes<T, 1>{{values[b]}}, dtype);
  }
  FC_INLINE T scalar(int s) const { return load_lanes<S, T, 1>(scalars + s * heads, dtype).v[0]; }
  FC_INLINE void write_scalar(int s, T value) const {
    store_lanes<S, T, 1>(scalars + s * heads, Lanes<T, 1>{{value}}, dtype);
  }
};

// One head of one row. Early: the first values are read at once. A backward pass reads them where they are used: it has no registers for
// them while features come to shared memory.
template <int Blades, class T, class S, bool Early>
struct Head {
  using Point = Points<Blades>;
  const fc_item_split &split;
  const fc_item_part &part;
  const T *const norms;
  const Place<T, S> x;
  const int64_t row;
  const int head, channels, scalars;
  const int lane, lanes, shift;  // of the threads that share the head
  // The channel of the first turn, and some scalars, which several sums go through.
  T first_values[Early ? Blades : 1], first_scalars[Early ? kAhead : 1];

  FC_INLINE Head(const TypedCall<T> &call, int at, int64_t own_row, int own_head, int own_lane)
      : split(call.of.split),
        part(call.of.split.parts[at]),
        norms(call.norms),
        x(part.x, own_row, own_head, int(part.heads), call.of.split.items.dtype),
        row(own_row),
        head(own_head),
        channels(int(call.of.split.items.channels)),
        scalars(int(call.of.split.items.scalars)),
        lane(own_lane),
        lanes(call.of.lanes),
        shift(call.of.shift) {
    if constexpr (Early) {
      if (channels > 0) x.read(channel_of(first_turn()), first_values);
      if (scalars > 0) FC_EACH(kAhead, first_scalars[i] = x.scalar(min(lane + i * lanes, scalars - 1));)
    }
  }

  FC_INLINE T weight(int c) const {
    if (part.weights == nullptr) return T(1);
    const T found = load_lanes<S, T, 1>(static_cast<const S *>(part.weights) + of_weight(c), x.dtype).v[0];
    return part.logarithms ? exp(found) : found;
  }
  // The place of a weight.
  FC_INLINE int of_weight(int c) const { return part.logarithms ? head * channels + c : c * x.heads + head; }
  FC_INLINE bool takes(int b) const { return part.taken >> b & 1; }
  FC_INLINE int offset_of_distances() const { return channels * __popc(part.taken); }
  FC_INLINE int offset_of_scalars() const {
    const int more = part.distances == FC_DISTANCES_NONE ? 0 : Point::kCoordinates + 2;
    return channels * (__popc(part.taken) + more);
  }
  FC_INLINE bool has_norm() const { return split.norm != FC_HEAD_NORM_NONE; }
  FC_INLINE bool by_grades() const { return split.norm == FC_HEAD_NORM_GRADES; }
  FC_INLINE bool is_joint() const { return split.norm == FC_HEAD_NORM_JOINT; }
  // The share of a channel in the norm.
  FC_INLINE T magnitude(const T (&values)[Blades]) const {
    if (by_grades()) return grade_magnitudes<Blades>(values, norms);
    const T square = squared_norm<Blades>(values, norms);
    return square < 0 ? -square : square;
  }
  // Calls f with the thread's scalars and their numbers, in order. Some are read at once.
  template <class F>
  FC_INLINE void for_scalars(F &&f) const {
    if constexpr (Early) FC_EACH(kAhead, if (lane + i * lanes < scalars) f(first_scalars[i], lane + i * lanes);)
#pragma unroll 1
    for (int first = lane + (Early ? kAhead * lanes : 0); first < scalars; first += kAhead * lanes) {
      T found[kAhead];
      FC_EACH(kAhead, found[i] = x.scalar(min(first + i * lanes, scalars - 1));)
      FC_EACH(kAhead, if (first + i * lanes < scalars) f(found[i], first + i * lanes);)
    }
  }
  // The share of the thread's scalars.
  FC_INLINE T of_scalars() const {
    T sum = 0;
    if (is_joint()) for_scalars([&](T value, int) { sum += value * value; });
    return sum;
  }
  // The factor of all elements.
  FC_INLINE T scale_of(T sum) const {
    if (is_joint()) return reciprocal_root(sum / T(channels + scalars) + T(split.eps));
    return reciprocal_root(larger(sum / T(channels), T(split.eps)));
  }

  // The sum over the threads of the head.
  FC_INLINE T over_lanes(T value) const {
    const unsigned threads = ((1u << lanes) - 1) << (threadIdx.x % 32 - unsigned(lane));
    for (int other = 1; other < lanes; other *= 2) value += __shfl_xor_sync(threads, value, other);
    return value;
  }

  // Whether the thread has channels. Others take part in sums over the head.
  FC_INLINE bool has_channels() const { return lane < channels; }
  // The turns of a thread: one for each of its channels, or one with the last channel if it has none. Where there is a norm, turns up to 0
  // form its sums, from the last channel to the first, which stays in registers.
  FC_INLINE int turn_count() const { return max((channels - lane + lanes - 1) >> shift, 1); }
  FC_INLINE int first_turn() const { return has_norm() ? 1 - turn_count() : 0; }
  FC_INLINE int channel_of(int turn) const { return min(lane + (turn < 0 ? -turn : turn) * lanes, channels - 1); }
  // Calls f with the turn, the channel and its values, in order.
  template <class F>
  FC_INLINE void for_turns(F &&f) const {
    if (channels == 0) return;
    const int turns = turn_count(), first = first_turn();
    T values[Blades];
    if constexpr (Early) {
#pragma unroll
      for (int b = 0; b < Blades; b++) values[b] = first_values[b];
    }
#pragma unroll 1
    for (int turn = first; turn < turns; turn++) {
      const int c = channel_of(turn);
      if (!Early || turn > first) x.read(c, values);
      f(turn, c, values);
    }
  }

  // The mean of the scalars, and the reciprocal of their standard deviation.
  FC_INLINE void moments(T *mean, T *scale) const {
    T sum = 0, squares = 0;
    for_scalars([&](T value, int) { sum += value; });
    *mean = over_lanes(sum) / T(scalars);
    for_scalars([&](T value, int) { squares += (value - *mean) * (value - *mean); });
    *scale = reciprocal_root(over_lanes(squares) / T(scalars) + T(split.scalar_eps));
  }

  // The features, one after another, and zeros up to the width.
  FC_INLINE void write(T *to) const {
    T scale = 1, sum = of_scalars();
    for_turns([&](int turn, int c, const T (&values)[Blades]) {
      if (has_norm() && turn <= 0) {
        if (has_channels()) sum += magnitude(values);
        if (turn < 0) return;
        scale = scale_of(over_lanes(sum));
      }
      if (has_channels()) write_blades(values, scale, c, to + c);
    });
    const int offset = offset_of_scalars();
    T middle = 0, spread = is_joint() ? scale : T(1);
    if (by_grades() && scalars > 0) moments(&middle, &spread);
    for_scalars([&](T value, int s) { to[offset + s] = (value - middle) * spread; });
#pragma unroll 1
    for (int i = offset + scalars + lane; i < part.width; i += lanes) to[i] = 0;
  }

  FC_INLINE void write_blades(const T (&values)[Blades], T scale, int c, T *at) const {
#pragma unroll
    for (int b = 0; b < Blades; b++) {
      if (!takes(b)) continue;
      *at = negated(values[b] * scale, part.negative, b);
      at += channels;
    }
    if (part.distances != FC_DISTANCES_NONE) distances(values, c, at);
  }

  // Query: (2 w' p', -w'^2, -|p'|^2) times the weight; key: (w' p', |p'|^2, w'^2).
  FC_INLINE void distances(const T (&values)[Blades], int c, T *at) const {
    const Scaling<T> scaling(values[Point::kWeight], T(split.distance_eps));
    const T w = values[Point::kWeight] * scaling.factor, factor = weight(c);
    const bool query = part.distances == FC_DISTANCES_QUERY;
    T square = 0;
#pragma unroll
    for (int i = 0; i < Point::kCoordinates; i++) {
      const T p = values[Point::kFirst + i] * scaling.factor;
      square += p * p;
      *at = (query ? 2 * w * p : w * p) * factor;
      at += channels;
    }
    *at = (query ? -w * w : square) * factor;
    at += channels;
    *at = (query ? -square : w * w) * factor;
  }

  // The gradient of the items from that of the features, g.
  FC_INLINE void gradient(const T *g, const Place<T, S> &to) const {
    T slopes[Blades];
    T scale = 1, share = 0, sum = 0, dot = 0;
    if (is_joint()) {
      sum = of_scalars();
      dot = product_of_scalars(g + offset_of_scalars());
    }
    for_turns([&](int turn, int c, const T (&values)[Blades]) {
      of_blades(g + c, slopes);
      if (has_norm() && turn <= 0) {
        if (has_channels()) {
          sum += magnitude(values);
          for (int b = 0; b < Blades; b++) dot += slopes[b] * values[b];
        }
        if (turn < 0) return;
        sum = over_lanes(sum);
        dot = over_lanes(dot);
        scale = scale_of(sum);
        const bool slopes_down = is_joint() || sum / T(channels) > T(split.eps);
        const T count = T(is_joint() ? channels + scalars : channels);
        if (slopes_down) share = -dot * scale * scale * scale / count;
      }
      if (!has_channels()) return;
      if (by_grades()) {
        T turned[Blades];
        grade_slopes<Blades>(values, norms, turned);
        for (int b = 0; b < Blades; b++) slopes[b] = slopes[b] * scale + share * turned[b] * values[b];
      }
      if (is_joint()) {
        const T square = squared_norm<Blades>(values, norms);
        const T signed_share = square > 0 ? share : (square < 0 ? -share : T(0));
        for (int b = 0; b < Blades; b++) {
          slopes[b] = slopes[b] * scale + signed_share * norms[b] * values[b];
        }
      }
      if (part.distances != FC_DISTANCES_NONE) distance_gradient(values, c, g + c + offset_of_distances(), slopes);
      to.write(c, slopes);
    });
    if (is_joint()) {
      joint_scalar_gradient(g + offset_of_scalars(), scale, share, to);
    } else {
      scalar_gradient(g + offset_of_scalars(), to);
    }
  }

  // The sum of the products of the thread's scalars and their gradients.
  FC_INLINE T product_of_scalars(const T *g) const {
    T sum = 0;
    for_scalars([&](T value, int s) { sum += g[s] * value; });
    return sum;
  }

  FC_INLINE void joint_scalar_gradient(const T *g, T scale, T share, const Place<T, S> &to) const {
    for_scalars([&](T value, int s) { to.write_scalar(s, g[s] * scale + share * value); });
  }

  // The gradients of the blades of a channel.
  FC_INLINE void of_blades(const T *g, T (&slopes)[Blades]) const {
#pragma unroll
    for (int b = 0; b < Blades; b++) {
      slopes[b] = 0;
      if (!takes(b)) continue;
      slopes[b] = negated(*g, part.negative, b);
      g += channels;
    }
  }

  FC_INLINE void distance_gradient(const T (&values)[Blades], int c, const T *g, T (&slopes)[Blades]) const {
    const T weight_of_point = values[Point::kWeight];
    const Scaling<T> scaling(weight_of_point, T(split.distance_eps));
    const T w = weight_of_point * scaling.factor, factor = weight(c);
    const bool query = part.distances == FC_DISTANCES_QUERY;
    const T g_first = g[Point::kCoordinates * channels], g_second = g[(Point::kCoordinates + 1) * channels];
    const T of_square = query ? -g_second : g_first, of_w_square = query ? -g_first : g_second;
    const T of_product = query ? T(2) : T(1);
    T of_w = 2 * w * of_w_square, of_factor = 0, share = w * w * of_w_square;
#pragma unroll
    for (int i = 0; i < Point::kCoordinates; i++) {
      const T coordinate = values[Point::kFirst + i], p = coordinate * scaling.factor;
      const T slope = g[i * channels] * of_product;
      const T of_p = slope * w + 2 * p * of_square;
      share += slope * w * p + p * p * of_square;
      of_w += slope * p;
      of_factor += of_p * coordinate;
      slopes[Point::kFirst + i] += of_p * scaling.factor * factor;
    }
    of_factor += of_w * weight_of_point;
    slopes[Point::kWeight] += (of_w * scaling.factor + of_factor * scaling.slope) * factor;
    if (part.of_weights != nullptr) {
      S *place = static_cast<S *>(part.of_weights) + row * channels * x.heads + of_weight(c);
      // The derivative of an exponential is itself.
      store_lanes<S, T, 1>(place, Lanes<T, 1>{{part.logarithms ? share * factor : share}}, x.dtype);
    }
  }

  FC_INLINE void scalar_gradient(const T *g, const Place<T, S> &to) const {
    if (!by_grades() || scalars == 0) {
#pragma unroll 1
      for (int s = lane; s < scalars; s += lanes) to.write_scalar(s, g[s]);
      return;
    }
    T middle, spread, slopes = 0, projected = 0;
    moments(&middle, &spread);
    for_scalars([&](T value, int s) {
      slopes += g[s];
      projected += g[s] * ((value - middle) * spread);
    });
    slopes = over_lanes(slopes) / T(scalars);
    projected = over_lanes(projected) / T(scalars);
    for_scalars([&](T value, int s) { to.write_scalar(s, (g[s] - slopes - (value - middle) * spread * projected) * spread); });
  }
};

// Copies features between memory, one head after another, and shared memory, where heads have a stride; V at a time.
template <int V, bool ToShared, class T, class F>
FC_INLINE void copy_features(F *memory, T *tile, int count, int width, int stride, int dtype) {
  const int step = int(blockDim.x) * V, by_heads = step / width, by_features = step % width;
  // Shared memory answers at once.
  constexpr int kCopies = ToShared ? kAhead : 1;
  int head = int(threadIdx.x) * V / width, feature = int(threadIdx.x) * V % width;
#pragma unroll 1
  for (int first = int(threadIdx.x) * V; first < count; first += kCopies * step) {
    Lanes<T, V> values[kCopies];
    if constexpr (ToShared) {
      FC_EACH(kCopies, const int at = first + i * step;
              if (at < count) values[i] = load_lanes<F, T, V>(memory + at, dtype);)
    }
#pragma unroll
    for (int i = 0; i < kCopies; i++) {
      const int at = first + i * step;
      T *place = tile + head * stride + feature;
      if (at < count) {
        if constexpr (ToShared) {
          for (int k = 0; k < V; k++) place[k] = values[i].v[k];
        } else {
          for (int k = 0; k < V; k++) values[i].v[k] = place[k];
          store_lanes<F, T, V>(memory + at, values[i], dtype);
        }
      }
      head += by_heads;
      feature += by_features;
      if (feature >= width) {
        feature -= width;
        head++;
      }
    }
  }
}

template <int Blades, class T, class S, class F, bool Backward>
__global__ void __launch_bounds__(kMostThreads) heads_kernel(const __grid_constant__ TypedCall<T> typed) {
  take_turn();
  const HeadsCall &call = typed.of;
  const int at = int(blockIdx.y);
  const fc_item_part &part = call.split.parts[at];
  const int own_pairs = int(blockDim.x) >> call.shift;
  const int64_t pairs = call.split.items.rows * part.heads, first = int64_t(blockIdx.x) * own_pairs;
  if (first >= pairs) return;
  const int width = int(part.width), dtype = call.split.features;
  const int count = (pairs - first < own_pairs ? int(pairs - first) : own_pairs) * width;
  const int place = int(threadIdx.x) >> call.shift, lane = int(threadIdx.x) & (call.lanes - 1);
  T *tile = reinterpret_cast<T *>(shared);
  T *own = tile + place * call.stride;
  F *memory = static_cast<F *>(part.features) + first * width;
  int64_t head;
  const int64_t pair = first + place;
  const int64_t row = divided(pair < pairs ? pair : pairs - 1, part.heads, &head);
  const Head<Blades, T, S, !Backward> mine(typed, at, row, int(head), lane);
  const auto copy = [&](auto v) {
    copy_features<decltype(v)::value, Backward>(memory, tile, count, width, call.stride, dtype);
  };
  const auto copy_all = [&] {
    switch (call.joined) {
      case 4: copy(std::integral_constant<int, 4>{}); break;
      case 2: copy(std::integral_constant<int, 2>{}); break;
      default: copy(std::integral_constant<int, 1>{});
    }
  };
  if constexpr (Backward) {
    copy_all();
    __syncthreads();
    if (pair >= pairs) return;
    mine.gradient(own, Place<T, S>(call.to[at], row, int(head), int(part.heads), call.split.items.dtype));
  } else {
    if (pair < pairs) mine.write(own);
    __syncthreads();
    copy_all();
  }
}

int64_t features_of(const fc_item_split &split, const fc_item_part &part) {
  const int more = part.distances == FC_DISTANCES_NONE ? 0 : split.dim + 2;
  return split.items.channels * (__builtin_popcount(part.taken) + more) + split.items.scalars;
}

bool good_part(const fc_item_split &split, const fc_item_part &part) {
  // The sums of a joint norm are formed with the sums of channels.
  if (split.norm == FC_HEAD_NORM_JOINT && split.items.channels == 0) return false;
  if (part.heads < 1 || part.width < features_of(split, part) || !good(split.items, &part.x)) return false;
  if (split.items.rows > 0 && part.features == nullptr) return false;
  if (split.items.blades < 32 && part.taken >> split.items.blades != 0) return false;
  if (part.distances == FC_DISTANCES_NONE) return true;
  // Distances are between points that were not normalised.
  if (split.norm != FC_HEAD_NORM_NONE) return false;
  if (split.dim != dimensions(split.items.blades) - 1 || split.first + split.dim != split.items.blades - 2) return false;
  return part.distances == FC_DISTANCES_QUERY || part.distances == FC_DISTANCES_KEY;
}

template <bool Backward>
int launch_heads(HeadsCall &call, void *stream) {
  const fc_item_split &split = call.split;
  if (!good(&split.items) || split.count < 1 || split.count > FC_ITEM_PARTS) return FC_ERROR_BAD_CALL;
  // Only these kernels read items of 16 bits and write features of f32.
  const bool widens = element_bytes(split.items.dtype) == 2 && split.features == FC_F32;
  if (!widens && !good_features(split.items.dtype, split.features)) return FC_ERROR_BAD_CALL;
  int64_t widest = 0, most_heads = 0;
  call.joined = 4;
  for (int i = 0; i < split.count; i++) {
    const fc_item_part &part = split.parts[i];
    if (!good_part(split, part)) return FC_ERROR_BAD_CALL;
    if (Backward && !good(split.items, &call.to[i])) return FC_ERROR_BAD_CALL;
    // Threads count the elements of a blade by 32 bits.
    if (split.items.channels * part.heads > INT32_MAX || split.items.scalars * part.heads > INT32_MAX) {
      return FC_ERROR_TOO_LARGE;
    }
    widest = part.width > widest ? part.width : widest;
    most_heads = part.heads > most_heads ? part.heads : most_heads;
    const uintptr_t at = reinterpret_cast<uintptr_t>(part.features), bytes = uintptr_t(element_bytes(split.features));
    while (part.width % call.joined != 0 || at % (call.joined * bytes) != 0) call.joined /= 2;
  }
  if (split.items.rows == 0 || widest == 0) return 0;
  const int64_t bytes = (widest | 1) * (split.items.dtype == FC_F64 ? 8 : 4);
  call.lanes = 1;
  // Forward, a thread for each channel reads all at once. Backward, threads without a channel cost more than they hide.
  const int64_t most_lanes = Backward ? split.items.channels / 2 : split.items.channels - 1;
  while (call.lanes < kMostLanes && call.lanes <= most_lanes) call.lanes *= 2, call.shift++;
  int own_pairs = kMostThreads / call.lanes;
  while (own_pairs > 1 && own_pairs * bytes > kSharedBytes) own_pairs /= 2;
  if (own_pairs * bytes > kSharedBytes) return FC_ERROR_TOO_LARGE;
  const int threads = own_pairs * call.lanes;
  call.stride = int(widest | 1);
  const int64_t ctas = ceil_quotient(split.items.rows * most_heads, own_pairs);
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  const dim3 grid(unsigned(ctas), unsigned(split.count));
  return with_types(split.items, [&](auto blades, auto *type) {
    using T = typename Element<decltype(type)>::Type;
    constexpr int kBlades = decltype(blades)::value;
    const auto run = [&](auto *of_items, auto *of_features) {
      using S = typename Element<decltype(of_items)>::Type;
      using F = typename Element<decltype(of_features)>::Type;
      TypedCall<T> typed = {call, {}};
      for (int b = 0; b < kBlades; b++) typed.norms[b] = T(split.metric.norms[b]);
      return int(launch_in_turn(heads_kernel<kBlades, T, S, F, Backward>, grid, dim3(threads), size_t(own_pairs * bytes), stream, typed));
    };
    if constexpr (sizeof(T) == 8) {
      return run(type, type);
    } else {
      Bits16 *const narrow = nullptr;
      if (split.items.dtype != FC_F32) return split.features == FC_F32 ? run(narrow, type) : run(narrow, narrow);
      return split.features == FC_F32 ? run(type, type) : run(type, narrow);
    }
  });
}

}  // namespace
}  // namespace fc

extern "C" int fc_item_heads(const fc_item_split *split, void *stream) {
  if (split == nullptr) return FC_ERROR_BAD_CALL;
  fc::HeadsCall call = {};
  call.split = *split;
  return fc::launch_heads<false>(call, stream);
}

extern "C" int fc_item_heads_gradient(const fc_item_split *split, const fc_item_tensor *to, void *stream) {
  if (split == nullptr || to == nullptr) return FC_ERROR_BAD_CALL;
  fc::HeadsCall call = {};
  call.split = *split;
  for (int i = 0; i < split->count && i < FC_ITEM_PARTS; i++) call.to[i] = to[i];
  return fc::launch_heads<true>(call, stream);
}
