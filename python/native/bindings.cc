// ttrace._native: the C++ core as Python sees it. No logic, no torch.

#include "python/native/bindings.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <string>
#include <vector>

#include "src/base/check_handler.h"
#include "src/numeric/instruction_set.h"

#if __has_include("src/cli/run.h")
#include "src/cli/run.h"
#define TTRACE_HAS_CLI 1
#endif

namespace nb = nanobind;

namespace ttrace {
namespace {

// Owned by the module for the life of the process.
PyObject* g_error = nullptr;
PyObject* g_io_error = nullptr;
PyObject* g_not_found_error = nullptr;
PyObject* g_unsupported_error = nullptr;

PyObject* ExceptionFor(ErrorCode code) {
  switch (code) {
    case ErrorCode::kIo:
      return g_io_error;
    case ErrorCode::kNotFound:
      return g_not_found_error;
    case ErrorCode::kUnsupported:
      return g_unsupported_error;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kCorrupt:
    case ErrorCode::kIncomparable:
      return g_error;
  }
  return g_error;
}

// A subclass of ttrace.Error that code which knows only `also` catches too.
PyObject* NewError(nb::module_& module, const char* name, PyObject* also) {
  const nb::tuple bases = nb::make_tuple(nb::borrow(g_error), nb::borrow(also));
  const std::string full = std::string("ttrace.") + name;
  PyObject* made = PyErr_NewException(full.c_str(), bases.ptr(), nullptr);
  if (made == nullptr) throw nb::python_error();
  module.attr(name) = nb::borrow(made);
  return made;
}

void BindErrors(nb::module_& module) {
  g_error = PyErr_NewExceptionWithDoc(
      "ttrace.Error", "Some input of ttrace could not be worked with.",
      PyExc_ValueError, nullptr);
  if (g_error == nullptr) throw nb::python_error();
  module.attr("Error") = nb::borrow(g_error);
  g_io_error = NewError(module, "IoError", PyExc_OSError);
  g_not_found_error =
      NewError(module, "NotFoundError", PyExc_FileNotFoundError);
  g_unsupported_error =
      NewError(module, "UnsupportedError", PyExc_NotImplementedError);
  nb::register_exception_translator([](const std::exception_ptr& thrown,
                                       void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const PythonError& e) {
      PyErr_SetString(ExceptionFor(e.error.code()), e.error.message().c_str());
    }
  });
}

// The interfaces of Python that this module was built for, and the Python that
// it runs in.
std::string PythonAbi() {
#ifdef Py_LIMITED_API
  constexpr int kVersion = Py_LIMITED_API;
  const std::string built = "stable ABI of CPython ";
#else
  constexpr int kVersion = PY_VERSION_HEX;
  const std::string built = "ABI of CPython ";
#endif
  const std::string running = Py_GetVersion();
  return built + std::to_string(kVersion >> 24) + '.' +
         std::to_string((kVersion >> 16) & 0xff) + ", running in " +
         running.substr(0, running.find(' '));
}

int Main([[maybe_unused]] std::vector<std::string> arguments) {
#ifdef TTRACE_HAS_CLI
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string python = PythonAbi();
  const nb::gil_scoped_release release;
  return RunCli(static_cast<int>(arguments.size()), argv.data(), python);
#else
  throw PythonError{
      Error(ErrorCode::kUnsupported, "this build has no command line")};
#endif
}

}  // namespace
}  // namespace ttrace

NB_MODULE(_native, module) {
  nb::set_leak_warnings(false);
  // One that the machine lacks was refused by the launcher, in words; here
  // nothing may end the user's program.
  (void)ttrace::LimitInstructionSetByEnvironment().ok();
  ttrace::BindErrors(module);
  ttrace::BindCapture(module);
  ttrace::BindReference(module);
  // Not for the command line, which is a program of ours.
  module.def("throw_on_failed_checks", &ttrace::ThrowOnFailedChecks,
             "A bug of the core raises RuntimeError in this process instead of "
             "ending it.");
  module.def("main", &ttrace::Main, nb::arg("argv"),
             "Runs the command line; returns its exit code.");
}
