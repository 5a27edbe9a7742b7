// The kernel of messages: a program for each row of a relation, whose tensors are of rows, or of what rows belong to.
// Its results are of rows, or sums over the rows of each target.
//
// Some neighbouring threads of a warp have the channels of an item: of a row, or of a target, whose rows they go
// through in order. Where there are few targets, several such groups share the rows of one; where there are many
// rows, a group has some neighbouring ones, which often belong to the same targets. So sums stay in registers, and
// have one order, which depends on sizes alone. A tensor of one channel is the same for all; a result of one channel
// is the sum over all channels.
#pragma once

#include "parameter.cuh"
#include "uniforms.cuh"

namespace fc {

constexpr int kMessageThreads = 128;

// A tensor: its first element, and the elements from a component to the next and from an item to the next.
struct MessageTensor {
  const void *first;
  int64_t component, item;
};

struct Messages {
  MessageTensor inputs[FC_MAX_TENSORS];
  MessageTensor outputs[FC_MAX_TENSORS];
  const void *params[FC_MAX_PARAMS];
  const int32_t *targets[2];       // of each row
  const int32_t *starts, *order;   // the rows of each target that sums are of
  int64_t items, channels;
  // Epsilon and 1 / channels in both arithmetics, so that no thread converts them.
  double eps, inv_channels;
  float eps_f32, inv_channels_f32;
  int gate;
  int dtype;
  int threads_per_group;  // a power of two
  int groups_per_item;    // a power of two: as many threads as a warp has, at most
  int items_per_group;    // more than 1 for results of rows only
  int unused;
};

// A row, and what it belongs to.
struct MessageRow {
  int32_t row, targets[2];
};

// `P::Ends` says of which items the tensors are. `Bytes` is the size of an element.
template <class P, class Scalar, int N, int Bytes>
struct MessageContext {
  using T = Scalar;
  using V = Lanes<T, N>;
  using Ends = typename P::Ends;
  static constexpr bool kSums = Ends::kTo > 0;

  // Static members cannot be indexed in device code; constant expressions can.
  static __host__ __device__ constexpr int components(int output) {
    constexpr Shape s = P::kShape;
    return s.output_components[output];
  }
  static __host__ __device__ constexpr int place(int output) {
    int sum = 0;
    for (int i = 0; i < output; i++) sum += components(i);
    return sum;
  }
  static __host__ __device__ constexpr int param_count(int param) {
    constexpr Shape s = P::kShape;
    return s.param_counts[param];
  }
  static constexpr int kOutputs = P::kShape.outputs;
  static constexpr int kResults = place(kOutputs);

  const Messages &a;
  Uniforms<T> u;
  int lane, group;  // within the item
  int64_t item, channel;
  bool active;  // the item exists
  MessageRow at;
  V sums[kResults];
  T over_channels[kResults];

  FC_INLINE explicit MessageContext(const Messages &arguments) : a(arguments), u(arguments.gate), channel(0) {
    u.set(a);
    u.counts[0] = T(a.channels);
    u.valid = N;
    const int own = int(threadIdx.x) % (a.threads_per_group * a.groups_per_item);
    lane = own % a.threads_per_group;
    group = own / a.threads_per_group;
  }

  // Takes an item, or the last one in place of one that is not there.
  FC_INLINE void select(int64_t wanted) {
    active = wanted < a.items;
    item = active ? wanted : a.items - 1;
#pragma unroll
    for (int k = 0; k < kResults; k++) over_channels[k] = T(0);
  }

  // A row of the item, and what its tensors ask for.
  FC_INLINE MessageRow of_row(int32_t row) const {
    MessageRow found = {row, {0, 0}};
    if (Ends::reads(1)) found.targets[0] = Ends::kTo == 1 ? int32_t(item) : a.targets[0][row];
    if (Ends::reads(2)) found.targets[1] = Ends::kTo == 2 ? int32_t(item) : a.targets[1][row];
    return found;
  }

  // ---- what the functions of a program ask for ----

  FC_INLINE void loaded() const {}

  template <int Slot, int K>
  FC_INLINE void load(V (&values)[K]) const {
    constexpr int end = Ends::from(Slot);
    const int64_t own = end == 0 ? at.row : at.targets[end > 0 ? end - 1 : 0];
    with_storage<T, Bytes>(a.dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const MessageTensor &tensor = a.inputs[Slot];
      const S *p = static_cast<const S *>(tensor.first) + own * tensor.item + (Ends::is_one(Slot) ? 0 : channel);
#pragma unroll
      for (int k = 0; k < K; k++, p += tensor.component) {
        if constexpr (Ends::is_one(Slot)) {
          values[k] = splat<V>(T(widen(*p, a.dtype)));
        } else {
          values[k] = load_lanes<S, T, N>(p, a.dtype);
        }
      }
    });
  }

