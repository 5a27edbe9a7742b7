// The invariant norm of items, after an addition and before gains, and its gradient.
//
// A few neighbouring threads share a row: each has some channels with all their blades, and some scalars. A thread reads all that it
// needs before it writes anything, because the compiler may not move a load across a store. Loops over channels stay loops: a longer
// kernel waits for its own instructions.
#include "items.cuh"

namespace fc {
namespace {

constexpr int kThreads = 128;
constexpr int kMostGrades = 6;
// A GPU has room for several times as many threads.
constexpr int64_t kFewThreads = 1 << 16;

struct NormCall {
  fc_items items;
  fc_item_metric metric;
  fc_item_gains gains;
  fc_item_tensor x, added, total, g, through, to;
  double eps, scalar_eps;
  int adds;     // there is something to add, or a gradient that passes by
  int threads;  // of a row: a power of two up to 32
};

// The sum over the threads of a row, in all of them.
template <class T>
FC_INLINE T over_row(T value, int threads) {
  for (int offset = threads / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

template <class T>
struct Moments {
  T mean, scale;
};

// Brings a place of memory to the second cache, for a load that comes later.
FC_INLINE void fetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p))); }
// The bytes that one fetch brings.
constexpr int kFetched = 32;

// The mean of a row's scalars, and the reciprocal of their standard deviation. `value` gives V of them.
template <class T, int V, class F>
FC_INLINE Moments<T> moments(int count, int lane, int threads, T eps, F &&value) {
  T sum = 0;
#pragma unroll 2
  for (int s = lane * V; s < count; s += threads * V) {
    const Lanes<T, V> x = value(s);
    FC_EACH(V, sum += x.v[i])
  }
  const T mean = over_row(sum, threads) / T(count);
  T squares = 0;
#pragma unroll 2
  for (int s = lane * V; s < count; s += threads * V) {
    const Lanes<T, V> x = value(s);
    FC_EACH(V, squares += (x.v[i] - mean) * (x.v[i] - mean))
  }
  return {mean, reciprocal_root(over_row(squares, threads) / T(count) + eps)};
}

// The number of grades.
template <int Blades>
__host__ __device__ constexpr int grade_count() {
  return dimensions(Blades) + 1;
}

// Calls f with each blade and its grade; both are constants when the loop is unrolled.
template <int Blades, class F>
FC_INLINE void for_grades(F &&f) {
  constexpr uint32_t kLast = last_of_grades<Blades>();
  int grade = 0;
#pragma unroll
  for (int b = 0; b < Blades; b++) {
    f(b, grade);
    if (kLast >> b & 1) grade++;
  }
}

template <int Blades, class T, class S, int V>
struct Row {
  const NormCall &call;
  const Items<T, S> x, other, total, g, to;
  const int dtype, lane, step;
  int64_t row;
  bool active;  // threads without a row have that of the last, and write nothing

  FC_INLINE Row(const NormCall &c, bool backward)
      : call(c),
        x(c.x, c.items.dtype),
        other(backward ? c.through : c.added, c.items.dtype),
        total(c.total, c.items.dtype),
        g(c.g, c.items.dtype),
        to(c.to, c.items.dtype),
        dtype(c.items.dtype),
        lane(threadIdx.x % c.threads),
        step(c.threads * V) {}

