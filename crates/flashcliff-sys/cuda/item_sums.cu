// The sums of some columns of a matrix: the gradients of biases.
//
// CTAs sum parts of the rows, and a second kernel sums the parts, always in the same order.
#include "items.cuh"
#include "skeleton/launch.cuh"

namespace fc {
namespace {

constexpr int kColumns = 32;  // of a CTA
constexpr int kRows = 8;      // of a CTA at a time
constexpr int kCtas = 1024;   // wanted
constexpr int kLeastRows = 64;  // of a part
constexpr int kAhead = 8;     // loads under way at once

struct SumsCall {
  fc_item_columns columns;
  int64_t taken;  // columns
  int64_t parts;
};

int64_t taken(const fc_item_columns &columns) {
  int64_t count = 0;
  for (int i = 0; i < columns.count; i++) count += columns.stops[i] - columns.starts[i];
  return count;
}

int64_t parts_of(const fc_item_columns &columns) {
  const int64_t wanted = ceil_quotient(kCtas, ceil_quotient(taken(columns) + 1, kColumns));
  const int64_t most = ceil_quotient(columns.rows, kLeastRows);
  return most < wanted ? (most < 1 ? 1 : most) : wanted;
}

// The sum over the rows of a CTA's threads, in the first of them.
template <class T>
FC_INLINE T over_rows(T value) {
  __shared__ T sums[kRows][kColumns];
  sums[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  T sum = 0;
  if (threadIdx.y == 0) FC_EACH(kRows, sum += sums[i][threadIdx.x])
  return sum;
}

// The sum of `load(row)` over every kRows-th row from `first` on.
template <class T, class F>
FC_INLINE T strided_sum(int64_t first, int64_t end, F &&load) {
  T sum = 0;
#pragma unroll 1
  for (int64_t row = first; row < end; row += kAhead * kRows) {
    T values[kAhead];
    FC_EACH(kAhead, values[i] = row + i * kRows < end ? load(row + i * kRows) : T(0))
    FC_EACH(kAhead, sum += values[i])
  }
  return sum;
}

template <class T, class S>
__global__ void __launch_bounds__(kColumns *kRows) parts_kernel(const __grid_constant__ SumsCall call) {
  take_turn();
  const fc_item_columns &columns = call.columns;
  const int64_t at = int64_t(blockIdx.x) * kColumns + threadIdx.x;
  int64_t column = at;
  for (int i = 0, begin = 0; i < columns.count; i++) {
    const int count = int(columns.stops[i] - columns.starts[i]);
    if (at >= begin && at < begin + count) column = columns.starts[i] + at - begin;
    begin += count;
  }
  const bool mine = at < call.taken;
  const int64_t rows = (columns.rows + call.parts - 1) / call.parts, begin = blockIdx.y * rows;
  const int64_t end = begin + rows < columns.rows ? begin + rows : columns.rows;
  const S *from = static_cast<const S *>(columns.elements) + (mine ? column : 0);
  const T sum = strided_sum<T>(begin + threadIdx.y, mine ? end : 0, [&](int64_t row) {
    return load_lanes<S, T, 1>(from + row * columns.row_stride, columns.dtype).v[0];
  });
  const T whole = over_rows(sum);
  if (mine && threadIdx.y == 0) static_cast<T *>(columns.partials)[blockIdx.y * call.taken + at] = whole;
}

template <class T, class S>
__global__ void __launch_bounds__(kColumns *kRows) sums_kernel(const __grid_constant__ SumsCall call) {
  take_turn();
  const fc_item_columns &columns = call.columns;
  const int64_t column = int64_t(blockIdx.x) * kColumns + threadIdx.x;
  int64_t at = -1;
  for (int i = 0, begin = 0; i < columns.count; i++) {
    if (column >= columns.starts[i] && column < columns.stops[i]) at = begin + column - columns.starts[i];
    begin += int(columns.stops[i] - columns.starts[i]);
  }
  const T *from = static_cast<const T *>(columns.partials) + (at < 0 ? 0 : at);
  const T sum = strided_sum<T>(threadIdx.y, at < 0 ? 0 : call.parts, [&](int64_t part) { return from[part * call.taken]; });
  const T whole = over_rows(sum);
  if (column < columns.width && threadIdx.y == 0) {
    store_lanes<S, T, 1>(static_cast<S *>(columns.to) + column, Lanes<T, 1>{{whole}}, columns.dtype);
  }
}

bool good(const fc_item_columns *columns) {
  if (columns == nullptr || columns->rows < 0 || columns->width < 0 || columns->width > INT32_MAX) return false;
  if (columns->dtype < FC_F32 || columns->dtype > FC_F16) return false;
  if (columns->count < 0 || columns->count > FC_ITEM_RUNS) return false;
  int64_t before = 0;
  for (int i = 0; i < columns->count; i++) {
    if (columns->starts[i] < before || columns->stops[i] < columns->starts[i]) return false;
    before = columns->stops[i];
  }
  return before <= columns->width;
}

}  // namespace
}  // namespace fc

extern "C" int64_t fc_item_sum_partials(const fc_item_columns *columns) {
  return fc::good(columns) ? fc::parts_of(*columns) : 0;
}

extern "C" int fc_item_sums(const fc_item_columns *columns, void *stream) {
  if (!fc::good(columns)) return FC_ERROR_BAD_CALL;
  if (columns->width == 0) return 0;
  const fc::SumsCall call = {*columns, fc::taken(*columns), fc::parts_of(*columns)};
  if (columns->to == nullptr || (call.taken > 0 && columns->partials == nullptr)) return FC_ERROR_BAD_CALL;
  if (columns->rows > 0 && call.taken > 0 && columns->elements == nullptr) return FC_ERROR_BAD_CALL;
  const dim3 threads(fc::kColumns, fc::kRows);
  const dim3 parts(unsigned(fc::ceil_quotient(call.taken, fc::kColumns)), unsigned(call.parts));
  const auto ctas = unsigned(fc::ceil_quotient(columns->width, fc::kColumns));
  const auto run = [&](auto *of_arithmetic, auto *of_memory) {
    using T = typename fc::Element<decltype(of_arithmetic)>::Type;
    using S = typename fc::Element<decltype(of_memory)>::Type;
    if (call.taken > 0) {
      if (const auto error = fc::launch_in_turn(fc::parts_kernel<T, S>, parts, threads, 0, stream, call)) return int(error);
    }
    return int(fc::launch_in_turn(fc::sums_kernel<T, S>, dim3(ctas), threads, 0, stream, call));
  };
  if (columns->dtype == FC_F64) return run(static_cast<double *>(nullptr), static_cast<double *>(nullptr));
  if (columns->dtype == FC_F32) return run(static_cast<float *>(nullptr), static_cast<float *>(nullptr));
  return run(static_cast<float *>(nullptr), static_cast<fc::Bits16 *>(nullptr));
}
