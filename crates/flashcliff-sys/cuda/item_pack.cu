// The elements of matrices from the parameters of layers, and the gradients of parameters from the gradients of elements: sums of a few
// numbers, each times a factor.
#include "items.cuh"
#include "skeleton/launch.cuh"

namespace fc {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;  // results of a thread, whose loads are under way at once

// Numbers that lie in one tensor.
struct OneTensor {
  const void *from;
  template <class S> FC_INLINE const S *at(int32_t place) const { return static_cast<const S *>(from) + place; }
};

// Numbers that lie in several tensors.
struct SomeTensors {
  const void *tensors[FC_ITEM_TENSORS];
  template <class S> FC_INLINE const S *at(int32_t place) const {
    constexpr int32_t kBehind = (1 << FC_ITEM_PLACE_BITS) - 1;
    return static_cast<const S *>(tensors[place >> FC_ITEM_PLACE_BITS]) + (place & kBehind);
  }
};

template <class T, class S, class Numbers>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(const __grid_constant__ fc_item_pack call, const __grid_constant__ Numbers numbers) {
  take_turn();
  const int64_t first = int64_t(blockIdx.x) * kThreads * kEach + threadIdx.x;
  const S *factors = static_cast<const S *>(call.factors);
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
    FC_EACH(kEach, if (weights[i] != 0) values[i] = load_lanes<S, T, 1>(numbers.template at<S>(places[i]), call.dtype).v[0];)
    FC_EACH(kEach, sums[i] += weights[i] * values[i];)
  }
  S *to = static_cast<S *>(call.to);
  FC_EACH(kEach, if (first + i * kThreads < call.count) {
    store_lanes<S, T, 1>(to + first + i * kThreads, Lanes<T, 1>{{sums[i]}}, call.dtype);
  })
}

template <class Numbers>
int run(const fc_item_pack &call, const Numbers &numbers, void *stream) {
  const int64_t ctas = ceil_quotient(call.count, kThreads * kEach);
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  const auto run = [&](auto *kernel) { return int(launch_in_turn(kernel, dim3(unsigned(ctas)), dim3(kThreads), 0, stream, call, numbers)); };
  switch (call.dtype) {
    case FC_F64: return run(pack_kernel<double, double, Numbers>);
    case FC_F32: return run(pack_kernel<float, float, Numbers>);
    default: return run(pack_kernel<float, Bits16, Numbers>);
  }
}

// Whether a call is whole, besides the numbers that it reads.
bool good(const fc_item_pack *call) {
  if (call == nullptr || call->count < 0 || call->uses < 0) return false;
  if (call->dtype < FC_F32 || call->dtype > FC_F16) return false;
  const bool reads = call->count > 0 && call->uses > 0;
  return (call->count == 0 || call->to != nullptr) && (!reads || (call->places != nullptr && call->factors != nullptr));
}

}  // namespace
}  // namespace fc

extern "C" int fc_item_packed(const fc_item_pack *call, void *stream) {
  if (!fc::good(call)) return FC_ERROR_BAD_CALL;
  if (call->count == 0) return 0;
  if (call->uses > 0 && call->from == nullptr) return FC_ERROR_BAD_CALL;
  return fc::run(*call, fc::OneTensor{call->from}, stream);
}

extern "C" int fc_item_packed_tensors(const fc_item_pack *call, const void *const *tensors, int32_t count, void *stream) {
  if (!fc::good(call) || count < 0 || (count > 0 && tensors == nullptr)) return FC_ERROR_BAD_CALL;
  if (count > FC_ITEM_TENSORS) return FC_ERROR_TOO_LARGE;
  if (call->count == 0) return 0;
  fc::SomeTensors numbers = {};
  for (int32_t i = 0; i < count; i++) numbers.tensors[i] = tensors[i];
  return fc::run(*call, numbers, stream);
}
