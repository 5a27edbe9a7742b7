// Grade-wise linear maps of few channels: a matrix of weights and some rows fit in shared memory, so each CTA multiplies them as a whole.
//
// A forward pass has CTAs for rows of a blade by a map. A backward pass has two kinds in one launch: CTAs for the
// gradient of x, for rows of a blade, and CTAs for parts of gradients of weights and biases, for more rows of a blade
// by a map.
#include "linear_few.h"

#include <cuda_runtime.h>

#include "skeleton/launch.cuh"
#include "skeleton/memory.cuh"

namespace fc {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
// The rows that a CTA has in shared memory: some for each lane of a warp.
constexpr int kRowsOfLane = 2;
constexpr int kRows = kWarp * kRowsOfLane;
// Neighbouring columns that a thread multiplies at once.
constexpr int kQuad = 4;
// The quads of columns that a warp multiplies, one after another.
constexpr int kQuadsOfWarp = FC_LINEAR_FEW_CHANNELS / kQuad / kWarps;

__host__ __device__ constexpr int quads(int64_t columns) { return int((columns + kQuad - 1) / kQuad); }

// The elements from one row to the next in shared memory: an odd number of quads, so that neighbouring rows lie in other banks.
__host__ __device__ constexpr int padded(int64_t columns) { return kQuad * (quads(columns) | 1); }

// The threads that work on parts of gradients: some groups, with a thread for each quad of columns of x by a quad of
// columns of the gradient.
struct Groups {
  int columns, tiles, count;
  __host__ __device__ Groups(int64_t in, int64_t out)
      : columns(quads(in)), tiles(columns * quads(out)), count(kThreads / tiles < kWarps ? kThreads / tiles : kWarps) {}
};

// The elements of shared memory that the products of rows need, and those that parts of gradients need.
__host__ __device__ constexpr int64_t product_elements(int64_t in, int64_t out) {
  const int64_t wide = padded(in) > padded(out) ? padded(in) : padded(out);
  const int64_t forward = int64_t(kQuad) * quads(in) * padded(out), backward = int64_t(kQuad) * quads(out) * padded(in);
  return kRows * wide + (forward > backward ? forward : backward);
}

__host__ inline int64_t part_elements(int64_t in, int64_t out) {
  const Groups groups(in, out);
  const int64_t rows = kRows * int64_t(padded(in) + padded(out));
  const int64_t sums = groups.count * kQuad * int64_t(kQuad * groups.tiles + quads(out));
  return rows > sums ? rows : sums;
}

extern __shared__ __align__(16) unsigned char few_shared[];

// Whether rows of so many columns can be read and written quad by quad.
template <class S>
__device__ bool has_quads(const S *rows, int columns) {
  return columns % kQuad == 0 && reinterpret_cast<uintptr_t>(rows) % (kQuad * sizeof(S)) == 0;
}

// Brings rows to shared memory, with zeros after the last row and up to a whole quad of columns.
template <class T, class S>
__device__ void bring_rows(T *to, const S *from, int there, int columns, int dtype) {
  using V = Lanes<T, kQuad>;
  const int whole = kQuad * quads(columns), step = padded(columns);
  if (has_quads(from, columns)) {
    const int each = quads(columns);
#pragma unroll 4
    for (int at = int(threadIdx.x); at < kRows * each; at += kThreads) {
      const int row = at / each, column = kQuad * (at - row * each);
      const V value = row < there ? load_lanes<S, T, kQuad>(from + row * columns + column, dtype) : splat<V>(T(0));
      store_lanes<T, T, kQuad>(to + row * step + column, value, 0);
    }
    return;
  }
  const int down = kThreads / whole, aside = kThreads - down * whole;
  int row = int(threadIdx.x) / whole, column = int(threadIdx.x) - row * whole;
#pragma unroll 4
  while (row < kRows) {
    to[row * step + column] = row < there && column < columns ? T(widen(from[row * columns + column], dtype)) : T(0);
    row += down;
    column += aside;
    if (column >= whole) column -= whole, row++;
  }
}

// Brings the matrix of a grade to shared memory, [in, out] as a forward pass multiplies rows by it or [out, in] as a
// backward pass does, with zeros up to a whole quad of rows.
template <class T, class P>
__device__ void bring_matrix(T *to, const P *from, const fc_linear_few &call, int grade, bool forward) {
  const int in = int(call.in), out = int(call.out), step = padded(forward ? out : in);
  for (int at = int(threadIdx.x); at < in * out; at += kThreads) {
    const int n = at / in, k = at - n * in;
    to[forward ? k * step + n : n * step + k] = T(widen(from[int64_t(at) * call.grades + grade], call.params));
  }
  const int inner = forward ? in : out, end = kQuad * quads(inner);
  for (int at = inner * step + int(threadIdx.x); at < end * step; at += kThreads) to[at] = T(0);
}

// The grade of a blade.
__device__ int grade_of(const fc_linear_few &call, int blade) {
  int grade = 0;
  while (blade >= call.end.end[grade]) grade++;
  return grade;
}

// Rows of a blade times matrices: the rows of x times the matrix of a map, or the sum over maps of their gradients times their matrices.
template <class T, class S, class P>
__device__ void multiply_rows(const fc_linear_few &call, int64_t tile, int blade, int map, bool forward) {
  using V = Lanes<T, kQuad>;
  const int inner = int(forward ? call.in : call.out), outer = int(forward ? call.out : call.in);
  const int row_step = padded(inner), step = padded(outer), grade = grade_of(call, blade);
  const int64_t first = tile * kRows, base = blade * call.batch + first;
  const int there = call.batch - first < kRows ? int(call.batch - first) : kRows;
  T *rows = reinterpret_cast<T *>(few_shared), *matrix = rows + kRows * (row_step > step ? row_step : step);
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  V sums[kQuadsOfWarp][kRowsOfLane];
#pragma unroll
  for (int q = 0; q < kQuadsOfWarp; q++) {
#pragma unroll
    for (int r = 0; r < kRowsOfLane; r++) sums[q][r] = splat<V>(T(0));
  }
  const int last = forward ? map + 1 : call.count;
  for (int m = forward ? map : 0; m < last; m++) {
    const fc_linear_few_map &own = call.maps[m];
    const S *from = static_cast<const S *>(forward ? call.x : own.o) + base * inner;
    bring_rows<T, S>(rows, from, there, inner, call.lanes);
    bring_matrix<T, P>(matrix, static_cast<const P *>(own.weight), call, grade, forward);
    __syncthreads();
#pragma unroll
    for (int q = 0; q < kQuadsOfWarp; q++) {
      const int column = kQuad * (warp + q * kWarps);
      if (column >= outer) continue;
      for (int i = 0; i < inner; i += kQuad) {
        V a[kRowsOfLane];
#pragma unroll
        for (int r = 0; r < kRowsOfLane; r++) a[r] = load_lanes<T, T, kQuad>(rows + (lane + r * kWarp) * row_step + i, 0);
#pragma unroll
        for (int j = 0; j < kQuad; j++) {
          const V w = load_lanes<T, T, kQuad>(matrix + (i + j) * step + column, 0);
#pragma unroll
          for (int r = 0; r < kRowsOfLane; r++) {
#pragma unroll
            for (int c = 0; c < kQuad; c++) sums[q][r].v[c] += a[r].v[j] * w.v[c];
          }
        }
      }
    }
    __syncthreads();
  }
  // By way of shared memory, so that neighbouring threads write neighbouring elements.
#pragma unroll
  for (int q = 0; q < kQuadsOfWarp; q++) {
    const int column = kQuad * (warp + q * kWarps);
    if (column >= outer) continue;
#pragma unroll
    for (int r = 0; r < kRowsOfLane; r++) store_lanes<T, T, kQuad>(rows + (lane + r * kWarp) * step + column, sums[q][r], 0);
  }
  __syncthreads();
  const bool adds = !forward && call.adds;
  const P *bias = forward && blade < call.maps[map].biased ? static_cast<const P *>(call.maps[map].bias) : nullptr;
  S *to = static_cast<S *>(forward ? call.maps[map].o : call.grad_x) + base * outer;
  if (has_quads(to, outer)) {
    const int each = quads(outer);
#pragma unroll 2
    for (int at = int(threadIdx.x); at < there * each; at += kThreads) {
      const int row = at / each, column = kQuad * (at - row * each);
      V sum = load_lanes<T, T, kQuad>(rows + row * step + column, 0);
      if (bias != nullptr) FC_EACH(kQuad, sum.v[i] += T(widen(bias[column + i], call.params)))
      S *place = to + kQuad * at;
      if (adds) sum = sum + load_lanes<S, T, kQuad>(place, call.lanes);
      store_lanes<S, T, kQuad>(place, sum, call.lanes);
    }
    return;
  }
  for (int at = int(threadIdx.x); at < there * outer; at += kThreads) {
    const int row = at / outer, column = at - row * outer;
    T sum = rows[row * step + column];
    if (bias != nullptr) sum += T(widen(bias[column], call.params));
    if (adds) sum += T(widen(to[at], call.lanes));
    to[at] = Narrow<S, T>::from(sum, call.lanes);
  }
}

// Adds up what the groups have of an element, in order.
template <class T>
__device__ T over_groups(const T *own, int count, int step) {
  T sum = own[0];
  for (int group = 1; group < count; group++) sum += own[group * step];
  return sum;
}

// A part of the gradients of the weight and of the bias of a map, over some rows of a blade. Each group of threads
// adds the products of the rows that it owns.
template <class T, class S>
__device__ void add_up_rows(const fc_linear_few &call, int part, int blade, int map) {
  using V = Lanes<T, kQuad>;
  const fc_linear_few_map &own = call.maps[map];
  const int in = int(call.in), out = int(call.out), x_step = padded(in), g_step = padded(out);
  const int64_t each = (call.batch + call.parts - 1) / call.parts;
  const int64_t begin = part * each, all = begin + each < call.batch ? begin + each : call.batch;
  T *x = reinterpret_cast<T *>(few_shared), *g = x + kRows * x_step;
  const Groups groups(in, out);
  const int group = int(threadIdx.x) / groups.tiles, tile = int(threadIdx.x) - group * groups.tiles;
  const int n = kQuad * (tile / groups.columns), k = kQuad * (tile % groups.columns);
  V sums[kQuad], of_bias = splat<V>(T(0));
#pragma unroll
  for (int i = 0; i < kQuad; i++) sums[i] = splat<V>(T(0));
  for (int64_t first = begin; first < all; first += kRows) {
    const int there = all - first < kRows ? int(all - first) : kRows;
    const int64_t base = blade * call.batch + first;
    bring_rows<T, S>(x, static_cast<const S *>(call.x) + base * in, there, in, call.lanes);
    bring_rows<T, S>(g, static_cast<const S *>(own.o) + base * out, there, out, call.lanes);
    __syncthreads();
    if (group < groups.count) {
      for (int row = group; row < there; row += groups.count) {
        const V a = load_lanes<T, T, kQuad>(g + row * g_step + n, 0), b = load_lanes<T, T, kQuad>(x + row * x_step + k, 0);
        of_bias = of_bias + a;
#pragma unroll
        for (int i = 0; i < kQuad; i++) {
#pragma unroll
          for (int j = 0; j < kQuad; j++) sums[i].v[j] += a.v[i] * b.v[j];
        }
      }
    }
    __syncthreads();
  }
  // The sums of a group: [out, in] and then [out], both in whole quads.
  const int width = kQuad * groups.columns, matrix = kQuad * kQuad * groups.tiles, step = matrix + kQuad * quads(out);
  if (group < groups.count) {
    T *to = x + group * step;
#pragma unroll
    for (int i = 0; i < kQuad; i++) store_lanes<T, T, kQuad>(to + (n + i) * width + k, sums[i], 0);
    if (k == 0) store_lanes<T, T, kQuad>(to + matrix + n, of_bias, 0);
  }
  __syncthreads();
  const int64_t number = int64_t(blade) * call.parts + part;
  if (own.weight_parts != nullptr) {
    T *to = static_cast<T *>(own.weight_parts) + number * call.stride;
    for (int at = int(threadIdx.x); at < in * out; at += kThreads) {
      const int row = at / in, column = at - row * in;
      to[at] = over_groups(x + row * width + column, groups.count, step);
    }
  }
  if (own.bias_parts != nullptr && blade < own.biased) {
    T *to = static_cast<T *>(own.bias_parts) + number * out;
    for (int at = int(threadIdx.x); at < out; at += kThreads) to[at] = over_groups(x + matrix + at, groups.count, step);
  }
}

// CTAs: rows (x) of a blade (y) by a map (z).
template <class T, class S, class P>
__global__ void __launch_bounds__(kThreads) few_forward(const __grid_constant__ fc_linear_few call) {
  multiply_rows<T, S, P>(call, blockIdx.x, int(blockIdx.y), int(blockIdx.z), true);
}

// CTAs (x) of a blade (y): the parts of each map, which take longer, and then the rows of the gradient of x.
template <class T, class S, class P>
__global__ void __launch_bounds__(kThreads) few_backward(const __grid_constant__ fc_linear_few call, int parts) {
  const int at = int(blockIdx.x), blade = int(blockIdx.y);
  if (at >= parts) return multiply_rows<T, S, P>(call, at - parts, blade, 0, false);
  const int map = at / call.parts, part = at - map * call.parts;
  const fc_linear_few_map &own = call.maps[map];
  if (own.weight_parts != nullptr || (own.bias_parts != nullptr && blade < own.biased)) add_up_rows<T, S>(call, part, blade, map);
}

// ---- launches ----

bool good(const fc_linear_few &call) {
  const bool sized = call.batch > 0 && call.in > 0 && call.out > 0 && call.in <= FC_LINEAR_FEW_CHANNELS &&
                     call.out <= FC_LINEAR_FEW_CHANNELS && call.stride >= call.in * call.out && call.parts > 0 &&
                     call.blades > 0 && call.count > 0 && call.count <= FC_LINEAR_FEW_MAPS;
  if (!sized || call.grades < 1 || call.grades > FC_LINEAR_MAX_GRADES || call.end.end[call.grades - 1] != call.blades) return false;
  return call.x != nullptr && ceil_div(call.batch, kRows) + int64_t(call.parts) * call.count <= 0x7fffffff;
}

// Calls f with null pointers of the types of arithmetic, lanes and parameters, and the bytes of an element of arithmetic.
template <class F>
int with_types(const fc_linear_few &call, F &&f) {
  double *const f64 = nullptr;
  float *const f32 = nullptr;
  Bits16 *const f16 = nullptr;
  const auto is_16 = [](fc_dtype dtype) { return dtype == FC_BF16 || dtype == FC_F16; };
  if (call.lanes == FC_F64 && call.params == FC_F64) return f(f64, f64, f64);
  if (call.lanes == FC_F32 && call.params == FC_F32) return f(f32, f32, f32);
  if (is_16(call.lanes) && call.params == FC_F32) return f(f32, f16, f32);
  if (is_16(call.lanes) && call.params == call.lanes) return f(f32, f16, f16);
  return FC_ERROR_BAD_CALL;
}

template <class K, class... Given>
int launch_few(K *kernel, dim3 grid, int64_t bytes, void *stream, Given... given) {
  if (bytes > FC_LINEAR_FEW_SHARED) return FC_ERROR_TOO_LARGE;
  kernel<<<grid, kThreads, size_t(bytes), static_cast<cudaStream_t>(stream)>>>(given...);
  return cudaGetLastError();
}

}  // namespace
}  // namespace fc

