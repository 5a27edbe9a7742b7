// An addition that only moves memory: the floor for operators.
#include "floor.h"

#include <cuda_runtime.h>

namespace fc {
namespace {

constexpr int kThreads = 256;
// Vectors of 16 bytes for each thread. More of them, or hints to bypass the caches, made it slower on an H200.
constexpr int kVectors = 1;
constexpr int64_t kBlock = int64_t(kThreads) * kVectors;

__global__ void __launch_bounds__(kThreads) add(const float4 *x, const float4 *y, float4 *o, int64_t vectors) {
  const int64_t first = int64_t(blockIdx.x) * kBlock + threadIdx.x;
  float4 a[kVectors], b[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; i++) {
    const int64_t at = first + i * kThreads;
    if (at < vectors) {
      a[i] = x[at];
      b[i] = y[at];
    }
  }
#pragma unroll
  for (int i = 0; i < kVectors; i++) {
    const int64_t at = first + i * kThreads;
    if (at < vectors) {
      o[at] = make_float4(a[i].x + b[i].x, a[i].y + b[i].y, a[i].z + b[i].z, a[i].w + b[i].w);
    }
  }
}

// Adds the elements after the last vector.
__global__ void add_rest(const float *x, const float *y, float *o, int64_t first, int64_t count) {
  const int64_t at = first + threadIdx.x;
  if (at < count) o[at] = x[at] + y[at];
}

}  // namespace
}  // namespace fc

extern "C" int fc_add_f32(const float *x, const float *y, float *o, int64_t count, void *stream) {
  if (count < 0) return FC_ERROR_BAD_CALL;
  const auto aligned = [](const float *p) { return reinterpret_cast<uintptr_t>(p) % sizeof(float4) == 0; };
  if (!aligned(x) || !aligned(y) || !aligned(o)) return FC_ERROR_BAD_CALL;
  const int64_t vectors = count / 4;
  const int64_t blocks = (vectors + fc::kBlock - 1) / fc::kBlock;
  if (blocks > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  if (blocks > 0) {
    fc::add<<<unsigned(blocks), fc::kThreads, 0, on>>>(reinterpret_cast<const float4 *>(x),
                                                       reinterpret_cast<const float4 *>(y),
                                                       reinterpret_cast<float4 *>(o), vectors);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  if (count % 4 != 0) {
    fc::add_rest<<<1, 4, 0, on>>>(x, y, o, vectors * 4, count);
    return cudaGetLastError();
  }
  return 0;
}