  FC_INLINE void load(const Items<T, S> &from, int64_t c, T (&values)[V][Blades]) const {
#pragma unroll
    for (int b = 0; b < Blades; b++) {
      const Lanes<T, V> value = from.template load<V>(row, b, c);
      FC_EACH(V, values[i][b] = value.v[i])
    }
  }
  FC_INLINE void store(const Items<T, S> &place, int64_t c, const T (&values)[V][Blades]) const {
    if (!active) return;
#pragma unroll
    for (int b = 0; b < Blades; b++) {
      Lanes<T, V> value;
      FC_EACH(V, value.v[i] = values[i][b])
      place.template store<V>(row, b, c, value);
    }
  }
  FC_INLINE void add(int64_t c, T (&values)[V][Blades]) const {
    T more[V][Blades];
    load(other, c, more);
#pragma unroll
    for (int b = 0; b < Blades; b++) FC_EACH(V, values[i][b] += more[i][b])
  }
  // The values that are normalised: as the sum is read back after it was stored.
  FC_INLINE void load_sum(int64_t c, T (&values)[V][Blades]) const {
    load(x, c, values);
    if (!call.adds) return;
    add(c, values);
#pragma unroll
    for (int b = 0; b < Blades; b++) FC_EACH(V, values[i][b] = widen(Narrow<S, T>::from(values[i][b], dtype), dtype))
  }
  FC_INLINE Lanes<T, V> scalar_sum(int64_t s) const {
    Lanes<T, V> value = x.template load_scalars<V>(row, s);
    if (!call.adds) return value;
    const Lanes<T, V> more = other.template load_scalars<V>(row, s);
    FC_EACH(V, value.v[i] += more.v[i])
    return stored<S>(value, dtype);
  }
  FC_INLINE T magnitudes(const T (&values)[V][Blades]) const {
    T sum = 0;
    FC_EACH(V, sum += grade_magnitudes<Blades>(values[i], call.metric))
    return sum;
  }

  // The gains of V channels, by grade; 1 without gains.
  FC_INLINE void gains_of(int64_t c, T (&gains)[V][kMostGrades]) const {
    constexpr int kGrades = grade_count<Blades>();
    const S *p = static_cast<const S *>(call.gains.multivectors) + c * kGrades;
#pragma unroll
    for (int grade = 0; grade < kGrades; grade++) {
      FC_EACH(V, gains[i][grade] = load_lanes<S, T, 1>(p + i * kGrades + grade, dtype).v[0])
    }
  }
  FC_INLINE Lanes<T, V> scalar_gains(int64_t s) const {
    return load_lanes<S, T, V>(static_cast<const S *>(call.gains.scalars) + s, dtype);
  }
  FC_INLINE bool has_gains() const { return call.gains.multivectors != nullptr; }
  FC_INLINE bool has_scalar_gains() const { return call.gains.scalars != nullptr; }

  FC_INLINE void write(int64_t c, T scale, const T (&values)[V][Blades]) const {
    T found[V][Blades], gains[V][kMostGrades];
    if (has_gains()) gains_of(c, gains);
    for_grades<Blades>([&](int b, int grade) {
      FC_EACH(V, found[i][b] = values[i][b] * (has_gains() ? scale * gains[i][grade] : scale))
    });
    if (call.adds) store(total, c, values);
    store(to, c, found);
  }

  // Fetches the scalars of a tensor.
  FC_INLINE void fetch_scalars(const Items<T, S> &from) const {
    constexpr int kStep = kFetched / int(sizeof(S));
#pragma unroll 1
    for (int s = lane * kStep; s < call.items.scalars; s += call.threads * kStep) {
      fetch(from.scalars + row * from.scalar_stride + s);
    }
  }
  // Fetches the multivectors of a tensor.
  FC_INLINE void fetch_multivectors(const Items<T, S> &from) const {
    constexpr int kStep = kFetched / int(sizeof(S));
#pragma unroll 1
    for (int b = lane; b < Blades; b += call.threads) {
      const S *at = from.multivectors + b * from.blade_stride + row * from.row_stride;
#pragma unroll 1
      for (int c = 0; c < call.items.channels; c += kStep) fetch(at + c);
    }
  }

  // The tiles of channels that the threads of a row have together.
  FC_INLINE int tiles() const { return int((call.items.channels + step - 1) / step); }

