// The grade-wise linear map of few channels. A CTA has a blade and some rows, and the matrix of its grade; a thread has 4 rows and 4 columns of the result.
#include "few_channels.h"

#include <cuda_runtime.h>

#include "skeleton/launch.cuh"
#include "skeleton/rounding.cuh"

namespace fc {
namespace {

constexpr int kThreads = 128;
// The rows, and the columns, of a thread.
constexpr int kSide = 4;
// The channels that are summed at a time.
constexpr int kSummed = 32;
// The most rows of a CTA that adds up numbers of a type.
template <class A>
constexpr int kMostRows = sizeof(A) == 8 ? 64 : 128;

// Neighbouring elements that are read and written at once.
template <class T>
struct alignas(kSide * sizeof(T) < 16 ? kSide * sizeof(T) : 16) Four {
  T of[kSide];
};

// How the threads of a CTA share its rows and columns.
struct Tile {
  int columns;  // groups of kSide columns
  int rows;     // groups of kSide rows

  __host__ __device__ Tile(int channels, int most_rows)
      : columns((channels + kSide - 1) / kSide), rows(kThreads / columns < most_rows / kSide ? kThreads / columns : most_rows / kSide) {}
};

template <class L, class P, class A>
__global__ void __launch_bounds__(kThreads) map_kernel(const __grid_constant__ fc_few_channels call) {
  constexpr int kRows = kMostRows<A>;
  __shared__ __align__(16) A matrix[kSummed][FC_FEW_CHANNELS];
  __shared__ __align__(16) A rows[kSummed][kRows + kSide];
  const int blade = int(blockIdx.y);
  int grade = 0;
  while (blade >= call.blades.end[grade]) grade++;
  const Tile tile(call.to_channels, kRows);
  const int tile_rows = tile.rows * kSide;
  const int64_t first = int64_t(blockIdx.x) * tile_rows;
  const int here = int(call.rows - first < tile_rows ? call.rows - first : tile_rows);
  const L *from = static_cast<const L *>(call.from) + (blade * call.rows + first) * call.from_channels;
  const P *weight = static_cast<const P *>(call.weight) + grade * call.strides[2];
  const int column = int(threadIdx.x) % tile.columns * kSide, row = int(threadIdx.x) / tile.columns * kSide;
  A sums[kSide][kSide] = {};
  for (int start = 0; start < call.from_channels; start += kSummed) {
    const int count = call.from_channels - start < kSummed ? call.from_channels - start : kSummed;
    if (start > 0) __syncthreads();
    for (int i = threadIdx.x; i < count * tile.columns * kSide; i += kThreads) {
      const int s = i / (tile.columns * kSide), c = i % (tile.columns * kSide);
      const bool is_there = c < call.to_channels;
      matrix[s][c] = is_there ? A(widen(weight[(start + s) * call.strides[0] + c * call.strides[1]])) : A(0);
    }
    for (int i = threadIdx.x; i < tile_rows * count; i += kThreads) {
      const int r = i / count, s = i % count;
      rows[s][r] = r < here ? A(widen(from[int64_t(r) * call.from_channels + start + s])) : A(0);
    }
    __syncthreads();
    if (row >= tile_rows) continue;
#pragma unroll 4
    for (int s = 0; s < count; s++) {
      const Four<A> w = *reinterpret_cast<const Four<A> *>(&matrix[s][column]);
      const Four<A> x = *reinterpret_cast<const Four<A> *>(&rows[s][row]);
#pragma unroll
      for (int r = 0; r < kSide; r++) {
#pragma unroll
        for (int c = 0; c < kSide; c++) sums[r][c] += x.of[r] * w.of[c];
      }
    }
  }
  if (row >= here) return;
  const bool is_whole = call.to_channels % kSide == 0 && reinterpret_cast<uintptr_t>(call.to) % alignof(Four<L>) == 0;
  const P *bias = blade < call.biased ? static_cast<const P *>(call.bias) : nullptr;
  for (int r = 0; r < kSide && row + r < here; r++) {
    L *to = static_cast<L *>(call.to) + (blade * call.rows + first + row + r) * call.to_channels + column;
    Four<L> out;
    if (call.adds && is_whole) out = *reinterpret_cast<const Four<L> *>(to);
#pragma unroll
    for (int c = 0; c < kSide; c++) {
      const bool is_there = column + c < call.to_channels;
      A sum = sums[r][c];
      if (bias && is_there) sum += A(widen(bias[column + c]));
      if (call.adds && is_there) sum += A(widen(is_whole ? out.of[c] : to[c]));
      narrow(sum, &out.of[c]);
      if (!is_whole && is_there) to[c] = out.of[c];
    }
    if (is_whole) *reinterpret_cast<Four<L> *>(to) = out;
  }
}

bool valid(const fc_few_channels &call) {
  const auto fits = [](int32_t channels) { return channels > 0 && channels <= FC_FEW_CHANNELS; };
  if (call.rows < 0 || !fits(call.from_channels) || !fits(call.to_channels)) return false;
  if (call.grades < 1 || call.grades > FC_LINEAR_MAX_GRADES || (call.biased > 0 && call.bias == nullptr)) return false;
  for (int g = 0; g < call.grades; g++) {
    if (call.blades.end[g] <= (g == 0 ? 0 : call.blades.end[g - 1])) return false;
  }
  return call.blades.end[call.grades - 1] <= 65535;
}

}  // namespace
}  // namespace fc

extern "C" int fc_few_channels_map(const fc_few_channels *call, fc_dtype lanes, fc_dtype params, void *stream) {
  if (call == nullptr || !fc::valid(*call)) return FC_ERROR_BAD_CALL;
  if (call->rows == 0) return 0;
  return fc::with_rounding(params, lanes, [&](auto *p, auto *l) -> int {
    using P = typename fc::Pointee<decltype(p)>::Type;
    using L = typename fc::Pointee<decltype(l)>::Type;
    using A = typename fc::Accumulator<L>::Type;
    const fc::Tile tile(call->to_channels, fc::kMostRows<A>);
    const dim3 grid(unsigned(fc::ceil_div(call->rows, tile.rows * fc::kSide)), unsigned(call->blades.end[call->grades - 1]));
    return fc::launch(fc::map_kernel<L, P, A>, grid, dim3(fc::kThreads), stream, *call);
  });
}
