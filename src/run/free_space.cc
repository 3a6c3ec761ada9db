#include "src/run/free_space.h"

#include <sys/statvfs.h>

#include "src/base/format.h"

namespace ttrace {

std::optional<FileSystemSpace> SpaceOf(const std::string& folder) {
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0) return std::nullopt;
  const auto block = static_cast<double>(status.f_frsize);
  return FileSystemSpace{block * static_cast<double>(status.f_bavail),
                         block * static_cast<double>(status.f_blocks)};
}

std::string FullDiskWords(const std::string& folder) {
  const auto space = SpaceOf(folder);
  // What is no disk, as /proc, has none.
  if (!space || space->all == 0) return "";
  // Less than one segment's worth is where writing begins to fail.
  constexpr double kLittle = 16e6;
  if (space->free > kLittle || space->free > 0.05 * space->all) return "";
  return "; the file system of '" + Printable(folder) + "' has " +
         FormatBytes(space->free) + " of " + FormatBytes(space->all) + " left";
}

}  // namespace ttrace
