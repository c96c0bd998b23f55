#!/bin/sh
# Lance's build scripts call this as $PROTOC (see .cargo/config.toml).
# A protoc on the path is used; without one, the pure-Rust stand-in beside this
# script is built once and used instead.
set -eu
if command -v protoc >/dev/null 2>&1; then
    exec protoc "$@"
fi
here=$(cd "$(dirname "$0")" && pwd)
out="$here/target"
bin="$out/release/memwal-protoc"
if [ ! -x "$bin" ]; then
    # We run inside a build script: what cargo told that script must not leak into this build.
    ( cd "$here" && env -u CARGO_ENCODED_RUSTFLAGS -u RUSTC_WORKSPACE_WRAPPER -u RUSTC_WRAPPER \
        -u CARGO_TARGET_DIR -u CARGO_BUILD_TARGET -u CARGO_MAKEFLAGS -u MAKEFLAGS \
        "${CARGO:-cargo}" build --quiet --release --locked --target-dir "$out" >&2 )
fi
exec "$bin" "$@"
