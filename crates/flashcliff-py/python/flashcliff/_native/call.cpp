// The call path of the operators without Python: from a function's arguments to the kernels and to a node of autograd.
//
// `Lookup` finds the operator of a call by its algebra and options; `Operator` runs one on tensors. Either returns `None` for
// every call that is not plain: tensors of other kinds, tracing, transforms, wrong shapes, a kernel's refusal. Python then
// makes the call its own way, which is the reference for what a call means, and the only place that raises errors.
//
// The kernels come as a table of C functions, `src/native.rs`.

// The stable ABI of Python 3.10: what is compiled once runs by every later Python.
#define Py_LIMITED_API 0x030A0000
#include "bridge.hpp"

#include <structmember.h>

// Since Python 3.8, but in no header of the stable ABI before 3.12.
extern "C" PyObject* PyVectorcall_Call(PyObject* callable, PyObject* tuple, PyObject* names);

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "versions.hpp"

namespace {

using flashcliff::Locked;
using flashcliff::Owned;
using flashcliff::Unlocked;
using flashcliff::guarded;
using flashcliff::is_exactly_tensor;
using flashcliff::is_tensor;
using flashcliff::object_of;
using flashcliff::tensor_of;
using flashcliff::throw_python_error;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// What `src/native.rs` declares.

struct View {
    uintptr_t address;
    const int64_t* shape;
    size_t rank;
    uint32_t dtype;
};

struct Place {
    int64_t device;
    uintptr_t stream;
    size_t threads;
    bool tf32;
};

struct Sizes {
    size_t rank;
    int64_t shape[4];
    size_t saved;
    size_t workspace;
    // Whether each call must ask anew, because it takes much memory.
    bool is_large;
};

struct Memory {
    uintptr_t output;
    uintptr_t saved;
    uintptr_t workspace;
    size_t workspace_bytes;
    uintptr_t grad_output;
    const uintptr_t* grads;
};

struct RunMemory {
    const uintptr_t* outputs;
    size_t count;
    uintptr_t workspace;
    size_t workspace_bytes;
};

struct Table {
    uint64_t version;
    bool (*plan)(const void*, const View*, size_t, bool, const bool*, const Place*, Sizes*);
    bool (*forward)(const void*, const View*, size_t, const Place*, const Memory*);
    bool (*backward)(const void*, const View*, size_t, const Place*, const Memory*);
    bool (*plan_run)(const void*, const View*, size_t, const Place*, Sizes*);
    bool (*run)(const void*, const View*, size_t, const Place*, const RunMemory*);
};

constexpr uint64_t kVersion = 3;
const Table* table = nullptr;

// The most tensors of an operator.
constexpr size_t kMost = 8;
using Tensors = std::array<at::Tensor, kMost>;
// Which tensors: a bit for each.
using Mask = uint32_t;

// A number for each operator that is made.
uint64_t next_id() {
    static std::atomic<uint64_t> made{0};
    return made++;
}

// The gradient of a backward pass as an operator: of the results in `there`, by the arguments in `needed`.
struct Derivative {
    Mask there, needed;
    // Keeps `handle` alive.
    PyObject* core;
    const void* handle;
    uint64_t id;
};

// An operator of an algebra and options, and of which tensors are given.
struct Bound {
    // Keeps `handle` alive.
    PyObject* core = nullptr;
    const void* handle = nullptr;
    // The function of Python that computes gradients where this file does not.
    PyObject* gradients = nullptr;
    // The function of Python that computes gradients of the backward pass, and the one that makes the operator which does so here.
    PyObject* second = nullptr;
    PyObject* derive = nullptr;
    std::string name;
    std::string node;
    uint64_t id = 0;
    size_t count = 0;
    bool linear = false;
    bool reads_output = false;
    // Whether the forward pass keeps a tensor, which has no place but the saved one.
    bool keeps = false;
    mutable std::mutex mutex;
    mutable std::vector<Derivative> derivatives;

