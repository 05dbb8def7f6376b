# What CI runs, piece by piece: `just --list` shows the recipes.

cache := env("XDG_CACHE_HOME", env("HOME") / ".cache") / "keepsake"
export CARGO_TARGET_DIR := env("CARGO_TARGET_DIR", cache / "target")

# What CI runs, or some parts of it: `just ci lints tests`, `just ci --all`
ci *parts:
    ./.ci/run {{ parts }}

# All tests against real servers, which are fetched and started as needed
test *arguments:
    ./tests/run {{ arguments }}

# The servers that tests need, until Ctrl-C, with the variables to export
servers *arguments:
    ./tests/run --servers-only {{ arguments }}

# Clients, faults and the history checker: `just torture --minutes 5`
torture *arguments:
    ./tools/torture/run {{ arguments }}

# The Helm chart: rendered, validated, and run
chart:
    ./tests/run --part chart

# Format the code
fmt:
    cargo fmt --all
    cd tools && cargo fmt

# Lints, warnings denied
clippy:
    ./.ci/run lints tools

# The crates' documentation, warnings denied
doc:
    ./.ci/run documentation

# Write docs/openapi*.json as the code has them; a test tells when one is behind
openapi:
    cargo run --quiet --locked --package keepsake -- openapi > docs/openapi.json.new
    mv docs/openapi.json.new docs/openapi.json
    cargo run --quiet --locked --package keepsake -- openapi --admin > docs/openapi-admin.json.new
    mv docs/openapi-admin.json.new docs/openapi-admin.json

# Licences, bans, sources and advisories of dependencies
deny:
    ./.ci/run dependencies

# Dependencies that nothing uses
shear:
    ./.ci/run unused-dependencies

# Everything, also what takes too long for each landing: `just nightly torture`
nightly *parts:
    ./tests/nightly {{ parts }}

# Fuzz targets, 30 seconds each: `just fuzz 600 path cursor` for longer and for some
fuzz *arguments:
    ./tools/fuzz/run {{ arguments }}
