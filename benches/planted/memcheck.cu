// memcheck must report a write behind an allocation.
#include "planted.h"

constexpr int kCount = 100;

__global__ void write(int *to, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = i;
}

int main(int count, char **words) {
  const int bug = wants_bug(count, words);
  if (bug < 0) return 2;
  int *memory = nullptr;
  CALL(cudaMalloc(&memory, kCount * sizeof(int)));
  write<<<1, 128>>>(memory, kCount + bug);
  CALL(cudaDeviceSynchronize());
  CALL(cudaFree(memory));
  return 0;
}
