// The norm of the fully connected product, for each grade of a row, and its gradient.
#pragma once

#include "../scale.cuh"
#include "../totals.cuh"
#include "entry.h"
#include "types.cuh"

namespace fc {

// Whether there is a blade; whether there is none; and whether all of the first `count` are there.
__host__ __device__ inline int has_blade(const fc_blades &set, int blade) { return int(set.bits[blade >> 6] >> (blade & 63) & 1); }
__host__ __device__ inline bool has_none(const fc_blades &set) { return (set.bits[0] | set.bits[1]) == 0; }
inline bool has_all(const fc_blades &set, int count) {
  for (int blade = 0; blade < count; blade++) {
    if (!has_blade(set, blade)) return false;
  }
  return true;
}

// The grades of the output, in order.
struct Grades {
  int count;
  int of_algebra[FC_MAX_GRADES];
  int first[FC_MAX_GRADES], blades[FC_MAX_GRADES];  // of the tensor
  // The blades whose squares are added to, and subtracted from, the measure by which the grade is normalised.
  fc_blades plus[FC_MAX_GRADES], minus[FC_MAX_GRADES];

  // Whether every grade is normalised by the sum of all its squares.
  bool are_euclidean() const {
    for (int grade = 0; grade < count; grade++) {
      if (!has_all(plus[grade], blades[grade]) || !has_none(minus[grade])) return false;
    }
    return true;
  }
};

// The number of threads of a CTA: several rows of a warp each, or one long row.
__host__ __device__ constexpr int norm_threads(int of_row) { return of_row == 32 ? 128 : of_row; }

// The smallest number of CTAs that share a multiprocessor; 0 leaves it to the compiler. With 512 threads, each has 128
// registers. With a few registers more, the wide kernels would run a quarter fewer threads.
__host__ __device__ constexpr int norm_ctas(int channels, int of_row) { return channels == 8 ? 512 / norm_threads(of_row) : 0; }

// Whether the block is scaled. Known at compile time for types that are.
template <int Type = kAnyType, int Operands = kAnyType>
__host__ FC_INLINE bool is_scaled(const fc_block &a) {
  return type_or<Operands>(a.operands) != type_or<Type>(a.dtype);
}

// A row of a grade, shared by `Threads` threads, each of which takes N channels at a time.
template <int N, int Threads>
struct GradeRow {
  // The number of values of a tensor that a thread keeps from one pass over the row to the next.
  static constexpr int kKept = 6;

  const fc_block &a;
  int64_t row;
  int grade, of_algebra, first, blades;
  int thread;
  bool exists;

  FC_INLINE GradeRow(const fc_block &block, const Grades &grades) : a(block), thread(threadIdx.x % Threads) {
    const int64_t own = int64_t(blockIdx.x) * (norm_threads(Threads) / Threads) + threadIdx.x / Threads;
    row = own / grades.count;
    grade = int(own % grades.count);
    of_algebra = grades.of_algebra[grade];
    first = grades.first[grade];
    blades = grades.blades[grade];
    exists = row < a.rows;
  }

  FC_INLINE int64_t in_block(int blade) const { return (int64_t(blade) * a.rows + row) * a.out; }
  FC_INLINE int64_t in_call(int blade) const { return (int64_t(blade) * a.batch + a.first + row) * a.out; }
  // The index in a tensor with one number for each grade and row of the batch.
  FC_INLINE int64_t in_saved() const { return grade * a.batch + a.first + row; }

  // Calls f(channel) for the first of every N channels of the thread.
  template <class F>
  FC_INLINE void each_channels(F &&f) const {
    for (int64_t channel = thread * N; channel < a.out; channel += Threads * N) f(channel);
  }

  // Calls keep(i, place) for the first places of the thread, with the same i < kKept each time, and rest(place) for all others.
  // A place has the blade and the first channel.
  struct Place {
    int blade;
    int64_t channel;
  };
  template <class Keep, class Rest>
  FC_INLINE void walk(Keep &&keep, Rest &&rest) const {
    Place place = {first, thread * N};
    const auto next = [&] {
      place.channel += Threads * N;
      if (place.channel >= a.out) {
        place.channel = thread * N;
        place.blade++;
      }
    };
    if (place.channel >= a.out) return;
#pragma unroll
    for (int i = 0; i < kKept; i++) {
      if (place.blade >= first + blades) return;
      keep(i, place);
      next();
    }
    for (; place.blade < first + blades; next()) rest(place);
  }
};

// The sum over the threads of a row, and the largest magnitudes that they have seen.
template <class T>
struct RowTotals {
  T sum;
  Largest largest[2];

  FC_INLINE RowTotals of_warp() const {
    RowTotals all = *this;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) all.sum += __shfl_xor_sync(~0u, all.sum, mask);
    for (Largest &own : all.largest) own = own.of_warp();
    return all;
  }
  FC_INLINE void add(const RowTotals &other) {
    sum += other.sum;
    for (int i = 0; i < 2; i++) largest[i].add(other.largest[i]);
  }
};

// The power of two that the gradient of the product is multiplied by. The gradient is at most `largest[0] + mean largest[1]`
// times `scale`. For a scaled block the power is stored, and the exponents of sums are prepared.
template <class T, int N, int Threads>
FC_INLINE T power_of_row(const GradeRow<N, Threads> &own, const RowTotals<T> &totals, bool scaled, T mean, T scale) {
  if constexpr (sizeof(T) == 4) {
    if (scaled) {
      const fc_block &a = own.a;
      Largest most = {};
      most.add(fmaf(totals.largest[1].value(), fabsf(mean), totals.largest[0].value()) * scale);
      const int exponent = most.scale();
      if (own.thread == 0) a.scales.grads[own.of_algebra * a.rows + own.row] = exponent;
      if (own.row == 0 && own.grade == 0) {
        // This launch comes before all launches that lower the exponents.
        for (int path = own.thread; path < FC_MAX_PATHS; path += Threads) {
          const int before = a.first == 0 ? 2 * kMostScale : a.scales.sums[path];
          a.scales.sums[path] = a.scales.sums[FC_MAX_PATHS + path] = before;
        }
      }
      return normal_power(exponent);
    }
  }
  return 1;
}

