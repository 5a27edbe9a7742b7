/* C interface of the CUDA kernels of flashcliff.
 *
 * A kernel is one pass (forward or backward) of one lane program of one algebra, in one
 * arithmetic. Every function that can fail returns a cudaError_t as an int, 0 for success, or one of
 * the codes below. Launches go to a stream, never synchronise and never allocate; they can be captured into a
 * graph once fc_prepare has run for the kernel on the device. The current CUDA context is used.
 *
 * The Rust bindings are made from this file by `cargo xtask bindings`. */
#ifndef FLASHCLIFF_H
#define FLASHCLIFF_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A call that does not fit the kernel (an element type it cannot store, a workspace that is too small). */
#define FC_ERROR_BAD_CALL 100001
/* The shape needs more than the GPU can launch. */
#define FC_ERROR_TOO_LARGE 100002

/* A kernel; it lives as long as the process. */
typedef struct fc_kernel fc_kernel;

/* The tensors that a kernel reads and writes, in the order of its program. All tensors are contiguous; lane tensors are
 * [components, batch, channels], parameters and sums over the batch [channels, count]. */
typedef struct fc_call {
  const void *inputs[FC_MAX_TENSORS];
  void *outputs[FC_MAX_TENSORS];     /* null: not wanted */
  const void *params[FC_MAX_PARAMS];
  void *sums[FC_MAX_PARAMS];         /* over the batch; null: not wanted */
  /* Adjoints of programs with one parameter and two inputs: the sums over the batch of the first component of the second output,
   * which is wanted then, or over all of its components too; [channels], in the type of the parameters. Null: not wanted. */
  void *column_sums;
  int32_t sums_all_components;
  /* Row sums, [row sums, batch], in the arithmetic type (f32 or f64): read by kernels with saved sums, written by others unless null. */
  void *saved;
  /* At least fc_workspace_bytes, aligned to 256 bytes; what it holds does not matter. */
  void *workspace;
  size_t workspace_bytes;
  int64_t batch;
  int64_t channels;
  int64_t scalars;       /* scalar channels; only for programs that have them */
  double eps;
  fc_gate gate;
  fc_dtype lane_dtype;   /* of inputs and outputs */
  fc_dtype param_dtype;  /* of params and sums */
  /* Unless 0, lane tensors are not contiguous: elements from a component to the next, and from a batch element to the next.
   * Channels always are contiguous. For kernels that are pointwise or walk rows. */
  int32_t strided;
  fc_strides input_strides[FC_MAX_TENSORS];
  fc_strides output_strides[FC_MAX_TENSORS];
  /* The lane tensors with elements of the arithmetic type (f32 or f64) in place of lane_dtype, a set of bits: bit i is input i, bit
   * FC_FIRST_OUTPUT + i output i. Those of the kernel; none of kernels that do not walk. */
  uint64_t wide;
} fc_call;

/* How a call would be run; for tests, benchmarks and tuning. */
typedef struct fc_plan {
  int32_t threads;            /* a CTA */
  int32_t threads_per_row;    /* of one CTA */
  int32_t cluster;            /* CTAs that share a row */
  int32_t tiles;              /* passes over the channels of a row; 1: a row stays in registers */
  int32_t stages;             /* rows copied ahead, by the copy engine or by the threads themselves; 0: plain loads */
  int32_t shared_bytes;       /* dynamic shared memory a CTA */
  int32_t registers;          /* a thread */
  int64_t ctas;
} fc_plan;

/* The kernel of a program, by the upper and the lower half of its digest, in f32 (is_f64 = 0) or f64
 * arithmetic; null if there is none. */
const fc_kernel *fc_find(uint64_t upper, uint64_t lower, int is_f64);

/* The code of a kernel that was compiled at run time: for each variant a cubin, or PTX that ends in a zero byte, and the name of
 * its function. Null: there is no such variant; the general one is always there. */
typedef struct fc_image {
  const void *codes[FC_VARIANTS];
  const char *functions[FC_VARIANTS];
  fc_shape shape;
  int32_t pointwise;  /* lanes depend on neither each other nor their channel */
  int32_t walks;      /* rows may have scalar channels, and tensors strides; there is one variant, for shape.lanes channels a thread */
  int32_t tiles[2];   /* then the most tiles of channels and of scalar channels of a row; 0: any number */
  uint64_t wide;      /* and the lane tensors of the arithmetic type, as in fc_call */
  int32_t is_f64;
} fc_image;

/* Makes a kernel of code, which is copied. Calls with the same image make several kernels. */
int fc_load(const fc_image *image, const fc_kernel **kernel);

/* Loads the kernel on the current device and settles its attributes. Call once per kernel and device, outside
 * of graph capture; fc_launch does it too when it has not been done. */
int fc_prepare(const fc_kernel *kernel);

/* The bytes of workspace that fc_launch needs for the shape, element types, wanted sums over the batch and column sums of a
 * call (no other field is read). */
int fc_workspace_bytes(const fc_kernel *kernel, const fc_call *call, size_t *bytes);

/* How fc_launch would run a call. */
int fc_plan_of(const fc_kernel *kernel, const fc_call *call, fc_plan *plan);

/* Runs the kernel on a stream (a cudaStream_t; null: the default stream). */
int fc_launch(const fc_kernel *kernel, const fc_call *call, void *stream);

/* Partial sums over the batch, which a launch left. */
typedef struct fc_partials {
  const void *partial;           /* [blocks, counts of all sums, channels], in f32, or in f64 if is_f64 */
  void *sums[FC_MAX_PARAMS];     /* [channels, count]; null: not wanted */
  int32_t counts[FC_MAX_PARAMS];
  int32_t count;                 /* of sums */
  fc_dtype dtype;                /* of sums */
  int64_t blocks;
  int64_t channels;
  int32_t is_f64;
} fc_partials;

/* Does the same as fc_launch, but does not add up sums over the batch: their partial sums stay in the workspace of the call. No
 * element of `left->sums` is written before fc_add_up. Without such sums `left->count` is 0. */
int fc_launch_in_parts(const fc_kernel *kernel, const fc_call *call, fc_partials *left, void *stream);

/* The most launches whose partial sums one kernel adds up. */
#define FC_MOST_PARTIALS 24

/* Adds up the partial sums of launches in the order of fc_launch, by as few kernels as hold them all. */
int fc_add_up(const fc_partials *all, int32_t count, void *stream);

/* The name and description of an error code. Never null. */
const char *fc_error_name(int code);
const char *fc_error_string(int code);

/* The compute capabilities the library holds machine code for, as "80 90a 100 120 ptx80". */
const char *fc_architectures(void);

#ifdef __cplusplus
}
#endif

#endif