extern "C" int fc_linear_few_forward(const fc_linear_few *call, void *stream) {
  if (call == nullptr || !fc::good(*call)) return FC_ERROR_BAD_CALL;
  for (int map = 0; map < call->count; map++) {
    if (call->maps[map].weight == nullptr || call->maps[map].o == nullptr) return FC_ERROR_BAD_CALL;
  }
  const dim3 grid(unsigned(fc::ceil_div(call->batch, fc::kRows)), unsigned(call->blades), unsigned(call->count));
  return fc::with_types(*call, [&](auto *t, auto *s, auto *p) -> int {
    using T = typename fc::Element<decltype(t)>::Type;
    using S = typename fc::Element<decltype(s)>::Type;
    using P = typename fc::Element<decltype(p)>::Type;
    const int64_t bytes = fc::product_elements(call->in, call->out) * int64_t(sizeof(T));
    return fc::launch_few(fc::few_forward<T, S, P>, grid, bytes, stream, *call);
  });
}

extern "C" int fc_linear_few_backward(const fc_linear_few *call, void *stream) {
  if (call == nullptr || !fc::good(*call)) return FC_ERROR_BAD_CALL;
  bool sums = false;
  for (int map = 0; map < call->count; map++) {
    const fc_linear_few_map &own = call->maps[map];
    if (own.o == nullptr || (call->grad_x != nullptr && own.weight == nullptr)) return FC_ERROR_BAD_CALL;
    sums = sums || own.weight_parts != nullptr || own.bias_parts != nullptr;
  }
  const int parts = sums ? call->parts * call->count : 0;
  const int64_t ctas = parts + (call->grad_x == nullptr ? 0 : fc::ceil_div(call->batch, fc::kRows));
  if (ctas == 0) return 0;
  return fc::with_types(*call, [&](auto *t, auto *s, auto *p) -> int {
    using T = typename fc::Element<decltype(t)>::Type;
    using S = typename fc::Element<decltype(s)>::Type;
    using P = typename fc::Element<decltype(p)>::Type;
    const int64_t product = fc::product_elements(call->in, call->out), part = fc::part_elements(call->in, call->out);
    const int64_t bytes = (product > part ? product : part) * int64_t(sizeof(T));
    return fc::launch_few(fc::few_backward<T, S, P>, dim3(unsigned(ctas), unsigned(call->blades)), bytes, stream, *call, parts);
  });
}
