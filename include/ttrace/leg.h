// Leg: one execution of an iteration. ARCHITECTURE.md lists them.
//
// A leg is what its name says, word by word: [fp32.][isolated.] and then
// nothing, `replay` or `noise.<k>`; with nothing at all it is `real`. A trace
// may have legs of any name. One that this version does not know is carried
// like the others, and counts as what the words in it say that it is.
//
// Thread safety: plain values.

#ifndef TTRACE_LEG_H_
#define TTRACE_LEG_H_

#include <compare>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace {

class Leg {
 public:
  Leg() = default;  // none
  // Of a name in the source. Names from elsewhere are not taken by accident.
  Leg(const char* name) : name_(name) {}  // NOLINT(google-explicit-constructor)
  explicit Leg(std::string name) : name_(std::move(name)) {}
  explicit Leg(std::string_view name) : name_(name) {}

  // As in the index, and as reported.
  const std::string& name() const { return name_; }
  bool empty() const { return name_.empty(); }

  // Whether it runs in fp32 what trains in lower precision.
  bool is_fp32() const;
  // Whether modules are given other values than they were handed.
  bool is_isolated() const;
  // Whether it measures how far round-off moves values.
  bool is_noise() const;
  // Whether it is `plain`, one of the legs without noise, with noise.
  bool IsNoiseOf(const Leg& plain) const;

  // What a noise leg is compared with: the leg whose inputs it perturbs, or
  // else that one's replay, which has reduced gradients before the leg itself
  // has. Of other legs none.
  std::vector<Leg> Perturbed() const;

  // By name.
  bool operator==(const Leg&) const = default;
  auto operator<=>(const Leg&) const = default;

 private:
  bool HasWord(std::string_view word) const;

  std::string name_;
};

inline const Leg kReal = "real";      // the user's own run
inline const Leg kReplay = "replay";  // the same once more
inline const Leg kFp32 = "fp32";
inline const Leg kIsolated = "isolated";
inline const Leg kFp32Isolated = "fp32.isolated";

std::vector<std::string> NamesOf(const std::vector<Leg>& legs);

}  // namespace ttrace

#endif  // TTRACE_LEG_H_