// output = product / r, where r is the root of the mean square over channels and blades of a grade.
template <class T, int N, int Type, int Operands, int Threads>
__global__ void __launch_bounds__(norm_threads(Threads))
    norm_kernel(const __grid_constant__ fc_block a, const __grid_constant__ Grades grades, const T *product, void *output, T *saved) {
  const GradeRow<N, Threads> own(a, grades);
  if (!own.exists) return;
  using Place = typename GradeRow<N, Threads>::Place;
  const TwoPowers unscale = TwoPowers(is_scaled<Type, Operands>(a) ? -*a.scales.weights - a.scales.rows[own.of_algebra * a.rows + own.row] : 0);
  const auto read_product = [&](const Place &place) {
    return unscale.of(load_lanes<T, T, N>(product + own.in_block(place.blade) + place.channel, a.dtype));
  };
  using V = Lanes<T, N>;
  V kept[own.kKept];
#pragma unroll
  for (int i = 0; i < own.kKept; i++) kept[i] = splat<V>(T(0));
  RowTotals<T> totals = {};
  const auto add = [&](const V &o) { FC_EACH(N, totals.sum = fused(o.v[i], o.v[i], totals.sum)) };
  // All reads are under way before the first value is used.
  own.walk([&](int i, const Place &place) { kept[i] = read_product(place); },
           [&](const Place &place) {
             if (a.norm) add(read_product(place));
           });
  T scale = 1;
  if (a.norm) {
#pragma unroll
    for (int i = 0; i < own.kKept; i++) add(kept[i]);
    totals = total_of<Threads / 32>(totals);
    if (own.thread == 0 && saved != nullptr) saved[own.in_saved()] = totals.sum;
    scale = T(1) / root(totals.sum / T(a.out) + T(a.eps));
  }
  const auto write_output = [&](const Place &place, const V &o) {
    write<N, T, Type>(output, own.in_call(place.blade) + place.channel, o * scale, a.dtype);
  };
  own.walk([&](int i, const Place &place) { write_output(place, kept[i]); },
           [&](const Place &place) { write_output(place, read_product(place)); });
}

// The gradient of the norm: grad_product = grad_output / r - output (mean of grad_output output) / r.
template <class T, int N, int Type, int Operands, int Threads>
__global__ void __launch_bounds__(norm_threads(Threads), norm_ctas(N, Threads))
    undo_norm_kernel(const __grid_constant__ fc_block a, const __grid_constant__ Grades grades, const void *output,
                     const void *grad_output, const T *saved, void *grad_product) {
  const GradeRow<N, Threads> own(a, grades);
  if (!own.exists) return;
  // This read is under way together with the row, not after it.
  const T squares = a.norm ? saved[own.in_saved()] : T(0);
  using Place = typename GradeRow<N, Threads>::Place;
  using V = Lanes<T, N>;
  using Read = Elements<N, T, Type>;
  const auto read_from = [&](const void *tensor, const Place &place) {
    Read elements;
    elements.read(tensor, own.in_call(place.blade) + place.channel, a.dtype);
    return elements;
  };
  const auto read_grad = [&](const Place &place) { return read_from(grad_output, place); };
  const auto read_output = [&](const Place &place) { return a.norm ? read_from(output, place) : Read{}; };
  Read kept_grad[own.kKept], kept[own.kKept];
#pragma unroll
  for (int i = 0; i < own.kKept; i++) kept_grad[i] = kept[i] = {};
  const bool scaled = is_scaled<Type, Operands>(a), counts = a.norm || scaled;
  RowTotals<T> totals = {};
  const auto add = [&](const V &grad, const V &o) {
    FC_EACH(N, totals.sum = fused(o.v[i], grad.v[i], totals.sum))
    if constexpr (sizeof(T) == 4) {
      if (!scaled) return;
      totals.largest[0].add(grad);
      totals.largest[1].add(o);
    }
  };
  own.walk(
      [&](int i, const Place &place) {
        kept_grad[i] = read_grad(place);
        kept[i] = read_output(place);
      },
      [&](const Place &place) {
        if (counts) add(read_grad(place).values(), read_output(place).values());
      });
  if (counts) {
#pragma unroll
    for (int i = 0; i < own.kKept; i++) add(kept_grad[i].values(), kept[i].values());
    totals = total_of<Threads / 32>(totals);
  }
  T scale = 1, mean = 0;
  if (a.norm) {
    scale = T(1) / root(squares / T(a.out) + T(a.eps));
    mean = totals.sum / T(a.out);
  }
  const T power = power_of_row(own, totals, scaled, mean, scale);
  const auto write_grad = [&](const Place &place, const Read &grad, const Read &o) {
    const V undone = (grad.values() - o.values() * mean) * scale;
    write<N, T, Operands>(grad_product, own.in_block(place.blade) + place.channel, undone * power, a.operands);
  };
  own.walk([&](int i, const Place &place) { write_grad(place, kept_grad[i], kept[i]); },
           [&](const Place &place) { write_grad(place, read_grad(place), read_output(place)); });
}

}  // namespace fc
