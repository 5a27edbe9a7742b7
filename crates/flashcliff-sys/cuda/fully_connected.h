/* C interface of the fully connected product (fcgp_norm), in blocks of rows: what is around the matrix products, which cuBLASLt
 * computes. For each path p = (a, b, c), A_p [blades of b, rows, in] holds the terms of the path between x_a and y_c, gated; the
 * product is o_b = norm(sum over p of A_p w_p).
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success; launches go to a stream of
 * the current CUDA context, never synchronise, never allocate, and can be captured into a graph once fc_block_prepare and a call
 * have run on the device. Nothing is added up atomically. f32, bf16 and f16 are computed in f32, f64 in f64: the arithmetic type. */
#ifndef FLASHCLIFF_FULLY_CONNECTED_H
#define FLASHCLIFF_FULLY_CONNECTED_H

#include "flashcliff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most grades and paths of an algebra. */
#define FC_MAX_GRADES 6
#define FC_MAX_PATHS 64

/* The kernels of an algebra; has static lifetime. */
typedef struct fc_block_kernels fc_block_kernels;

/* The exponents of the powers of two by which numbers of a scaled block are multiplied before they are rounded to f16, so that
 * none overflows and only those far below the largest are subnormal. They are exact, and undone in f32. In memory of the device;
 * grades and paths are those of the algebra. */
typedef struct fc_block_scales {
  int32_t *weights;  /* FC_WEIGHT_SCALES: for all weights, and what it is found by */
  int32_t *rows;     /* [FC_MAX_GRADES, rows]: for path products, by grade of the output and row */
  int32_t *grads;    /* [FC_MAX_GRADES, rows]: for the gradient of the product, by grade and row */
  /* [2, FC_MAX_PATHS]: for the sums over rows of path products times that gradient, by path: of all rows up to this block, and
   * before it. */
  int32_t *sums;
  /* Gradients of path products are 2^-path_grads of the sums of scaled factors. */
  int32_t path_grads;
} fc_block_scales;
#define FC_WEIGHT_SCALES 257

/* Some rows of a call. Tensors are contiguous: x, y [blades, batch, in], output [blades, batch, out],
 * saved [output grades, batch] in the arithmetic type. Those of the block itself hold its rows only. */
typedef struct fc_block {
  const void *x;
  const void *y;
  int64_t batch;
  int64_t first;       /* first row of the block in the batch */
  int64_t rows;
  int64_t in;
  int64_t out;
  double eps;
  fc_gate gate;
  int32_t norm;        /* whether there is a norm */
  fc_dtype dtype;      /* type of the tensors of the call */
  fc_dtype operands;   /* type of the operands of matrix products: dtype, or f16 if dtype is f32; the block is scaled then */
  fc_block_scales scales;
  /* For each grade of the algebra the place of its first blade in x, y and the output; -1: absent. */
  int8_t left[FC_MAX_GRADES];
  int8_t right[FC_MAX_GRADES];
  int8_t result[FC_MAX_GRADES];
  int8_t blades[FC_MAX_GRADES];
  /* For each grade of the algebra its norm: the blades whose squares are added and subtracted, a bit each. Subtracted ones make it
   * the magnitude of a form of both signs, smoothed by eps. A grade without any blade stays as it is. */
  int32_t plus[FC_MAX_GRADES];
  int32_t minus[FC_MAX_GRADES];
  /* For each path of the algebra its place among those to the same grade, -1 if it is absent; and how many there are. */
  int8_t path[FC_MAX_PATHS];
  int8_t paths[FC_MAX_GRADES];
} fc_block;

/* The kernels of an algebra ("cl300"); null if there are none. */
const fc_block_kernels *fc_block_find(const char *algebra);

/* Loads the kernels of path products for tensors and operands of some types on the current device. */
int fc_block_prepare(const fc_block_kernels *kernels, fc_dtype dtype, fc_dtype operands);

/* Writes the products of all paths, for each grade as [blades of the grade, rows, paths, in] in the type of operands, so
 * that they are one left operand [blades rows, paths in] of that grade. If the block is scaled, this also finds the exponents of
 * rows and scales by them. If it is `balanced`, this scales so that path products times the gradient have the exponents of sums
 * in all rows; then it reads the exponents of sums and of gradients. */
int fc_block_form(const fc_block_kernels *kernels, const fc_block *block, int32_t balanced, void *const *products, void *stream);

/* Lowers the exponents of sums to what the rows of a scaled block allow. Reads the exponents of gradients. */
int fc_block_scale(const fc_block_kernels *kernels, const fc_block *block, void *stream);

/* Writes the gradients of x and y, at the rows of the block, from the gradients of the products of all paths, which lie as
 * fc_block_form writes products. Null gradients are not wanted. A scaled block needs the exponents of weights and of gradients.
 * With `for_weights` this also prepares the gradients of the weights: for a scaled block it does the work of fc_block_scale, for
 * others the work of fc_block_form, in the place of the gradients of products. */
int fc_block_pull_back(const fc_block_kernels *kernels, const fc_block *block, int32_t for_weights, void *const *products,
                       void *grad_x, void *grad_y, void *stream);

/* Writes the rows of the output from the product [blades, rows, out] in the arithmetic type, normalised if there is a norm.
 * With a norm this also writes its sums over channels, unless `saved` is null. A scaled block needs the exponents of weights and
 * of rows. */
int fc_block_norm(const fc_block *block, const void *product, void *output, void *saved, void *stream);

/* Writes the gradient of the product, [blades, rows, out] in the type of operands, from the gradient of the output at the
 * rows of the block. Output and saved are read if there is a norm. For a scaled block this also finds the exponents of gradients,
 * and continues the exponents of sums from the block before it; the first block starts them at their maximum. So the blocks of a
 * call must go in order, from row 0 on. */
int fc_block_undo_norm(const fc_block *block, const void *output, const void *grad_output, const void *saved,
                       void *grad_product, void *stream);

/* The weights of all paths in another order. */
typedef struct fc_block_weights {
  int64_t in;
  int64_t out;
  int32_t matrices;            /* at most FC_MAX_PATHS */
  int8_t order[FC_MAX_PATHS];  /* for each matrix of the new order its place among the paths of the product */
  int8_t path[FC_MAX_PATHS];   /* and its path of the algebra */
} fc_block_weights;

/* to[i, :, :] = from[order[i], :, :]. `to_type` equals `from_type`, or is f16 if that is f32; then `scales`, unless it is
 * null, gets the exponent of the weights (see fc_block_scales). */
int fc_block_pack(const fc_block_weights *weights, const void *from, void *to, int32_t *scales, fc_dtype from_type,
                  fc_dtype to_type, void *stream);

/* The converse, from `parts` parts of the matrices first to last that are added in order: to[order[first + i], :, :] = sum over
 * p of from[p, i, :, :]. `from_type` is the arithmetic type of `to_type`. With `sums` (see fc_block_scales) parts have these
 * exponents; then both types are f32. */
int fc_block_unpack(const fc_block_weights *weights, const void *from, void *to, int32_t first, int32_t last, int32_t parts,
                    const int32_t *sums, fc_dtype from_type, fc_dtype to_type, void *stream);

/* Brings such parts, f32, from the exponents that sums had before a block to those that they have now. */
int fc_block_rescale(const fc_block_weights *weights, float *of_parts, int32_t first, int32_t last, int32_t parts,
                     const int32_t *sums, void *stream);

#ifdef __cplusplus
}
#endif

#endif
