/* Dropout of grades: in the items of a geometric algebra transformer each grade of a multivector channel, and each scalar, is 0 or
 * scaled.
 *
 * What is dropped is a function of a key, of the number of a step in device memory, and of the place in the items. So a captured step
 * drops others each time, if something counts that number on, and the gradient drops the same without a mask in memory.
 *
 *   mix(z):    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9,  z = (z ^ z >> 27) * 0x94d049bb133111eb,  z ^ z >> 31
 *   base     = mix(key + (step + 1) * 0x9e3779b97f4a7c15)
 *   number   = mix(base + (place + 1) * 0x9e3779b97f4a7c15) >> 32          (SplitMix64 from base on)
 *   place    = row * (grades * channels + scalars) + grade * channels + channel, or ... + grades * channels + scalar
 *   to       = number < threshold ? 0 : x * scale
 *
 * Source of the generator: Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
 *
 * Like fc_launch: functions return a cudaError_t or an FC_ERROR_ code as an int, 0 for success, launch on a stream (a
 * cudaStream_t) of the current CUDA context, never synchronise, never allocate, and can be captured into a graph. */
#ifndef FLASHCLIFF_DROPOUT_H
#define FLASHCLIFF_DROPOUT_H

#include "flashcliff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most grades. */
#define FC_DROPOUT_GRADES 9

/* A call. The items are the rows of a matrix, [rows, width]: the channels of each blade side by side, then the scalars. */
typedef struct fc_dropout {
  const void *x;        /* null stands for ones */
  void *to;             /* may be x */
  const uint32_t *step; /* in device memory */
  int64_t rows, channels, scalars;
  uint64_t key;
  uint32_t threshold;
  double scale;
  int32_t grades;
  int32_t stops[FC_DROPOUT_GRADES]; /* for each grade the blade behind its last one, ascending from at least 1 */
  fc_dtype dtype;                   /* of x and to; 16 bits are computed in f32 */
} fc_dropout;

/* Writes `to`. */
int fc_drop(const fc_dropout *dropout, void *stream);

#ifdef __cplusplus
}
#endif

#endif