    Bound() = default;
    Bound(const Bound&) = delete;
    Bound& operator=(const Bound&) = delete;
    ~Bound() {
        // Nodes may outlive the interpreter.
        if (Py_IsInitialized()) {
            const Locked lock;
            Py_XDECREF(core);
            Py_XDECREF(gradients);
            Py_XDECREF(second);
            Py_XDECREF(derive);
            for (const Derivative& derivative : derivatives) {
                Py_DECREF(derivative.core);
            }
        }
    }
};

int dtype_of(at::ScalarType type) {
    switch (type) {
        case at::kFloat: return 0;
        case at::kDouble: return 1;
        case at::kBFloat16: return 2;
        case at::kHalf: return 3;
        default: return -1;
    }
}

// Whether nothing follows the calls of operators on this thread: a mode, a transform, a trace.
bool thread_is_plain() {
    static const uint64_t allowed = c10::DispatchKeySet({c10::DispatchKey::BackendSelect, c10::DispatchKey::ADInplaceOrView,
                                                            c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA})
                                        .raw_repr();
    return (c10::impl::tls_local_dispatch_key_set().included_.raw_repr() & ~allowed) == 0;
}

// Whether all elements of a dense tensor lie within memory that there is. A storage may have been cut under a tensor, or given back, and
// the address is no more than an offset then.
bool holds(const at::Tensor& tensor) {
    if (tensor.numel() == 0) {
        return true;
    }
    int64_t last = tensor.storage_offset();
    if (tensor.is_contiguous()) {
        last += tensor.numel() - 1;
    } else {
        for (int64_t axis = 0; axis < tensor.dim(); ++axis) {
            last += (tensor.size(axis) - 1) * tensor.stride(axis);
        }
    }
    const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
    const size_t needed = (static_cast<size_t>(last) + 1) * tensor.dtype().itemsize();
    return storage.nbytes() >= needed && storage.data() != nullptr;
}

// Whether a tensor is an array of numbers on the CPU or a GPU, and nothing else: not sparse, batched, fake, negative by a flag.
bool is_array(const at::Tensor& tensor) {
    static const uint64_t allowed =
        c10::DispatchKeySet({c10::DispatchKey::CPU, c10::DispatchKey::CUDA, c10::DispatchKey::AutogradCPU,
                                c10::DispatchKey::AutogradCUDA, c10::DispatchKey::ADInplaceOrView,
                                c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA})
            .raw_repr();
    return (tensor.key_set().raw_repr() & ~allowed) == 0 && (!tensor.is_cuda() || has_handles());
}

// Whether a tensor is an array of a type that operators take, with all of its memory.
bool is_there(const at::Tensor& tensor) {
    return is_array(tensor) && dtype_of(tensor.scalar_type()) >= 0 && holds(tensor);
}

// Whether a tensor has a tangent of forward differentiation. The question takes a lock.
bool has_tangent(const at::Tensor& tensor) {
    return tensor._fw_grad(/*level=*/0).defined();
}

// Whether a tensor is such an array, and has no tangent.
bool is_plain(const at::Tensor& tensor) {
    return is_there(tensor) && !has_tangent(tensor);
}

Place place_of(const at::Tensor& first) {
    Place place{-1, 0, 0, false};
    const at::Device device = first.device();
    if (!device.is_cuda()) {
        place.threads = static_cast<size_t>(at::get_num_threads());
        return place;
    }
    const c10::impl::VirtualGuardImpl guard(device.type());
    place.device = device.index();
    place.stream = cuda_handle(guard, guard.getStream(device));
    place.tf32 = takes_tf32();
    return place;
}

// At most so many tensors in the order of their memory, and their descriptions.
template <size_t most>
struct Given {
    std::array<at::Tensor, most> kept;
    std::array<View, most> views;
    size_t count = 0;

    // Adds the tensors that are there.
    void add_all(const Tensors& tensors) {
        for (const at::Tensor& tensor : tensors) {
            if (tensor.defined()) {
                add(tensor);
            }
        }
    }

