/* C interface of the grade-wise linear map of few channels, whose products are too small for matrix instructions of many threads.
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success, launch on a stream (a
 * cudaStream_t) of the current CUDA context, never synchronise, never allocate, and can be captured into a graph.
 * Each number is a sum in the order of the channels: results are the same bit for bit from run to run, and for a row of any batch. */
#ifndef FLASHCLIFF_FEW_CHANNELS_H
#define FLASHCLIFF_FEW_CHANNELS_H

#include "flashcliff.h"
#include "linear.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most channels of both sides. */
#define FC_FEW_CHANNELS 64

/* to[b, r, c] = sum over s of from[b, r, s] weight[s strides[0] + c strides[1] + g strides[2]] + bias[c], for the blades b of each grade
 * g, which end at blades.end[g]. The bias, if it is not null, is that of the first `biased` blades. If `adds` is not 0, the sum is
 * added to what is there. */
typedef struct fc_few_channels {
  const void *from; /* [blades, rows, from_channels] */
  const void *weight;
  const void *bias;
  void *to; /* [blades, rows, to_channels] */
  int64_t rows;
  int64_t strides[3];
  fc_linear_parts blades;
  int32_t grades;
  int32_t from_channels;
  int32_t to_channels;
  int32_t biased;
  int32_t adds;
} fc_few_channels;

/* Channels of at most FC_FEW_CHANNELS. Rows have the type `lanes`, weights and biases the type `params`: the same, or f32 beside rows
 * of 16 bits. Summed in f32, or in f64 for f64. */
int fc_few_channels_map(const fc_few_channels *call, fc_dtype lanes, fc_dtype params, void *stream);

#ifdef __cplusplus
}
#endif

#endif