  // Sums come first, from the last tile to the first, which stays in registers.
  FC_INLINE void forward() const {
    const int channels = int(call.items.channels), first = lane * V;
    fetch_scalars(x);
    if (call.adds) fetch_scalars(other);
    T values[V][Blades], sum = 0, scale = 1;
    const int count = tiles();
#pragma unroll 1
    for (int turn = 1 - count; turn < count; turn++) {
      const int c = first + (turn < 0 ? -turn : turn) * step;
      if (c < channels) load_sum(c, values);
      if (turn <= 0) {
        if (c < channels) sum += magnitudes(values);
        if (turn < 0) continue;
        const T mean = over_row(sum, call.threads) / T(channels);
        scale = reciprocal_root(larger(mean, T(call.eps)));
      }
      if (c < channels) write(c, scale, values);
    }
    if (call.items.scalars > 0) scalars_forward();
  }

  FC_INLINE void scalars_forward() const {
    const int count = int(call.items.scalars);
    const auto scalar = [&](int s) { return scalar_sum(s); };
    const Moments<T> of = moments<T, V>(count, lane, call.threads, T(call.scalar_eps), scalar);
#pragma unroll 1
    for (int s = lane * V; s < count; s += step) {
      const Lanes<T, V> value = scalar(s);
      Lanes<T, V> found;
      FC_EACH(V, found.v[i] = (value.v[i] - of.mean) * of.scale)
      if (has_scalar_gains()) {
        const Lanes<T, V> gain = scalar_gains(s);
        FC_EACH(V, found.v[i] *= gain.v[i])
      }
      if (!active) continue;
      if (call.adds) total.template store_scalars<V>(row, s, value);
      to.template store_scalars<V>(row, s, found);
    }
  }

  // Multiplies gradients by the gains.
  FC_INLINE void scale_slopes(int64_t c, T (&slopes)[V][Blades]) const {
    if (!has_gains()) return;
    T gains[V][kMostGrades];
    gains_of(c, gains);
    for_grades<Blades>([&](int b, int grade) { FC_EACH(V, slopes[i][b] *= gains[i][grade]) });
  }

  // Adds the share of this row to the gradients of gains, which the thread keeps at `sums`.
  FC_INLINE T *add_gains(T scale, const T (&values)[V][Blades], const T (&slopes)[V][Blades], T *sums) const {
    T share[V][kMostGrades] = {};
    for_grades<Blades>([&](int b, int grade) { FC_EACH(V, share[i][grade] += slopes[i][b] * values[i][b]) });
    constexpr int kGrades = grade_count<Blades>();
#pragma unroll
    for (int grade = 0; grade < kGrades; grade++) {
      FC_EACH(V, *sums += active ? share[i][grade] * scale : T(0); sums += kThreads)
    }
    return sums;
  }

  // The gradient of x / sqrt(n), n = max(m, eps): g / sqrt(n) - x h <g, x> n^(-3/2) / channels, where h is the slope of the grade's
  // magnitude by its squared norm; without the second term where m <= eps. `sums` are the thread's gradients of gains, if wanted.
  FC_INLINE void backward(T *sums) const {
    const int channels = int(call.items.channels), first = lane * V;
    fetch_scalars(x);
    fetch_scalars(g);
    if (call.adds) {
      fetch_multivectors(other);
      fetch_scalars(other);
    }
    T values[V][Blades], slopes[V][Blades], sum = 0, dot = 0, scale = 1, share = 0;
    const int count = tiles();
#pragma unroll 1
    for (int turn = 1 - count; turn < count; turn++) {
      const int c = first + (turn < 0 ? -turn : turn) * step;
      const bool mine = c < channels;
      if (mine) {
        load(x, c, values);
        load(g, c, slopes);
      }
      if (turn <= 0) {
        if (mine) {
          sum += magnitudes(values);
          T scaled[V][Blades];
          for_grades<Blades>([&](int b, int) { FC_EACH(V, scaled[i][b] = slopes[i][b]) });
          scale_slopes(c, scaled);
          for_grades<Blades>([&](int b, int) { FC_EACH(V, dot += values[i][b] * scaled[i][b]) });
        }
        if (turn < 0) continue;
        const T mean = over_row(sum, call.threads) / T(channels);
        dot = over_row(dot, call.threads);
        scale = reciprocal_root(larger(mean, T(call.eps)));
        if (mean > T(call.eps)) share = -dot * scale * scale * scale / T(channels);
      }
      if (!mine) continue;
      if (sums != nullptr && has_gains()) sums = add_gains(scale, values, slopes, sums);
      scale_slopes(c, slopes);
      FC_EACH(V, T turned[Blades]; grade_slopes<Blades>(values[i], call.metric, turned);
              for (int b = 0; b < Blades; b++) slopes[i][b] = slopes[i][b] * scale + share * turned[b] * values[i][b])
      if (call.adds) add(c, slopes);
      store(to, c, slopes);
    }
    if (call.items.scalars > 0) scalars_backward(sums);
  }

