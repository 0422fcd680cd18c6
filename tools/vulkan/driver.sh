#!/usr/bin/env bash
# Make sure that a Vulkan device is there, for tests: driver.sh
#
# Where there is none, Mesa's software driver and the Khronos validation layer are installed from Debian's packages, when
# this runs as root on a Debian. Exit 3, with a line that says why, when there is none then either.
set -euo pipefail

cache=${LLAMAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llamay}
. "$(dirname "$0")/../debian.sh"

apt_get libvulkan1 vulkan-validationlayers ||
    { echo "skipped Vulkan: no loader with a validation layer, and Debian's cannot be installed" >&2; exit 3; }
if ! ls /usr/share/vulkan/icd.d/lvp_icd*.json > /dev/null 2>&1; then
    # Mesa 22 of Debian 12 lacks what the kernels need; backports have a newer one.
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")-backports
    DEBIAN_FRONTEND=noninteractive backports "$suite" \
        apt-get install -y -qq --no-install-recommends -t "$suite" mesa-vulkan-drivers > /dev/null 2>&1 ||
        apt_get mesa-vulkan-drivers ||
        { echo "skipped Vulkan: Debian's software driver cannot be installed" >&2; exit 3; }
fi
