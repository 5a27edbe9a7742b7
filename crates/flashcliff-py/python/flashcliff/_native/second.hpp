// The backward pass of an operator in a graph of autograd, as a loss on gradients makes it, without Python.
//
// This is a part of `call.cpp`, which includes it once.

// The most tensors of the gradient of a backward pass: its arguments, and the gradients of its results.
constexpr size_t kMostGiven = 2 * kMost + 1;

// The gradient of a backward pass as an operator; without a handle, if there is none and Python says why. `there`: the results that have
// a gradient; `needed`: the arguments whose gradients it makes, first the gradient of the output.
Derivative derivative(const Bound& bound, Mask there, Mask needed) {
    {
        const std::lock_guard<std::mutex> lock(bound.mutex);
        for (const Derivative& known : bound.derivatives) {
            if (known.there == there && known.needed == needed) {
                return known;
            }
        }
    }
    const Locked lock;
    Owned results(tuple_of(there, bound.count));
    Owned arguments(tuple_of(needed, bound.count + 1));
    Owned core(results && arguments
            ? PyObject_CallFunctionObjArgs(bound.derive, results.get(), arguments.get(), nullptr)
            : nullptr);
    const void* handle = core ? handle_of(core.get()) : nullptr;
    if (handle == nullptr) {
        // The same error comes from Python's own call.
        PyErr_Clear();
        return Derivative{};
    }
    const Derivative made{there, needed, core.release(), handle, next_id()};
    const std::lock_guard<std::mutex> kept(bound.mutex);
    bound.derivatives.push_back(made);
    return made;
}

// What a pass through a backward pass works on.
struct Seeded {
    // The inputs, the gradient of the output, and the gradients of the results, in the order of the inputs.
    Tensors tensors, seeds;
    at::Tensor grad;
    // The inputs whose gradients have a gradient, and the arguments whose gradients are needed: that of the output first.
    Mask there = 0, needed = 0;
};

bool run_derivative(const Bound& bound, const Derivative& of, const Seeded& given, variable_list& found) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor& first = given.tensors[0];
    c10::OptionalDeviceGuard guard;
    if (first.is_cuda()) {
        guard.reset_device(first.device());
    }
    Given<kMostGiven> inputs;
    inputs.add_all(given.tensors);
    inputs.add(given.grad);
    inputs.add_all(given.seeds);
    const Place place = place_of(first);
    Sizes sizes;
    const bool fits = known(of.id, false, inputs, place, sizes, [&](Sizes& answer) {
        return table->plan_run(of.handle, inputs.views.data(), inputs.count, &place, &answer);
    });
    if (!fits) {
        return false;
    }
    // The operator has the inputs before the gradient of the output. A gradient has the shape and the type of its argument.
    std::array<uintptr_t, kMost + 1> outputs{};
    RunMemory memory{outputs.data(), 0, 0, sizes.workspace};
    const auto add = [&](size_t at, const at::Tensor& argument) {
        if ((of.needed >> at & 1) != 0) {
            found[at] = make(argument.sizes(), argument.scalar_type(), first);
            outputs[memory.count++] = address_to_write(found[at]);
        }
    };
    for (size_t at = 0; at < bound.count; ++at) {
        add(at + 1, given.tensors[at]);
    }
    add(0, given.grad);
    Scratch scratch;
    memory.workspace = scratch.get(sizes.workspace, first);
    return table->run(of.handle, inputs.views.data(), inputs.count, &place, &memory);
}

// The gradients by the arguments of a backward pass: that of the output, then the inputs. Without a result they were not computed: the
// call is not plain, or a GPU had no memory.
bool gradients_of_backward(const Bound& bound, const Seeded& given, variable_list& found) {
    const auto fits = [&](const at::Tensor& tensor) {
        return !tensor.defined() || (is_plain(tensor) && tensor.device() == given.tensors[0].device());
    };
    if (!fits(given.grad) || !std::all_of(given.tensors.begin(), given.tensors.end(), fits) ||
        !std::all_of(given.seeds.begin(), given.seeds.end(), fits)) {
        return false;
    }
    const Derivative of = derivative(bound, given.there, given.needed);
    try {
        if (of.handle != nullptr && run_derivative(bound, of, given, found)) {
            return true;
        }
    } catch (const c10::OutOfMemoryError&) {
        // Python makes the call again and says what it needs.
    }
    found.assign(found.size(), at::Tensor());
    return false;
}

