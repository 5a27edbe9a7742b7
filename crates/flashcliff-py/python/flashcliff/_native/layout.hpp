// The form that the tensors of a list have, and where they and others of this form lie: what AdamW asks of hundreds of tensors in a step.
// Whether they still stand there is asked without their tangents: an optimiser changes tensors in place, and no formula gives a change a
// tangent.
//
// This is a part of `call.cpp`, which includes it once.

namespace {

struct Form {
    std::vector<int64_t> sizes, strides;
    at::ScalarType type;
    at::Device device;
    bool is_contiguous;
    // Where the tensor lay that the form was taken from.
    uintptr_t address;
};

// `Layout` of Python.
struct PyLayout {
    PyObject_HEAD
    std::vector<Form> forms;
};

// The address that stands for a tensor without elements, since 0 stands for no tensor.
constexpr uintptr_t kEmpty = 8;

uintptr_t address_in(const at::Tensor& tensor) {
    return tensor.numel() == 0 ? kEmpty : reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
}

// The address of a plain tensor of a form; false for all others.
bool address_of(const at::Tensor& tensor, const Form& form, uintptr_t& address) {
    if (tensor.scalar_type() != form.type || tensor.device() != form.device || tensor.sizes() != at::IntArrayRef(form.sizes) ||
        !is_there(tensor)) {
        return false;
    }
    // Strides of axes with one place say nothing.
    if (!(form.is_contiguous && tensor.is_contiguous()) && tensor.strides() != at::IntArrayRef(form.strides)) {
        return false;
    }
    address = address_in(tensor);
    return true;
}

// Whether an object is a tensor of a form, where that of the form lay.
bool stands(PyObject* object, const Form& form) {
    uintptr_t address = 0;
    return is_exactly_tensor(object) && address_of(tensor_of(object), form, address) && address == form.address;
}

// The address of an object that is a plain tensor of a form, 0 for `None`; false for all others.
bool address_of(PyObject* object, const Form& form, uintptr_t& address) {
    if (Py_IsNone(object)) {
        address = 0;
        return true;
    }
    return is_exactly_tensor(object) && address_of(tensor_of(object), form, address) && !has_tangent(tensor_of(object));
}

// The address of the gradient of a tensor, if it has a form, 0 if there is none; false for all others. No object of Python is made for it.
bool address_of_gradient(PyObject* object, const Form& form, uintptr_t& address) {
    if (!is_exactly_tensor(object)) {
        return false;
    }
    const at::Tensor& gradient = tensor_of(object).grad();
    address = 0;
    return !gradient.defined() || address_of(gradient, form, address);
}

// Whether an argument is a list of as many items as there are forms; an error of Python, if not.
bool is_list_of(PyObject* list, size_t count) {
    if (PyList_Check(list) && static_cast<size_t>(PyList_Size(list)) == count) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "expected a list of %zu items", count);
    return false;
}

// The addresses that a function finds for the items of a list; `None` if it finds none for one.
template <bool find(PyObject*, const Form&, uintptr_t&)>
PyObject* layout_found(PyObject* object, PyObject* list) {
    return guarded([&]() -> PyObject* {
        const auto& forms = reinterpret_cast<PyLayout*>(object)->forms;
        if (!is_list_of(list, forms.size())) {
            return nullptr;
        }
        std::vector<uintptr_t> found(forms.size());
        for (size_t at = 0; at < forms.size(); ++at) {
            if (!find(PyList_GetItem(list, static_cast<Py_ssize_t>(at)), forms[at], found[at])) {
                Py_RETURN_NONE;
            }
        }
        return list_of(found);
    });
}

// `hold(tensors)`.
PyObject* layout_hold(PyObject* object, PyObject* list) {
    return guarded([&]() -> PyObject* {
        const auto& forms = reinterpret_cast<PyLayout*>(object)->forms;
        if (!is_list_of(list, forms.size())) {
            return nullptr;
        }
        for (size_t at = 0; at < forms.size(); ++at) {
            if (!stands(PyList_GetItem(list, static_cast<Py_ssize_t>(at)), forms[at])) {
                Py_RETURN_FALSE;
            }
        }
        Py_RETURN_TRUE;
    });
}

