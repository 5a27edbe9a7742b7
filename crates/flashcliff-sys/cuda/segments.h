/* Rows by their relations: copies of what rows belong to, and sums over what belongs to rows. Each is the gradient of the other. A second relation
 * of the same rows and targets subtracts.
 *
 *   gather:      o[a][row][c]    = factor(target of row) (x[a][target of row][c] - x[a][other target of row][c])
 *   segment sum: o[a][target][c] = factor(target) (sum of x[a][row][c] over the rows of the target - sum over those of the other relation)
 *
 * The maximum of a target is the value of one of its rows, which is kept, element by element: the lowest row with the largest value. A NaN is larger than
 * any number.
 *
 *   largest:     kept[a][target][c] = that row, FC_NO_ROW if the target has no rows
 *   pick:        o[a][target][c] = x[a][kept[a][target][c]][c], else 0
 *   place:       o[a][row][c]    = x[a][target of row][c] where the target keeps the row, else 0
 *
 * Numbers of rows are 32 bits, those of elements 64. Sums have no atomics: a thread, or threads of a CTA in a fixed order, add up the rows of a
 * target, so results are the same bit for bit every time.
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success, launch on a stream (a
 * cudaStream_t) of the current CUDA context, never synchronise, never allocate, and can be captured into a graph. */
#ifndef FLASHCLIFF_SEGMENTS_H
#define FLASHCLIFF_SEGMENTS_H

#include "flashcliff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a sum of n rows is divided by. A sum of none is 0. */
typedef enum fc_reduction {
  FC_REDUCTION_SUM = 0,        /* 1 */
  FC_REDUCTION_MEAN = 1,       /* n */
  FC_REDUCTION_ROOT_COUNT = 2, /* sqrt(n) */
} fc_reduction;

/* A relation. */
typedef struct fc_relation {
  const uint32_t *target; /* [rows]: the target of each row, less than `targets` */
  const uint32_t *starts; /* [targets + 1]: where the rows of each target begin in `order` */
  const uint32_t *order;  /* [rows]: the rows of each target, ascending */
} fc_relation;

/* A call. Both tensors have one type, 16 bits are computed in f32. */
typedef struct fc_segments {
  const void *x; /* [outer, targets, inner], or [outer, rows, inner] for a sum */
  void *o;       /* the other shape; not x */
  fc_relation of, minus; /* of `minus` all is null if nothing is subtracted */
  int64_t outer, rows, targets, inner;
  fc_reduction reduction;
  fc_dtype dtype;
} fc_segments;

/* Writes what each row belongs to. */
int fc_segment_gather(const fc_segments *call, void *stream);

/* Writes the sum of each target. */
int fc_segment_sum(const fc_segments *call, void *stream);

/* What a target without rows keeps. */
#define FC_NO_ROW 0xffffffffu

/* Writes the row with the largest value of each target to `kept` [outer, targets, inner]. The reduction is a sum without `minus`. */
int fc_segment_largest(const fc_segments *call, uint32_t *kept, void *stream);

/* Writes for each target what it keeps of its rows. */
int fc_segment_pick(const fc_segments *call, const uint32_t *kept, void *stream);

/* Writes to each row that a target keeps the element of the target, else 0. */
int fc_segment_place(const fc_segments *call, const uint32_t *kept, void *stream);

/* The most parts of a matrix. */
#define FC_COLUMN_PARTS 8

/* Columns of a matrix [rows, width] that lie apart, each part as [rows, widths[i]], one behind the other in the matrix. */
typedef struct fc_columns {
  void *whole;
  void *parts[FC_COLUMN_PARTS]; /* null for a part that is not there: its columns are 0, or not copied */
  int64_t widths[FC_COLUMN_PARTS];
  int64_t rows;
  int32_t count;
  int32_t apart; /* whether parts are written from the whole, else the whole from parts */
  fc_dtype dtype;
} fc_columns;

/* Copies parts into the whole, or back. */
int fc_copy_columns(const fc_columns *call, void *stream);

#ifdef __cplusplus
}
#endif

#endif
