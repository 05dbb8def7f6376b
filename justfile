# What CI runs, piece by piece: `just --list` shows the recipes.

cache := env("XDG_CACHE_HOME", env("HOME") / ".cache") / "keepsake"
export CARGO_TARGET_DIR := env("CARGO_TARGET_DIR", cache / "target")

# `cargo deny` and `cargo machete` as CI has them, or else as installed
export PATH := cache / "tools/cargo-deny/bin:" + cache / "tools/cargo-machete/bin:" + env("PATH")

# Everything, as CI does it
ci:
    ./.ci/run

# All tests against real servers, which are fetched and started as needed
test *arguments:
    ./tests/run {{ arguments }}

# The servers that tests need, until Ctrl-C, with the variables to export
servers *arguments:
    ./tests/run --servers-only {{ arguments }}

# Clients, faults and the history checker: `just torture --minutes 5`
torture *arguments:
    ./tests/torture {{ arguments }}

# The Helm chart: rendered, validated, and run
chart:
    ./tests/run -- --package keepsake --test e2e -- chart

# Format the code
fmt:
    cargo fmt --all

# Check the formatting
fmt-check:
    cargo fmt --all --check

# Lints, warnings denied
clippy:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# The crates' documentation, warnings denied
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Write docs/openapi*.json as the code has them; a test tells when one is behind
openapi:
    cargo run --quiet --locked --package keepsake -- openapi > docs/openapi.json.new
    mv docs/openapi.json.new docs/openapi.json
    cargo run --quiet --locked --package keepsake -- openapi --admin > docs/openapi-admin.json.new
    mv docs/openapi-admin.json.new docs/openapi-admin.json

# Licences, bans, sources and advisories of dependencies, or a note that the advisories' database is missing
deny:
    ./.ci/deny || [ $? -eq 3 ]

# Dependencies that nothing uses
machete:
    cargo machete

# Fuzz targets, 30 seconds each: `just fuzz 600 path cursor` for longer and for some
fuzz *arguments:
    ./tests/fuzz/run {{ arguments }}
