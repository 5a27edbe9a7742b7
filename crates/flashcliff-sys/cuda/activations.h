/* The activations of networks. */
#ifndef FLASHCLIFF_ACTIVATIONS_H
#define FLASHCLIFF_ACTIVATIONS_H

typedef enum fc_activation {
  FC_ACTIVATION_RELU = 0,      /* max(x, 0); the slope at 0 is 0 */
  FC_ACTIVATION_GELU = 1,      /* by the normal distribution */
  FC_ACTIVATION_GELU_TANH = 2, /* its approximation by a hyperbolic tangent */
  FC_ACTIVATION_SIGMOID = 3,   /* 1 / (1 + exp(-x)) */
  FC_ACTIVATION_SILU = 4,      /* x / (1 + exp(-x)) */
  FC_ACTIVATION_TANH = 5
} fc_activation;

#endif
