// What `ttrace doctor` finds of an environment, thing by thing.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_RUN_DOCTOR_HEALTH_H_
#define TTRACE_SRC_RUN_DOCTOR_HEALTH_H_

#include <string>
#include <utility>
#include <vector>

namespace ttrace {

enum class Health {
  kBroken,    // something will not work
  kDoubtful,  // it may not, or nobody tried it
  kWell,
};

struct HealthFinding {
  Health health = Health::kWell;
  std::string subject;  // a word or two: "torch", "ports"
  std::string text;     // what was seen, and what follows
  std::string next;     // what to do about it; empty if nothing
};

class HealthList {
 public:
  void Well(std::string subject, std::string text) {
    found_.push_back({Health::kWell, std::move(subject), std::move(text), ""});
  }
  void Doubtful(std::string subject, std::string text, std::string next) {
    found_.push_back({Health::kDoubtful, std::move(subject), std::move(text),
                      std::move(next)});
  }
  void Broken(std::string subject, std::string text, std::string next) {
    found_.push_back({Health::kBroken, std::move(subject), std::move(text),
                      std::move(next)});
  }
  const std::vector<HealthFinding>& found() const { return found_; }

 private:
  std::vector<HealthFinding> found_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_DOCTOR_HEALTH_H_
