// The operators of PyTorch's dispatcher, `torch.ops.flashcliff`, without Python: what graphs of `torch.compile` call.
//
// Python defines the operators (`_ops/library.py`): schemas, fake kernels, gradients, autocast. The kernels here lie above its
// kernels of the CPU and CUDA, and of autograd, and run the calls that are plain and need no graph. What they leave goes to
// the kernels of Python below them, as it would without this file.
//
// This is a part of `call.cpp`, which includes it once.

namespace {

using Stack = torch::jit::Stack;

// Whether two options mean the same. They come from one schema, so they have the types that it says.
bool same_option(const c10::IValue& left, const c10::IValue& right) {
    if (left.isString()) {
        return right.isString() && left.toStringRef() == right.toStringRef();
    }
    if (left.isDouble()) {
        const double a = left.toDouble(), b = right.isDouble() ? right.toDouble() : a + 1;
        return right.isDouble() && std::memcmp(&a, &b, sizeof(a)) == 0;
    }
    if (left.isInt()) {
        return right.isInt() && left.toInt() == right.toInt();
    }
    if (left.isBool()) {
        return right.isBool() && left.toBool() == right.toBool();
    }
    if (left.isIntList()) {
        return right.isIntList() && left.toIntVector() == right.toIntVector();
    }
    return left.isNone() && right.isNone();
}

// An option as Python has it; nothing if it is of no type that options have.
PyObject* option_of_python(const c10::IValue& value) {
    if (value.isString()) {
        const std::string& text = value.toStringRef();
        return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
    }
    if (value.isDouble()) {
        return PyFloat_FromDouble(value.toDouble());
    }
    if (value.isInt()) {
        return PyLong_FromLongLong(value.toInt());
    }
    if (value.isBool()) {
        return Py_NewRef(value.toBool() ? Py_True : Py_False);
    }
    if (value.isIntList()) {
        const std::vector<int64_t> items = value.toIntVector();
        Owned tuple(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
        for (size_t at = 0; tuple && at < items.size(); ++at) {
            PyObject* item = PyLong_FromLongLong(items[at]);
            if (item == nullptr) {
                return nullptr;
            }
            PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(at), item);
        }
        return tuple.release();
    }
    return value.isNone() ? Py_NewRef(Py_None) : nullptr;
}

// An operator of all algebras and options. It keeps the operators of the algebras and options that were called.
class Family {
public:
    const size_t count;
    const bool saves, linear;

    Family(size_t tensors, bool saves_, bool linear_, PyObject* resolve_)
        : count(tensors), saves(saves_), linear(linear_), resolve(Py_NewRef(resolve_)) {}
    Family(const Family&) = delete;
    Family& operator=(const Family&) = delete;
    ~Family() {
        if (Py_IsInitialized()) {
            const Locked lock;
            Py_DECREF(resolve);
        }
    }

    // The operator of an algebra and options; nothing if calls of it are Python's.
    std::shared_ptr<const Bound> find(const Tensors& tensors, const c10::IValue* key, size_t length) {
        unsigned given = 0;
        for (size_t at = 0; at < count; ++at) {
            given |= tensors[at].defined() ? 1u << at : 0u;
        }
        {
            const std::lock_guard<std::mutex> lock(mutex);
            for (const Kept& one : kept) {
                if (one.given == given && std::equal(one.key.begin(), one.key.end(), key, key + length, same_option)) {
                    return one.bound;
                }
            }
        }
        std::shared_ptr<const Bound> found = ask(given, key, length);
        if (found) {
            const std::lock_guard<std::mutex> lock(mutex);
            Kept one{given, std::vector<c10::IValue>(key, key + length), found};
            if (kept.size() < kKept) {
                kept.push_back(std::move(one));
            } else {
                kept[next] = std::move(one);
                next = (next + 1) % kKept;
            }
        }
        return found;
    }

private:
    struct Kept {
        unsigned given;
        std::vector<c10::IValue> key;
        std::shared_ptr<const Bound> bound;
    };

