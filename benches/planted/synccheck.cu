// synccheck must report a barrier of a warp that threads outside of its mask take part in.
#include "planted.h"

constexpr int kThreads = 32;

__global__ void exchange(int *to, unsigned mask) {
  __shared__ int shared[kThreads];
  const int i = int(threadIdx.x);
  shared[i] = i;
  __syncwarp(mask);
  to[i] = shared[(i + 1) % kThreads];
}

int main(int count, char **words) {
  const int bug = wants_bug(count, words);
  if (bug < 0) return 2;
  int *memory = nullptr;
  CALL(cudaMalloc(&memory, kThreads * sizeof(int)));
  CALL(cudaMemset(memory, 0, kThreads * sizeof(int)));
  exchange<<<1, kThreads>>>(memory, bug ? 0xffffu : ~0u);
  CALL(cudaDeviceSynchronize());
  CALL(cudaFree(memory));
  return 0;
}
