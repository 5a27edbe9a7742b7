/* Scaled dot-product attention within sequences, for features of up to FC_ATTENTION_WIDTH numbers a head:
 *
 *   out[i] = sum over keys j of softmax_j(scale * query[i] . key[j]) value[j]
 *
 * It is made for f32, whose products run on tensor cores. On GPUs of compute capability 9.0 sequences of 128 queries and keys or more have
 * separate kernels.
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success, launch on a stream (a
 * cudaStream_t) of the current CUDA context, never synchronise, never allocate, and can be captured into a graph. Results are the
 * same bit for bit every time. */
#ifndef FLASHCLIFF_ATTENTION_H
#define FLASHCLIFF_ATTENTION_H

#include "flashcliff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most features of a head. */
#define FC_ATTENTION_WIDTH 96
/* Strides and addresses are multiples of this number of elements. */
#define FC_ATTENTION_ALIGNED 4

/* Features [rows, heads, width]: a stride of rows and one of heads, in elements; the last axis is contiguous. Where sequences have no
 * bounds, they lie a stride apart. */
typedef struct fc_attention_tensor {
  void *features;
  int64_t sequence_stride;
  int64_t row_stride;
  int64_t head_stride;
} fc_attention_tensor;

/* Queries or keys: sequences that follow each other. */
typedef struct fc_attention_rows {
  int64_t count;         /* of all sequences */
  int64_t longest;       /* the most rows of a sequence; without bounds that of each */
  const int32_t *bounds; /* [sequences + 1] on the device, ascending from 0 to count; null if all are equally long */
} fc_attention_rows;

typedef struct fc_attention {
  fc_attention_tensor query; /* [queries, heads, width] */
  fc_attention_tensor key;   /* [keys, key_heads, width] */
  fc_attention_tensor value; /* [keys, key_heads, value_width] */
  fc_attention_tensor out;   /* [queries, heads, value_width] */
  float *log_sums;           /* [heads, queries]: logarithms of the sums of the exponentials; for the gradient */
  fc_attention_rows queries, keys;
  int64_t sequences;
  int32_t heads, key_heads;   /* of keys and values: heads, or 1 for all */
  int32_t width, value_width; /* multiples of FC_ATTENTION_ALIGNED */
  float scale;
  fc_dtype dtype; /* of all features: f32, bf16 or f16; computed in f32 */
  int32_t exact;  /* f32: whether factors keep all bits, in three products, or are rounded to TF32 */
} fc_attention;

/* Writes `out` and `log_sums`. */
int fc_attention_forward(const fc_attention *attention, void *stream);

/* Writes the gradients of queries, keys and values, in this order, from `gradient`, that of `out`; `out` and `log_sums` are read.
 * `means` is room for [heads, queries] numbers, which long sequences use. */
int fc_attention_backward(const fc_attention *attention, const fc_attention_tensor *gradient,
                          const fc_attention_tensor *gradients, float *means, void *stream);

#ifdef __cplusplus
}
#endif

#endif
