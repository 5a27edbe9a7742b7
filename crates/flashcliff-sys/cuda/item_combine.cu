// Items times factors plus other items: what lies between the other kernels of a block, as copies and sums of parts of rows.
#include "items.cuh"

namespace fc {
namespace {

constexpr int kThreads = 256;

struct CombineCall {
  fc_items items;
  fc_item_tensor x;
  fc_item_factors factors;
  fc_item_tensor y;
  fc_item_tensor to;
  bool has_x, has_y;
};

// A thread writes an element.
template <class T, class S>
__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ CombineCall call) {
  const int64_t of_blades = call.items.blades * call.items.channels, width = of_blades + call.items.scalars;
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  int64_t column, channel;
  const int64_t row = divided(at, width, &column);
  if (row >= call.items.rows) return;
  const int dtype = call.items.dtype;
  const Items<T, S> x(call.x, dtype), y(call.y, dtype), to(call.to, dtype);
  T value = 0;
  if (column >= of_blades) {
    column -= of_blades;
    if (call.has_x) value = x.template load_scalars<1>(row, column).v[0];
    if (call.has_y) value += y.template load_scalars<1>(row, column).v[0];
    to.template store_scalars<1>(row, column, Lanes<T, 1>{{value}});
    return;
  }
  const int blade = int(divided(column, call.items.channels, &channel));
  if (call.has_x) value = x.template load<1>(row, blade, channel).v[0];
  if (call.factors.factors != nullptr) {
    const S *own = static_cast<const S *>(call.factors.factors) + blade * call.factors.blade_stride + row * call.factors.row_stride;
    value *= load_lanes<S, T, 1>(own, dtype).v[0];
  }
  if (call.has_y) value += y.template load<1>(row, blade, channel).v[0];
  to.template store<1>(row, blade, channel, Lanes<T, 1>{{value}});
}

}  // namespace
}  // namespace fc

extern "C" int fc_item_combine(const fc_items *items, const fc_item_tensor *x, const fc_item_factors *factors, const fc_item_tensor *y,
                               const fc_item_tensor *to, void *stream) {
  using namespace fc;
  if (!good(items) || !good(*items, to)) return FC_ERROR_BAD_CALL;
  if ((x != nullptr && !good(*items, x)) || (y != nullptr && !good(*items, y))) return FC_ERROR_BAD_CALL;
  CombineCall call = {};
  call.items = *items;
  call.to = *to;
  if (x != nullptr) call.x = *x;
  if (y != nullptr) call.y = *y;
  if (factors != nullptr) call.factors = *factors;
  call.has_x = x != nullptr;
  call.has_y = y != nullptr;
  const int64_t ctas = ceil_quotient(items->rows * (items->blades * items->channels + items->scalars), kThreads);
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  if (ctas == 0) return 0;
  const auto on = static_cast<cudaStream_t>(stream);
  switch (items->dtype) {
    case FC_F64: combine_kernel<double, double><<<unsigned(ctas), kThreads, 0, on>>>(call); break;
    case FC_F32: combine_kernel<float, float><<<unsigned(ctas), kThreads, 0, on>>>(call); break;
    default: combine_kernel<float, Bits16><<<unsigned(ctas), kThreads, 0, on>>>(call); break;
  }
  return int(cudaGetLastError());
}
