// Functions of rows, compiled when they are first used, after the loops. `T` is float or double.

template <class T>
__device__ T warp_maximum(T value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(0xffffffffu, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

// to = x times a factor of each column.
template <class T>
__global__ void scale(const T *x, const T *factors, T *to, Index rows, Index width) {
  FOR_EACH(at, rows * width) to[at] = x[at] * factors[at % width];
}

// to = x * y.
template <class T>
__global__ void multiply(const T *x, const T *y, T *to, Index count) {
  FOR_EACH(at, count) to[at] = x[at] * y[at];
}

// to[row, column] = the sum over heads of x[row, head, column].
template <class T>
__global__ void head_sums(const T *x, T *to, Index rows, Index heads, Index width) {
  FOR_EACH(at, rows * width) {
    const T *from = x + at / width * heads * width + at % width;
    T sum = 0;
    for (Index head = 0; head < heads; head++) sum += from[head * width];
    to[at] = sum;
  }
}

// x [outer, first, second, width] with its middle axes in the other order.
template <class T>
__global__ void swap_axes(const T *x, T *to, Index outer, Index first, Index second, Index width) {
  FOR_EACH(at, outer * first * second * width) {
    const Index column = at % width, rest = at / width;
    const Index of_first = rest % first, of_second = rest / first % second, of_outer = rest / first / second;
    to[at] = x[((of_outer * first + of_first) * second + of_second) * width + column];
  }
}

// to[row, column] = a column of x, or one of y.
template <class T>
__global__ void take_columns(const T *x, const T *y, const int *places, T *to, Index rows, Index width, Index of_x, Index of_y) {
  FOR_EACH(at, rows * width) {
    const Index row = at / width, place = places[at % width];
    to[at] = place >= 0 ? x[row * of_x + place] : y[row * of_y - place - 1];
  }
}

// Pairs of columns turned by angles that grow with the position of a row in its sample. `partners` has the other column of a pair, or -1.
template <class T>
__global__ void turn(const T *x, const int *partners, const int *pairs, const T *signs, const double *frequencies, T *to,
                     Index rows, Index width, Index items, double way) {
  FOR_EACH(at, rows * width) {
    const Index row = at / width, column = at % width, partner = partners[column];
    if (partner < 0) {
      to[at] = x[at];
      continue;
    }
    double sine, cosine;
    sincos(double(row % items) * frequencies[pairs[column]], &sine, &cosine);
    to[at] = x[at] * T(cosine) + x[row * width + partner] * T(way * sine) * signs[column];
  }
}

struct Scores {
  Index groups, queries, keys;
  // Groups are samples and heads, or samples, of which heads are neighbouring queries.
  Index heads, heads_are_queries;
  // The distances in the mask from a sample, a head and a query to the next.
  Index of_sample, of_head, of_query;
  // The bounds of the sequences of items, and of the sequences of keys, `[sequences + 1]`, or null.
  const int *bounds, *of_keys;
  Index sequences;
  double scale;
};

// The sequence of an item: the last that begins at it or before.
__device__ Index sequence_of(const Scores &call, Index item) {
  Index low = 0, high = call.sequences;
  while (high - low > 1) {
    const Index middle = (low + high) / 2;
    if (call.bounds[middle] <= item) low = middle;
    else high = middle;
  }
  return low;
}

// Scores, times a factor and plus a mask, become the shares of keys. A query that sees no key has shares of 0.
template <class T>
__global__ void softmax(T *scores, const T *mask, Scores call) {
  const T least = -T(__int_as_float(0x7f800000)), factor = T(call.scale);
  FOR_EACH_ROW(row, call.groups * call.queries) {
    const Index group = row / call.queries, query = row % call.queries;
    const Index item = call.heads_are_queries ? query / call.heads : query;
    const Index head = call.heads_are_queries ? query % call.heads : group % call.heads;
    const Index sample = call.heads_are_queries ? group : group / call.heads;
    Index begin = 0, end = call.keys;
    if (call.bounds != nullptr) {
      const Index sequence = sequence_of(call, item);
      begin = call.of_keys[sequence];
      end = call.of_keys[sequence + 1];
    }
    T *own = scores + row * call.keys;
    const Index added = sample * call.of_sample + head * call.of_head + item * call.of_query;
    const auto score = [&](Index key) { return own[key] * factor + (mask == nullptr ? T(0) : mask[added + key]); };
    T most = least;
    for (Index key = begin + lane; key < end; key += 32) {
      const T value = score(key);
      most = value > most ? value : most;
    }
    most = warp_maximum(most);
    T sum = 0;
    for (Index key = begin + lane; key < end; key += 32) {
      const T share = most == least ? T(0) : exp(score(key) - most);
      own[key] = share;
      sum += share;
    }
    sum = warp_sum(sum);
    __syncwarp();
    for (Index key = lane; key < call.keys; key += 32) {
      const bool is_seen = key >= begin && key < end && sum > 0;
      own[key] = is_seen ? own[key] / sum : T(0);
    }
  }
}

// The gradient of scores, after their factor and their mask, from the gradient of shares, which it replaces.
template <class T>
__global__ void softmax_gradient(const T *shares, T *gradients, Index rows, Index keys) {
  FOR_EACH_ROW(row, rows) {
    const T *own = shares + row * keys;
    T *to = gradients + row * keys;
    T sum = 0;
    for (Index key = lane; key < keys; key += 32) sum += own[key] * to[key];
    sum = warp_sum(sum);
    for (Index key = lane; key < keys; key += 32) to[key] = own[key] * (to[key] - sum);
  }
}

// At most so many parts of a whole.
#define MOST_PARTS 24

struct Parts {
  void *at[MOST_PARTS];  // null: is not there
  Index ends[MOST_PARTS];
};

// Parts become the whole that they lie in one after another, or the whole becomes parts.
template <class T>
__global__ void join(Parts parts, T *whole, Index count, Index back) {
  FOR_EACH(at, count) {
    int part = 0;
    while (at >= parts.ends[part]) part++;
    if (parts.at[part] == nullptr) continue;
    T *own = static_cast<T *>(parts.at[part]) + (at - (part > 0 ? parts.ends[part - 1] : 0));
    if (back) *own = whole[at];
    else whole[at] = *own;
  }
}

// At most so many tensors of a launch, and so many results of a thread, whose loads are under way at once.
#define MOST_TENSORS 480
#define EACH 4

struct Tensors {
  void *at[MOST_TENSORS];
};

// Results of one tensor, `[count]`: the sum over uses u of factors[u * stride + i] * a number at
// places[u * stride + i]. The bits of a place above the bits of a number say in which tensor from `from` on it is.
// `places` and `factors` are elements of the tables. So is `results - 1`: from there on the table has the place of each
// result, unless `results` is 0. The place -1 - i stands for i, of a result that is rounded to TF32.
struct Pack {
  int end;  // the first block after the blocks of the pack
  int count, uses, stride, places, factors, to, from, results;
};

__device__ float rounded_to_tf32(float x) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}
__device__ double rounded_to_tf32(double x) { return x; }

// Results of a block from the one with the number `first` on.
template <class T>
__device__ void pack_block(const Tensors &tensors, const void *tables, const Pack &own, Index first, Index first_tensor, int bits) {
  const int *places = static_cast<const int *>(tables) + own.places;
  const T *factors = static_cast<const T *>(tables) + own.factors;
  void *const *from = tensors.at + (own.from - first_tensor);
  const int behind = int((1u << bits) - 1);
  first += threadIdx.x;
  T sums[EACH] = {};
  for (int use = 0; use < own.uses; use++) {
    T values[EACH] = {}, weights[EACH] = {};
    int of_use[EACH] = {};
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const Index at = first + i * Index(blockDim.x);
      if (at >= own.count) continue;
      of_use[i] = places[use * Index(own.stride) + at];
      weights[i] = factors[use * Index(own.stride) + at];
    }
    // A number whose factor is 0 is not read, whatever place it has.
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      if (weights[i] != T(0)) values[i] = static_cast<const T *>(from[of_use[i] >> bits])[of_use[i] & behind];
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) sums[i] += weights[i] * values[i];
  }
  T *to = static_cast<T *>(tensors.at[own.to - first_tensor]);
  const int *results = own.results > 0 ? static_cast<const int *>(tables) + (own.results - 1) : nullptr;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const Index at = first + i * Index(blockDim.x);
    if (at >= own.count) continue;
    const Index place = results == nullptr ? at : results[at];
    if (place >= 0) to[place] = sums[i];
    else to[-1 - place] = rounded_to_tf32(sums[i]);
  }
}

