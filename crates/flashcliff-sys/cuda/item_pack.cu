// The elements of matrices from the parameters of layers, and the gradients of parameters from those of elements: sums of a few
// numbers, each times a factor.
#include "items.cuh"

namespace fc {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;  // results of a thread, whose loads are under way at once

template <class T, class S>
__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ fc_item_pack call) {
  const int64_t first = int64_t(blockIdx.x) * kThreads * kEach + threadIdx.x;
  const S *from = static_cast<const S *>(call.from), *factors = static_cast<const S *>(call.factors);
  T sums[kEach] = {};
#pragma unroll 1
  for (int64_t use = 0; use < call.uses; use++) {
    const int64_t of_use = use * call.count;
    T values[kEach] = {}, weights[kEach] = {};
    int32_t places[kEach] = {};
    FC_EACH(kEach, if (first + i * kThreads < call.count) {
      const int64_t at = of_use + first + i * kThreads;
      places[i] = call.places[at];
      weights[i] = load_lanes<S, T, 1>(factors + at, call.dtype).v[0];
    })
    // An element without a parameter is zero, whatever number it names.
    FC_EACH(kEach, if (weights[i] != 0) values[i] = load_lanes<S, T, 1>(from + places[i], call.dtype).v[0];)
    FC_EACH(kEach, sums[i] += weights[i] * values[i];)
  }
  S *to = static_cast<S *>(call.to);
  FC_EACH(kEach, if (first + i * kThreads < call.count) {
    store_lanes<S, T, 1>(to + first + i * kThreads, Lanes<T, 1>{{sums[i]}}, call.dtype);
  })
}

}  // namespace
}  // namespace fc

extern "C" int fc_item_packed(const fc_item_pack *call, void *stream) {
  if (call == nullptr || call->count < 0 || call->uses < 0) return FC_ERROR_BAD_CALL;
  if (call->dtype < FC_F32 || call->dtype > FC_F16) return FC_ERROR_BAD_CALL;
  if (call->count == 0) return 0;
  const bool reads = call->uses > 0;
  if (call->to == nullptr || (reads && (call->from == nullptr || call->places == nullptr || call->factors == nullptr))) {
    return FC_ERROR_BAD_CALL;
  }
  const int64_t ctas = fc::ceil_quotient(call->count, fc::kThreads * fc::kEach);
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  const auto on = static_cast<cudaStream_t>(stream);
  switch (call->dtype) {
    case FC_F64: fc::pack_kernel<double, double><<<unsigned(ctas), fc::kThreads, 0, on>>>(*call); break;
    case FC_F32: fc::pack_kernel<float, float><<<unsigned(ctas), fc::kThreads, 0, on>>>(*call); break;
    default: fc::pack_kernel<float, fc::Bits16><<<unsigned(ctas), fc::kThreads, 0, on>>>(*call); break;
  }
  return cudaGetLastError();
}
