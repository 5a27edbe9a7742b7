// Transposes matrices through shared memory.
#pragma once

#include <stdint.h>

#include "lanes.cuh"
#include "launch.cuh"

namespace fc {

// Transposes a square of `Square` rows and columns at a time, by CTAs of `Threads` threads.
template <int Square, int Threads>
struct TransposedSquares {
  static constexpr int kStep = Threads / Square;
  static_assert(Threads % Square == 0 && Square % kStep == 0, "the threads take some rows of a square at a time");

  // Calls to(column, row, from(row, column)) for all elements, by all threads of a CTA. T is the type of an element in shared
  // memory. Neighbouring threads call `from` for neighbouring columns and `to` for neighbouring rows.
  template <class T, class From, class To>
  FC_INLINE static void walk(int64_t rows, int64_t columns, From &&from, To &&to) {
    __shared__ T tile[Square][Square + 1];
    const int64_t across = (columns + Square - 1) / Square, squares = (rows + Square - 1) / Square * across;
    const int lane = threadIdx.x % Square, first = threadIdx.x / Square;
    for (int64_t square = blockIdx.x; square < squares; square += gridDim.x) {
      const int64_t row0 = square / across * Square, column0 = square % across * Square;
#pragma unroll
      for (int k = 0; k < Square; k += kStep) {
        const int64_t row = row0 + first + k;
        if (row < rows && column0 + lane < columns) tile[first + k][lane] = from(row, column0 + lane);
      }
      __syncthreads();
      // The loop is not unrolled: `to` may be a loop itself, and take registers.
#pragma unroll 1
      for (int k = 0; k < Square; k += kStep) {
        const int64_t column = column0 + first + k;
        if (column < columns && row0 + lane < rows) to(column, row0 + lane, tile[lane][first + k]);
      }
      __syncthreads();
    }
  }

  // A grid with a CTA for each square of a matrix, at most `most`.
  static dim3 grid(int64_t rows, int64_t columns, int64_t most) {
    return grid_of(ceil_div(rows, Square) * ceil_div(columns, Square), 1, most);
  }
};

}  // namespace fc
