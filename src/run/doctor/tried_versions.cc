#include "src/run/doctor/tried_versions.h"

#include <algorithm>

namespace ttrace {

const std::vector<TriedPackage>& TriedPackages() {
  static const std::vector<TriedPackage> kPackages = {
      {"torch", {"2.13.0"}},
      {"megatron-core", {"0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.1"}},
      {"transformers", {"5.23.0"}},
      {"accelerate", {"1.15.0"}},
      {"lightning", {"2.6.6"}},
      {"peft", {"0.21.2"}},
      {"trl", {"1.16.0"}},
      {"datasets", {"5.2.0"}},
      {"sentence-transformers", {"6.2.0"}},
      {"pytorch-metric-learning", {"2.9.0"}},
      {"torch-geometric", {"2.8.1"}},
      {"diffusers", {"0.42.1"}},
      {"deepspeed", {}, "its engine owns gradients and steps"},
      {"torchao", {"0.18.0"}, "modules that quantise have no bound"},
      {"bitsandbytes", {}, "modules that quantise have no bound"},
      {"transformer-engine", {}},
  };
  return kPackages;
}

bool WasTried(const TriedPackage& package, std::string_view installed) {
  installed = installed.substr(0, installed.find('+'));
  return std::find(package.versions.begin(), package.versions.end(),
                   installed) != package.versions.end();
}

std::string VersionWords(const TriedPackage& package) {
  std::string out;
  for (size_t i = 0; i < package.versions.size(); ++i) {
    if (i > 0) out += i + 1 == package.versions.size() ? " and " : ", ";
    out += package.versions[i];
  }
  return out;
}

}  // namespace ttrace
