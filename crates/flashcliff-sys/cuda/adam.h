/* Adam, AdamW and Lion for many parameters at once, with clipping by the global norm and a learning rate that follows a schedule.
 *
 * All that changes from step to step lies in device memory: the steps of each parameter, the norm, and whether the step is refused.
 * So a captured step can be replayed. A step is these calls, on one stream:
 *   for each chunk: fc_adam_norm, which leaves one sum of squares for each CTA;
 *   for each chunk, in order: fc_adam_prepare, of which the first decides on the step;
 *   for each chunk: fc_adam_update.
 * Sums are added in a fixed order, without atomics, so results are the same bit for bit every time.
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success, launch on a stream (a
 * cudaStream_t) of the current CUDA context, never synchronise, never allocate, and can be captured into a graph. */
#ifndef FLASHCLIFF_ADAM_H
#define FLASHCLIFF_ADAM_H

#include "flashcliff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most parameters of a chunk: they are passed by value, and a kernel takes 4 KiB of arguments on every GPU. */
#define FC_ADAM_TENSORS 64
/* The elements that a CTA of fc_adam_norm adds up. */
#define FC_ADAM_BLOCK 4096

/* Adaptive clipping: the largest norm is FC_CLIP_MEAN times the mean and FC_CLIP_DEVIATION times the standard deviation of the last
 * FC_CLIP_RECORDS records. A record is the norm of a step, or the bound if that is less. The first one is FC_CLIP_FIRST. */
#define FC_CLIP_RECORDS 50
#define FC_CLIP_MEAN 1.5
#define FC_CLIP_DEVIATION 2.0
#define FC_CLIP_FIRST 1e5

/* What a step does to an element. adam_rules.cuh has the formulas. */
typedef enum fc_adam_rule {
  FC_ADAM_RULE_ADAM = 0, /* Adam and AdamW */
  FC_ADAM_RULE_LION = 1  /* no mean of squares, nor does the count of steps matter */
} fc_adam_rule;

/* The factor of the learning rate after the warm-up; t goes from 0 to 1 over the rest of the schedule. */
typedef enum fc_schedule {
  FC_SCHEDULE_CONSTANT = 0,    /* 1 */
  FC_SCHEDULE_COSINE = 1,      /* floor + (1 - floor) (1 + cos(pi t)) / 2 */
  FC_SCHEDULE_HALF_COSINE = 2  /* floor + (1 - floor) cos(pi t / 2) */
} fc_schedule;

/* The state of an optimiser that a step changes, in device memory. */
typedef struct fc_adam_state {
  double learning_rate; /* before the schedule */
  double rate;          /* of the last step, after it */
  double clip;          /* the factor of clipping in the last step */
  double unscale;       /* one over the scale of the loss in the last step */
  double norm;          /* the norm of all gradients in the last step, without the scale of the loss */
  int64_t calls;        /* the steps asked for */
  int64_t refused;      /* those of them that were refused */
  int64_t refused_at;   /* the first of these, counted from 0; -1: none */
  int32_t refuse;       /* whether the last step changed nothing: it was refused, or skipped for a smaller scale of the loss */
  int32_t halted;       /* whether all further steps are refused */
  int64_t recorded;     /* the records of adaptive clipping so far; record i is at i % FC_CLIP_RECORDS */
  double records[FC_CLIP_RECORDS];
} fc_adam_state;

/* The scale of a loss, in device memory: gradients come multiplied by it, since small ones are 0 in f16. Counts are whole numbers. */
typedef struct fc_loss_scale {
  double scale;   /* of the next step; a power of two */
  double good;    /* the steps since it changed */
  double skipped; /* the steps that were skipped */
} fc_loss_scale;

/* How the scale of a loss changes; all but the interval are powers of two. If gradients are not finite though the loss is, the step
 * is skipped: it changes nothing, and the next scale is `backoff` times as large, at least `least`. A step at the least scale is
 * refused instead. After `interval` steps without such a change, the next scale is `growth` times as large, at most `most`. */
typedef struct fc_loss_scale_options {
  double growth, backoff, least, most, interval;
} fc_loss_scale_options;

/* Options, the same for all parameters. */
typedef struct fc_adam_options {
  fc_adam_rule rule;
  double beta1, beta2, eps, weight_decay;
  double clip_norm; /* the largest norm of all gradients; 0: any, or that of adaptive clipping */
  double floor;     /* the factor at the end of the schedule */
  int64_t warmup;   /* steps in which the factor grows: (s + 1) / warmup at step s, counted from 0 */
  int64_t steps;    /* steps of the whole schedule */
  fc_schedule schedule;
  int32_t decoupled; /* the decay shrinks the parameter; it is not added to the gradient */
  int32_t halt;      /* a refused step is the last one */
  int32_t adaptive;  /* whether clipping is adaptive */
  fc_loss_scale_options scaling; /* for calls with the scale of a loss */
} fc_adam_options;

/* One parameter. All arrays have the same element type and so many elements. */
typedef struct fc_adam_tensor {
  void *parameter;
  const void *gradient;
  void *mean;
  void *square; /* null for Lion */
  int64_t count;
  int64_t slot; /* its place among the steps and coefficients */
} fc_adam_tensor;

