// The two ends of a captured training step.
#include "steps.h"

#include <cuda_runtime.h>

namespace fc {
namespace {

constexpr int kThreads = 256;

// A thread copies a word; neighbours copy neighbours.
__global__ void __launch_bounds__(kThreads)
    gather(const uint32_t *from, int64_t from_rows, uint32_t *to, int64_t words, const uint32_t *order, int64_t rows,
           const uint32_t *step, int64_t steps) {
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows * words) return;
  const int64_t row = at / words;
  const uint32_t place = order[int64_t(*step) % steps * rows + row];
  to[at] = place < from_rows ? from[place * words + at % words] : 0xffffffffu;
}

__global__ void record(const float *loss, float *losses, uint32_t *step, int64_t steps) {
  losses[int64_t(*step) % steps] = *loss;
  *step += 1;
}

}  // namespace
}  // namespace fc

extern "C" int fc_gather(const uint32_t *from, int64_t from_rows, uint32_t *to, int64_t words, const uint32_t *order,
                         int64_t rows, const uint32_t *step, int64_t steps, void *stream) {
  if (from == nullptr || to == nullptr || order == nullptr || step == nullptr || from_rows < 0 || words < 0 || rows < 0 ||
      steps < 1) {
    return FC_ERROR_BAD_CALL;
  }
  const int64_t ctas = (rows * words + fc::kThreads - 1) / fc::kThreads;
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  if (ctas == 0) return 0;
  fc::gather<<<unsigned(ctas), fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(from, from_rows, to, words, order,
                                                                                     rows, step, steps);
  return cudaGetLastError();
}

extern "C" int fc_record(const float *loss, float *losses, uint32_t *step, int64_t steps, void *stream) {
  if (loss == nullptr || losses == nullptr || step == nullptr || steps < 1) return FC_ERROR_BAD_CALL;
  fc::record<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(loss, losses, step, steps);
  return cudaGetLastError();
}