variable_list gradients_of_backward_by_python(const Bound& bound, const Seeded& given) {
    const Locked lock;
    Owned grad(wrapped(given.grad));
    Owned inputs(tuple_of(given.tensors, 0, bound.count));
    Owned seeds(tuple_of(given.seeds, 0, bound.count));
    Owned needed(tuple_of(given.needed, bound.count + 1));
    if (!grad || !inputs || !seeds || !needed) {
        throw_python_error();
    }
    Owned found(PyObject_CallFunctionObjArgs(
        bound.second, grad.get(), inputs.get(), seeds.get(), needed.get(), nullptr));
    return gradients_in(found.get(), bound.count + 1);
}

// A backward pass in a graph of autograd. It keeps the gradient of the output and, unless the operator is linear, the inputs.
struct SecondGradient final : Kept {
    using Kept::Kept;

    // The inputs whose gradients the pass made.
    Mask wanted = 0;

    std::string name() const override {
        return bound->node + "Backward";
    }

    variable_list apply(variable_list&& incoming) override {
        const size_t count = bound->count;
        Seeded given;
        size_t next = 0;
        for (size_t at = 0; at < count; ++at) {
            if ((wanted >> at & 1) != 0 && incoming[next++].defined()) {
                given.seeds[at] = std::move(incoming[next - 1]);
                given.there |= Mask{1} << at;
            }
        }
        const size_t arguments = num_outputs();
        given.needed = asked(arguments);
        if (given.there == 0 || given.needed == 0) {
            return variable_list(arguments);
        }
        unpack(given);
        variable_list found(count + 1);
        if (at::GradMode::is_enabled() || !thread_is_plain() || !gradients_of_backward(*bound, given, found)) {
            found = gradients_of_backward_by_python(*bound, given);
        }
        found.resize(arguments);
        return found;
    }

    void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) FLASHCLIFF_COMPILED_ARGS_CONST override {
        args.collect(bound->id);
        args.collect(static_cast<uint64_t>(wanted));
        for (const SavedVariable& variable : kept) {
            args.collect(variable, /*is_output=*/false);
        }
    }

private:
    void unpack(Seeded& given) {
        const std::lock_guard<std::mutex> lock(mutex_);
        given.grad = kept[0].unpack();
        for (size_t at = 1; at < kept.size(); ++at) {
            given.tensors[at - 1] = kept[at].unpack();
        }
        if (bound->linear) {
            // A linear operator reads its inputs for their shape alone.
            given.tensors[0] = given.grad;
        }
    }
};

// Puts a backward pass that ran into the graph of autograd, if something that it read is followed.
void record_backward(const std::shared_ptr<const Bound>& bound, const Tensors& tensors, const at::Tensor& grad, Mask wanted,
    const variable_list& grads) {
    std::vector<at::Tensor> arguments{grad};
    if (!bound->linear) {
        arguments.insert(arguments.end(), tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(bound->count));
    }
    const auto is_followed = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
    if (!std::any_of(arguments.begin(), arguments.end(), is_followed)) {
        return;
    }
    NodePointer node = make_node<SecondGradient, NodePointer>(bound);
    auto& second = static_cast<SecondGradient&>(*node);
    second.wanted = wanted;
    torch::autograd::edge_list edges;
    edges.reserve(arguments.size());
    second.kept.reserve(arguments.size());
    for (const at::Tensor& argument : arguments) {
        edges.push_back(edge_of(argument));
        second.kept.emplace_back(argument, /*is_output=*/false);
    }
    node->set_next_edges(std::move(edges));
    for (const at::Tensor& made : grads) {
        if (made.defined()) {
            torch::autograd::set_history(made, node);
        }
    }
}
