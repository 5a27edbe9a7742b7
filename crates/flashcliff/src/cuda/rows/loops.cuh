// Loops over elements and rows, in front of the texts of kernels of rows. One thread has an element, or one warp has a row. Sums are taken
// in one order.

typedef long long Index;

#define FOR_EACH(at, count) \
  for (Index at = blockIdx.x * Index(blockDim.x) + threadIdx.x; at < (count); at += gridDim.x * Index(blockDim.x))

// Each warp has one row at a time.
#define FOR_EACH_ROW(row, rows)                                                                  \
  for (Index row = (blockIdx.x * Index(blockDim.x) + threadIdx.x) / 32, lane = threadIdx.x % 32; row < (rows); \
       row += gridDim.x * Index(blockDim.x) / 32)

template <class T>
__device__ T warp_sum(T value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}
