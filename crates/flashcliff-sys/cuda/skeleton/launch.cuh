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

// Whether the code of this library that the device runs has `take_turn`: not where it comes from code for older GPUs.
bool takes_turns();

// The attribute of launches that may start before the kernel before has ended.
inline cudaLaunchAttribute in_turn() {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

// Launches a kernel that calls `take_turn` before it touches what other kernels write, so that it starts while the kernel before it ends.
template <class... Parameters, class... Given>
cudaError_t launch_in_turn(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t bytes, void *stream, const Given &...given) {
  cudaLaunchAttribute attribute = in_turn();
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = takes_turns() ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, Parameters(given)...);
  // The next launch must not find the error of this one.
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

// A grid of CTAs for `elements` elements, with at most `most` CTAs. Threads walk on from there.
inline dim3 grid_of(int64_t elements, int threads, int64_t most) {
  const int64_t ctas = ceil_div(elements, threads);
  return dim3(unsigned(ctas < most ? ctas : most));
}

}  // namespace fc
