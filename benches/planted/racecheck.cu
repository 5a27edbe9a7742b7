// racecheck must report shared memory that one thread writes and another reads without a barrier between.
#include "planted.h"

constexpr int kThreads = 64;

template <bool Bug>
__global__ void reverse(int *to) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = int(threadIdx.x);
  if (!Bug) __syncthreads();
  to[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

int main(int count, char **words) {
  const int bug = wants_bug(count, words);
  if (bug < 0) return 2;
  int *memory = nullptr;
  CALL(cudaMalloc(&memory, kThreads * sizeof(int)));
  if (bug) {
    reverse<true><<<1, kThreads>>>(memory);
  } else {
    reverse<false><<<1, kThreads>>>(memory);
  }
  CALL(cudaDeviceSynchronize());
  CALL(cudaFree(memory));
  return 0;
}
