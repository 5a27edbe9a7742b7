// AdamW and Lion for hundreds of parameters in one launch, with the state in tensors of a host, and averages of the parameters.
//
// Work that would need a separate launch is left to the last CTA that reaches a counter: the norm of all gradients, and the step counts,
// which all CTAs read before. The counter is a whole number, and the sums are added in a fixed order, so results are the same bit for bit
// every time.
#include <algorithm>

#include "adam_rules.cuh"

namespace fc {
namespace {

using Starts = StartsOf<FC_ADAM_MEMBERS>;

struct List {
  fc_adam_list list;
  Starts starts;
};

static_assert(sizeof(List) + 64 <= 32764, "the arguments of a kernel");
static_assert(FC_ADAM_MEMBERS == 16 * 32, "two ballots find a member");

// The member of a CTA, in two steps of a warp: of every sixteenth member, then of the sixteen from there.
__device__ int member_of(const List &call, uint32_t cta) {
  const int lane = threadIdx.x % 32, count = call.list.count;
  const auto begins = [&](int member) { return member < count && call.starts.at[member] <= cta; };
  const int coarse = 16 * (__popc(__ballot_sync(0xffffffffu, begins(16 * lane))) - 1);
  return coarse + __popc(__ballot_sync(0xffffffffu, lane < 16 && begins(coarse + lane))) - 1;
}

// The elements of a member, and the place of its group.
__host__ __device__ int64_t count_of(const fc_adam_member &member) { return int64_t(member.extent / FC_ADAM_GROUPS); }
__device__ int group_of(const fc_adam_member &member) { return int(member.extent % FC_ADAM_GROUPS); }

// Counts a CTA, in one thread, after all that this thread has read or written. True for the last CTA: it sees all of that, and the counter
// is 0 again.
__device__ bool is_last(fc_adam_shared *shared) {
  __threadfence();
  auto *done = reinterpret_cast<unsigned long long *>(&shared->done);
  const bool last = atomicAdd(done, 1ull) + 1 == gridDim.x;
  if (last) atomicExch(done, 0ull);
  __threadfence();
  return last;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    list_norm(const __grid_constant__ List call, fc_adam_shared *shared, double *sums, const double *first_sum, int64_t all,
              double max_norm) {
  const int index = member_of(call, blockIdx.x);
  const fc_adam_member &member = call.list.members[index];
  const T *gradient = static_cast<const T *>(member.gradient);
  const int64_t count = gradient != nullptr ? count_of(member) : 0;
  const double sum = sum_of_squares(gradient, count, blockIdx.x - call.starts.at[index]);
  __shared__ bool last;
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;
    last = all > 0 && is_last(shared);
  }
  __syncthreads();
  if (!last) return;
  double squares = 0;
  for (int64_t i = threadIdx.x; i < all; i += kThreads) squares = add(squares, __ldcg(first_sum + i));
  squares = sum_over_cta(squares);
  if (threadIdx.x != 0) return;
  const double norm = root(squares), clip = quotient(max_norm, add(norm, 1e-6));
  shared->norm = norm;
  // What is not a number is not above 1, and stays.
  shared->clip = clip > 1.0 ? 1.0 : clip;
}

// The learning rate of a group.
__device__ double rate_of(const fc_adam_group &group) {
  if (group.learning_rate_at == nullptr) return group.learning_rate;
  if (group.learning_rate_dtype == FC_F64) return *static_cast<const double *>(group.learning_rate_at);
  return *static_cast<const float *>(group.learning_rate_at);
}

template <class Rule, typename T, bool kAverages>
__global__ void __launch_bounds__(kThreads)
    list_update(const __grid_constant__ List call, fc_adam_shared *shared, bool clips) {
  constexpr int kEach = kUpdate / kThreads;
  const int index = member_of(call, blockIdx.x);
  const fc_adam_member &member = call.list.members[index];
  const int64_t first = int64_t(blockIdx.x - call.starts.at[index]) * kUpdate + threadIdx.x;
  T *parameter = static_cast<T *>(member.parameter);
  T *mean = static_cast<T *>(member.mean), *square = static_cast<T *>(member.square);
  T *average = kAverages ? static_cast<T *>(member.average) : nullptr;
  const T *gradient = static_cast<const T *>(member.gradient);
  const int64_t count = gradient != nullptr || average != nullptr ? count_of(member) : 0;
  T p[kEach] = {}, g[kEach] = {}, m[kEach] = {}, v[kEach] = {}, w[kEach] = {};
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    const int64_t i = first + k * kThreads;
    if (i < count) {
      p[k] = parameter[i];
      if (!kAverages || gradient != nullptr) {
        g[k] = gradient[i];
        m[k] = mean[i];
        if (Rule::kSquares) v[k] = square[i];
      }
      if (kAverages && average != nullptr) w[k] = average[i];
    }
  }
  // While these come, one thread computes the coefficients.
  __shared__ Rule shared_numbers;
  // The factor by which averages move to parameters.
  __shared__ T shared_gain;
  __shared__ bool last;
  if (threadIdx.x == 0) {
    if (count > 0) {
      const fc_adam_group &group = call.list.groups[group_of(member)];
      const uint32_t step = Rule::kSquares ? uint32_t(*member.step) + 1 : 0;
      const fc_adam_coefficients own =
          coefficients_at(Rule::kRule, group.beta1, group.beta2, group.weight_decay, rate_of(group), step);
      shared_numbers = Rule::of(group.beta1, group.beta2, group.eps, 0.0, own, group.maximize ? -1.0 : 1.0,
                                clips ? shared->clip : 1.0);
      if (kAverages) shared_gain = T(sub(1.0, group.average_decay));
    }
    if (Rule::kSquares) last = is_last(shared);
  }
  __syncthreads();
  const Rule numbers = shared_numbers;
  const T gain = kAverages ? shared_gain : T(0);
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    const int64_t i = first + k * kThreads;
    if (i < count) {
      if (!kAverages || gradient != nullptr) {
        numbers.apply(p[k], g[k], m[k], v[k]);
        parameter[i] = p[k];
        mean[i] = m[k];
        if (Rule::kSquares) square[i] = v[k];
      }
      if (kAverages && average != nullptr) average[i] = add(w[k], mul(gain, sub(p[k], w[k])));
    }
  }
  if constexpr (Rule::kSquares) {
    if (!last) return;
    for (int i = threadIdx.x; i < call.list.count; i += kThreads) {
      if (call.list.members[i].gradient != nullptr) *call.list.members[i].step += 1.0f;
    }
  }
}

