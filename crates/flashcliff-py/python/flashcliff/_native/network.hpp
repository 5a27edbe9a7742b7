// A network of layers in a graph of autograd. Its passes are functions of Python; what is done for each of its hundreds of parameters is
// done here.
//
// This is a part of `call.cpp`, which includes it once.

// The functions of Python of a call of a network.
struct Passes {
    // (inputs, addresses of parameters, addresses of their gradients, kept, incoming) -> gradients of inputs
    PyObject* backward;
    // incoming -> the places of parameters that have no gradient, if nothing reads some result
    PyObject* idle;
    // (inputs and parameters, incoming) -> gradients of all, which can be differentiated again
    PyObject* again;
    // (number, inputs, parameters and kept, incoming) -> gradients of all in a graph of compiled autograd
    PyObject* traced;

    Passes(PyObject* first, PyObject* none, PyObject* second, PyObject* third)
        : backward(Py_NewRef(first)), idle(Py_NewRef(none)), again(Py_NewRef(second)), traced(Py_NewRef(third)) {}
    Passes(const Passes&) = delete;
    Passes& operator=(const Passes&) = delete;
    ~Passes() {
        // Nodes may outlive the interpreter.
        if (Py_IsInitialized()) {
            const Locked lock;
            Py_DECREF(backward);
            Py_DECREF(idle);
            Py_DECREF(again);
            Py_DECREF(traced);
        }
    }
};

// It keeps inputs, then what the forward pass left. Parameters are kept apart: all calls of a network have the same list of them.
struct Network final : Saving {
    explicit Network(std::shared_ptr<const Passes> functions) : passes(std::move(functions)) {}

    std::shared_ptr<const Passes> passes;
    std::shared_ptr<const Parameters> parameters;
    // The versions of parameters in the forward pass.
    std::vector<uint32_t> versions;
    // The number that Python knows the call by: an input of compiled graphs, so that they serve other calls.
    at::Tensor number;
    size_t inputs = 0;
    // Whether each input and parameter has a gradient.
    std::vector<bool> wants;

    std::string name() const override {
        return "FlashcliffNetworkBackward";
    }

    variable_list apply(variable_list&& incoming) override {
        const size_t count = inputs_and_parameters();
        if (std::none_of(incoming.begin(), incoming.end(), [](const at::Tensor& grad) { return grad.defined(); })) {
            return variable_list(count);
        }
        variable_list tensors = unpacked(/*checks_versions=*/true);
        variable_list grads(count);
        if (!at::GradMode::is_enabled() && thread_is_plain() && run(tensors, incoming, grads)) {
            put_in_place(*this, tensors, inputs, grads);
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
        // Other calls read the list of this one.
        const std::shared_ptr<const Parameters> before = parameters;
        const auto shown = std::make_shared<Parameters>(*before);
        saved.before(number);
        for (at::Tensor& parameter : shown->tensors) {
            saved.before(parameter);
        }
        parameters = shown;
        variable_list grads = Saving::apply_with_saved(incoming, saved);
        parameters = before;
        for (at::Tensor& parameter : shown->tensors) {
            saved.after(parameter);
        }
        saved.after(number);
        return grads;
    }

    variable_list traced(const variable_list& incoming) override {
        const variable_list tensors = unpacked(/*checks_versions=*/false);
        const Locked lock;
        Owned by(wrapped(number));
        Owned all(tuple_of(tensors, 0, tensors.size()));
        Owned given(tuple_of(incoming, 0, incoming.size()));
        Owned found(
            by && all && given ? PyObject_CallFunctionObjArgs(passes->traced, by.get(), all.get(), given.get(), nullptr) : nullptr);
        return gradients_in(found.get(), inputs_and_parameters());
    }

    void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) FLASHCLIFF_COMPILED_ARGS_CONST override {
        args.collect(number);
        args.collect(static_cast<uint64_t>(inputs));
        args.collect(static_cast<uint64_t>(parameters->tensors.size()));
        for (const bool own : wants) {
            args.collect(own);
        }
        for (const at::Tensor& parameter : parameters->tensors) {
            args.collect(parameter);
        }
        for (const SavedVariable& variable : kept) {
            args.collect(variable, /*is_output=*/false);
        }
    }

private:
    size_t inputs_and_parameters() const {
        return inputs + parameters->tensors.size();
    }

