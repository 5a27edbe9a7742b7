// The grade-wise linear map of few channels. A CTA has a blade and some rows, and the matrix of its grade; a thread has some rows and 4 columns of the result.
#include "few_channels.h"

#include <cuda_runtime.h>

#include "skeleton/launch.cuh"
#include "skeleton/rounding.cuh"

namespace fc {
namespace {

constexpr int kThreads = 128;
// The columns of a thread, and the neighbouring elements that are read at once.
constexpr int kSide = 4;
// The channels that are summed at a time, and the distance of rows: threads beside each other read rows in different banks.
constexpr int kSummed = 32;
constexpr int kRowStride = kSummed + kSide;
// The most rows of a CTA, for numbers of so many bytes.
template <class A>
constexpr int kMostRows = sizeof(A) == 8 ? 64 : 128;
// The rows of all blades from which on a thread has 4 rows; else 2, so that more CTAs share them.
constexpr int64_t kManyRows = 1 << 15;

// Neighbouring elements.
template <class T>
struct alignas(kSide * sizeof(T) < 16 ? kSide * sizeof(T) : 16) Four {
  T of[kSide];
};

// How the threads of a CTA share its rows and columns.
struct Tile {
  int columns;  // groups of kSide columns
  int rows;     // groups of rows

  __host__ __device__ Tile(int channels, int each, int most_rows)
      : columns((channels + kSide - 1) / kSide), rows(kThreads / columns < most_rows / each ? kThreads / columns : most_rows / each) {}
};

// Copies a matrix [lines, width] by all threads, kAhead elements of each at once: their reads are on their way together.
template <int kAhead, class Read, class Write>
__device__ void copy(int lines, int width, Read read, Write write) {
  const int lines_on = kThreads / width, on = kThreads % width;
  int line = int(threadIdx.x) / width, at = int(threadIdx.x) % width;
  while (line < lines) {
    decltype(read(0, 0)) ahead[kAhead];
    int places[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; k++) {
      places[k] = line << 8 | at;
      if (line < lines) ahead[k] = read(line, at);
      line += lines_on, at += on;
      if (at >= width) at -= width, line++;
    }
#pragma unroll
    for (int k = 0; k < kAhead; k++) {
      if (places[k] >> 8 < lines) write(places[k] >> 8, places[k] & 255, ahead[k]);
    }
  }
}

template <class T>
__device__ bool aligned(const void *address, int channels) {
  return channels % kSide == 0 && reinterpret_cast<uintptr_t>(address) % alignof(Four<T>) == 0;
}

// Each thread has the rows that are kRows rows of all threads apart.
template <class L, class P, class A, int kRows>
__global__ void __launch_bounds__(kThreads) map_kernel(const __grid_constant__ fc_few_channels call) {
  __shared__ __align__(16) A matrix[kSummed][FC_FEW_CHANNELS];
  __shared__ __align__(16) A rows[kMostRows<A>][kRowStride];
  const int blade = int(blockIdx.y);
  int grade = 0;
  while (blade >= call.blades.end[grade]) grade++;
  const Tile tile(call.to_channels, kRows, kMostRows<A>);
  const int tile_rows = tile.rows * kRows, all = call.from_channels;
  const int64_t first = int64_t(blockIdx.x) * tile_rows;
  const int here = int(call.rows - first < tile_rows ? call.rows - first : tile_rows);
  const L *from = static_cast<const L *>(call.from) + (blade * call.rows + first) * all;
  const P *weight = static_cast<const P *>(call.weight) + grade * call.strides[2];
  const bool reads_fours = aligned<L>(call.from, all);
  const int column = int(threadIdx.x) % tile.columns * kSide, row = int(threadIdx.x) / tile.columns;
  A sums[kRows][kSide] = {};
  for (int start = 0; start < all; start += kSummed) {
    const int count = all - start < kSummed ? all - start : kSummed;
    if (start > 0) __syncthreads();
    // As matrix products do, the weights have the type of the rows.
    copy<8>(
        count, tile.columns * kSide,
        [&](int s, int c) {
          L rounded;
          narrow(A(c < call.to_channels ? widen(weight[(start + s) * call.strides[0] + c * call.strides[1]]) : 0), &rounded);
          return A(widen(rounded));
        },
        [&](int s, int c, A value) { matrix[s][c] = value; });
    if (reads_fours) {
      copy<4>(
          here, count / kSide, [&](int r, int s) { return *reinterpret_cast<const Four<L> *>(from + r * all + start + s * kSide); },
          [&](int r, int s, const Four<L> &given) {
            Four<A> wide;
#pragma unroll
            for (int k = 0; k < kSide; k++) wide.of[k] = widen(given.of[k]);
            *reinterpret_cast<Four<A> *>(&rows[r][s * kSide]) = wide;
          });
    } else {
      copy<8>(
          here, count, [&](int r, int s) { return A(widen(from[r * all + start + s])); },
          [&](int r, int s, A value) { rows[r][s] = value; });
    }
    __syncthreads();
    if (row >= tile.rows) continue;
#pragma unroll 4
    for (int s = 0; s < count; s++) {
      const Four<A> w = *reinterpret_cast<const Four<A> *>(&matrix[s][column]);
#pragma unroll
      for (int r = 0; r < kRows; r++) {
        const A x = rows[row + r * tile.rows][s];
#pragma unroll
        for (int c = 0; c < kSide; c++) sums[r][c] += x * w.of[c];
      }
    }
  }
  if (row >= tile.rows) return;
  const bool writes_fours = aligned<L>(call.to, call.to_channels);
  const P *bias = blade < call.biased ? static_cast<const P *>(call.bias) : nullptr;
#pragma unroll
  for (int r = 0; r < kRows; r++) {
    const int own = row + r * tile.rows;
    if (own >= here) break;
    L *to = static_cast<L *>(call.to) + (blade * call.rows + first + own) * call.to_channels + column;
    Four<L> out;
    if (call.adds && writes_fours) out = *reinterpret_cast<const Four<L> *>(to);
#pragma unroll
    for (int c = 0; c < kSide; c++) {
      if (column + c >= call.to_channels) break;
      A sum = sums[r][c];
      if (bias) {
        L rounded;
        narrow(A(widen(bias[column + c])), &rounded);
        sum += A(widen(rounded));
      }
      if (call.adds) sum += A(widen(writes_fours ? out.of[c] : to[c]));
      narrow(sum, &out.of[c]);
      if (!writes_fours) to[c] = out.of[c];
    }
    if (writes_fours) *reinterpret_cast<Four<L> *>(to) = out;
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

template <class L, class P, class A, int kRows>
int launch_map(const fc_few_channels &call, int64_t blades, void *stream) {
  const Tile tile(call.to_channels, kRows, kMostRows<A>);
  const dim3 grid(unsigned(ceil_div(call.rows, tile.rows * kRows)), unsigned(blades));
  return launch(map_kernel<L, P, A, kRows>, grid, dim3(kThreads), stream, call);
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
    const int64_t blades = call->blades.end[call->grades - 1];
    if (blades * call->rows >= fc::kManyRows) return fc::launch_map<L, P, A, 4>(*call, blades, stream);
    return fc::launch_map<L, P, A, 2>(*call, blades, stream);
  });
}