    void add(const at::Tensor& tensor) {
        at::Tensor& own = kept[count];
        own = tensor.is_contiguous() ? tensor : tensor.contiguous();
        views[count] = View{reinterpret_cast<uintptr_t>(own.const_data_ptr()), own.sizes().data(),
            static_cast<size_t>(own.dim()), static_cast<uint32_t>(dtype_of(own.scalar_type()))};
        ++count;
    }
};

// The tensors of a pass.
using Inputs = Given<kMost>;

uintptr_t address_to_write(const at::Tensor& tensor) {
    return tensor.defined() ? reinterpret_cast<uintptr_t>(tensor.mutable_data_ptr()) : 0;
}

at::ScalarType saved_type(const at::Tensor& first) {
    return first.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor make(at::IntArrayRef sizes, at::ScalarType type, const at::Tensor& like) {
    if (like.is_cpu()) {
        return at::Tensor(at::detail::empty_cpu(sizes, type));
    }
    return at::empty(sizes, like.options().dtype(type));
}

// Memory for the length of a pass: on the stack, if it is little.
class Scratch {
public:
    // The bytes on the stack stay uninitialised.
    Scratch() {}

    uintptr_t get(size_t bytes, const at::Tensor& like) {
        if (bytes == 0) {
            return 0;
        }
        if (like.is_cpu() && bytes <= sizeof(near)) {
            return reinterpret_cast<uintptr_t>(near);
        }
        far = make({static_cast<int64_t>(bytes)}, at::kByte, like);
        return address_to_write(far);
    }

private:
    alignas(64) std::byte near[8192];
    at::Tensor far;
};

// What work on tensors of these shapes and types needs, by its number, as `ask(sizes)` answers. The last answers are kept for each
// thread. They may be of other settings, such as the number of threads: the work checks what it is given.
template <size_t most, typename Ask>
bool known(uint64_t id, bool backward, const Given<most>& inputs, const Place& place, Sizes& sizes, const Ask& ask) {
    constexpr size_t most_axes = 4;
    struct Key {
        uint64_t id = ~uint64_t{0};
        bool backward = false;
        bool tf32 = false;
        int64_t device = 0;
        size_t threads = 0;
        size_t count = 0;
        std::array<uint32_t, most> types{};
        std::array<size_t, most> ranks{};
        std::array<int64_t, most * most_axes> shapes{};
        bool operator==(const Key&) const = default;
    };
    struct Answer {
        Key key;
        Sizes sizes;
    };
    thread_local std::array<Answer, 32> answers;
    Key key;
    key.id = id;
    key.backward = backward;
    key.tf32 = place.tf32;
    key.device = place.device;
    key.threads = place.threads;
    key.count = inputs.count;
    for (size_t at = 0; at < inputs.count; ++at) {
        const View& view = inputs.views[at];
        if (view.rank > most_axes) {
            return false;
        }
        key.types[at] = view.dtype;
        key.ranks[at] = view.rank;
        std::copy_n(view.shape, view.rank, key.shapes.begin() + static_cast<std::ptrdiff_t>(at * most_axes));
    }
    Answer& answer = answers[(2 * id + (backward ? 1 : 0)) % answers.size()];
    if (!(answer.key == key)) {
        if (!ask(answer.sizes)) {
            answer.key = Key();
            return false;
        }
        answer.key = answer.sizes.is_large ? Key() : key;
    }
    sizes = answer.sizes;
    return true;
}

// What a pass needs. `wanted` says which gradients a backward pass makes.
bool plan(const Bound& bound, const Inputs& inputs, const bool* wanted, const Place& place, Sizes& sizes) {
    const bool backward = wanted != nullptr;
    return known(bound.id, backward, inputs, place, sizes, [&](Sizes& answer) {
        return table->plan(bound.handle, inputs.views.data(), inputs.count, backward, wanted, &place, &answer);
    });
}

// The forward pass. Without an output in `output` it did not run.
void run_forward(const Bound& bound, const Tensors& tensors, bool keep, at::Tensor& output, at::Tensor& saved) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor& first = tensors[0];
    c10::OptionalDeviceGuard guard;
    if (first.is_cuda()) {
        guard.reset_device(first.device());
    }
    Inputs inputs;
    inputs.add_all(tensors);
    const Place place = place_of(first);
    Sizes sizes;
    if (!plan(bound, inputs, nullptr, place, sizes)) {
        return;
    }
    at::Tensor made = make(at::IntArrayRef(sizes.shape, sizes.rank), first.scalar_type(), first);
    Memory memory{};
    Scratch scratch;
    size_t spare = 0;
    memory.workspace_bytes = sizes.workspace;
    if (sizes.saved > 0 && (keep || bound.keeps)) {
        saved = make({static_cast<int64_t>(sizes.saved)}, saved_type(first), first);
        memory.saved = address_to_write(saved);
    } else if (sizes.saved > 0 && place.device < 0) {
        // On the CPU sums need memory even if nobody reads them; it comes after the workspace.
        memory.workspace_bytes = (sizes.workspace + 7) / 8 * 8;
        spare = 8 * sizes.saved;
    }
    memory.workspace = scratch.get(memory.workspace_bytes + spare, first);
    if (spare > 0) {
        memory.saved = memory.workspace + memory.workspace_bytes;
    }
    memory.output = address_to_write(made);
    if (table->forward(bound.handle, inputs.views.data(), inputs.count, &place, &memory)) {
        output = std::move(made);
    }
    if (!keep) {
        saved.reset();
    }
}

// The forward pass, which did not run either if a GPU had no memory: Python makes the call again and says what it needs.
void forward(const Bound& bound, const Tensors& tensors, bool keep, at::Tensor& output, at::Tensor& saved) {
    try {
        run_forward(bound, tensors, keep, output, saved);
    } catch (const c10::OutOfMemoryError&) {
        output.reset();
        saved.reset();
    }
}

bool has_sizes(const at::Tensor& tensor, const Sizes& sizes) {
    return tensor.sizes() == at::IntArrayRef(sizes.shape, sizes.rank);
}

// The backward pass: gradients of the tensors that are wanted. Returns whether it ran.
bool run_backward(const Bound& bound, const Tensors& tensors, const at::Tensor& saved, const at::Tensor& output,
    const at::Tensor& given, Mask wanted, variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor& first = tensors[0];
    c10::OptionalDeviceGuard guard;
    if (first.is_cuda()) {
        guard.reset_device(first.device());
    }
    Inputs inputs;
    inputs.add_all(tensors);
    const Place place = place_of(first);
    std::array<bool, kMost> made{};
    size_t next = 0;
    for (size_t at = 0; at < bound.count; ++at) {
        if (tensors[at].defined()) {
            made[next++] = (wanted >> at & 1) != 0;
        }
    }
    Sizes sizes;
    if (!plan(bound, inputs, made.data(), place, sizes) || !has_sizes(given, sizes) ||
        (output.defined() && !has_sizes(output, sizes)) ||
        (sizes.saved > 0 && (!saved.defined() || saved.numel() < static_cast<int64_t>(sizes.saved) ||
                                saved.scalar_type() != saved_type(first)))) {
        return false;
    }
    const at::Tensor grad = given.is_contiguous() ? given : given.contiguous();
    // A tensor that is not read must still be memory of the right size.
    const at::Tensor read = output.defined() ? output.contiguous() : grad;
    at::Tensor sums;
    Memory memory{};
    if (sizes.saved > 0) {
        sums = saved.contiguous();
        memory.saved = reinterpret_cast<uintptr_t>(sums.const_data_ptr());
    }
    Scratch scratch;
    memory.workspace = scratch.get(sizes.workspace, first);
    memory.workspace_bytes = sizes.workspace;
    std::array<uintptr_t, kMost> addresses{};
    size_t present = 0;
    for (size_t at = 0; at < bound.count; ++at) {
        if (!tensors[at].defined()) {
            continue;
        }
        if ((wanted >> at & 1) != 0) {
            grads[at] = make(tensors[at].sizes(), tensors[at].scalar_type(), first);
            addresses[present] = address_to_write(grads[at]);
        }
        ++present;
    }
    memory.output = reinterpret_cast<uintptr_t>(read.const_data_ptr());
    memory.grad_output = reinterpret_cast<uintptr_t>(grad.const_data_ptr());
    memory.grads = addresses.data();
    return table->backward(bound.handle, inputs.views.data(), inputs.count, &place, &memory);
}

// The backward pass, which did not run either if a GPU had no memory.
bool backward(const Bound& bound, const Tensors& tensors, const at::Tensor& saved, const at::Tensor& output,
    const at::Tensor& given, Mask wanted, variable_list& grads) {
    try {
        return run_backward(bound, tensors, saved, output, given, wanted, grads);
    } catch (const c10::OutOfMemoryError&) {
        grads.assign(bound.count, at::Tensor());
        return false;
    }
}

PyObject* wrapped(const at::Tensor& tensor) {
    return tensor.defined() ? object_of(tensor) : Py_NewRef(Py_None);
}

// The address that C functions know an operator of Python by; null on an error of Python.
const void* handle_of(PyObject* core) {
    Owned address(PyObject_GetAttrString(core, "native"));
    const void* handle = address ? PyLong_AsVoidPtr(address.get()) : nullptr;
    if (handle == nullptr && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "an operator without an address");
    }
    return handle;
}

