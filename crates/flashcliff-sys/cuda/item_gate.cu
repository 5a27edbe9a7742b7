// Gates of items by their scalar blade, activations of scalars, and their gradients. A thread has one channel with all its blades,
// or a few scalars.
#include "items.cuh"
#include "skeleton/gates.cuh"

namespace fc {
namespace {

constexpr int kThreads = 256;
// The scalars of a thread, so that most threads have much to wait for.
constexpr int kScalars = 4;

struct GateCall {
  fc_items items;
  fc_item_tensor x, g, to;
  int activation, scalar_activation;
};

// The activation and its slope.
template <class T>
struct Curve {
  T value, slope;
};

FC_INLINE float hyperbolic(float x) { return tanhf(x); }
FC_INLINE double hyperbolic(double x) { return ::tanh(x); }
FC_INLINE float logistic_of(float x) { return 1.0f / (1.0f + expf(-x)); }
FC_INLINE double logistic_of(double x) { return 1.0 / (1.0 + ::exp(-x)); }

template <class T>
FC_INLINE Curve<T> curve(int activation, T x) {
  switch (activation) {
    case FC_ACTIVATION_RELU: return {x > 0 ? x : T(0), x > 0 ? T(1) : T(0)};
    case FC_ACTIVATION_GELU: {
      const T part = normal_cdf(x);
      return {x * part, part + x * normal_pdf(x)};
    }
    case FC_ACTIVATION_GELU_TANH: {
      const T a = T(0.7978845608028654), b = T(0.044715);
      const T t = hyperbolic(a * (x + b * x * x * x));
      const T slope = T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * a * (1 + 3 * b * x * x);
      return {T(0.5) * x * (1 + t), slope};
    }
    case FC_ACTIVATION_SIGMOID: {
      const T s = logistic_of(x);
      return {s, s * (1 - s)};
    }
    case FC_ACTIVATION_SILU: {
      const T s = logistic_of(x);
      return {x * s, s * (1 + x * (1 - s))};
    }
    default: {
      const T t = hyperbolic(x);
      return {t, 1 - t * t};
    }
  }
}

// The threads that share the scalars of an item.
__host__ __device__ inline int64_t scalar_threads(const fc_items &items) { return (items.scalars + kScalars - 1) / kScalars; }

template <int Blades, class T, class S, bool Backward>
FC_INLINE void gate(const GateCall &call) {
  const int64_t sharing = scalar_threads(call.items), width = call.items.channels + sharing;
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= call.items.rows * width) return;
  int64_t c;
  const int64_t row = divided(at, width, &c);
  const int dtype = call.items.dtype;
  const Items<T, S> x(call.x, dtype), g(call.g, dtype), to(call.to, dtype);
  if (c >= call.items.channels) {
    const int64_t first = c - call.items.channels;
    T values[kScalars], slopes[kScalars];
    const auto each = [&](auto &&f) {
      FC_EACH(kScalars, const int64_t s = first + i * sharing; if (s < call.items.scalars) f(s, values[i], slopes[i]);)
    };
    each([&](int64_t s, T &value, T &slope) {
      value = x.template load_scalars<1>(row, s).v[0];
      if constexpr (Backward) slope = g.template load_scalars<1>(row, s).v[0];
    });
    each([&](int64_t s, T &value, T &slope) {
      const Curve<T> of = curve(call.scalar_activation, value);
      if constexpr (Backward) {
        value = of.slope * slope;
      } else {
        value = of.value;
      }
    });
    each([&](int64_t s, T &value, T &) { to.template store_scalars<1>(row, s, Lanes<T, 1>{{value}}); });
    return;
  }
  T values[Blades];
#pragma unroll
  for (int b = 0; b < Blades; b++) values[b] = x.template load<1>(row, b, c).v[0];
  const Curve<T> of = curve(call.activation, values[0]);
  if constexpr (!Backward) {
#pragma unroll
    for (int b = 0; b < Blades; b++) to.template store<1>(row, b, c, Lanes<T, 1>{{values[b] * of.value}});
    return;
  }
  T slopes[Blades], dot = 0;
#pragma unroll
  for (int b = 0; b < Blades; b++) {
    slopes[b] = g.template load<1>(row, b, c).v[0];
    dot += slopes[b] * values[b];
  }
#pragma unroll
  for (int b = 0; b < Blades; b++) {
    const T slope = slopes[b] * of.value + (b == 0 ? dot * of.slope : T(0));
    to.template store<1>(row, b, c, Lanes<T, 1>{{slope}});
  }
}

template <int Blades, class T, bool Backward>
__global__ void __launch_bounds__(kThreads) gate_kernel(const __grid_constant__ GateCall call) {
  with_storage<T>(call.items.dtype, [&](auto *type) {
    using S = typename Element<decltype(type)>::Type;
    gate<Blades, T, S, Backward>(call);
  });
}

template <bool Backward>
int launch(const GateCall &call, void *stream) {
  const fc_items &items = call.items;
  const auto known = [](int activation) { return activation >= FC_ACTIVATION_RELU && activation <= FC_ACTIVATION_TANH; };
  if (!known(call.activation) || !known(call.scalar_activation)) return FC_ERROR_BAD_CALL;
  const int64_t ctas = ceil_quotient(items.rows * (items.channels + scalar_threads(items)), kThreads);
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  if (ctas == 0) return 0;
  return with_types(items, [&](auto blades, auto *type) {
    using T = typename Element<decltype(type)>::Type;
    constexpr int kBlades = decltype(blades)::value;
    gate_kernel<kBlades, T, Backward><<<unsigned(ctas), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(call);
    return int(cudaGetLastError());
  });
}

}  // namespace
}  // namespace fc

extern "C" int fc_item_gate(const fc_items *items, fc_activation activation, fc_activation scalar_activation,
                            const fc_item_tensor *x, const fc_item_tensor *to, void *stream) {
  if (!fc::good(items) || !fc::good(*items, x) || !fc::good(*items, to)) return FC_ERROR_BAD_CALL;
  return fc::launch<false>({*items, *x, {}, *to, activation, scalar_activation}, stream);
}

extern "C" int fc_item_gate_gradient(const fc_items *items, fc_activation activation, fc_activation scalar_activation,
                                     const fc_item_tensor *x, const fc_item_tensor *g, const fc_item_tensor *to,
                                     void *stream) {
  if (!fc::good(items) || !fc::good(*items, x) || !fc::good(*items, g) || !fc::good(*items, to)) return FC_ERROR_BAD_CALL;
  return fc::launch<true>({*items, *x, *g, *to, activation, scalar_activation}, stream);
}
