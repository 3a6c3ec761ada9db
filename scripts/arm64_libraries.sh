#!/usr/bin/env bash
# Installs a compiler for 64-bit Arm and qemu (root or sudo), and unpacks Debian's arm64 libraries
# under build/cross/root, beside this machine's packages and not among them. What is there is left.
#
#   scripts/arm64_libraries.sh [--into FOLDER] [PACKAGE...]    default: what the kernels need
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$PWD/build/cross
root=$build/root
if [[ ${1:-} == --into ]]; then
  root=$2
  shift 2
fi
packages=("$@")
((${#packages[@]})) || packages=(libhwy-dev libhwy1)
mkdir -p "$root" "$build"/apt/{lists/partial,cache/archives/partial}

sudo=()
[[ $(id -u) -eq 0 ]] || sudo=(sudo)
if ! command -v aarch64-linux-gnu-g++ qemu-aarch64 > /dev/null || [[ ! -d /usr/src/googletest ]]; then
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" apt-get install -y --no-install-recommends g++-aarch64-linux-gnu qemu-user googletest
fi

missing=()
for package in "${packages[@]}"; do
  [[ -e $root/usr/share/doc/$package/copyright ]] || missing+=("$package:arm64")
done
((${#missing[@]})) || exit 0

cat > "$build/apt/apt.conf" << CONF
APT::Architectures { "$(dpkg --print-architecture)"; "arm64"; };
Dir::State::lists "$build/apt/lists";
Dir::Cache "$build/apt/cache";
APT::Sandbox::User "$(id -un)";
CONF
export APT_CONFIG=$build/apt/apt.conf
[[ -n $(find "$build/apt/lists" -name '*arm64*' -mmin -1440 -print -quit) ]] || apt-get update -qq
debs=$(mktemp -d -p "$build/apt")
trap 'rm -rf "$debs"' EXIT
(cd "$debs" && apt-get download -qq "${missing[@]}")
for package in "$debs"/*.deb; do dpkg-deb -x "$package" "$root"; done
