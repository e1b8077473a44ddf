#!/bin/sh
# Starts the server, puts load on it, stops it by SIGTERM while it writes texts; then again with a short time-out.
# usage: load.sh FOLDER_OF_PROGRAMS [COMMAND...]  - a command to run programs through
# DEEPUM_SERVE_GROWTH_MIB in the environment: by how much the server's memory may grow, more under a sanitizer.
set -eu
bin=$1
shift
seconds=4
[ -z "${DEEPUM_FULL_TESTS-}" ] || seconds=60
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

# Says so where a server that loads its models does not answer 503. Needs python3, and a server that is not ready yet.
answers_503() {
  [ -s "$work/open" ] && [ ! -s "$work/port" ] && command -v python3 >/dev/null || return 0
  python3 - "$(cat "$work/open")" "$work/port" <<'PYTHON'
import http.client, os, sys
asked = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
asked.request("GET", "/healthz")
status = asked.getresponse().status
if status != 503 and not os.path.exists(sys.argv[2]):
    sys.exit(f"a server that loads its models answers {status}")
PYTHON
  asked=yes
}

# Leaves the process of the server in $server and its port in $port.
start() {
  rm -f "$work/port" "$work/open"
  asked=
  "$@" --port 0 --port_file "$work/port" --open_file "$work/open" --layers 4 --width 256 --heads 8 --context 16 --steps 2 --budget 16MiB \
    2>"$work/log" &
  server=$!
  tries=0
  until [ -s "$work/port" ]; do
    tries=$((tries + 1))
    if [ $tries -gt 1200 ] || ! kill -0 "$server" 2>/dev/null; then
      cat "$work/log"
      echo "the server does not start"
      exit 1
    fi
    [ -n "$asked" ] || answers_503
    sleep 0.1
  done
  port=$(cat "$work/port")
}

# The server has to end by itself, and well.
ended() {
  status=0
  wait "$server" || status=$?
  server=
  cat "$work/log"
  if [ $status -ne 0 ]; then
    echo "the server ended with status $status"
    exit 1
  fi
}

start "$@" "$bin/serve" --queue 24 --active 8 --timeout 120s
"$@" "$bin/serve_load_client" --port "$port" --pid "$server" --seconds $seconds --connections 100 --stop \
  ${DEEPUM_SERVE_GROWTH_MIB+"--growth_mib=$DEEPUM_SERVE_GROWTH_MIB"}
ended

# Weights from files: those that were trained before. Until they are there the port is open, and answers 503.
start "$@" "$bin/serve" --queue 24 --active 8 --weights "$work/a.safetensors,$work/b.safetensors"
[ -s "$work/open" ] || { echo "the port was not said to be open"; exit 1; }
"$@" "$bin/serve_load_client" --port "$port" --pid "$server" --connections 8 --seconds 1 --stop
ended
start "$@" "$bin/serve" --queue 24 --active 8 --weights "$work/a.safetensors,$work/b.safetensors" --memory managed
if grep -q training "$work/log"; then
  echo "the files were not taken"
  exit 1
fi
"$@" "$bin/serve_load_client" --port "$port" --pid "$server" --connections 8 --seconds 1 --stop
ended

start "$@" "$bin/serve" --queue 24 --active 2 --timeout 300ms
"$@" "$bin/serve_load_client" --port "$port" --connections 24 --expect_timeouts
kill -TERM "$server"
ended
