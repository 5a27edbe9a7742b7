// The frame of a program with a planted bug. `PROGRAM bug` runs the kernel with the bug, `PROGRAM clean` the one
// without. A tool that reports nothing for the first, or something for the second, proves nothing about other kernels.
#pragma once

#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

// Reports a failed call.
inline void report(cudaError_t error, const char *call) {
  if (error != cudaSuccess) fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
}

#define CALL(...) report(__VA_ARGS__, #__VA_ARGS__)

// Whether the arguments ask for the bug; -1 if they are wrong.
inline int wants_bug(int count, char **words) {
  if (count == 2 && strcmp(words[1], "bug") == 0) return 1;
  if (count == 2 && strcmp(words[1], "clean") == 0) return 0;
  fprintf(stderr, "usage: %s bug|clean\n", words[0]);
  return -1;
}
