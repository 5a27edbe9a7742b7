// Helpers for all launches, on the host.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

namespace fc {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class... Parameters, class... Given>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, void *stream, Given... given) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = static_cast<cudaStream_t>(stream);
  return cudaLaunchKernelEx(&config, kernel, Parameters(given)...);
}

// A grid of CTAs for `elements` elements, with at most `most` CTAs. Threads walk on from there.
inline dim3 grid_of(int64_t elements, int threads, int64_t most) {
  const int64_t ctas = ceil_div(elements, threads);
  return dim3(unsigned(ctas < most ? ctas : most));
}

}  // namespace fc
