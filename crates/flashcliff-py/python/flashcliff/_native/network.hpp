// A network of layers in a graph of autograd. Its passes are functions of Python; what is done for each of its hundreds of parameters is
// done here.
//
// This is a part of `call.cpp`, which includes it once.

// The address of a tensor that a plan reads where it lies: an array of the type and on the device of another, contiguous, with all of its
// memory, and aligned; 0 for any other.
uintptr_t address_in_plan(const at::Tensor& tensor, const at::Tensor& like) {
    constexpr uintptr_t aligned = 16;
    if (!is_plain(tensor) || !tensor.is_contiguous() || tensor.device() != like.device() ||
        tensor.scalar_type() != like.scalar_type()) {
        return 0;
    }
    const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    return address % aligned == 0 ? address : 0;
}

// A new list of numbers; null on an error of Python.
PyObject* list_of(const std::vector<uintptr_t>& numbers) {
    Owned list(PyList_New(static_cast<Py_ssize_t>(numbers.size())));
    for (size_t at = 0; list && at < numbers.size(); ++at) {
        PyObject* number = PyLong_FromUnsignedLongLong(numbers[at]);
        if (number == nullptr) {
            return nullptr;
        }
        PyList_SetItem(list.get(), static_cast<Py_ssize_t>(at), number);
    }
    return list.release();
}

// The functions of Python of a call of a network.
struct Passes {
    // (inputs, addresses of parameters, addresses of their gradients, kept, incoming) -> gradients of inputs
    PyObject* backward;
    // (inputs and parameters, incoming) -> gradients of all, which can be differentiated again
    PyObject* again;
    // (number, inputs, parameters and kept, incoming) -> gradients of all in a graph of compiled autograd
    PyObject* traced;

    Passes(PyObject* first, PyObject* second, PyObject* third)
        : backward(Py_NewRef(first)), again(Py_NewRef(second)), traced(Py_NewRef(third)) {}
    Passes(const Passes&) = delete;
    Passes& operator=(const Passes&) = delete;
    ~Passes() {
        // Nodes may outlive the interpreter.
        if (Py_IsInitialized()) {
            const Locked lock;
            Py_DECREF(backward);
            Py_DECREF(again);
            Py_DECREF(traced);
        }
    }
};

// It keeps inputs, then parameters, then what the forward pass left.
struct Network final : Saving {
    explicit Network(std::shared_ptr<const Passes> functions) : passes(std::move(functions)) {}

    std::shared_ptr<const Passes> passes;
    // The number that Python knows the call by: an input of compiled graphs, so that they serve other calls.
    at::Tensor number;
    size_t inputs = 0, parameters = 0;
    // Whether each input and parameter has a gradient.
    std::vector<bool> wants;

    std::string name() const override {
        return "FlashcliffNetworkBackward";
    }

    variable_list apply(variable_list&& incoming) override {
        const size_t count = inputs + parameters;
        if (std::none_of(incoming.begin(), incoming.end(), [](const at::Tensor& grad) { return grad.defined(); })) {
            return variable_list(count);
        }
        variable_list tensors = unpacked();
        variable_list grads(count);
        if (!at::GradMode::is_enabled() && thread_is_plain() && run(tensors, incoming, grads)) {
            return grads;
        }
        const Locked lock;
        Owned all(tuple_of(tensors, 0, count));
        Owned given(tuple_of(incoming, 0, incoming.size()));
        Owned found(all && given ? PyObject_CallFunctionObjArgs(passes->again, all.get(), given.get(), nullptr) : nullptr);
        return gradients_in(found.get(), count);
    }

    variable_list apply_with_saved(
        const variable_list& incoming, torch::dynamo::autograd::SwapSavedVariables& saved) override {
        saved.before(number);
        variable_list grads = Saving::apply_with_saved(incoming, saved);
        saved.after(number);
        return grads;
    }

    variable_list traced(const variable_list& incoming) override {
        const variable_list tensors = unpacked();
        const Locked lock;
        Owned by(wrapped(number));
        Owned all(tuple_of(tensors, 0, tensors.size()));
        Owned given(tuple_of(incoming, 0, incoming.size()));
        Owned found(
            by && all && given ? PyObject_CallFunctionObjArgs(passes->traced, by.get(), all.get(), given.get(), nullptr) : nullptr);
        return gradients_in(found.get(), inputs + parameters);
    }

