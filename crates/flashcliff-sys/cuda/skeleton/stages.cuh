// Copies rows to shared memory, some stages ahead of the computation.
//
// In bulk, one thread asks the copy engine for a box of each tensor, and an mbarrier reports their arrival. The stage may be
// filled again after a barrier of the CTA. Otherwise every thread copies the values that it will read itself, and needs no
// barrier.
#pragma once

#include "arguments.cuh"
#include "lanes.cuh"
#include "memory.cuh"

namespace fc {

extern __shared__ __align__(128) unsigned char shared[];

template <class P, class T, int N, int Fast>
struct Stages {
  using V = Lanes<T, N>;
  static __host__ __device__ constexpr int components(int input) {
    constexpr Shape shape = P::kShape;
    return shape.input_components[input];
  }
  static constexpr int kInputs = P::kShape.inputs;
  static constexpr int kPasses = P::kShape.reductions + 1;

  const Arguments &a;
  unsigned char *base;
  int group, lane, slice;
  int box, inside;      // where the thread's channels are
  int64_t block, step;  // the next row block to copy, and from one to the next
  int tile = 0, pass = 0;
  int current = 0;
  uint32_t phase = 0;

  FC_INLINE bool bulk() const { return Fast || a.fill == kFillBulk; }
  FC_INLINE int tiles() const { return Fast ? 1 : a.tiles; }
  FC_INLINE int lane_bytes() const { return Fast ? Fast : a.lane_bytes; }

  FC_INLINE explicit Stages(const Arguments &arguments) : a(arguments) {}

  FC_INLINE void start(int offset, int group_, int lane_, int slice_, int64_t first, int64_t step_) {
    base = shared + offset;
    group = group_;
    lane = lane_;
    slice = slice_;
    box = lane * N / a.box_channels;
    inside = lane * N - box * a.box_channels;
    // Threads beyond the last channel may read anything.
    if (box >= a.boxes) box = inside = 0;
    block = first;
    step = step_;
#if FC_HOPPER
    if (bulk()) {
      if (threadIdx.x == 0) {
        for (int s = 0; s < a.stages; s++) barrier_init(barrier(s), 1);
        barrier_init_fence();
      }
      __syncthreads();
    }
#endif
  }

  // Waits for the current stage.
  FC_INLINE void wait() {
#if FC_HOPPER
    if (bulk()) {
      barrier_wait(barrier(current), phase);
      return;
    }
#endif
    copy_wait(a.stages - 1);
  }

  // Frees the current stage, which has been read: it is filled again, and the next stage is current.
  FC_INLINE void release() {
    fill(current);
    if (++current == a.stages) {
      current = 0;
      phase ^= 1;
    }
  }

  // Loads the thread's channels of a tensor from the current stage. If the thread has no row, it reads a copy of the last row,
  // or, in bulk, the first row.
  template <int Slot, int K>
  FC_INLINE void load(V (&values)[K], bool active) const {
    const int stride = component_bytes();
    const unsigned char *p = base + current * a.stage_bytes + place<Slot>(active || !bulk() ? group : 0);
    with_storage<T, Fast>(a.lane_dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
#pragma unroll
      for (int k = 0; k < K; k++, p += stride) values[k] = load_lanes<S, T, N>(reinterpret_cast<const S *>(p), a.lane_dtype);
    });
  }

  // Starts the copy of the next part of the work into a stage that nobody reads.
  FC_INLINE void fill(int stage) {
    const int64_t row = block * a.rows_per_cta;
    const int64_t channel = int64_t(slice + tile) * a.threads_per_row * N;
    if (row < a.batch) {
      unsigned char *to = base + stage * a.stage_bytes;
      if (bulk()) {
#if FC_HOPPER
        if (threadIdx.x == 0) {
          barrier_expect(barrier(stage), all_bytes());
          fill_boxes<0>(stage, to, int(row), int(channel));
        }
#endif
      } else {
        const int64_t own = row + group < a.batch ? row + group : a.batch - 1;
        fill_own<0>(to, own * a.channels, channel + lane * N);
      }
    }
    if (!bulk()) copy_commit();
    if (++tile == tiles()) {
      tile = 0;
      if (++pass >= kPasses || tiles() == 1) {
        pass = 0;
        block += step;
      }
    }
  }

  // The distance from component to component of a stage, in bytes.
  FC_INLINE int component_bytes() const { return a.rows_per_cta * a.box_channels * lane_bytes(); }

  // The bytes of one box of an input.
  template <int Slot>
  FC_INLINE int bytes_of_box() const {
    return box_bytes(components(Slot), a.rows_per_cta, a.box_channels, lane_bytes());
  }

  // The start of an input in a stage.
  template <int Slot>
  FC_INLINE int input_place() const {
    if constexpr (Slot == 0) {
      return 0;
    } else {
      return input_place<Slot - 1>() + a.boxes * bytes_of_box<Slot - 1>();
    }
  }

  // The place of the thread's channels of the first component of an input.
  template <int Slot>
  FC_INLINE int place(int from) const {
    const int rows = from * a.box_channels + inside;
    return input_place<Slot>() + box * bytes_of_box<Slot>() + rows * lane_bytes();
  }

  FC_INLINE uint64_t *barrier(int stage) const { return reinterpret_cast<uint64_t *>(shared) + stage; }

#if FC_HOPPER
  // The bytes that arrive in a stage: whole boxes, including what lies outside of the tensor.
  FC_INLINE uint32_t all_bytes() const {
    return uint32_t(P::kShape.all_inputs() * a.boxes * component_bytes());
  }

  template <int Slot>
  FC_INLINE void fill_boxes(int stage, unsigned char *to, int row, int channel) {
    if constexpr (Slot < kInputs) {
      if constexpr (components(Slot) > 0 && Slot < FC_MAX_MAPS) {
        for (int b = 0; b < a.boxes; b++) {
          box_load(to + b * bytes_of_box<Slot>(), &a.maps[Slot],
                   channel + b * a.box_channels, row, 0, barrier(stage));
        }
      }
      fill_boxes<Slot + 1>(stage, to + a.boxes * bytes_of_box<Slot>(), row, channel);
    }
  }
#endif

  // Threads beyond the last channel read that channel again.
  template <int Slot>
  FC_INLINE void fill_own(unsigned char *to, int64_t row_start, int64_t channel) {
    if constexpr (Slot < kInputs) {
      const int64_t stride = a.batch * a.channels * lane_bytes();
      const auto *from = static_cast<const unsigned char *>(a.inputs[Slot]) + row_start * lane_bytes();
      unsigned char *own = to + place<Slot>(group);
#pragma unroll 1
      for (int k = 0; k < components(Slot); k++, own += component_bytes(), from += stride) {
        if (a.fill == kFillVectors) {
          if (channel >= a.channels) continue;
          if (sizeof(T) == 8 || lane_bytes() == 4) {
            copy_async<sizeof(T) * N>(own, from + channel * lane_bytes());
          } else {
            copy_async<2 * N>(own, from + channel * lane_bytes());
          }
        } else {
#pragma unroll 1
          for (int e = 0; e < N; e++) {
            const int64_t c = channel + e < a.channels ? channel + e : a.channels - 1;
            if (sizeof(T) == 8 || lane_bytes() == 4) {
              copy_async<sizeof(T)>(own + e * sizeof(T), from + c * sizeof(T));
            } else {
              copy_async<2>(own + e * 2, from + c * 2);
            }
          }
        }
      }
      fill_own<Slot + 1>(to, row_start, channel);
    }
  }
};

}  // namespace fc
