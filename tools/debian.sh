# Debian's packages, for scripts that bring what a machine lacks. To be sourced; the caller has set `cache`, a folder.

# apt_get PACKAGE…: install what is missing, quietly; false when it cannot be.
apt_get() {
    dpkg -s "$@" > /dev/null 2>&1 && return
    [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || return
    apt-get update -qq > /dev/null 2>&1 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" > /dev/null 2>&1
}

# backports SUITE COMMAND…: apt with one of Debian's backports suites beside the machine's own sources, and its lists in
# the cache, so that the machine's sources stay as they are. Only `install` needs root.
backports() {
    local suite=$1 state=$cache/apt/$1 mirror
    shift
    local options=(-o Dir::Etc::SourceList="$state/sources" -o Dir::State::Lists="$state/lists" -o Dir::Cache="$state"
        -o APT::Sandbox::User="$(id -un)")
    if [ ! -e "$state/updated" ]; then
        mirror=$(apt-cache policy 2> /dev/null | awk '$2 ~ /\/debian\/?$/ { print $2; exit }')
        [ -n "$mirror" ] || return 1
        mkdir -p "$state/lists/partial" "$state/archives/partial"
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > "$state/sources"
        apt-get "${options[@]}" update -qq > /dev/null 2>&1 || true
        touch "$state/updated"
    fi
    "$1" "${options[@]}" "${@:2}"
}
