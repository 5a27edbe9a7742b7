// What the call path asks of PyTorch's side of Python: tensors as objects, and exceptions of both languages.
//
// PyTorch's headers for this see all of Python. `bridge.cpp` alone includes them; all else is compiled against the stable ABI of Python
// 3.10, so that one file serves every later Python too.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ATen/core/Tensor.h>

#include <utility>

namespace flashcliff {

// Whether an object is a tensor or a parameter, and of no other subclass.
bool is_exactly_tensor(PyObject* object);

// Whether an object is a tensor of any kind.
bool is_tensor(PyObject* object);

// The tensor of an object that is one.
const at::Tensor& tensor_of(PyObject* object);

// A new reference to the object of a tensor.
PyObject* object_of(const at::Tensor& tensor);

// Throws the error of Python that is set, with what PyTorch's threads need to raise it elsewhere.
[[noreturn]] void throw_python_error();

using Body = PyObject* (*)(void*);

// Runs `body(context)` as PyTorch runs its own functions of Python: an exception becomes an error of Python, a warning one of Python's.
PyObject* run_guarded(Body body, void* context);

// The same for a function object.
template <typename Function>
PyObject* guarded(Function&& function) {
    return run_guarded([](void* context) -> PyObject* { return (*static_cast<std::remove_reference_t<Function>*>(context))(); },
        static_cast<void*>(&function));
}

// A reference that is given back at the end.
class Owned {
public:
    explicit Owned(PyObject* object = nullptr) : held(object) {}
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    Owned(Owned&& other) noexcept : held(other.release()) {}
    ~Owned() { Py_XDECREF(held); }

    PyObject* get() const { return held; }
    PyObject* release() { return std::exchange(held, nullptr); }
    explicit operator bool() const { return held != nullptr; }

private:
    PyObject* held;
};

// Holds Python's lock.
class Locked {
public:
    Locked() : state(PyGILState_Ensure()) {}
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
    ~Locked() { PyGILState_Release(state); }

private:
    PyGILState_STATE state;
};

// Lets other threads of Python run.
class Unlocked {
public:
    Unlocked() : state(PyEval_SaveThread()) {}
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
    ~Unlocked() { PyEval_RestoreThread(state); }

private:
    PyThreadState* state;
};

} // namespace flashcliff