  FC_INLINE void scalars_backward(T *sums) const {
    const int count = int(call.items.scalars), first = lane * V;
    const auto scalar = [&](int s) { return x.template load_scalars<V>(row, s); };
    const auto gradient = [&](int s) {
      Lanes<T, V> slope = g.template load_scalars<V>(row, s);
      if (!has_scalar_gains()) return slope;
      const Lanes<T, V> gain = scalar_gains(s);
      FC_EACH(V, slope.v[i] *= gain.v[i])
      return slope;
    };
    const Moments<T> of = moments<T, V>(count, lane, call.threads, T(call.scalar_eps), scalar);
    T slopes = 0, projected = 0;
#pragma unroll 2
    for (int s = first; s < count; s += step) {
      const Lanes<T, V> value = scalar(s), slope = gradient(s);
      FC_EACH(V, slopes += slope.v[i]; projected += slope.v[i] * ((value.v[i] - of.mean) * of.scale))
    }
    slopes = over_row(slopes, call.threads) / T(count);
    projected = over_row(projected, call.threads) / T(count);
#pragma unroll 1
    for (int s = first; s < count; s += step) {
      const Lanes<T, V> value = scalar(s);
      Lanes<T, V> slope = gradient(s), more = {};
      if (call.adds) more = other.template load_scalars<V>(row, s);
      if (sums != nullptr && has_scalar_gains()) {
        const Lanes<T, V> own = g.template load_scalars<V>(row, s);
        FC_EACH(V, *sums += active ? own.v[i] * ((value.v[i] - of.mean) * of.scale) : T(0); sums += kThreads)
      }
      FC_EACH(V, slope.v[i] = (slope.v[i] - slopes - (value.v[i] - of.mean) * of.scale * projected) * of.scale + more.v[i])
      if (active) to.template store_scalars<V>(row, s, slope);
    }
  }
};

extern __shared__ __align__(16) unsigned char shared[];

// The sums of a CTA's threads, [channels, grades] and [scalars], in the order of the rows' threads.
template <int Blades, class T, int V>
FC_INLINE void write_partials(const NormCall &call, const T *sums) {
  constexpr int kGrades = grade_count<Blades>();
  const int64_t of_channels = call.gains.multivectors == nullptr ? 0 : call.items.channels * kGrades;
  const int64_t of_scalars = call.gains.scalars == nullptr ? 0 : call.items.scalars;
  const int step = call.threads * V;
  T *to = static_cast<T *>(call.gains.partials) + blockIdx.x * (of_channels + of_scalars);
  for (int64_t at = threadIdx.x; at < of_channels + of_scalars; at += kThreads) {
    const bool is_scalar = at >= of_channels;
    const int64_t c = is_scalar ? at - of_channels : at / kGrades;
    const int grade = is_scalar ? 0 : int(at % kGrades);
    const int lane = int(c % step) / V, i = int(c % V);
    // The sums of a thread: of its channels, tile by tile, [grade][i]; then of its scalars, tile by tile, [i].
    const int64_t tiles = (call.items.channels - lane * V + step - 1) / step;
    const int64_t before = is_scalar && of_channels > 0 ? (tiles > 0 ? tiles : 0) * kGrades * V : 0;
    const int64_t slot = before + (is_scalar ? c / step * V : (c / step * kGrades + grade) * V) + i;
    T sum = 0;
    for (int thread = lane; thread < kThreads; thread += call.threads) sum += sums[slot * kThreads + thread];
    to[at] = sum;
  }
}