// Packs one after another, each in its own blocks, which are counted from `first_block` on, as tensors are from `first_tensor` on.
template <class T>
__global__ void pack_all(const __grid_constant__ Tensors tensors, const void *tables, const Pack *packs, Index count,
                         Index first_block, Index first_tensor, Index bits) {
  const Index end = packs[count - 1].end;
  for (Index block = first_block + blockIdx.x; block < end; block += gridDim.x) {
    Index low = 0, high = count - 1;
    while (low < high) {
      const Index middle = (low + high) / 2;
      if (block < packs[middle].end) high = middle;
      else low = middle + 1;
    }
    const Index before = low > 0 ? packs[low - 1].end : first_block;
    pack_block<T>(tensors, tables, packs[low], (block - before) * EACH * blockDim.x, first_tensor, int(bits));
  }
}

// The entries of the outermorphism of each row: its frame, then those that terms add up, `entry += sign left right`.
// A row is one thread, in the order of the terms.
template <class T>
__global__ void outermorphism(const T *frames, const int *terms, const T *signs, T *entries, Index rows, Index frame, Index all,
                              Index count) {
  FOR_EACH(row, rows) {
    T *own = entries + row * all;
    for (Index at = 0; at < all; at++) own[at] = at < frame ? frames[row * frame + at] : T(0);
    for (Index at = 0; at < count; at++) {
      own[terms[3 * at]] += own[terms[3 * at + 1]] * own[terms[3 * at + 2]] * signs[at];
    }
  }
}