// The booleans of a mask, as a tuple.
PyObject* tuple_of(Mask mask, size_t count) {
    PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(count));
    for (size_t at = 0; tuple != nullptr && at < count; ++at) {
        PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(at), Py_NewRef((mask >> at & 1) != 0 ? Py_True : Py_False));
    }
    return tuple;
}

// Some tensors of a list from the first one on, as a tuple, with `None` for those that are not there; null on an error of Python.
template <typename List>
PyObject* tuple_of(const List& tensors, size_t first, size_t end) {
    PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(end - first));
    for (size_t at = first; tuple != nullptr && at < end; ++at) {
        PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(at - first), wrapped(tensors[at]));
    }
    return tuple;
}

// The gradients in a result of Python: a sequence of so many tensors or `None`.
variable_list gradients_in(PyObject* found, size_t count) {
    if (found == nullptr) {
        throw_python_error();
    }
    Owned items(PySequence_Tuple(found));
    if (!items || PyTuple_Size(items.get()) != static_cast<Py_ssize_t>(count)) {
        TORCH_CHECK(PyErr_Occurred() || items, "flashcliff: no gradients");
        throw_python_error();
    }
    variable_list grads(count);
    for (size_t at = 0; at < count; ++at) {
        PyObject* item = PyTuple_GetItem(items.get(), static_cast<Py_ssize_t>(at));
        if (is_tensor(item)) {
            grads[at] = tensor_of(item);
        }
    }
    return grads;
}

// The gradients that Python computes.
variable_list gradients_by_python(const Bound& bound, const Tensors& tensors, const at::Tensor& saved,
    const at::Tensor& output, const at::Tensor& grad, Mask wanted) {
    const Locked lock;
    Owned inputs(tuple_of(tensors, 0, bound.count));
    Owned wants(tuple_of(wanted, bound.count));
    if (!inputs || !wants) {
        throw_python_error();
    }
    Owned gradient(wrapped(grad));
    Owned sums(wrapped(saved));
    Owned read(wrapped(output));
    Owned found(PyObject_CallFunctionObjArgs(
        bound.gradients, gradient.get(), inputs.get(), sums.get(), read.get(), wants.get(), nullptr));
    return gradients_in(found.get(), bound.count);
}

// Whether all tensors of a backward pass are plain, on one device, and of types that it may take.
bool are_plain(const Bound& bound, const Tensors& tensors, const at::Tensor& saved, const at::Tensor& output,
    const at::Tensor& grad) {
    const at::Tensor& first = tensors[0];
    const auto fits = [&](const at::Tensor& tensor) {
        return !tensor.defined() || (is_plain(tensor) && tensor.device() == first.device());
    };
    // Hooks of saved tensors may return anything.
    for (size_t at = 0; at < bound.count; ++at) {
        if (!fits(tensors[at])) {
            return false;
        }
    }
    const bool output_fits = output.defined() ? output.scalar_type() == first.scalar_type() : !bound.reads_output;
    return first.defined() && fits(saved) && fits(output) && fits(grad) && output_fits &&
        grad.scalar_type() == first.scalar_type();
}

// A node in a graph of autograd, with the tensors that it keeps.
struct Saving : Node {
    std::vector<SavedVariable> kept;

    void release_variables() override {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (SavedVariable& variable : kept) {
            variable.reset_data();
        }
    }

    variable_list apply_with_saved(
        const variable_list& incoming, torch::dynamo::autograd::SwapSavedVariables& saved) override {
        for (SavedVariable& variable : kept) {
            saved.before(variable);
        }
        variable_list grads = traced(incoming);
        for (SavedVariable& variable : kept) {
            saved.after(variable);
        }
        return grads;
    }

    // The gradients in a graph of compiled autograd.
    virtual variable_list traced(const variable_list& incoming) {
        return apply(variable_list(incoming));
    }
};

// A node of an operator.
struct Kept : Saving {
    explicit Kept(std::shared_ptr<const Bound> operation) : bound(std::move(operation)) {}

    std::shared_ptr<const Bound> bound;

    // The arguments whose gradients the running pass computes.
    Mask asked(size_t count) const {
        Mask mask = 0;
        for (size_t at = 0; at < count; ++at) {
            mask |= task_should_compute_output(at) ? Mask{1} << at : 0;
        }
        return mask;
    }
};

