/* Attention within sequences that are short enough for one multiprocessor: a sequence and some of its heads are read once, forward and backward, and the result
 * is written where the next linear layer reads it.
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success, launch on a stream (a
 * cudaStream_t) of the current CUDA context, never synchronise, never allocate, and can be captured into a graph. Results are the
 * same bit for bit every time, and do not depend on other sequences. */
#ifndef FLASHCLIFF_ATTENTION_WHOLE_H
#define FLASHCLIFF_ATTENTION_WHOLE_H

#include "attention.h"
#include "items.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fc_attention_whole {
  fc_attention attention; /* of f32, and as many heads of keys as of queries; `out` and `log_sums` are not used */
  fc_items items;         /* the result of one head: its values are blades * channels + scalars features; the number of rows is not read */
} fc_attention_whole;

/* Whether the current device has room for sequences of these lengths, forward and backward. Addresses are not read. */
int fc_attention_whole_fits(const fc_attention_whole *attention);

/* Writes the result to `merged`: multivectors [blades, queries, heads * channels], scalars [queries, heads * scalars]. */
int fc_attention_whole_forward(const fc_attention_whole *attention, const fc_item_tensor *merged, void *stream);

/* Writes the gradients of queries, keys and values, in this order, from `merged`, the gradient of the result. */
int fc_attention_whole_backward(const fc_attention_whole *attention, const fc_item_tensor *merged, const fc_attention_tensor *gradients,
                                void *stream);

#ifdef __cplusplus
}
#endif

#endif
