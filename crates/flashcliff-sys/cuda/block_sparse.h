/* Products with a matrix of which only some blocks are not zero, such as the matrix of an equivariant linear map:
 *
 *   out = bias + x w        x [rows, inputs], w [inputs, outputs], out [rows, outputs]
 *
 * Columns are counted in units of FC_UNIT. Groups of output units share the input units that they depend on; a table has them. Matrices
 * are f32, rows f32 or of 16 bits; products are rounded to TF32, which has all bits of f16 and bf16, and sums are f32.
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success, launch on a stream (a
 * cudaStream_t) of the current CUDA context, never synchronise, never allocate, and can be captured into a graph. Results are the
 * same bit for bit every time. */
#ifndef FLASHCLIFF_BLOCK_SPARSE_H
#define FLASHCLIFF_BLOCK_SPARSE_H

#include "flashcliff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The columns of a unit. */
#define FC_UNIT 8
/* The most output units of a group. */
#define FC_GROUP_UNITS 8
/* The most input units of a group of fc_block_sparse_weights. */
#define FC_GROUP_INPUTS 4
/* Up to so many rows, kernels for few rows are faster. They take f32. */
#define FC_BLOCK_FEW_ROWS 768
/* The numbers that describe a group. */
#define FC_GROUP_NUMBERS 5

/* Groups; addresses are of the device's memory, but for `sizes`. A kernel reads them before the kernels before it have ended, so no
 * kernel just before it may write them. */
typedef struct fc_block_groups {
  /* [count, FC_GROUP_NUMBERS]: the first of the inputs in `units`, their number, the first of the outputs, their number, and 1 for the
   * first group with these outputs, else 0. */
  const int32_t *groups;
  const int32_t *sizes;  /* the same numbers in memory of the host */
  const int32_t *units;  /* numbers of units */
  int64_t count;
} fc_block_groups;

typedef struct fc_block_sparse {
  const void *x;        /* [rows, inputs], with a stride of rows */
  const float *weights; /* [inputs, outputs], with a stride of rows */
  const float *bias;    /* [outputs], or null */
  void *out;            /* [rows, outputs], with a stride of rows */
  int64_t rows, x_stride, weights_stride, out_stride; /* multiples of 4, or of 8 in 16 bits */
  int32_t transposed;   /* whether `weights` are [outputs, inputs] */
  fc_dtype x_dtype, out_dtype; /* f32, bf16 or f16; f32 up to FC_BLOCK_FEW_ROWS rows */
  fc_block_groups groups;
} fc_block_sparse;

/* Writes `out`, of all units that a group has. */
int fc_block_sparse_product(const fc_block_sparse *call, void *stream);

typedef struct fc_block_sparse_gradient {
  const void *x;         /* [rows, inputs] */
  const void *gradient;  /* [rows, outputs] */
  float *partials;       /* [fc_block_sparse_partials] */
  float *to;             /* [inputs, outputs] */
  float *of_bias;        /* [outputs], or null: the gradient of the bias, of the outputs that groups have */
  int64_t rows, x_stride, gradient_stride, to_stride; /* multiples of 4, or of 8 in 16 bits */
  fc_dtype x_dtype, gradient_dtype; /* as in fc_block_sparse */
  fc_block_groups groups; /* with at most FC_GROUP_INPUTS inputs each */
} fc_block_sparse_gradient;

/* The numbers that fc_block_sparse_weights writes between its steps. */
int64_t fc_block_sparse_partials(int64_t rows, int64_t groups);

/* Writes the gradient of the matrix, x^T gradient, of the blocks that groups have; others keep what they are. */
int fc_block_sparse_weights(const fc_block_sparse_gradient *call, void *stream);

#ifdef __cplusplus
}
#endif

#endif
