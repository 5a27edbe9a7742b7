/* C interface of the fully connected product (fcgp_norm), in blocks of rows: what is around the matrix products, which cuBLASLt
 * computes. For each path p = (a, b, c), A_p [blades of b, rows, in] holds the terms of the path between x_a and y_c, gated; the
 * product is o_b = norm(sum over p of A_p w_p).
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success; launches go to a stream of
 * the current CUDA context, never synchronise, never allocate, and can be captured into a graph once fc_block_prepare and a call
 * have run on the device. Nothing is added up atomically. f32, bf16 and f16 are computed in f32, f64 in f64: the arithmetic type. */
#ifndef FLASHCLIFF_FULLY_CONNECTED_H
#define FLASHCLIFF_FULLY_CONNECTED_H

#include "block.h"
#include "flashcliff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels of an algebra; they live as long as the process. */
typedef struct fc_block_kernels fc_block_kernels;

/* The kernels of an algebra ("cl300"); null if there are none. */
const fc_block_kernels *fc_block_find(const char *algebra);

/* The variants of the kernels of path products, in order: for any call in f32; for calls with all paths and aligned channels, of f32,
 * bf16 and f16; for any scaled block; for scaled blocks with all paths and aligned channels; for any call in f64. */
#define FC_BLOCK_VARIANTS 7
/* The kernels of a variant, in order: form; pull back; pull back and form; scale and form; scale sums; scale sums and pull back. */
#define FC_BLOCK_WORKS 6

/* The code of kernels of path products that were compiled at run time: for each variant a cubin, or PTX that ends in a zero byte, the
 * names of its functions and the channels of a thread. Null: there is no such variant, or no such kernel. */
typedef struct fc_block_image {
  const void *codes[FC_BLOCK_VARIANTS];
  const char *functions[FC_BLOCK_VARIANTS][FC_BLOCK_WORKS];
  int32_t channels[FC_BLOCK_VARIANTS];
  int32_t paths;  /* of the algebra */
} fc_block_image;

/* Makes kernels of code, which is copied. They are for the calls whose variants are there. */
int fc_block_load(const fc_block_image *image, const fc_block_kernels **kernels);

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
  int16_t order[FC_MAX_PATHS];  /* for each matrix of the new order its place among the paths of the product */
  int16_t path[FC_MAX_PATHS];   /* and its path of the algebra */
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
