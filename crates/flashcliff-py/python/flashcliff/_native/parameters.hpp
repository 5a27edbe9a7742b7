// The parameters of a network, which are the same tensors in call after call: what is asked of hundreds of tensors in each step.
//
// This is a part of `call.cpp`, which includes it once.

// Tensors of one type on one device, which a plan reads where they lie.
struct Parameters {
    variable_list tensors;
    // The shapes that they had at first.
    std::vector<std::vector<int64_t>> shapes;

    // The address of a tensor; 0 if it is not what it was, or lies where no plan reads it.
    uintptr_t address(size_t at) const {
        constexpr uintptr_t aligned = 16;
        const at::Tensor& tensor = tensors[at];
        if (!is_plain(tensor) || !tensor.is_contiguous() || tensor.device() != tensors[0].device() ||
            tensor.scalar_type() != tensors[0].scalar_type() || tensor.sizes() != at::IntArrayRef(shapes[at])) {
            return 0;
        }
        const auto found = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
        return found % aligned == 0 ? found : 0;
    }

    // The addresses of all; none if one has none.
    std::vector<uintptr_t> addresses() const {
        std::vector<uintptr_t> found(tensors.size());
        for (size_t at = 0; at < found.size(); ++at) {
            found[at] = address(at);
            if (found[at] == 0) {
                return {};
            }
        }
        return found;
    }
};

// `Parameters` of Python.
struct PyParameters {
    PyObject_HEAD
    std::shared_ptr<const Parameters> held;
};

// The type `Parameters` of Python, once the module is made.
PyTypeObject* parameters_class = nullptr;

const std::shared_ptr<const Parameters>& parameters_of(PyObject* object) {
    return reinterpret_cast<PyParameters*>(object)->held;
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

// `Parameters(tensors)`, from a list.
PyObject* parameters_new(PyTypeObject* type, PyObject* arguments, PyObject* names) {
    PyObject* list = tensors_in(arguments, names);
    if (list == nullptr) {
        return nullptr;
    }
    return guarded([&]() -> PyObject* {
        auto made = std::make_shared<Parameters>();
        for (Py_ssize_t at = 0; at < PyList_Size(list); ++at) {
            PyObject* item = PyList_GetItem(list, at);
            const bool is_one = is_exactly_tensor(item);
            if (is_one) {
                made->tensors.push_back(tensor_of(item));
                made->shapes.push_back(made->tensors.back().sizes().vec());
            }
            // Tensors that were made in inference mode count no changes.
            if (!is_one || made->tensors.back().is_inference() || made->address(static_cast<size_t>(at)) == 0) {
                PyErr_Format(PyExc_ValueError, "no plan reads the parameter at place %zd where it lies", at);
                return nullptr;
            }
        }
        auto* self = reinterpret_cast<PyParameters*>(PyType_GenericAlloc(type, 0));
        if (self != nullptr) {
            new (&self->held) std::shared_ptr<const Parameters>(std::move(made));
        }
        return reinterpret_cast<PyObject*>(self);
    });
}

void parameters_free(PyObject* object) {
    reinterpret_cast<PyParameters*>(object)->held.~shared_ptr();
    free_object(object);
}

// `places(tensors)`.
PyObject* parameters_places(PyObject* object, PyObject* list) {
    return guarded([&]() -> PyObject* {
        const Parameters& own = *parameters_of(object);
        if (!PyList_Check(list) || static_cast<size_t>(PyList_Size(list)) != own.tensors.size()) {
            Py_RETURN_NONE;
        }
        for (size_t at = 0; at < own.tensors.size(); ++at) {
            PyObject* item = PyList_GetItem(list, static_cast<Py_ssize_t>(at));
            if (!is_exactly_tensor(item) || !tensor_of(item).is_same(own.tensors[at])) {
                Py_RETURN_NONE;
            }
        }
        const std::vector<uintptr_t> found = own.addresses();
        if (found.empty()) {
            Py_RETURN_NONE;
        }
        return list_of(found);
    });
}

PyMethodDef parameters_methods[] = {
    {"places", parameters_places, METH_O,
        "The addresses of these parameters, if a list has the very same tensors and plans can read them where they lie; else `None`."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot parameters_slots[] = {
    {Py_tp_doc, const_cast<char*>("Tensors of one type on one device, which a plan reads where they lie: the parameters of a network.")},
    {Py_tp_methods, parameters_methods}, {Py_tp_new, reinterpret_cast<void*>(parameters_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(parameters_free)}, {0, nullptr}};

PyType_Spec parameters_type = {
    "flashcliff.Parameters", sizeof(PyParameters), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, parameters_slots};