    PyObject* resolve;
    std::mutex mutex;
    std::vector<Kept> kept;
    size_t next = 0;

    std::shared_ptr<const Bound> ask(unsigned given, const c10::IValue* key, size_t length) const {
        const Locked lock;
        Owned arguments(PyTuple_New(static_cast<Py_ssize_t>(length) + 1));
        PyObject* mask = PyLong_FromUnsignedLong(given);
        if (!arguments || mask == nullptr) {
            throw_python_error();
        }
        PyTuple_SetItem(arguments.get(), 0, mask);
        for (size_t at = 0; at < length; ++at) {
            PyObject* option = option_of_python(key[at]);
            if (option == nullptr) {
                PyErr_Clear();
                return nullptr;
            }
            PyTuple_SetItem(arguments.get(), static_cast<Py_ssize_t>(at) + 1, option);
        }
        Owned made(PyObject_Call(resolve, arguments.get(), nullptr));
        if (!made) {
            throw_python_error();
        }
        return Py_IsNone(made.get()) ? nullptr : reinterpret_cast<PyOperator*>(made.get())->bound;
    }
};

// A kernel of the dispatcher, above one of Python.
class Kernel : public c10::OperatorKernel {
public:
    Kernel(std::shared_ptr<Family> family_, c10::SafeKernelFunction python_, bool autograd_)
        : family(std::move(family_)), python(std::move(python_)), autograd(autograd_) {}

    void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack) {
        const size_t length = handle.schema().arguments().size();
        const c10::IValue* arguments = stack->data() + (stack->size() - length);
        Stack results;
        if (thread_is_plain() && run(arguments, length, results)) {
            torch::jit::drop(*stack, length);
            stack->insert(stack->end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
            return;
        }
        python.callBoxed(handle, keys, stack);
    }

protected:
    const std::shared_ptr<Family> family;

    // Runs a call, unless it is Python's.
    virtual bool run(const c10::IValue* arguments, size_t length, Stack& results) = 0;

    // A tensor that may be missing, if it is plain, and outside of any graph of autograd.
    bool take(const c10::IValue& argument, at::Tensor& tensor) const {
        if (argument.isNone()) {
            return true;
        }
        if (!argument.isTensor()) {
            return false;
        }
        tensor = argument.toTensor();
        return !tensor.defined() ||
            (is_plain(tensor) && !(autograd && at::GradMode::is_enabled() && tensor.requires_grad()));
    }

private:
    const c10::SafeKernelFunction python;
    const bool autograd;
};

class Forward final : public Kernel {
    using Kernel::Kernel;

    bool run(const c10::IValue* arguments, size_t length, Stack& results) override {
        Tensors tensors;
        for (size_t at = 0; at < family->count; ++at) {
            if (!take(arguments[at], tensors[at]) || !tensors[0].defined() ||
                (tensors[at].defined() && tensors[at].device() != tensors[0].device())) {
                return false;
            }
        }
        const auto bound = family->find(tensors, arguments + family->count, length - family->count);
        at::Tensor output, saved;
        if (bound) {
            forward(*bound, tensors, family->saves, output, saved);
        }
        if (!output.defined()) {
            return false;
        }
        results.emplace_back(std::move(output));
        if (family->saves) {
            results.emplace_back(saved.defined() ? std::move(saved) : make({0}, saved_type(tensors[0]), tensors[0]));
        }
        return true;
    }
};

class Backward final : public Kernel {
    using Kernel::Kernel;