// Earlier versions of PyTorch hold nodes by shared pointers, whose way to delete deep graphs they bring along.
template <typename Kind, typename Pointer, typename Argument>
Pointer make_node(const std::shared_ptr<const Argument>& argument) {
    if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
        return Pointer(new Kind(argument), [](auto* node) { deleteNode(node); });
    } else {
        return Pointer(c10::make_intrusive<Kind>(argument));
    }
}
using NodePointer = decltype(torch::autograd::Edge::function);

torch::autograd::Edge edge_of(const at::Tensor& tensor) {
    return tensor.defined() ? torch::autograd::impl::gradient_edge(tensor) : torch::autograd::Edge();
}

// Frees an object of a type that was made by `PyType_FromSpec`, after its members.
void free_object(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF(type);
}

// The list of tensors that is the only argument of a new object; null on an error of Python.
PyObject* tensors_in(PyObject* arguments, PyObject* names) {
    static const char* keywords[] = {"tensors", nullptr};
    PyObject* list;
    const int is_read = PyArg_ParseTupleAndKeywords(arguments, names, "O!", const_cast<char**>(keywords), &PyList_Type, &list);
    return is_read ? list : nullptr;
}

#include "leaves.hpp"
#include "parameters.hpp"
#include "second.hpp"

#include "network.hpp"

// An operator in a graph of autograd. It keeps nothing, if it is linear; else the inputs, the saved sums, the output.
struct Gradient final : Kept {
    using Kept::Kept;

    std::string name() const override {
        return bound->node;
    }

    variable_list apply(variable_list&& incoming) override {
        const Mask wanted = asked(bound->count);
        if (wanted == 0) {
            return variable_list(bound->count);
        }
        const at::Tensor grad = incoming[0].defined() ? std::move(incoming[0]) : input_metadata(0).zeros_like();
        Tensors tensors;
        at::Tensor saved, output;
        if (bound->linear) {
            // A linear operator reads its inputs for their shape alone.
            tensors[0] = grad;
        } else {
            const std::lock_guard<std::mutex> lock(mutex_);
            for (size_t at = 0; at < bound->count; ++at) {
                tensors[at] = kept[at].unpack();
            }
            saved = kept[bound->count].unpack();
            output = kept[bound->count + 1].unpack(getptr());
        }
        if (thread_is_plain() && are_plain(*bound, tensors, saved, output, grad)) {
            variable_list grads(bound->count);
            if (backward(*bound, tensors, saved, output, grad, wanted, grads)) {
                if (at::GradMode::is_enabled()) {
                    record_backward(bound, tensors, grad, wanted, grads);
                }
                return grads;
            }
        }
        return gradients_by_python(*bound, tensors, saved, output, grad, wanted);
    }

    void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) FLASHCLIFF_COMPILED_ARGS_CONST override {
        args.collect(bound->id);
        for (size_t at = 0; at < kept.size(); ++at) {
            args.collect(kept[at], /*is_output=*/at == bound->count + 1);
        }
    }
};

// What a graph of autograd keeps of the call that this thread makes: 1 the inputs, 0 nothing; -1 outside of such a call. Profiles
// read it.
thread_local int kept_by_graph = -1;

struct KeptByGraph {
    explicit KeptByGraph(bool inputs) { kept_by_graph = inputs ? 1 : 0; }
    KeptByGraph(const KeptByGraph&) = delete;
    KeptByGraph& operator=(const KeptByGraph&) = delete;
    ~KeptByGraph() { kept_by_graph = -1; }
};

// A call on plain tensors. Without an output it did not run.
at::Tensor call(const std::shared_ptr<const Bound>& bound, Tensors& tensors) {
    at::RecordFunction record(at::RecordScope::FUNCTION);
    if (record.isActive()) {
        record.before(bound->name.c_str());
    }
    bool differentiate = false;
    if (at::GradMode::is_enabled()) {
        for (size_t at = 0; at < bound->count; ++at) {
            differentiate = differentiate || (tensors[at].defined() && tensors[at].requires_grad());
        }
    }
    at::Tensor output, saved;
    {
        const KeptByGraph kept(differentiate && !bound->linear);
        forward(*bound, tensors, differentiate && !bound->linear, output, saved);
    }
    if (!differentiate || !output.defined()) {
        return output;
    }
    NodePointer node = make_node<Gradient, NodePointer>(bound);
    torch::autograd::edge_list edges;
    edges.reserve(bound->count);
    for (size_t at = 0; at < bound->count; ++at) {
        edges.push_back(edge_of(tensors[at]));
    }
    node->set_next_edges(std::move(edges));
    torch::autograd::set_history(output, node);
    if (!bound->linear) {
        auto& kept = static_cast<Gradient&>(*node).kept;
        kept.reserve(bound->count + 2);
        for (size_t at = 0; at < bound->count; ++at) {
            kept.emplace_back(tensors[at], /*is_output=*/false);
        }
        kept.emplace_back(saved, /*is_output=*/false);
        kept.emplace_back(bound->reads_output ? output : at::Tensor(), /*is_output=*/true);
    }
    return output;
}

// The tensors among the arguments, if all are plain and on one device. All but the first may be `None`.
bool take(PyObject* const* arguments, size_t count, Tensors& tensors) {
    for (size_t at = 0; at < count; ++at) {
        PyObject* argument = arguments[at];
        if (at > 0 && Py_IsNone(argument)) {
            continue;
        }
        if (!is_exactly_tensor(argument)) {
            return false;
        }
        tensors[at] = tensor_of(argument);
        if (!is_plain(tensors[at]) || tensors[at].device() != tensors[0].device()) {
            return false;
        }
    }
    return true;
}

