// Dropout of grades. A thread has a few neighbouring columns of a row, so that their loads are under way at once.
#include "dropout.h"

#include <cuda_runtime.h>

#include "skeleton/memory.cuh"

namespace fc {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;

FC_INLINE uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The number `at` of the stream that begins at a base.
FC_INLINE uint64_t draw(uint64_t base, uint64_t at) { return mix(base + (at + 1) * 0x9e3779b97f4a7c15u); }

template <class T, class S>
__global__ void __launch_bounds__(kThreads) drop_kernel(const __grid_constant__ fc_dropout call) {
  const int64_t blades = call.stops[call.grades - 1], width = blades * call.channels + call.scalars;
  const int64_t sharing = (width + kEach - 1) / kEach;
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= call.rows * sharing) return;
  const int64_t row = at / sharing, first = at % sharing;
  const S *x = static_cast<const S *>(call.x) + row * width;
  S *to = static_cast<S *>(call.to) + row * width;
  T values[kEach];
  FC_EACH(kEach, {
    const int64_t column = first + i * sharing;
    values[i] = T(1);
    if (call.x != nullptr && column < width) values[i] = load_lanes<S, T, 1>(x + column, call.dtype).v[0];
  })
  const uint64_t base = draw(call.key, *call.step);
  const int64_t of_row = call.grades * call.channels + call.scalars;
  FC_EACH(kEach, {
    const int64_t column = first + i * sharing;
    if (column < width) {
      // Scalars follow all blades as they follow all grades.
      int64_t place = column - (blades - call.grades) * call.channels;
      if (column < blades * call.channels) {
        const int64_t blade = column / call.channels;
        int grade = 0;
        while (blade >= call.stops[grade]) grade++;
        place = column - (blade - grade) * call.channels;
      }
      const uint32_t number = uint32_t(draw(base, uint64_t(row * of_row + place)) >> 32);
      const T kept = number < call.threshold ? T(0) : values[i] * T(call.scale);
      store_lanes<S, T, 1>(to + column, Lanes<T, 1>{{kept}}, call.dtype);
    }
  })
}

bool good(const fc_dropout &call) {
  if (call.rows < 0 || call.channels < 0 || call.scalars < 0 || call.dtype < FC_F32 || call.dtype > FC_F16) return false;
  if (call.grades < 1 || call.grades > FC_DROPOUT_GRADES || call.to == nullptr || call.step == nullptr) return false;
  for (int grade = 0; grade < call.grades; grade++) {
    if (call.stops[grade] <= (grade > 0 ? call.stops[grade - 1] : 0)) return false;
  }
  return true;
}

}  // namespace
}  // namespace fc

extern "C" int fc_drop(const fc_dropout *call, void *stream) {
  if (call == nullptr || !fc::good(*call)) return FC_ERROR_BAD_CALL;
  const int64_t width = call->stops[call->grades - 1] * call->channels + call->scalars;
  const int64_t threads = call->rows * ((width + fc::kEach - 1) / fc::kEach);
  const int64_t ctas = (threads + fc::kThreads - 1) / fc::kThreads;
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  if (ctas == 0) return 0;
  const auto on = static_cast<cudaStream_t>(stream);
  switch (call->dtype) {
    case FC_F64: fc::drop_kernel<double, double><<<unsigned(ctas), fc::kThreads, 0, on>>>(*call); break;
    case FC_F32: fc::drop_kernel<float, float><<<unsigned(ctas), fc::kThreads, 0, on>>>(*call); break;
    default: fc::drop_kernel<float, fc::Bits16><<<unsigned(ctas), fc::kThreads, 0, on>>>(*call); break;
  }
  return cudaGetLastError();
}