template <int Blades, class T, class S, int V, bool Backward>
__global__ void __launch_bounds__(kThreads) norm_kernel(const __grid_constant__ NormCall call, int slots) {
  T *sums = reinterpret_cast<T *>(shared);
  for (int slot = 0; slot < slots; slot++) sums[slot * kThreads + threadIdx.x] = 0;
  T *own = slots > 0 ? sums + threadIdx.x : nullptr;
  const int64_t rows = call.items.rows, groups = kThreads / call.threads;
  Row<Blades, T, S, V> row(call, Backward);
  // All threads of a CTA walk equally far, because they meet in sums.
  for (int64_t first = blockIdx.x * groups; first < rows; first += gridDim.x * groups) {
    const int64_t at = first + threadIdx.x / call.threads;
    row.active = at < rows;
    row.row = row.active ? at : rows - 1;
    if constexpr (Backward) {
      row.backward(own);
    } else {
      row.forward();
    }
  }
  if (slots == 0) return;
  __syncthreads();
  write_partials<Blades, T, V>(call, sums);
}

// Whether a thread has registers for two channels at once.
template <int Blades, class T>
constexpr bool takes_two() {
  return Blades * sizeof(T) <= 64;
}

int threads_of(const fc_items &items, bool pairs) {
  const int64_t width = items.channels > 0 ? items.channels : items.scalars, each = pairs ? 2 : 1;
  int threads = 1;
  while (threads < 32 && threads * each < width) threads *= 2;
  // Few rows leave threads idle, and scalars that one thread reads one after another are waited for.
  while (threads < 32 && threads * each < items.scalars && items.rows * threads < kFewThreads) threads *= 2;
  return threads;
}

// The CTAs of a gradient with gains: each writes a row of partial sums.
int64_t ctas_with_gains(const fc_items &items) {
  const int64_t groups = kThreads / threads_of(items, true);
  const int64_t all = ceil_quotient(items.rows, groups);
  return all < FC_ITEM_PARTIALS ? all : FC_ITEM_PARTIALS;
}

template <bool Backward>
int launch(NormCall &call, bool pairs, void *stream) {
  const fc_items &items = call.items;
  if (items.blades * element_bytes(items.dtype == FC_F64 ? FC_F64 : FC_F32) > 64) pairs = false;
  if (items.rows == 0 || (items.channels == 0 && items.scalars == 0)) return 0;
  if (items.channels > INT32_MAX / 2 || items.scalars > INT32_MAX / 2) return FC_ERROR_TOO_LARGE;
  call.threads = threads_of(items, pairs);
  int64_t ctas = ceil_quotient(items.rows * call.threads, kThreads);
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  int64_t slots = 0;
  const bool has_gains = call.gains.multivectors != nullptr || call.gains.scalars != nullptr;
  if (Backward && has_gains) {
    if (call.gains.partials == nullptr) return FC_ERROR_BAD_CALL;
    ctas = ctas_with_gains(items);
    const int64_t step = call.threads * (pairs ? 2 : 1);
    const int grades = dimensions(items.blades) + 1;
    const int64_t of_channels = call.gains.multivectors == nullptr ? 0 : ceil_quotient(items.channels, step) * grades;
    const int64_t of_scalars = call.gains.scalars == nullptr ? 0 : ceil_quotient(items.scalars, step);
    slots = (of_channels + of_scalars) * (pairs ? 2 : 1);
  }
  const auto on = static_cast<cudaStream_t>(stream);
  return with_types(items, [&](auto blades, auto *type) {
    using T = typename Element<decltype(type)>::Type;
    constexpr int kBlades = decltype(blades)::value;
    const size_t bytes = size_t(slots) * kThreads * sizeof(T);
    const auto run = [&](auto *kernel) {
      if (bytes > 48 * 1024) {
        const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
        if (error != cudaSuccess) return cudaGetLastError(), int(FC_ERROR_TOO_LARGE);
      }
      kernel<<<unsigned(ctas), kThreads, bytes, on>>>(call, int(slots));
      return int(cudaGetLastError());
    };
    const auto of_storage = [&](auto *elements) {
      using S = typename Element<decltype(elements)>::Type;
      if constexpr (takes_two<kBlades, T>()) {
        if (pairs) return run(norm_kernel<kBlades, T, S, 2, Backward>);
      }
      return run(norm_kernel<kBlades, T, S, 1, Backward>);
    };
    if constexpr (sizeof(T) == 8) {
      return of_storage(type);
    } else {
      Bits16 *const narrow = nullptr;
      return items.dtype == FC_F32 ? of_storage(type) : of_storage(narrow);
    }
  });
}