/* Some of the parameters that have a gradient. */
typedef struct fc_adam_chunk {
  fc_adam_tensor tensors[FC_ADAM_TENSORS];
  int32_t count;
  fc_dtype dtype; /* FC_F32 or FC_F64 */
} fc_adam_chunk;

/* Coefficients of a parameter, which fc_adam_prepare leaves for fc_adam_update. */
typedef struct fc_adam_coefficients {
  double step_size, correction2, keep;
} fc_adam_coefficients;

/* The sums that fc_adam_norm writes for a chunk. */
int64_t fc_adam_sums(const fc_adam_chunk *chunk);

/* sums[i] = the sum of the squares of a part of the gradients, in f64. */
int fc_adam_norm(const fc_adam_chunk *chunk, double *sums, void *stream);

/* Decides on the step if `first`: reads `sum_count` sums and the loss (an element of loss_dtype; null: none), and refuses the step
 * if any is not finite; takes the learning rate for the largest of the `slots` step counts; changes `scale`, the scale of the loss
 * that gradients were multiplied by (null: 1). Then, unless the step is refused or skipped, counts it for the parameters of the chunk
 * and computes their coefficients. */
int fc_adam_prepare(const fc_adam_chunk *chunk, const fc_adam_options *options, fc_adam_state *state, const double *sums,
                    int64_t sum_count, const void *loss, fc_dtype loss_dtype, fc_loss_scale *scale, uint32_t *steps,
                    int64_t slots, fc_adam_coefficients *coefficients, int first, void *stream);

/* Changes parameters and moments, unless the step is refused or skipped. */
int fc_adam_update(const fc_adam_chunk *chunk, const fc_adam_options *options, const fc_adam_state *state,
                   const fc_adam_coefficients *coefficients, void *stream);

/* AdamW and Lion for a host whose optimiser has its state in tensors of its own, such as PyTorch: a step count for each parameter,
 * options for each group of parameters, learning rates that a schedule of the host changes. A step is these calls, on one stream:
 *   with clipping, for each list: fc_adam_list_norm;
 *   for each list: fc_adam_list_update.
 * Lists are passed by value, so that a captured step holds them, and nothing is uploaded. */

/* The most parameters and groups of a list: kernels take 32,764 bytes of arguments since CUDA 12.1. */
#define FC_ADAM_MEMBERS 512
#define FC_ADAM_GROUPS 16

/* Options of a group of parameters. The decay is decoupled. */
typedef struct fc_adam_group {
  double learning_rate;         /* where learning_rate_at is null */
  const void *learning_rate_at; /* one element in device memory, which the kernel reads, or null */
  fc_dtype learning_rate_dtype; /* of that element: FC_F32 or FC_F64 */
  int32_t maximize;             /* whether steps go along the gradient, not against it */
  double beta1, beta2, eps, weight_decay;
  double average_decay; /* of the averages of parameters */
} fc_adam_group;

/* One parameter of a list. Its arrays have the same element type and so many elements. */
typedef struct fc_adam_member {
  void *parameter;
  const void *gradient; /* null: the step leaves this parameter as it is */
  void *mean;
  void *square;  /* null for Lion */
  float *step;   /* the steps that the parameter has done, which the call counts; null for Lion */
  void *average; /* the average of the parameter over the steps, which moves without a gradient too; null: none */
  uint64_t extent; /* FC_ADAM_GROUPS times the elements, plus the place of its group: one word, since arguments are few */
} fc_adam_member;

/* Some parameters, all of one element type. */
typedef struct fc_adam_list {
  fc_adam_member members[FC_ADAM_MEMBERS];
  fc_adam_group groups[FC_ADAM_GROUPS];
  int32_t count;
  fc_dtype dtype; /* FC_F32 or FC_F64 */
  fc_adam_rule rule;
} fc_adam_list;

/* Device memory of an optimiser, zeros at first. Between calls `done` is 0. */
typedef struct fc_adam_shared {
  double norm;   /* the norm of all gradients in the last step with clipping */
  double clip;   /* the factor of its gradients */
  uint64_t done; /* the CTAs of a launch that are done */
} fc_adam_shared;

/* The sums that fc_adam_list_norm writes for a list. */
int64_t fc_adam_list_sums(const fc_adam_list *list);

/* Writes the sums of the squares of parts of the gradients, in f64. The last call of a step, which has the number of `all` sums from
 * `first_sum` on (0 in other calls), adds them in a fixed order and leaves the norm of all gradients, and
 * `clip = min(1, max_norm / (norm + 1e-6))`, as PyTorch has it; not a number if the norm is none. */
int fc_adam_list_norm(const fc_adam_list *list, fc_adam_shared *shared, double *sums, const double *first_sum, int64_t all,
                      double max_norm, void *stream);

/* Changes the parameters that have a gradient, their moments and step counts, and moves averages to parameters. With `clips`,
 * gradients are multiplied by `shared->clip`. */
int fc_adam_list_update(const fc_adam_list *list, fc_adam_shared *shared, int clips, void *stream);

#ifdef __cplusplus
}
#endif

#endif
