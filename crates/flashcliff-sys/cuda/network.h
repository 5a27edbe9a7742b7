/* The parts of an invariant network that are not operators: its points, the norm of its multivectors, the activation of its
 * perceptron, its error, sums, and weights in another order.
 *
 * Arrays are contiguous. The arrays of one argument `dtype` have this type. Two types are FC_F64 both; or FC_F32 or a type of 16 bits,
 * the same if both have 16 bits. Types of 16 bits are computed in f32. Every element of a result is written, whatever was there
 * before. Sums are added in a fixed order, without atomics, so results are the same bit for bit every time.
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success, launch on a stream (a
 * cudaStream_t) of the current CUDA context, never synchronise, never allocate, and can be captured into a graph. */
#ifndef FLASHCLIFF_NETWORK_H
#define FLASHCLIFF_NETWORK_H

/* The functions of networks, between linear maps. */
typedef enum fc_activation {
  FC_ACTIVATION_RELU = 0, /* max(x, 0); the slope at 0 is 0 */
  FC_ACTIVATION_SILU = 1  /* x / (1 + exp(-x)) */
} fc_activation;
#include "flashcliff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Points as multivectors of grades 0 and 1: to[0][b][p] = 0, to[1 + i][b][p] = from[b][p][i], with from [batch, points, dim]. */
int fc_points(const void *from, void *to, int64_t batch, int64_t points, int64_t dim, fc_dtype from_dtype, fc_dtype to_dtype,
              void *stream);

/* o = sqrt(sum over blades of x^2), with x [blades, rows] and o [rows]. */
int fc_blade_norm(const void *x, void *o, int64_t blades, int64_t rows, fc_dtype x_dtype, fc_dtype o_dtype, void *stream);

/* grad_x = grad_o x / o, 0 where o is 0. Gradients have the types of their values. */
int fc_blade_norm_backward(const void *x, const void *o, const void *grad_o, void *grad_x, int64_t blades, int64_t rows,
                           fc_dtype x_dtype, fc_dtype o_dtype, void *stream);

/* o = activation(x), for SiLU and ReLU. */
int fc_activate(const void *x, void *o, int64_t count, fc_activation kind, fc_dtype x_dtype, fc_dtype o_dtype, void *stream);

/* grad_x = grad_o activation'(x). Gradients have the types of their values. */
int fc_activate_backward(const void *x, const void *grad_o, void *grad_x, int64_t count, fc_activation kind, fc_dtype x_dtype,
                         fc_dtype o_dtype, void *stream);

/* *loss = scale sum (y - target)^2, added to *loss if `adds`; grad[i] = 2 scale *loss_scale (y[i] - target[i]), where no loss_scale
 * (null) is 1. The sum is in f64; the type is FC_F32 or FC_F64. */
int fc_squared_error(const void *y, const void *target, void *loss, void *grad, int64_t count, double scale,
                     const double *loss_scale, int adds, fc_dtype dtype, void *stream);

/* o = scale (x + y), or scale x without a y (null), which has the type of x. */
int fc_scaled_sum(const void *x, const void *y, void *o, int64_t count, double scale, fc_dtype x_dtype, fc_dtype o_dtype,
                  void *stream);

/* o = x[blade], with x [blades, rows] and o [rows]. */
int fc_blade(const void *x, void *o, int64_t blade, int64_t rows, fc_dtype x_dtype, fc_dtype o_dtype, void *stream);

/* grad_x[blade] = grad_o, and 0 for all other blades. Gradients have the types of their values. */
int fc_blade_backward(const void *grad_o, void *grad_x, int64_t blade, int64_t blades, int64_t rows, fc_dtype x_dtype,
                      fc_dtype o_dtype, void *stream);

/* An array [first, middle, last] with its axes in reverse order: to[k][j][i] = from[i][j][k], in any of the types. */
int fc_reverse_axes(const void *from, void *to, int64_t first, int64_t middle, int64_t last, fc_dtype dtype, void *stream);

/* to += from, in FC_F32 or FC_F64. */
int fc_accumulate(void *to, const void *from, int64_t count, fc_dtype dtype, void *stream);

#ifdef __cplusplus
}
#endif

#endif