// `hold_in(dictionaries, key)`.
PyObject* layout_hold_in(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    return guarded([&]() -> PyObject* {
        const auto& forms = reinterpret_cast<PyLayout*>(object)->forms;
        if (count != 2) {
            PyErr_SetString(PyExc_TypeError, "expected dictionaries, and a key");
            return nullptr;
        }
        if (!is_list_of(arguments[0], forms.size())) {
            return nullptr;
        }
        for (size_t at = 0; at < forms.size(); ++at) {
            PyObject* dictionary = PyList_GetItem(arguments[0], static_cast<Py_ssize_t>(at));
            PyObject* tensor = PyDict_Check(dictionary) ? PyDict_GetItemWithError(dictionary, arguments[1]) : nullptr;
            if (tensor == nullptr && PyErr_Occurred()) {
                return nullptr;
            }
            if (tensor == nullptr || !stands(tensor, forms[at])) {
                Py_RETURN_FALSE;
            }
        }
        Py_RETURN_TRUE;
    });
}

// `clear_gradients(tensors)`: sets the gradients of a list of tensors to `None`.
PyObject* clear_gradients(PyObject*, PyObject* list) {
    return guarded([&]() -> PyObject* {
        if (!PyList_Check(list)) {
            PyErr_SetString(PyExc_TypeError, "expected a list of tensors");
            return nullptr;
        }
        for (Py_ssize_t at = 0; at < PyList_Size(list); ++at) {
            PyObject* item = PyList_GetItem(list, at);
            if (!is_tensor(item)) {
                PyErr_Format(PyExc_TypeError, "expected tensors, got another at place %zd", at);
                return nullptr;
            }
            tensor_of(item).mutable_grad().reset();
        }
        Py_RETURN_NONE;
    });
}

// `Layout(tensors)`: the form of each of these plain tensors.
PyObject* layout_new(PyTypeObject* type, PyObject* arguments, PyObject* names) {
    PyObject* list = tensors_in(arguments, names);
    if (list == nullptr) {
        return nullptr;
    }
    return guarded([&]() -> PyObject* {
        std::vector<Form> forms;
        for (Py_ssize_t at = 0; at < PyList_Size(list); ++at) {
            PyObject* item = PyList_GetItem(list, at);
            if (!is_exactly_tensor(item) || !is_plain(tensor_of(item))) {
                PyErr_Format(PyExc_TypeError, "expected plain tensors, got another at place %zd", at);
                return nullptr;
            }
            const at::Tensor& tensor = tensor_of(item);
            forms.push_back(Form{tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type(), tensor.device(),
                tensor.is_contiguous(), address_in(tensor)});
        }
        auto* self = reinterpret_cast<PyLayout*>(PyType_GenericAlloc(type, 0));
        if (self != nullptr) {
            new (&self->forms) std::vector<Form>(std::move(forms));
        }
        return reinterpret_cast<PyObject*>(self);
    });
}

void layout_free(PyObject* object) {
    reinterpret_cast<PyLayout*>(object)->forms.~vector();
    free_object(object);
}

PyMethodDef layout_methods[] = {
    {"addresses", layout_found<address_of>, METH_O,
        "The address of each tensor, 0 for `None`, if all are plain and have their forms; else `None`."},
    {"gradients", layout_found<address_of_gradient>, METH_O, "The address of the gradient of each tensor, 0 for none, if all are plain and have their forms; else `None`."},
    {"hold", layout_hold, METH_O, "Whether tensors are plain, have their forms, and lie where the first ones did."},
    {"hold_in", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(layout_hold_in)), METH_FASTCALL,
        "Whether dictionaries have such tensors under a key."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot layout_slots[] = {{Py_tp_doc, const_cast<char*>("The shapes, strides, types and devices of a list of tensors.")},
    {Py_tp_methods, layout_methods}, {Py_tp_new, reinterpret_cast<void*>(layout_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(layout_free)}, {0, nullptr}};

PyType_Spec layout_type = {
    "flashcliff.Layout", sizeof(PyLayout), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, layout_slots};

} // namespace
