#include "src/project/reference_files.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "src/project/depended_files.h"
#include "src/run/command/script_of_command.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// `path` as it is called in the project; nothing: it lies outside.
std::optional<std::string> NameIn(const Project& project,
                                  const fs::path& path) {
  const std::string name =
      path.lexically_normal().lexically_relative(project.folder).string();
  if (name.empty() || name == "." || name.starts_with("..")) {
    return std::nullopt;
  }
  return name;
}

bool IsPythonFile(const fs::path& path) {
  if (path.extension() == ".py") return true;
  std::ifstream file(path);
  std::string line(128, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(file.gcount()));
  return line.starts_with("#!") &&
         line.substr(0, line.find('\n')).find("python") != std::string::npos;
}

class CommandFiles {
 public:
  CommandFiles(const Project& project, ReferenceFiles* out)
      : project_(project), out_(*out) {}

  void Add(const SimpleCommand& command) {
    if (!command.folder) return;
    folder_ = *command.folder;
    for (const ShellToken& word : command.words) AddWord(word.text);
    for (const std::string& name : command.others) AddFile(folder_ / name);
    const GivenScript script = ScriptOf(command);
    if (!script.file.empty()) AddFile(folder_ / script.file / "__main__.py");
    for (const std::string& module : script.modules) AddModule(module);
    out_.has_script |= script.is_text;
  }

 private:
  // Scripts, configurations and data by their names; "--config=c.yaml".
  void AddWord(const std::string& word) {
    AddFile(folder_ / word);
    const size_t equals = word.find('=');
    if (equals != std::string::npos) AddFile(folder_ / word.substr(equals + 1));
  }

  // "pkg.run" is pkg/run.py, or pkg/run/__main__.py; that of a package runs
  // what leads to it first.
  void AddModule(std::string module) {
    std::replace(module.begin(), module.end(), '.', '/');
    AddFile(folder_ / (module + ".py"));
    AddFile(folder_ / module / "__main__.py");
    for (size_t end = 0; end != std::string::npos;) {
      end = module.find('/', end + 1);
      AddFile(folder_ / module.substr(0, end) / "__init__.py");
    }
  }

  void AddFile(const fs::path& path) {
    std::error_code missing;
    if (!fs::is_regular_file(path, missing)) return;
    const auto name = NameIn(project_, path);
    if (!name) return;
    out_.files.emplace(*name, path);
    out_.has_script |= IsPythonFile(path);
  }

  const Project& project_;
  ReferenceFiles& out_;
  fs::path folder_;
};

}  // namespace

Result<ReferenceFiles> FilesOfReference(const Project& project,
                                        const ProjectExperiment& experiment) {
  ReferenceFiles out;
  CommandFiles of_command(project, &out);
  for (const SimpleCommand& command : SimpleCommands(
           experiment.reference_command, experiment.working_folder)) {
    of_command.Add(command);
  }
  TTRACE_ASSIGN_OR_RETURN(const std::vector<std::string> depended,
                          DependedFiles(project, experiment));
  for (const std::string& name : depended) {
    const fs::path path = fs::path(project.folder) / name;
    out.files.emplace(name, path);
    out.has_script |= IsPythonFile(path);
  }
  return out;
}

}  // namespace ttrace
