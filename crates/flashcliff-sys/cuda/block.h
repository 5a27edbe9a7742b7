/* A block of rows of the fully connected product, as host and device know it (see fully_connected.h). It declares no function, since
 * kernels that are compiled at run time include it too. */
#ifndef FLASHCLIFF_BLOCK_H
#define FLASHCLIFF_BLOCK_H

#include "types.h"

/* The most grades and paths of an algebra: those of 8 dimensions. */
#define FC_MAX_GRADES 9
#define FC_MAX_PATHS 165

/* Blades of a grade, a bit each. A grade has at most 70. */
typedef struct fc_blades {
  uint64_t bits[2];
} fc_blades;

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
  int16_t left[FC_MAX_GRADES];
  int16_t right[FC_MAX_GRADES];
  int16_t result[FC_MAX_GRADES];
  int16_t blades[FC_MAX_GRADES];
  /* For each grade of the algebra its norm: the blades whose squares are added and subtracted. Subtracted ones make it
   * the magnitude of a form of both signs, smoothed by eps. A grade without any blade stays as it is. */
  fc_blades plus[FC_MAX_GRADES];
  fc_blades minus[FC_MAX_GRADES];
  /* For each path of the algebra its place among those to the same grade, -1 if it is absent; and how many there are. */
  int16_t path[FC_MAX_PATHS];
  int16_t paths[FC_MAX_GRADES];
} fc_block;

#endif