// The protocol by which Python calls an object without a tuple of its arguments (PEP 590). It is as stable as the rest, but got into the
// headers of the stable ABI with Python 3.12.
using VectorCall = PyObject*(PyObject*, PyObject* const*, size_t, PyObject*);
constexpr unsigned long kHasVectorCall = 1UL << 11;

// How many arguments were given by position. The highest bit says something else.
size_t positional(size_t flags) {
    return flags & (~size_t{0} >> 1);
}

// Runs an operator and wraps what it gives; `None` if it did not run.
PyObject* call_and_wrap(const std::shared_ptr<const Bound>& bound, Tensors& tensors) {
    at::Tensor output;
    {
        const Unlocked unlocked;
        output = call(bound, tensors);
    }
    return output.defined() ? object_of(output) : Py_NewRef(Py_None);
}

// `Operator` of Python.

struct PyOperator {
    PyObject_HEAD
    VectorCall* vectorcall;
    std::shared_ptr<const Bound> bound;
};

PyObject* operator_call(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
    return guarded([&]() -> PyObject* {
        const auto& bound = reinterpret_cast<PyOperator*>(self)->bound;
        if (names != nullptr || positional(flags) != bound->count) {
            PyErr_Format(PyExc_TypeError, "%s: expected %zu tensors", bound->name.c_str(), bound->count);
            return nullptr;
        }
        Tensors tensors;
        if (!thread_is_plain() || !take(arguments, bound->count, tensors)) {
            Py_RETURN_NONE;
        }
        // The tensors given are those that the operator was made for.
        return call_and_wrap(bound, tensors);
    });
}

PyObject* operator_new(PyTypeObject* type, PyObject* arguments, PyObject* names) {
    static const char* keywords[] = {
        "core", "gradients", "second", "derive", "name", "node", "count", "linear", "reads_output", nullptr};
    PyObject *core, *gradients, *second, *derive;
    const char *name, *node;
    Py_ssize_t count;
    int linear, reads_output;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOOssnpp", const_cast<char**>(keywords), &core, &gradients, &second,
            &derive, &name, &node, &count, &linear, &reads_output)) {
        return nullptr;
    }
    return guarded([&]() -> PyObject* {
        if (count < 1 || static_cast<size_t>(count) > kMost || (linear && count != 1)) {
            PyErr_Format(PyExc_ValueError, "%s: expected 1 to %zu tensors, got %zd", name, kMost, count);
            return nullptr;
        }
        Owned kept(PyObject_GetAttrString(core, "kept"));
        const void* handle = kept ? handle_of(core) : nullptr;
        if (handle == nullptr) {
            return nullptr;
        }
        auto bound = std::make_shared<Bound>();
        bound->core = Py_NewRef(core);
        bound->handle = handle;
        bound->gradients = Py_NewRef(gradients);
        bound->second = Py_NewRef(second);
        bound->derive = Py_NewRef(derive);
        bound->name = name;
        bound->node = node;
        bound->id = next_id();
        bound->count = static_cast<size_t>(count);
        bound->linear = linear != 0;
        bound->reads_output = reads_output != 0;
        bound->keeps = !Py_IsNone(kept.get());
        auto* self = reinterpret_cast<PyOperator*>(PyType_GenericAlloc(type, 0));
        if (self != nullptr) {
            self->vectorcall = operator_call;
            new (&self->bound) std::shared_ptr<const Bound>(std::move(bound));
        }
        return reinterpret_cast<PyObject*>(self);
    });
}

void operator_free(PyObject* self) {
    reinterpret_cast<PyOperator*>(self)->bound.~shared_ptr();
    free_object(self);
}

// `Lookup` of Python.

// How many operators a lookup keeps.
constexpr size_t kKept = 64;

struct Entry {
    unsigned given;
    // The algebra and the options.
    std::vector<PyObject*> key;
    // Nothing, if calls with this key are made by Python.
    std::shared_ptr<const Bound> bound;
};

struct PyLookup {
    PyObject_HEAD
    VectorCall* vectorcall;
    size_t count;
    PyObject* resolve;
    std::vector<Entry> entries;
    size_t next;
};

// Whether two arguments mean the same: one object, or equal numbers, strings or tuples of them of exactly the same types. `1`,
// `1.0` and `True` differ, as do zeros of different signs.
bool same(PyObject* left, PyObject* right) {
    if (left == right) {
        return true;
    }
    PyTypeObject* type = Py_TYPE(left);
    if (type != Py_TYPE(right)) {
        return false;
    }
    if (type == &PyFloat_Type) {
        const double a = PyFloat_AsDouble(left), b = PyFloat_AsDouble(right);
        return std::memcmp(&a, &b, sizeof(a)) == 0;
    }
    if (type == &PyUnicode_Type || type == &PyLong_Type) {
        return PyObject_RichCompareBool(left, right, Py_EQ) == 1;
    }
    if (type == &PyTuple_Type) {
        const Py_ssize_t size = PyTuple_Size(left);
        if (PyTuple_Size(right) != size) {
            return false;
        }
        for (Py_ssize_t at = 0; at < size; ++at) {
            if (!same(PyTuple_GetItem(left, at), PyTuple_GetItem(right, at))) {
                return false;
            }
        }
        return true;
    }
    return false;
}