    void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) FLASHCLIFF_COMPILED_ARGS_CONST override {
        args.collect(number);
        args.collect(static_cast<uint64_t>(inputs));
        args.collect(static_cast<uint64_t>(parameters));
        for (const bool own : wants) {
            args.collect(own);
        }
        for (const SavedVariable& variable : kept) {
            args.collect(variable, /*is_output=*/false);
        }
    }

private:
    variable_list unpacked() {
        const std::lock_guard<std::mutex> lock(mutex_);
        variable_list tensors(kept.size());
        for (size_t at = 0; at < kept.size(); ++at) {
            tensors[at] = kept[at].unpack();
        }
        return tensors;
    }

    // The backward pass of the plan. Returns whether it ran: not if a tensor is of another kind than in the forward pass.
    bool run(const variable_list& tensors, const variable_list& incoming, variable_list& grads) {
        const at::Tensor& like = tensors[inputs + parameters];
        const auto is_odd = [](const at::Tensor& tensor) { return tensor.defined() && !is_plain(tensor); };
        if (std::any_of(incoming.begin(), incoming.end(), is_odd)) {
            return false;
        }
        std::vector<uintptr_t> places(parameters), made;
        for (size_t at = 0; at < parameters; ++at) {
            places[at] = address_in_plan(tensors[inputs + at], like);
            if (places[at] == 0) {
                return false;
            }
        }
        {
            const at::AutoDispatchBelowADInplaceOrView below;
            c10::OptionalDeviceGuard guard;
            if (like.is_cuda()) {
                guard.reset_device(like.device());
            }
            for (size_t at = 0; at < parameters; ++at) {
                if (wants[inputs + at]) {
                    grads[inputs + at] = make(tensors[inputs + at].sizes(), like.scalar_type(), like);
                    made.push_back(address_to_write(grads[inputs + at]));
                }
            }
        }
        const Locked lock;
        Owned own(tuple_of(tensors, 0, inputs));
        Owned left(tuple_of(tensors, inputs + parameters, tensors.size()));
        Owned given(tuple_of(incoming, 0, incoming.size()));
        Owned from(list_of(places)), to(list_of(made));
        if (!own || !left || !given || !from || !to) {
            throw_python_error();
        }
        Owned found(PyObject_CallFunctionObjArgs(
            passes->backward, own.get(), from.get(), to.get(), left.get(), given.get(), nullptr));
        variable_list of_inputs = gradients_in(found.get(), inputs);
        std::move(of_inputs.begin(), of_inputs.end(), grads.begin());
        return true;
    }
};

// The tensors of a sequence, which are plain ones or, if that is allowed, `None`; false if one is neither.
bool all_tensors(PyObject* given, bool or_none, variable_list& found) {
    Owned items(PySequence_Tuple(given));
    if (!items) {
        throw_python_error();
    }
    const Py_ssize_t count = PyTuple_Size(items.get());
    found.reserve(found.size() + static_cast<size_t>(count));
    for (Py_ssize_t at = 0; at < count; ++at) {
        PyObject* item = PyTuple_GetItem(items.get(), at);
        if (or_none && Py_IsNone(item)) {
            found.emplace_back();
        } else if (is_exactly_tensor(item)) {
            found.push_back(tensor_of(item));
        } else {
            return false;
        }
    }
    return true;
}

// Whether the sizes of a tensor are the numbers of a `torch.Size`.
bool has_shape(const at::Tensor& tensor, PyObject* shape) {
    if (!PyTuple_Check(shape) || PyTuple_Size(shape) != tensor.dim()) {
        return false;
    }
    for (Py_ssize_t axis = 0; axis < PyTuple_Size(shape); ++axis) {
        const long long size = PyLong_AsLongLong(PyTuple_GetItem(shape, axis));
        if (size == -1 && PyErr_Occurred()) {
            throw_python_error();
        }
        if (size != tensor.size(axis)) {
            return false;
        }
    }
    return true;
}

