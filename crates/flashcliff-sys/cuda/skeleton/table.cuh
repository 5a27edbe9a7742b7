// Entries of the tables of kernels.
#pragma once

#include "points.cuh"
#include "registry.h"
#include "rows.cuh"

#define FC_ROWS_FUNCTION(algebra, function, T, lanes, threads, shared, bytes, gate)  \
  reinterpret_cast<const void *>(&fc::rows_kernel<algebra::function, T, lanes, threads, shared, bytes, gate>)

// A kernel that walks rows, with parameters in shared memory or in registers.
#define FC_ROWS(algebra, upper, lower, function, T, lanes, threads, shared)                 \
  {                                                                                         \
    {upper, lower}, sizeof(T) == 8, 0,                                                      \
        {FC_ROWS_FUNCTION(algebra, function, T, lanes, threads, shared, 0, fc::kAnyGate)},  \
        algebra::function::kShape.with(lanes, threads, shared), {}, {}, 0, {}, 0            \
  }

// A kernel that walks rows, with variants for calls that need the least of the skeleton: of 4 and of 2 bytes an element, with
// any gate and with the usual one.
#define FC_FAST_ROWS(algebra, upper, lower, function, T, lanes, threads, shared)              \
  {                                                                                           \
    {upper, lower}, sizeof(T) == 8, 0,                                                        \
        {FC_ROWS_FUNCTION(algebra, function, T, lanes, threads, shared, 0, fc::kAnyGate),     \
         FC_ROWS_FUNCTION(algebra, function, T, lanes, threads, shared, 4, fc::kAnyGate),     \
         FC_ROWS_FUNCTION(algebra, function, T, lanes, threads, shared, 2, fc::kAnyGate),     \
         FC_ROWS_FUNCTION(algebra, function, T, lanes, threads, shared, 4, fc::kUsualGate),   \
         FC_ROWS_FUNCTION(algebra, function, T, lanes, threads, shared, 2, fc::kUsualGate)},  \
        algebra::function::kShape.with(lanes, threads, shared), {}, {}, 0, {}, 0              \
  }

// A kernel whose lanes are independent.
#define FC_POINTS(algebra, upper, lower, function, T)                                \
  {                                                                                  \
    {upper, lower}, sizeof(T) == 8, 1,                                               \
        {reinterpret_cast<const void *>(&fc::points_kernel<algebra::function, T>)},  \
        algebra::function::kShape.with(1, fc::kPointThreads, 0), {}, {}, 0, {}, 0    \
  }
