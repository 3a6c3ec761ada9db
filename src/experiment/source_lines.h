// Where in the source it is written, as capture noted it: the class of each
// module and its forward, and where the loop calls what.
//
// Thread safety: const after reading.

#ifndef TTRACE_SRC_EXPERIMENT_SOURCE_LINES_H_
#define TTRACE_SRC_EXPERIMENT_SOURCE_LINES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/trace/reader.h"

namespace ttrace {

// A path as the process saw it, and the number of a line, from 1.
struct SourceLine {
  std::string file;
  int64_t line = 0;
};

// Of a class that was typed in, or whose file is gone, neither may be known.
struct SourceOfClass {
  std::string name;
  std::optional<SourceLine> at;  // the class statement
  // Whose statement that is, if the class was made by another one and is
  // written nowhere itself.
  std::string base;
  std::optional<SourceLine> forward;
  bool of_torch = false;  // one of torch's own classes

  // What a reader opens first. Null: not known.
  const SourceLine* first() const {
    if (at) return &*at;
    return forward ? &*forward : nullptr;
  }
};

// A class that uses a module of another one.
struct UserOfClass {
  const SourceOfClass* of = nullptr;  // its first() is known
  std::string part;                   // what it calls the module: "mlp.0"
};

class SourceLines {
 public:
  // From the notes of all ranks. What is not said is not there.
  static SourceLines Read(const Trace& trace);

  // The class of module `fqn`, or, if there is no such module, of the nearest
  // around it: of the one whose parameter `fqn` is. Null: not known. A module
  // whose class has no place has not that of the module around it.
  const SourceOfClass* OfModule(const std::string& fqn) const;
  // The nearest module around `fqn` whose class is not one of torch's: whoever
  // uses a Linear wrote that. Nothing: OfModule(fqn) is not torch's, or there
  // is none with a place.
  std::optional<UserOfClass> UserOf(const std::string& fqn) const;
  // Where the loop calls "step" or "backward", or its "loss" function is.
  const SourceLine* OfCall(const std::string& what) const;

  using Modules = std::map<std::string, std::shared_ptr<const SourceOfClass>>;
  const Modules& modules() const { return modules_; }  // by name

 private:
  // The module `fqn`, or the nearest around it.
  Modules::const_iterator Nearest(const std::string& fqn) const;

  Modules modules_;
  std::map<std::string, SourceLine> calls_;
};

// "zoo/gpt/model.py:88, class Mlp, forward at line 97". Empty: not known.
std::string SourceWords(const SourceOfClass& of);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_SOURCE_LINES_H_
