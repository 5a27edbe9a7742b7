/* C interface of what the grade-wise linear map needs beside matrix products, which cuBLASLt computes.
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success, launch on a stream (a
 * cudaStream_t) of the current CUDA context, never synchronise, never allocate, and can be captured into a graph.
 * Nothing is added up atomically: results are the same bit for bit from run to run. */
#ifndef FLASHCLIFF_LINEAR_H
#define FLASHCLIFF_LINEAR_H

#include "flashcliff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most grades: those of 8 dimensions. */
#define FC_LINEAR_MAX_GRADES 9

/* Where the matrices of each grade end, if some grades have several: those of grade g are end[g - 1], or 0, up to
 * end[g]. At least one for each grade. */
typedef struct fc_linear_parts {
  int32_t end[FC_LINEAR_MAX_GRADES];
} fc_linear_parts;

/* The bias of each blade, [blades, stride], from one bias [channels]: that of the first `biased` blades is a copy of it,
 * that of the others zero. channels <= stride. */
typedef struct fc_linear_bias {
  const void *bias;
  void *packed;
  int64_t channels;
  int64_t stride;
  int32_t blades;
  int32_t biased;
} fc_linear_bias;

/* Which axis of weights comes first. */
typedef enum fc_linear_order { FC_LINEAR_ELEMENTS_FIRST = 0, FC_LINEAR_GRADES_FIRST = 1 } fc_linear_order;

/* Weights, [rows, columns, grades] or [grades, rows, columns], and how their matrices are packed: `stride` elements from
 * each to the next, rows * columns <= stride. At most FC_LINEAR_MAX_GRADES grades. */
typedef struct fc_linear_weights {
  int64_t rows;
  int64_t columns;
  int64_t grades;
  int64_t stride;
  fc_linear_order order;
  int32_t transposed; /* packed as [columns, rows] */
} fc_linear_weights;

/* Weights and their packed form. */
typedef struct fc_linear_packing {
  const void *from;
  void *to;
  fc_linear_weights shape;
  fc_linear_parts matrices;
  fc_linear_bias bias; /* packed too; without channels there is none */
} fc_linear_packing;

/* The most weights that one kernel packs. */
#define FC_LINEAR_MOST_AT_ONCE 24

/* Packs as many equal matrices for each grade as `matrices` says: to[p, r, c] = from[r, c, g] for the matrices p of g. `to` equals
 * `from`, or is a 16-bit type if `from` is f32; biases have the same types. Takes as few kernels as hold all weights. */
int fc_linear_pack(const fc_linear_packing *all, int32_t count, fc_dtype from, fc_dtype to, void *stream);

/* Gradients of weights from the parts of the gradient of each grade: to[r, c, g] = sum of from[p, r, c] over the matrices p of g,
 * in order, none of them transposed. Summed in f32, or in f64 for f64. Types and kernels as for fc_linear_pack; biases are not
 * looked at. */
int fc_linear_unpack(const fc_linear_packing *all, int32_t count, fc_dtype from, fc_dtype to, void *stream);

/* rows[r, c] = bias[c], for a product over no channels. `to` equals `from`, or is a 16-bit type if `from` is f32. */
int fc_linear_broadcast(const void *bias, void *rows, int64_t row_count, int64_t channels, fc_dtype from, fc_dtype to,
                        void *stream);

/* The bytes of workspace that fc_linear_column_sums needs. */
size_t fc_linear_column_sums_workspace(int64_t rows, int64_t channels, fc_dtype from);

/* sums[c] = sum over r of rows[r, c], the gradient of a bias; accumulated in f32, or in f64 for f64, always in the same
 * order. `to` equals `from`, or is f32 if `from` is a 16-bit type. */
int fc_linear_column_sums(const void *rows, void *sums, void *workspace, int64_t row_count, int64_t channels,
                          fc_dtype from, fc_dtype to, void *stream);

/* The version of the CUDA runtime in the library, 1000 major + 10 minor. Drivers of an older major version cannot run
 * it. */
int fc_runtime_version(void);

#ifdef __cplusplus
}
#endif

#endif