// Finds the operator of a key, or asks Python for it. Returns false on an error of Python.
bool find(PyLookup* self, unsigned given, PyObject* const* key, size_t length, std::shared_ptr<const Bound>& found) {
    for (const Entry& entry : self->entries) {
        if (entry.given != given || entry.key.size() != length) {
            continue;
        }
        size_t at = 0;
        while (at < length && same(entry.key[at], key[at])) {
            ++at;
        }
        if (at == length) {
            found = entry.bound;
            return true;
        }
    }
    Owned arguments(PyTuple_New(static_cast<Py_ssize_t>(length) + 1));
    Owned mask(PyLong_FromUnsignedLong(given));
    if (!arguments || !mask) {
        return false;
    }
    PyTuple_SetItem(arguments.get(), 0, mask.release());
    for (size_t at = 0; at < length; ++at) {
        PyTuple_SetItem(arguments.get(), static_cast<Py_ssize_t>(at) + 1, Py_NewRef(key[at]));
    }
    Owned made(PyObject_Call(self->resolve, arguments.get(), nullptr));
    if (!made) {
        return false;
    }
    if (Py_IsNone(made.get())) {
        return true;
    }
    found = reinterpret_cast<PyOperator*>(made.get())->bound;
    Entry entry{given, {}, found};
    for (size_t at = 0; at < length; ++at) {
        entry.key.push_back(Py_NewRef(key[at]));
    }
    if (self->entries.size() < kKept) {
        self->entries.push_back(std::move(entry));
        return true;
    }
    std::swap(self->entries[self->next], entry);
    self->next = (self->next + 1) % kKept;
    for (PyObject* object : entry.key) {
        Py_DECREF(object);
    }
    return true;
}

PyObject* lookup_call(PyObject* object, PyObject* const* arguments, size_t flags, PyObject* names) {
    return guarded([&]() -> PyObject* {
        auto* self = reinterpret_cast<PyLookup*>(object);
        const size_t length = positional(flags);
        if (names != nullptr || length < self->count) {
            PyErr_SetString(PyExc_TypeError, "expected tensors, an algebra and options, by position");
            return nullptr;
        }
        Tensors tensors;
        if (!thread_is_plain() || !take(arguments, self->count, tensors) || tensors[0].dim() != 3 ||
            at::autocast::is_autocast_enabled(tensors[0].device().type())) {
            Py_RETURN_NONE;
        }
        unsigned given = 0;
        for (size_t at = 0; at < self->count; ++at) {
            given |= tensors[at].defined() ? 1u << at : 0u;
        }
        std::shared_ptr<const Bound> bound;
        if (!find(self, given, arguments + self->count, length - self->count, bound)) {
            return nullptr;
        }
        if (!bound) {
            Py_RETURN_NONE;
        }
        return call_and_wrap(bound, tensors);
    });
}

PyObject* lookup_new(PyTypeObject* type, PyObject* arguments, PyObject* names) {
    static const char* keywords[] = {"count", "resolve", nullptr};
    Py_ssize_t count;
    PyObject* resolve;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "nO", const_cast<char**>(keywords), &count, &resolve)) {
        return nullptr;
    }
    if (count < 1 || static_cast<size_t>(count) > kMost) {
        PyErr_Format(PyExc_ValueError, "expected 1 to %zu tensors, got %zd", kMost, count);
        return nullptr;
    }
    auto* self = reinterpret_cast<PyLookup*>(PyType_GenericAlloc(type, 0));
    if (self != nullptr) {
        self->vectorcall = lookup_call;
        self->count = static_cast<size_t>(count);
        self->resolve = Py_NewRef(resolve);
        new (&self->entries) std::vector<Entry>();
        self->next = 0;
    }
    return reinterpret_cast<PyObject*>(self);
}

void lookup_clear(PyLookup* self) {
    std::vector<Entry> entries;
    std::swap(entries, self->entries);
    self->next = 0;
    for (const Entry& entry : entries) {
        for (PyObject* object : entry.key) {
            Py_DECREF(object);
        }
    }
}

void lookup_free(PyObject* object) {
    auto* self = reinterpret_cast<PyLookup*>(object);
    lookup_clear(self);
    self->entries.~vector();
    Py_DECREF(self->resolve);
    free_object(object);
}

PyObject* lookup_forget(PyObject* object, PyObject*) {
    lookup_clear(reinterpret_cast<PyLookup*>(object));
    Py_RETURN_NONE;
}

} // namespace

#include "layout.hpp"
#if FLASHCLIFF_HAS_KERNELS_BELOW
#include "registered.hpp"
#endif

namespace {

PyMethodDef lookup_methods[] = {
    {"forget", lookup_forget, METH_NOARGS, "Forgets all operators."}, {nullptr, nullptr, 0, nullptr}};

PyMemberDef operator_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PyOperator, vectorcall), READONLY, nullptr}, {nullptr, 0, 0, 0, nullptr}};

PyMemberDef lookup_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PyLookup, vectorcall), READONLY, nullptr}, {nullptr, 0, 0, 0, nullptr}};

PyType_Slot operator_slots[] = {{Py_tp_doc, const_cast<char*>("An operator of an algebra and options, called with tensors.")},
    {Py_tp_members, operator_members}, {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_new, reinterpret_cast<void*>(operator_new)}, {Py_tp_dealloc, reinterpret_cast<void*>(operator_free)}, {0, nullptr}};