// The gradient of frames from that of all entries, to which it adds on the way.
template <class T>
__global__ void outermorphism_gradient(const T *entries, T *gradients, const int *terms, const T *signs, T *to, Index rows, Index frame,
                                       Index all, Index count) {
  FOR_EACH(row, rows) {
    const T *own = entries + row * all;
    T *of_own = gradients + row * all;
    for (Index at = count - 1; at >= 0; at--) {
      const int left = terms[3 * at + 1], right = terms[3 * at + 2];
      const T share = of_own[terms[3 * at]] * signs[at];
      of_own[left] += share * own[right];
      of_own[right] += share * own[left];
    }
    for (Index at = 0; at < frame; at++) to[row * frame + at] = of_own[at];
  }
}

// Rows whose blades are multiplied by the matrix of their block, or by its transpose. A block is the first blade, the
// number of blades and the first entry; blades of an empty block, and what comes after all blades, stay.
template <class T>
__global__ void multiply_frames(const T *x, const T *entries, const int *blocks, const T *signs, T *to, Index rows, Index width,
                                Index blades, Index channels, Index all, Index transposed) {
  FOR_EACH(at, rows * width) {
    const Index row = at / width, column = at % width;
    const Index blade = column < blades * channels ? column / channels : -1;
    const Index size = blade < 0 ? 0 : blocks[3 * blade + 1];
    if (size == 0) {
      to[at] = x[at];
      continue;
    }
    const Index first = blocks[3 * blade], own = blade - first;
    const T *matrix = entries + row * all + blocks[3 * blade + 2];
    const T *from = x + row * width + column % channels;
    T sum = 0;
    for (Index other = 0; other < size; other++) {
      const T entry = transposed ? matrix[other * size + own] : matrix[own * size + other];
      sum += entry * (signs[blade] * signs[first + other]) * from[(first + other) * channels];
    }
    to[at] = sum;
  }
}

// For each entry the sum over channels of the products of its blades.
template <class T>
__global__ void frame_products(const T *x, const T *y, const int *pairs, const T *signs, T *to, Index rows, Index width, Index channels,
                               Index all) {
  FOR_EACH(at, rows * all) {
    const Index row = at / all, left = pairs[2 * (at % all)], right = pairs[2 * (at % all) + 1];
    T sum = 0;
    for (Index channel = 0; channel < channels; channel++) {
      sum += x[row * width + left * channels + channel] * y[row * width + right * channels + channel];
    }
    to[at] = sum * signs[left] * signs[right];
  }
}