    bool run(const c10::IValue* arguments, size_t length, Stack& results) override {
        const size_t count = family->count;
        const c10::IValue* next = arguments;
        const c10::IValue* const end = arguments + length;
        at::Tensor grad, saved, output;
        Tensors tensors;
        if (!take(*next++, grad) || !grad.defined()) {
            return false;
        }
        if (family->linear) {
            // A linear operator reads its inputs for their shape alone.
            tensors[0] = grad;
        } else {
            for (size_t at = 0; at < count; ++at) {
                if (!take(*next++, tensors[at])) {
                    return false;
                }
            }
        }
        if (family->saves && (!take(*next++, saved) || !take(*next++, output))) {
            return false;
        }
        if (!next->isBoolList() || next->toBoolList().size() != count) {
            return false;
        }
        const auto list = (next++)->toBoolList();
        Mask wanted = 0;
        for (size_t at = 0; at < count; ++at) {
            wanted |= list[at] ? Mask{1} << at : 0;
            if (list[at] && !tensors[at].defined()) {
                return false;
            }
        }
        const auto bound = family->find(tensors, next, static_cast<size_t>(end - next));
        if (!bound || wanted == 0 || !are_plain(*bound, tensors, saved, output, grad)) {
            return false;
        }
        variable_list grads(count);
        if (!backward(*bound, tensors, saved, output, grad, wanted, grads)) {
            return false;
        }
        c10::List<at::Tensor> found;
        for (size_t at = 0; at < count; ++at) {
            if (list[at]) {
                found.push_back(std::move(grads[at]));
            }
        }
        results.emplace_back(std::move(found));
        return true;
    }
};

// Swallows the dispatcher's warning that a kernel lies above another, which is what it is here for.
class Unsaid final : public c10::WarningHandler {
public:
    void process(const c10::Warning&) override {}
};

constexpr const char* kRegistration = "flashcliff.registration";

void forget_registration(PyObject* capsule) {
    delete static_cast<torch::Library*>(PyCapsule_GetPointer(capsule, kRegistration));
}

// `register(name, count, saves, linear, resolve)`: registers an operator and its gradient until the result is deleted.
PyObject* register_operator(PyObject*, PyObject* arguments) {
    const char* name;
    Py_ssize_t count;
    int saves, linear;
    PyObject* resolve;
    if (!PyArg_ParseTuple(arguments, "snppO", &name, &count, &saves, &linear, &resolve)) {
        return nullptr;
    }
    return guarded([&]() -> PyObject* {
        if (count < 1 || static_cast<size_t>(count) > kMost || (linear && count != 1)) {
            PyErr_Format(PyExc_ValueError, "%s: expected 1 to %zu tensors, got %zd", name, kMost, count);
            return nullptr;
        }
        const auto family = std::make_shared<Family>(static_cast<size_t>(count), saves != 0, linear != 0, resolve);
        auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "flashcliff", std::nullopt, __FILE__, __LINE__);
        Unsaid unsaid;
        const c10::WarningUtils::WarningHandlerGuard guard(&unsaid);
        using c10::DispatchKey;
        for (const auto key : {DispatchKey::CPU, DispatchKey::CUDA, DispatchKey::AutogradCPU, DispatchKey::AutogradCUDA}) {
            const bool autograd = key == DispatchKey::AutogradCPU || key == DispatchKey::AutogradCUDA;
            const auto place = [&](const std::string& operation, auto make_kernel) {
                const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(("flashcliff::" + operation).c_str(), "");
                auto kernel = make_kernel(handle.getComputedKernelForDispatchKey(key));
                library->impl(operation.c_str(),
                    torch::dispatch(key, torch::CppFunction::makeFromBoxedFunctor(std::move(kernel))));
            };
            place(name, [&](auto python) { return std::make_unique<Forward>(family, std::move(python), autograd); });
            place(std::string(name) + "_backward",
                [&](auto python) { return std::make_unique<Backward>(family, std::move(python), autograd); });
        }
        PyObject* capsule = PyCapsule_New(library.get(), kRegistration, forget_registration);
        if (capsule != nullptr) {
            library.release();
        }
        return capsule;
    });
}

} // namespace