PyType_Slot lookup_slots[] = {
    {Py_tp_doc, const_cast<char*>("The operators of all algebras and options, called with tensors, an algebra and options.")},
    {Py_tp_members, lookup_members}, {Py_tp_methods, lookup_methods}, {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_new, reinterpret_cast<void*>(lookup_new)}, {Py_tp_dealloc, reinterpret_cast<void*>(lookup_free)}, {0, nullptr}};

PyType_Spec operator_type = {
    "flashcliff.Operator", sizeof(PyOperator), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | kHasVectorCall, operator_slots};
PyType_Spec lookup_type = {
    "flashcliff.Lookup", sizeof(PyLookup), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | kHasVectorCall, lookup_slots};

PyObject* set_table(PyObject*, PyObject* address) {
    const auto* given = static_cast<const Table*>(PyLong_AsVoidPtr(address));
    if (given == nullptr) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "expected an address, got 0");
        }
        return nullptr;
    }
    if (given->version != kVersion) {
        PyErr_SetString(PyExc_ImportError, "this module was built for another version of flashcliff");
        return nullptr;
    }
    table = given;
    Py_RETURN_NONE;
}

PyObject* held(PyObject*, PyObject*) {
    if (kept_by_graph < 0) {
        Py_RETURN_NONE;
    }
    return PyBool_FromLong(kept_by_graph);
}

// `addresses(tensors)`: the addresses of arrays of one type on one device, contiguous and with all of their memory, 0 for `None`;
// `None` if one is none of these.
PyObject* addresses(PyObject*, PyObject* given) {
    return guarded([&]() -> PyObject* {
        Owned items(PySequence_Tuple(given));
        if (!items) {
            return nullptr;
        }
        const Py_ssize_t count = PyTuple_Size(items.get());
        Owned found(PyTuple_New(count));
        const at::Tensor* first = nullptr;
        for (Py_ssize_t at = 0; found && at < count; ++at) {
            PyObject* item = PyTuple_GetItem(items.get(), at);
            uintptr_t address = 0;
            if (!Py_IsNone(item)) {
                if (!is_exactly_tensor(item)) {
                    Py_RETURN_NONE;
                }
                const at::Tensor& tensor = tensor_of(item);
                first = first == nullptr ? &tensor : first;
                if (!is_array(tensor) || !tensor.is_contiguous() || !holds(tensor) || tensor.device() != first->device() ||
                    tensor.scalar_type() != first->scalar_type()) {
                    Py_RETURN_NONE;
                }
                address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
            }
            PyObject* number = PyLong_FromUnsignedLongLong(address);
            if (number == nullptr) {
                return nullptr;
            }
            PyTuple_SetItem(found.get(), at, number);
        }
        return found.release();
    });
}

// `hold(tensors)`: whether all are arrays whose storages have all of their elements. `None` stands for no tensor.
PyObject* hold(PyObject*, PyObject* given) {
    return guarded([&]() -> PyObject* {
        Owned items(PySequence_Tuple(given));
        if (!items) {
            return nullptr;
        }
        for (Py_ssize_t at = 0; at < PyTuple_Size(items.get()); ++at) {
            PyObject* item = PyTuple_GetItem(items.get(), at);
            if (Py_IsNone(item)) {
                continue;
            }
            if (!is_exactly_tensor(item)) {
                Py_RETURN_FALSE;
            }
            const at::Tensor& tensor = tensor_of(item);
            if (!is_array(tensor) || !holds(tensor)) {
                Py_RETURN_FALSE;
            }
        }
        Py_RETURN_TRUE;
    });
}

PyMethodDef functions[] = {{"set_table", set_table, METH_O, "Says where the C functions of the kernels are."},
#if FLASHCLIFF_HAS_KERNELS_BELOW
    {"register", register_operator, METH_VARARGS,
        "Registers the kernels of an operator with PyTorch, until the result is deleted."},
#endif
    {"addresses", addresses, METH_O,
        "The addresses of arrays of one type on one device, or `None` if they are not all contiguous and whole."},
    {"network_wants", network_wants, METH_VARARGS,
        "Whether each input and parameter of a network has a gradient; `None` if an input is not a plain tensor."},
    {"record_network", record_network, METH_VARARGS, "Puts the results of a network into the graph of autograd."},
    {"clear_gradients", clear_gradients, METH_O, "Sets the gradients of a list of tensors to `None`."},
    {"hold", hold, METH_O, "Whether all tensors are arrays whose storages have all of their elements."},
    {"held", held, METH_NOARGS,
        "Whether a graph of autograd keeps the inputs of the call that this thread makes; `None` if that is not known."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_flashcliff_native", nullptr, -1, functions};

} // namespace

PyMODINIT_FUNC PyInit__flashcliff_native() {
    Owned made(PyModule_Create(&module));
    const std::pair<const char*, PyType_Spec*> types[] = {
        {"Operator", &operator_type}, {"Lookup", &lookup_type}, {"Layout", &layout_type}, {"Parameters", &parameters_type}};
    for (const auto& [name, spec] : types) {
        const Owned type(made ? PyType_FromSpec(spec) : nullptr);
        if (!type || PyModule_AddObjectRef(made.get(), name, type.get()) < 0) {
            return nullptr;
        }
    }
    parameters_class = reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(made.get(), "Parameters"));
    return parameters_class == nullptr ? nullptr : made.release();
}
