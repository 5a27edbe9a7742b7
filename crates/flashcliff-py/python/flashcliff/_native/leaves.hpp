// Gradients of leaves that a node puts in place.
//
// The engine of autograd makes a task for each leaf. For a network of hundreds of parameters these take several times as long as the host
// needs for all else of a step. Where a task would do nothing but put a gradient in place, the node of the network does it.
//
// This is a part of `call.cpp`, which includes it once.

// Uninitialised tensors of some shapes in one memory, of the type and on the device of another tensor.
variable_list make_together(const std::vector<at::IntArrayRef>& shapes, const at::Tensor& like) {
    // A cache line.
    const int64_t aligned = 64 / static_cast<int64_t>(like.element_size());
    std::vector<int64_t> starts;
    int64_t end = 0;
    for (const at::IntArrayRef shape : shapes) {
        starts.push_back(end);
        end += (c10::multiply_integers(shape) + aligned - 1) / aligned * aligned;
    }
    const at::Tensor all = make({end}, like.scalar_type(), like);
    variable_list made;
    made.reserve(shapes.size());
    for (size_t at = 0; at < shapes.size(); ++at) {
        made.push_back(at::detail::make_tensor<c10::TensorImpl>(c10::Storage(all.storage()), all.key_set(), all.dtype()));
        made.back().unsafeGetTensorImpl()->set_sizes_contiguous(shapes[at]);
        made.back().unsafeGetTensorImpl()->set_storage_offset(starts[at]);
    }
    return made;
}

// Whether the running pass adds gradients to all leaves, once: not if it returns gradients, may come again, or looks at results of nodes.
bool pass_fills_leaves(const Node& node) {
    const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
    return wanted != nullptr && wanted->empty() && !torch::autograd::get_current_graph_task_keep_graph() && node.post_hooks().empty() &&
        !torch::autograd::AnomalyMode::is_enabled();
}

// Whether the task of a leaf would do nothing but put a gradient in place: no other node leads to the leaf, and nothing is called for it.
bool is_only_put_in_place(const at::Tensor& leaf, const torch::autograd::Edge& edge, const at::Tensor& gradient) {
    const NodePointer& task = edge.function;
    if (!task || task.use_count() > 1 || !leaf.is_leaf() || !leaf.requires_grad() || !torch::autograd::impl::hooks(leaf).empty() ||
        torch::autograd::impl::post_acc_grad_hooks(leaf) || !task->pre_hooks().empty() || !task->post_hooks().empty()) {
        return false;
    }
    const at::Tensor& own = leaf.grad();
    return !own.defined() ||
        (is_plain(own) && own.scalar_type() == gradient.scalar_type() && own.device() == gradient.device() &&
            own.sizes() == gradient.sizes());
}

// Puts gradients of leaves in place, and takes these gradients and the edges to their leaves away. Edges from `first` on lead to `leaves`.
// Nothing else may read the gradients.
void put_in_place(Node& node, const variable_list& leaves, size_t first, variable_list& gradients) {
    if (!pass_fills_leaves(node)) {
        return;
    }
    // No other thread makes nodes meanwhile.
    const Locked lock;
    torch::autograd::edge_list& edges = node.next_edges();
    std::vector<size_t> own;
    for (size_t at = first; at < edges.size(); ++at) {
        if (gradients[at].defined() && is_only_put_in_place(leaves[at], edges[at], gradients[at])) {
            own.push_back(at);
        }
    }
    // At its end the pass waits for the streams of leaves: of nodes without results, of which this is one now, or of tasks.
    const auto leads_on = [](const torch::autograd::Edge& edge) { return edge.is_valid(); };
    const auto valid = static_cast<size_t>(std::count_if(edges.begin(), edges.end(), leads_on));
    if (valid > own.size() && !own.empty()) {
        own.pop_back();
    }
    std::vector<at::Tensor> sums, added;
    for (const size_t at : own) {
        at::Tensor& sum = leaves[at].mutable_grad();
        if (sum.defined()) {
            sums.push_back(sum);
            added.push_back(std::move(gradients[at]));
        } else {
            sum = std::move(gradients[at]);
        }
        edges[at] = torch::autograd::Edge();
    }
    if (!sums.empty()) {
        at::_foreach_add_(sums, added);
    }
    if (own.size() == valid) {
        edges.clear();
        gradients.clear();
    }
}
