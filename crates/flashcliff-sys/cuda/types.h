/* What host and device both know of a call: limits, element types, gates, the shape of a kernel. It declares no function, since
 * kernels that are compiled at run time include it too. */
#ifndef FLASHCLIFF_TYPES_H
#define FLASHCLIFF_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* The most lane tensors that a program reads or writes, and the most parameters and sums over the batch: third derivatives of
 * operators, and of the steps of transformers, have room. */
#define FC_MAX_TENSORS 24
#define FC_MAX_PARAMS 8

/* The bit of the first output in a set of lane tensors, of which bit i stands for input i. */
#define FC_FIRST_OUTPUT 32

/* The most lane tensors that the copy engine fetches: those of second derivatives. Programs that read more copy by their threads. */
#define FC_MAX_MAPS 5

/* Element types in memory. f32, bf16 and f16 are computed in f32, f64 in f64. */
typedef enum fc_dtype { FC_F32 = 0, FC_F64 = 1, FC_BF16 = 2, FC_F16 = 3 } fc_dtype;

/* The gates, as flashcliff::Gate lists them. */
typedef enum fc_gate {
  FC_GATE_NONE = 0,
  FC_GATE_GELU = 1,
  FC_GATE_GELU_TANH = 2,
  FC_GATE_SILU = 3,
  FC_GATE_GELU_FAST = 4
} fc_gate;

/* The variants of a kernel: the general one; those for calls that need the least of the skeleton, with 4 and 2 bytes an element;
 * and these again for one gate. */
#define FC_VARIANTS 5

/* Where a lane tensor has its elements. */
typedef struct fc_strides {
  int64_t component;
  int64_t batch;
} fc_strides;

/* The fixed facts of a kernel. */
typedef struct fc_shape {
  int32_t lanes;          /* channels a thread */
  int32_t threads;        /* of a CTA, at most */
  int32_t params_shared;  /* parameters are kept in shared memory, not in registers */
  int32_t inputs, outputs, params;
  int32_t sums;           /* over the batch */
  int32_t input_components[FC_MAX_TENSORS];
  int32_t output_components[FC_MAX_TENSORS];
  int32_t param_counts[FC_MAX_PARAMS];
  int32_t sum_counts[FC_MAX_PARAMS];
  int32_t saved_sums;     /* row sums it reads */
  int32_t row_sums;       /* row sums it computes */
  int32_t reductions;     /* in how many steps, each of which needs the row sums before it */
  /* The tensors of the scalar channels, as sets of bits. */
  uint32_t scalar_inputs, scalar_outputs, scalar_params, scalar_sums;
  int32_t row_values;     /* one number for each row, behind the lane tensors that are read */
  int32_t totals;         /* one sum over each row, behind the lane tensors that are written */
} fc_shape;

#endif