bool even_gains(const fc_item_gains *gains, const fc_items &items) {
  // Gains of scalars are read in pairs, those of multivectors one by one.
  return reinterpret_cast<uintptr_t>(gains->scalars) % uintptr_t(2 * element_bytes(items.dtype)) == 0;
}

}  // namespace
}  // namespace fc

extern "C" int64_t fc_item_norm_partials(const fc_items *items) {
  return fc::good(items) ? fc::ctas_with_gains(*items) : 0;
}

extern "C" int fc_item_norm(const fc_items *items, const fc_item_metric *metric, const fc_item_gains *gains, double eps,
                            double scalar_eps, const fc_item_tensor *x, const fc_item_tensor *added,
                            const fc_item_tensor *total, const fc_item_tensor *to, void *stream) {
  if (!fc::good(items) || metric == nullptr || gains == nullptr || !fc::good(*items, x) || !fc::good(*items, to)) {
    return FC_ERROR_BAD_CALL;
  }
  fc::NormCall call = {};
  call.items = *items;
  call.metric = *metric;
  call.gains = *gains;
  call.eps = eps;
  call.scalar_eps = scalar_eps;
  call.x = *x;
  call.to = *to;
  if ((added == nullptr) != (total == nullptr)) return FC_ERROR_BAD_CALL;
  if (added != nullptr) {
    if (!fc::good(*items, added) || !fc::good(*items, total)) return FC_ERROR_BAD_CALL;
    call.adds = 1;
    call.added = *added;
    call.total = *total;
  }
  const auto pairs = [&](const fc_item_tensor *t) { return fc::takes_pairs(*items, t); };
  const bool even = pairs(x) && pairs(to) && pairs(added) && pairs(total) && fc::even_gains(gains, *items);
  return fc::launch<false>(call, even, stream);
}

extern "C" int fc_item_norm_gradient(const fc_items *items, const fc_item_metric *metric, const fc_item_gains *gains,
                                     double eps, double scalar_eps, const fc_item_tensor *x, const fc_item_tensor *g,
                                     const fc_item_tensor *through, const fc_item_tensor *to, void *stream) {
  if (!fc::good(items) || metric == nullptr || gains == nullptr || !fc::good(*items, x) || !fc::good(*items, g) ||
      !fc::good(*items, to)) {
    return FC_ERROR_BAD_CALL;
  }
  fc::NormCall call = {};
  call.items = *items;
  call.metric = *metric;
  call.gains = *gains;
  call.eps = eps;
  call.scalar_eps = scalar_eps;
  call.x = *x;
  call.g = *g;
  call.to = *to;
  if (through != nullptr) {
    if (!fc::good(*items, through)) return FC_ERROR_BAD_CALL;
    call.adds = 1;
    call.through = *through;
  }
  const auto pairs = [&](const fc_item_tensor *t) { return fc::takes_pairs(*items, t); };
  const bool even = pairs(x) && pairs(g) && pairs(to) && pairs(through) && fc::even_gains(gains, *items);
  return fc::launch<true>(call, even, stream);
}