    // Inputs, then parameters, then what the forward pass left.
    variable_list unpacked(bool checks_versions) {
        const std::lock_guard<std::mutex> lock(mutex_);
        variable_list tensors;
        tensors.reserve(parameters->tensors.size() + kept.size());
        for (size_t at = 0; at < kept.size(); ++at) {
            if (at == inputs) {
                add_parameters(tensors, checks_versions);
            }
            tensors.push_back(kept[at].unpack());
        }
        return tensors;
    }

    // One string: a stream would need the library of C++ that PyTorch has, and a compiler may link another one.
    [[noreturn]] void refuse_change(const at::Tensor& parameter, size_t at) const {
        std::string shape;
        for (const int64_t size : parameter.sizes()) {
            shape += (shape.empty() ? "" : ", ") + std::to_string(size);
        }
        const std::string message = "one of the variables needed for gradient computation has been modified by an inplace operation: parameter " +
            std::to_string(at) + " of a network, of the shape [" + shape + "], is at version " + std::to_string(parameter._version()) +
            "; expected version " + std::to_string(versions[at]) + " instead";
        TORCH_CHECK(false, message);
    }

    void add_parameters(variable_list& tensors, bool checks_versions) const {
        for (size_t at = 0; at < versions.size(); ++at) {
            const at::Tensor& parameter = parameters->tensors[at];
            if (checks_versions && parameter._version() != versions[at]) {
                refuse_change(parameter, at);
            }
            tensors.push_back(parameter);
        }
    }

    // The backward pass of the plan. Returns whether it ran: not if a tensor is of another kind than in the forward pass.
    bool run(const variable_list& tensors, const variable_list& incoming, variable_list& grads) {
        const size_t count = inputs_and_parameters();
        const at::Tensor& like = tensors[count];
        const auto is_odd = [](const at::Tensor& tensor) { return tensor.defined() && !is_plain(tensor); };
        if (std::any_of(incoming.begin(), incoming.end(), is_odd)) {
            return false;
        }
        const std::vector<uintptr_t> places = parameters->addresses();
        const at::Tensor& first = parameters->tensors[0];
        if (places.empty() || first.device() != like.device() || first.scalar_type() != like.scalar_type()) {
            return false;
        }
        std::vector<uintptr_t> made;
        {
            const at::AutoDispatchBelowADInplaceOrView below;
            c10::OptionalDeviceGuard guard;
            if (like.is_cuda()) {
                guard.reset_device(like.device());
            }
            std::vector<at::IntArrayRef> shapes;
            for (size_t at = inputs; at < count; ++at) {
                if (wants[at]) {
                    shapes.push_back(tensors[at].sizes());
                }
            }
            variable_list all = make_together(shapes, like);
            for (size_t at = inputs; at < count; ++at) {
                if (wants[at]) {
                    grads[at] = std::move(all[made.size()]);
                    made.push_back(address_to_write(grads[at]));
                }
            }
        }
        const Locked lock;
        Owned own(tuple_of(tensors, 0, inputs));
        Owned left(tuple_of(tensors, count, tensors.size()));
        Owned given(tuple_of(incoming, 0, incoming.size()));
        Owned from(list_of(places)), to(list_of(made));
        if (!own || !left || !given || !from || !to) {
            throw_python_error();
        }
        Owned found(PyObject_CallFunctionObjArgs(
            passes->backward, own.get(), from.get(), to.get(), left.get(), given.get(), nullptr));
        variable_list of_inputs = gradients_in(found.get(), inputs);
        std::move(of_inputs.begin(), of_inputs.end(), grads.begin());
        if (std::any_of(incoming.begin(), incoming.end(), [](const at::Tensor& grad) { return !grad.defined(); })) {
            leave_out_idle(given.get(), grads);
        }
        return true;
    }

