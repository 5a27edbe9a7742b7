// The one file that includes PyTorch's headers for Python. Of Python it may use what the stable ABI has, which `cargo xtask dist` checks by
// the symbols, and no macro that reads the inside of an object of Python: those differ between versions.

#include "bridge.hpp"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

// The fields of a tensor's object follow what all objects begin with.
static_assert(offsetof(THPVariable, cdata) == sizeof(PyObject));

namespace flashcliff {

bool is_exactly_tensor(PyObject* object) {
    return THPVariable_CheckExact(object);
}

bool is_tensor(PyObject* object) {
    return THPVariable_Check(object);
}

const at::Tensor& tensor_of(PyObject* object) {
    return THPVariable_Unpack(object);
}

PyObject* object_of(const at::Tensor& tensor) {
    return THPVariable_Wrap(tensor);
}

void throw_python_error() {
    python_error error;
    error.persist();
    throw std::move(error);
}

PyObject* run_guarded(Body body, void* context) {
    HANDLE_TH_ERRORS
    return body(context);
    END_HANDLE_TH_ERRORS
}

} // namespace flashcliff
