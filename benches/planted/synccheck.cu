// synccheck must report a barrier that only some threads of a warp reach.
#include "planted.h"

constexpr int kThreads = 64;

__global__ void sum(int *to, int reach) {
  __shared__ int shared[kThreads];
  const int i = int(threadIdx.x);
  shared[i] = i;
  if (i < reach) {
    __syncthreads();
    to[i] = shared[(i + 1) % reach];
  }
}

int main(int count, char **words) {
  const int bug = wants_bug(count, words);
  if (bug < 0) return 2;
  int *memory = nullptr;
  CALL(cudaMalloc(&memory, kThreads * sizeof(int)));
  CALL(cudaMemset(memory, 0, kThreads * sizeof(int)));
  sum<<<1, kThreads>>>(memory, bug ? kThreads / 4 : kThreads);
  CALL(cudaDeviceSynchronize());
  CALL(cudaFree(memory));
  return 0;
}
