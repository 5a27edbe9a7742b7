/* The items of a geometric algebra transformer: multivector channels and scalar channels of each item, and what happens to them
 * between matrix products: norms, gates, and the features of attention.
 *
 * Tensors are read and written where they lie: multivectors [blades, rows, channels] with a stride of blades and one of rows,
 * scalars [rows, scalars] with a stride of rows; the last axis is contiguous. Strides count elements. So the items can be the rows
 * of a matrix, [blades * channels + scalars] each, which the next matrix product reads. Elements are f32, bf16 or f16, computed in
 * f32, or f64. Algebras have 4, 8, 16 or 32 blades.
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success, launch on a stream (a
 * cudaStream_t) of the current CUDA context, never synchronise, never allocate, and can be captured into a graph. Results are the
 * same bit for bit every time. */
#ifndef FLASHCLIFF_ITEMS_H
#define FLASHCLIFF_ITEMS_H

#include "flashcliff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest number of blades. */
#define FC_ITEM_BLADES 32
/* The most parts that one call splits into heads: queries, keys and values. */
#define FC_ITEM_PARTS 3
/* The most runs of neighbouring columns whose sums one call makes. */
#define FC_ITEM_RUNS 24

/* The sizes of items. */
typedef struct fc_items {
  int64_t rows;
  int64_t channels;
  int64_t scalars;
  int32_t blades;
  fc_dtype dtype;
} fc_items;

/* Where items lie. */
typedef struct fc_item_tensor {
  void *multivectors;
  int64_t blade_stride;
  int64_t row_stride;
  void *scalars; /* null if there are no scalar channels */
  int64_t scalar_stride;
} fc_item_tensor;

/* The squared norm of each blade: +1, -1 or 0. */
typedef struct fc_item_metric {
  int8_t norms[FC_ITEM_BLADES];
} fc_item_metric;

/* The distance features of a part: of points with the components `first` to `first + dim`, of which the last is the weight. */
typedef enum fc_distances { FC_DISTANCES_NONE = 0, FC_DISTANCES_QUERY = 1, FC_DISTANCES_KEY = 2 } fc_distances;

/* Queries, keys or values: items whose channels are [channels, heads], and so many features for each head:
 *   for each taken blade, in order: its channels, times the sign of the blade;
 *   dim + 2 distance features of the channels, if any, times `weights`;
 *   the scalars;
 *   zeros, up to `width`. */
typedef struct fc_item_part {
  fc_item_tensor x;     /* multivectors [blades, rows, channels * heads], scalars [rows, scalars * heads] */
  void *features;       /* [rows, heads, width] */
  int64_t width;        /* at least the number of features */
  const void *weights;  /* [channels, heads], of the elements' type; null: 1 */
  void *of_weights;     /* gradients only: [rows, channels, heads], the share of each row; null if there are no weights */
  int32_t logarithms;   /* whether `weights` are logarithms, [heads, channels], and `of_weights` is of these, [rows, heads, channels] */
  int64_t heads;
  uint32_t taken;       /* blades, as a set of bits */
  uint32_t negative;    /* those of them with the sign -1 */
  fc_distances distances;
} fc_item_part;

/* The norm of each head before anything else. */
typedef enum fc_head_norm {
  FC_HEAD_NORM_NONE = 0,
  /* Multivectors over the root of max(mean over channels of the sum over grades of |squared norm of the grade|, eps), scalars by the layer norm,
   * with scalar_eps below the root. */
  FC_HEAD_NORM_GRADES = 1,
  /* Multivectors and scalars over one root: of eps plus the mean over all channels of |squared norm| of multivectors and of squared
   * scalars. */
  FC_HEAD_NORM_JOINT = 2
} fc_head_norm;

/* Parts that are split at once. The channels and scalars of `items` are those of one head. */
typedef struct fc_item_split {
  fc_items items;
  fc_dtype features;    /* the type of features: that of the items, or one of 16 bits for items of f32, or f32 for items of 16 bits */
  fc_item_part parts[FC_ITEM_PARTS];
  int32_t count;
  fc_head_norm norm;    /* not with distances */
  fc_item_metric metric;
  double eps, scalar_eps;
  int32_t first, dim;   /* of points: the component of the first coordinate, and the number of coordinates: the blades of one vector
                         * less than all */
  double distance_eps;
} fc_item_split;

/* Writes the features of all parts. */
int fc_item_heads(const fc_item_split *split, void *stream);

/* Writes the gradients of all parts' items from those of their features: x of the split is read, `to` written, part by part. */
int fc_item_heads_gradient(const fc_item_split *split, const fc_item_tensor *to, void *stream);

/* The features of attention: [outer, heads, inner, features] with a stride for each axis but the last, which is contiguous; the
 * rows of the items are [outer, inner]. */
typedef struct fc_item_features {
  void *features;
  fc_dtype dtype; /* that of the items, or one of 16 bits for items of f32 */
  int64_t inner;
  int64_t heads;
  int64_t outer_stride, head_stride, inner_stride;
} fc_item_features;

/* Writes features [blades * channels + scalars] of heads to items whose channels are [heads, channels], or back if `back`. The
 * channels and scalars of `items` are those of one head. */
int fc_item_merge(const fc_items *items, const fc_item_features *features, const fc_item_tensor *merged, int back,
                  void *stream);

/* Runs of neighbouring columns of a matrix, in ascending order, none twice. */
typedef struct fc_item_columns {
  const void *elements; /* [rows, width] */
  int64_t rows, width, row_stride;
  fc_dtype dtype;
  int32_t count;        /* of runs */
  int64_t starts[FC_ITEM_RUNS];
  int64_t stops[FC_ITEM_RUNS];
  void *partials;       /* [fc_item_sum_partials, columns of all runs], in the arithmetic type (f32 or f64) */
  void *to;             /* [width], of the elements' type */
} fc_item_columns;

/* The rows of partial sums that fc_item_sums writes. */
int64_t fc_item_sum_partials(const fc_item_columns *columns);

/* Writes the sums over rows of the columns of the runs, and zeros for all others. */
int fc_item_sums(const fc_item_columns *columns, void *stream);

/* Sums of a few numbers, each times a factor:  to[i] = sum over uses u of factors[u][i] * from[places[u][i]]. A number whose factor is
 * 0 is not read. */
typedef struct fc_item_pack {
  const void *from;
  const int32_t *places;  /* [uses, count] */
  const void *factors;    /* [uses, count] */
  void *to;               /* [count] */
  int64_t count, uses;
  fc_dtype dtype;         /* of numbers and factors; 16 bits are computed in f32 */
} fc_item_pack;

/* Writes `to`. */
int fc_item_packed(const fc_item_pack *pack, void *stream);

/* The most tensors of fc_item_packed_tensors. */
#define FC_ITEM_TENSORS 96
/* The bits of a place among several tensors that say where in a tensor it is. */
#define FC_ITEM_PLACE_BITS 24

/* The same of numbers in several tensors, whose addresses are on the host: a place is the number of a tensor, shifted by
 * FC_ITEM_PLACE_BITS, plus the place in it. `from` is not read. */
int fc_item_packed_tensors(const fc_item_pack *pack, const void *const *tensors, int32_t count, void *stream);

#ifdef __cplusplus
}
#endif

#endif