bool is_whole(const fc_adam_list *list) {
  if (list == nullptr || list->count <= 0 || list->count > FC_ADAM_MEMBERS) return false;
  if (list->dtype != FC_F32 && list->dtype != FC_F64) return false;
  if (list->rule != FC_ADAM_RULE_ADAM && list->rule != FC_ADAM_RULE_LION) return false;
  // Other arrays may be null: the arrays of parameters without elements are.
  const auto counts = [](const fc_adam_member &own) { return own.step != nullptr; };
  return list->rule == FC_ADAM_RULE_LION || std::all_of(list->members, list->members + list->count, counts);
}

// The arguments of a kernel, and its CTAs: one at least, which counts the steps.
int prepared(const fc_adam_list *list, int64_t elements, List *call, uint32_t *ctas) {
  if (!is_whole(list)) return FC_ERROR_BAD_CALL;
  call->list = *list;
  const auto count = [](const fc_adam_member &member) { return count_of(member); };
  if (!starts_of(list->members, list->count, count, elements, &call->starts)) return FC_ERROR_TOO_LARGE;
  *ctas = max(call->starts.at[list->count], 1u);
  return 0;
}

using Update = void (*)(List, fc_adam_shared *, bool);

template <template <typename> class Rule, typename T>
Update update_of(bool averages) {
  return averages ? list_update<Rule<T>, T, true> : list_update<Rule<T>, T, false>;
}

// The kernel of a list. Averages cost registers, so lists without any have separate kernels.
Update update_of(const fc_adam_list &list) {
  const auto has_average = [](const fc_adam_member &member) { return member.average != nullptr; };
  const bool averages = std::any_of(list.members, list.members + list.count, has_average);
  if (list.rule == FC_ADAM_RULE_LION) {
    return list.dtype == FC_F64 ? update_of<LionRule, double>(averages) : update_of<LionRule, float>(averages);
  }
  return list.dtype == FC_F64 ? update_of<AdamRule, double>(averages) : update_of<AdamRule, float>(averages);
}

}  // namespace
}  // namespace fc

extern "C" int64_t fc_adam_list_sums(const fc_adam_list *list) {
  fc::List call;
  uint32_t ctas;
  return fc::prepared(list, FC_ADAM_BLOCK, &call, &ctas) == 0 ? ctas : 0;
}

extern "C" int fc_adam_list_norm(const fc_adam_list *list, fc_adam_shared *shared, double *sums, const double *first_sum,
                                 int64_t all, double max_norm, void *stream) {
  fc::List call;
  uint32_t ctas;
  if (shared == nullptr || sums == nullptr || (all > 0 && first_sum == nullptr)) return FC_ERROR_BAD_CALL;
  if (const int code = fc::prepared(list, FC_ADAM_BLOCK, &call, &ctas)) return code;
  const auto kernel = list->dtype == FC_F64 ? fc::list_norm<double> : fc::list_norm<float>;
  kernel<<<ctas, fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(call, shared, sums, first_sum, all, max_norm);
  return cudaGetLastError();
}

extern "C" int fc_adam_list_update(const fc_adam_list *list, fc_adam_shared *shared, int clips, void *stream) {
  fc::List call;
  uint32_t ctas;
  if (shared == nullptr) return FC_ERROR_BAD_CALL;
  if (const int code = fc::prepared(list, fc::kUpdate, &call, &ctas)) return code;
  const fc::Update kernel = fc::update_of(*list);
  kernel<<<ctas, fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(call, shared, clips != 0);
  return cudaGetLastError();
}