    // Drops the gradients of parameters that nothing depends on of which there is a gradient. They are zeros. Python's lock is held.
    void leave_out_idle(PyObject* incoming, variable_list& grads) const {
        Owned found(PyObject_CallFunctionObjArgs(passes->idle, incoming, nullptr));
        Owned places(found ? PySequence_Tuple(found.get()) : nullptr);
        if (!places) {
            throw_python_error();
        }
        for (Py_ssize_t at = 0; at < PyTuple_Size(places.get()); ++at) {
            const auto place = PyLong_AsUnsignedLongLong(PyTuple_GetItem(places.get(), at));
            if (PyErr_Occurred()) {
                throw_python_error();
            }
            grads.at(inputs + place).reset();
        }
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

// `network_wants(inputs, parameters)`: for each input, and each of these `Parameters`, whether it has a gradient; `None` if an input is
// not a plain tensor.
PyObject* network_wants(PyObject*, PyObject* arguments) {
    PyObject *inputs, *parameters;
    if (!PyArg_ParseTuple(arguments, "OO!", &inputs, parameters_class, &parameters)) {
        return nullptr;
    }
    return guarded([&]() -> PyObject* {
        variable_list tensors;
        if (!all_tensors(inputs, true, tensors)) {
            Py_RETURN_NONE;
        }
        const variable_list& own = parameters_of(parameters)->tensors;
        tensors.insert(tensors.end(), own.begin(), own.end());
        Owned wants(PyList_New(static_cast<Py_ssize_t>(tensors.size())));
        for (size_t at = 0; wants && at < tensors.size(); ++at) {
            const bool has = tensors[at].defined() && tensors[at].requires_grad();
            PyList_SetItem(wants.get(), static_cast<Py_ssize_t>(at), Py_NewRef(has ? Py_True : Py_False));
        }
        return wants.release();
    });
}

// `record_network(results, inputs, parameters, kept, (backward, idle, again, traced), number)`: puts results into the graph of autograd, as
// what a network makes of inputs and of `Parameters`.
PyObject* record_network(PyObject*, PyObject* arguments) {
    PyObject *results, *inputs, *parameters, *left, *backward, *idle, *again, *traced;
    long long number;
    if (!PyArg_ParseTuple(arguments, "OOO!O(OOOO)L", &results, &inputs, parameters_class, &parameters, &left, &backward, &idle, &again, &traced,
            &number)) {
        return nullptr;
    }
    return guarded([&]() -> PyObject* {
        variable_list made, given, kept;
        if (!all_tensors(results, true, made) || !all_tensors(inputs, true, given) || !all_tensors(left, false, kept) || kept.empty()) {
            PyErr_SetString(PyExc_TypeError, "expected tensors");
            return nullptr;
        }
        NodePointer node = make_node<Network, NodePointer>(std::make_shared<const Passes>(backward, idle, again, traced));
        auto& network = static_cast<Network&>(*node);
        network.number = at::Tensor(at::detail::empty_cpu({}, at::kLong));
        *network.number.mutable_data_ptr<int64_t>() = number;
        network.parameters = parameters_of(parameters);
        network.inputs = given.size();
        const variable_list& own = network.parameters->tensors;
        torch::autograd::edge_list edges;
        edges.reserve(given.size() + own.size());
        network.wants.reserve(edges.capacity());
        const auto add = [&](const at::Tensor& tensor) {
            edges.push_back(edge_of(tensor));
            network.wants.push_back(tensor.defined() && tensor.requires_grad());
        };
        for (const at::Tensor& input : given) {
            add(input);
            network.kept.emplace_back(input, /*is_output=*/false);
        }
        network.versions.reserve(own.size());
        for (const at::Tensor& parameter : own) {
            add(parameter);
            network.versions.push_back(static_cast<uint32_t>(parameter._version()));
        }
        for (const at::Tensor& tensor : kept) {
            // A result that is kept as it is would keep its own node alive.
            network.kept.emplace_back(tensor.detach(), /*is_output=*/false);
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
