/* C interface of the fully connected product (fcgp_norm) on tensor cores: o_b = grade_rms(sum over paths p = (a, b, c) of A_p w_p), where
 * A_p [blades of b, batch, in] holds the terms of the path between x_a and y_c, gated.
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success; launches go to a stream of the
 * current CUDA context, never synchronise, never allocate, and can be captured into a graph once fc_product_prepare has
 * run on the device. Nothing is added up atomically. */
#ifndef FLASHCLIFF_FULLY_CONNECTED_H
#define FLASHCLIFF_FULLY_CONNECTED_H

#include "flashcliff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most blades and paths of an algebra. */
#define FC_MAX_BLADES 32
#define FC_MAX_PATHS 64

/* How the operands of the matrix products are rounded; sums are always f32. */
typedef enum fc_precision {
  FC_PRECISION_TF32 = 0, /* for f32 tensors */
  FC_PRECISION_BF16 = 1, /* for bf16 tensors */
  FC_PRECISION_F16 = 2   /* for f16 tensors */
} fc_precision;

/* The kernels of an algebra; has static lifetime. */
typedef struct fc_product fc_product;

/* All tensors are contiguous: x, y [blades, batch, in], w [paths, in, out], output [blades, batch, out],
 * saved [output grades, batch] in f32. */
typedef struct fc_product_call {
  const void *x;
  const void *y;
  const void *w;
  void *output;             /* written by forward, read by backward if there is a norm */
  void *saved;              /* sums of squares by row and grade: written by forward unless null, read by backward */
  const void *grad_output;  /* backward only, as what follows */
  void *grad_x;             /* null: not wanted */
  void *grad_y;
  void *grad_w;
  /* At least fc_product_workspace bytes, aligned to 256 bytes; what it holds does not matter. */
  void *workspace;
  size_t workspace_bytes;
  int64_t batch;
  int64_t in;
  int64_t out;
  double eps;
  fc_gate gate;
  int32_t norm;             /* whether there is one */
  fc_dtype lane_dtype;      /* of all tensors but w and its gradient */
  fc_dtype param_dtype;     /* lane_dtype or f32 */
  fc_precision precision;
  /* For each blade and path of the algebra its place in the tensors, -1 if it is absent. */
  int8_t left[FC_MAX_BLADES];
  int8_t right[FC_MAX_BLADES];
  int8_t result[FC_MAX_BLADES];
  int8_t path[FC_MAX_PATHS];
} fc_product_call;

/* The kernels of an algebra ("cl300"); null if there are none. */
const fc_product *fc_product_find(const char *algebra);

/* Loads the kernels of a precision on the current device. */
int fc_product_prepare(const fc_product *product, fc_precision precision);

/* The bytes of workspace that a pass needs for the shape, types, precision, norm, gate and wanted gradients of a call. */
int fc_product_workspace(const fc_product *product, const fc_product_call *call, fc_pass pass, size_t *bytes);

int fc_product_forward(const fc_product *product, const fc_product_call *call, void *stream);
int fc_product_backward(const fc_product *product, const fc_product_call *call, void *stream);

#ifdef __cplusplus
}
#endif

#endif