  template <int Slot, int K>
  FC_INLINE void store(const V (&values)[K]) {
#pragma unroll
    for (int k = 0; k < K; k++) {
      if constexpr (Ends::is_sum(Slot)) {
        over_channels[place(Slot) + k] += u.sum(values[k]);
      } else if constexpr (kSums) {
        sums[place(Slot) + k] = sums[place(Slot) + k] + values[k];
      }
    }
    if constexpr (!kSums && !Ends::is_sum(Slot)) write<Slot>(values);
  }

  template <int Slot>
  FC_INLINE ChannelParameter<V> param() const {
    constexpr int count = param_count(Slot);
    const int bytes = Bytes;
    return {static_cast<const unsigned char *>(a.params[Slot]) + channel * count * bytes, count, a.dtype};
  }

  // ---- results ----

  template <int Slot, int K>
  FC_INLINE void write(const V (&values)[K]) const {
    if (!active || group > 0) return;
    with_storage<T, Bytes>(a.dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const MessageTensor &tensor = a.outputs[Slot];
      S *p = static_cast<S *>(const_cast<void *>(tensor.first)) + item * tensor.item + channel;
#pragma unroll
      for (int k = 0; k < K; k++, p += tensor.component) store_lanes<S, T, N>(p, values[k], a.dtype);
    });
  }

  template <int Slot>
  FC_INLINE void write_sums() const {
    if constexpr (Slot < kOutputs) {
      if constexpr (!Ends::is_sum(Slot)) {
        V own[components(Slot)];
#pragma unroll
        for (int k = 0; k < components(Slot); k++) own[k] = sums[place(Slot) + k];
        write<Slot>(own);
      }
      write_sums<Slot + 1>();
    }
  }

  // Sums over channels, of all threads of the item.
  template <int Slot>
  FC_INLINE void write_over_channels() {
    if constexpr (Slot < kOutputs) {
      if constexpr (Ends::is_sum(Slot)) {
#pragma unroll
        for (int k = 0; k < components(Slot); k++) {
          T own = over_channels[place(Slot) + k];
          for (int d = a.threads_per_group * a.groups_per_item / 2; d > 0; d /= 2) own += __shfl_xor_sync(~0u, own, d);
          if (active && lane == 0 && group == 0) {
            with_storage<T, Bytes>(a.dtype, [&](auto *type) {
              using S = typename Element<decltype(type)>::Type;
              const MessageTensor &tensor = a.outputs[Slot];
              S *p = static_cast<S *>(const_cast<void *>(tensor.first)) + item * tensor.item + k * tensor.component;
              *p = Narrow<S, T>::from(own, a.dtype);
            });
          }
        }
      }
      write_over_channels<Slot + 1>();
    }
  }

  // Adds up what the groups of the item have.
  FC_INLINE void add_groups() {
    for (int d = a.threads_per_group; d < a.threads_per_group * a.groups_per_item; d *= 2) {
#pragma unroll
      for (int k = 0; k < kResults; k++) FC_EACH(N, sums[k].v[i] += __shfl_xor_sync(~0u, sums[k].v[i], d))
    }
  }

  FC_INLINE void go() {
    const int threads = a.threads_per_group * a.groups_per_item;
    const int64_t own = int64_t(blockIdx.x) * (int(blockDim.x) / threads) + int(threadIdx.x) / threads;
    if constexpr (kSums) {
      select(own);
      go_through_rows();
      write_over_channels<0>();
    } else {
      const int64_t first = own * a.items_per_group, last = a.items - 1;
      // What the next row belongs to is known before the work on this one ends.
      MessageRow next = of_row(int32_t(first < last ? first : last));
#pragma unroll 1
      for (int64_t i = first; i < first + a.items_per_group; i++) {
        select(i);
        at = next;
        next = of_row(int32_t(i < last ? i + 1 : last));
        for (channel = lane * N; channel < a.channels; channel += a.threads_per_group * N) P::run(*this);
        write_over_channels<0>();
      }
    }
  }

  FC_INLINE void go_through_rows() {
    const int64_t step = a.threads_per_group * N;
    const int32_t begin = a.starts[item] + group, end = a.starts[item + 1], next_row = a.groups_per_item;
    // All threads of a warp take equally many turns, because they meet in sums.
    for (int64_t first = 0; first < a.channels; first += step) {
      channel = first + lane * N;
#pragma unroll
      for (int k = 0; k < kResults; k++) sums[k] = splat<V>(T(0));
      if (channel < a.channels) {
        MessageRow next = begin < end ? of_row(a.order[begin]) : MessageRow{};
#pragma unroll 1
        for (int32_t i = begin; i < end; i += next_row) {
          at = next;
          if (i + next_row < end) next = of_row(a.order[i + next_row]);
          P::run(*this);
        }
      }
      add_groups();
      if (channel < a.channels) write_sums<0>();
    }
  }
};

template <class P, class T, int N, int Bytes>
__global__ void __launch_bounds__(kMessageThreads) messages_kernel(const __grid_constant__ Messages a) {
  MessageContext<P, T, N, Bytes> c(a);
  c.go();
}

}  // namespace fc
