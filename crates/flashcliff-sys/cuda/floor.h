/* The least that any operator of two tensors must do: read both and write a third. Benchmarks measure it beside every
 * operator.
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success, launch on a stream (a
 * cudaStream_t) of the current CUDA context, never synchronise, never allocate, and can be captured into a graph. */
#ifndef FLASHCLIFF_FLOOR_H
#define FLASHCLIFF_FLOOR_H

#include "flashcliff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* o[i] = x[i] + y[i], i < count. All pointers are aligned to 16 bytes. */
int fc_add_f32(const float *x, const float *y, float *o, int64_t count, void *stream);

#ifdef __cplusplus
}
#endif

#endif
