/* C interface of grade-wise linear maps of few channels, which kernels of our own multiply: several maps of the same rows take one launch,
 * and so do all gradients of theirs.
 *
 * The promises of fc_launch hold. Sums are taken in an order that depends on sizes alone. */
#ifndef FLASHCLIFF_LINEAR_FEW_H
#define FLASHCLIFF_LINEAR_FEW_H

#include "linear.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most maps of a launch. */
#define FC_LINEAR_FEW_MAPS 4

/* The bytes of shared memory of a CTA: what every GPU has without asking. */
#define FC_LINEAR_FEW_SHARED 49152

/* The most channels. */
#define FC_LINEAR_FEW_CHANNELS 64

/* A map and its tensors. */
typedef struct fc_linear_few_map {
  const void *weight;  /* [out, in, grades] */
  const void *bias;    /* [out]; null without a bias. A backward pass does not read it. */
  void *o;             /* [blades, batch, out]: what a forward pass writes, the gradient that a backward pass reads */
  void *weight_parts;  /* [blades, parts, stride]: parts of the gradient of the weight, [out, in] each; null if they are not wanted */
  void *bias_parts;    /* [biased, parts, out]: parts of the gradient of the bias; null if they are not wanted */
  int32_t biased;      /* the blades with a bias, which are the first ones */
} fc_linear_few_map;

/* Maps of the same rows. The blades of grade g are those from end[g - 1], or 0, up to end[g]. */
typedef struct fc_linear_few {
  const void *x;       /* [blades, batch, in] */
  void *grad_x;        /* the sum of the gradients of all maps; null if it is not wanted */
  int64_t batch, in, out;
  int64_t stride;      /* at least in * out */
  int32_t blades, grades;
  int32_t parts;       /* of the rows of a blade */
  int32_t adds;        /* the gradient of x is added to what is there */
  int32_t count;
  fc_linear_parts end;
  fc_dtype lanes, params;
  fc_linear_few_map maps[FC_LINEAR_FEW_MAPS];
} fc_linear_few;

/* o = W x + b for each map. Lanes may have 16 bits while parameters have f32. */
int fc_linear_few_forward(const fc_linear_few *call, void *stream);

/* The gradients that are wanted. Parts have f32, or f64 for f64. */
int fc_linear_few_backward(const fc_linear_few *call, void *stream);

#ifdef __cplusplus
}
#endif

#endif
