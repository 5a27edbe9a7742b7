/* The two ends of a captured training step: the batch that comes next, and the loss that it gave.
 *
 * Both read the number of the step from device memory, so that a captured step goes on by itself.
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success, launch on a stream (a
 * cudaStream_t) of the current CUDA context, never synchronise, never allocate, and can be captured into a graph. */
#ifndef FLASHCLIFF_STEPS_H
#define FLASHCLIFF_STEPS_H

#include "flashcliff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to[r] = from[order[(*step % steps) * rows + r]], r < rows, in rows of so many words of 4 bytes. Words of a row whose place is not
 * below from_rows are all bits set, which is no number. */
int fc_gather(const uint32_t *from, int64_t from_rows, uint32_t *to, int64_t words, const uint32_t *order, int64_t rows,
              const uint32_t *step, int64_t steps, void *stream);

/* losses[*step % steps] = *loss, then *step += 1. */
int fc_record(const float *loss, float *losses, uint32_t *step, int64_t steps, void *stream);

#ifdef __cplusplus
}
#endif

#endif
