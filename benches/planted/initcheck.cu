// initcheck must report a read of device memory that nothing has written.
#include "planted.h"

constexpr int kCount = 128;

__global__ void copy(const int *from, int *to) { to[threadIdx.x] = from[threadIdx.x]; }

int main(int count, char **words) {
  const int bug = wants_bug(count, words);
  if (bug < 0) return 2;
  int *from = nullptr, *to = nullptr;
  CALL(cudaMalloc(&from, kCount * sizeof(int)));
  CALL(cudaMalloc(&to, kCount * sizeof(int)));
  // The bug: the last element is not written.
  CALL(cudaMemset(from, 1, (kCount - bug) * sizeof(int)));
  copy<<<1, kCount>>>(from, to);
  CALL(cudaDeviceSynchronize());
  CALL(cudaFree(from));
  CALL(cudaFree(to));
  return 0;
}