// `network_places(parameters, shapes)`: the addresses of parameters that a plan reads where they lie, of these shapes; `None` if one is
// none of these.
PyObject* network_places(PyObject*, PyObject* arguments) {
    PyObject *given, *shapes;
    if (!PyArg_ParseTuple(arguments, "OO", &given, &shapes)) {
        return nullptr;
    }
    return guarded([&]() -> PyObject* {
        Owned sizes(PySequence_Tuple(shapes));
        if (!sizes) {
            return nullptr;
        }
        variable_list tensors;
        if (!all_tensors(given, false, tensors) || static_cast<Py_ssize_t>(tensors.size()) != PyTuple_Size(sizes.get())) {
            Py_RETURN_NONE;
        }
        std::vector<uintptr_t> places(tensors.size());
        for (size_t at = 0; at < tensors.size(); ++at) {
            places[at] = address_in_plan(tensors[at], tensors[0]);
            if (places[at] == 0 || !has_shape(tensors[at], PyTuple_GetItem(sizes.get(), static_cast<Py_ssize_t>(at)))) {
                Py_RETURN_NONE;
            }
        }
        return list_of(places);
    });
}

// `network_wants(inputs, parameters)`: for each whether it has a gradient; `None` if a parameter is none that `record_network` takes: one
// that a plan reads where it lies.
PyObject* network_wants(PyObject*, PyObject* arguments) {
    PyObject *inputs, *parameters;
    if (!PyArg_ParseTuple(arguments, "OO", &inputs, &parameters)) {
        return nullptr;
    }
    return guarded([&]() -> PyObject* {
        variable_list tensors;
        if (!all_tensors(inputs, true, tensors)) {
            Py_RETURN_NONE;
        }
        const size_t first = tensors.size();
        if (!all_tensors(parameters, false, tensors) || tensors.size() == first) {
            Py_RETURN_NONE;
        }
        for (size_t at = first; at < tensors.size(); ++at) {
            if (address_in_plan(tensors[at], tensors[first]) == 0) {
                Py_RETURN_NONE;
            }
        }
        Owned wants(PyList_New(static_cast<Py_ssize_t>(tensors.size())));
        for (size_t at = 0; wants && at < tensors.size(); ++at) {
            const bool own = tensors[at].defined() && tensors[at].requires_grad();
            PyList_SetItem(wants.get(), static_cast<Py_ssize_t>(at), Py_NewRef(own ? Py_True : Py_False));
        }
        return wants.release();
    });
}

// `record_network(results, inputs, parameters, kept, (backward, again, traced), number)`: puts results into the graph of autograd, as
// what a network makes of inputs and parameters.
PyObject* record_network(PyObject*, PyObject* arguments) {
    PyObject *results, *inputs, *parameters, *left, *backward, *again, *traced;
    long long number;
    if (!PyArg_ParseTuple(
            arguments, "OOOO(OOO)L", &results, &inputs, &parameters, &left, &backward, &again, &traced, &number)) {
        return nullptr;
    }
    return guarded([&]() -> PyObject* {
        variable_list made, tensors;
        bool are_tensors = all_tensors(results, true, made) && all_tensors(inputs, true, tensors);
        const size_t first = tensors.size();
        are_tensors = are_tensors && all_tensors(parameters, false, tensors);
        const size_t count = tensors.size();
        if (!are_tensors || !all_tensors(left, false, tensors) || tensors.size() == count) {
            PyErr_SetString(PyExc_TypeError, "expected tensors");
            return nullptr;
        }
        NodePointer node = make_node<Network, NodePointer>(std::make_shared<const Passes>(backward, again, traced));
        auto& network = static_cast<Network&>(*node);
        network.number = at::Tensor(at::detail::empty_cpu({}, at::kLong));
        *network.number.mutable_data_ptr<int64_t>() = number;
        network.inputs = first;
        network.parameters = count - first;
        torch::autograd::edge_list edges;
        edges.reserve(count);
        network.kept.reserve(tensors.size());
        network.wants.reserve(count);
        for (size_t at = 0; at < tensors.size(); ++at) {
            // A result that is kept as it is would keep its own node alive.
            network.kept.emplace_back(at < count ? tensors[at] : tensors[at].detach(), /*is_output=*/false);
            if (at < count) {
                edges.push_back(edge_of(tensors[at]));
                network.wants.push_back(tensors[at].defined() && tensors[at].requires_grad());
            }
        }
        node->set_next_edges(std::move(edges));
        for (const at::Tensor& result : made) {
            if (result.defined()) {
                torch::autograd::set_history(result, node);
            }
        }
        Py_RETURN_NONE;
    });
}
