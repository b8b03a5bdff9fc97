#!/usr/bin/env bash
# Times an epoch over shards of a local web server. Compares it with curl, which fetches the same
# files one after another: to nothing, and to files on the same disk. The server's files are in the
# page cache; the shard cache is empty at first. Prints the seconds of each round, and the medians.
#
#   bench/remote/epoch_against_curl.sh SHARDWISE [SHARDS] [ROUNDS]
#
# SHARDWISE is the program. Needs nginx, curl, python3, and twice SHARDS * 32 MiB on the disk of
# TMPDIR.
set -euo pipefail
program=$(realpath "$1")
shards=${2:-40}
rounds=${3:-5}
dir=$(mktemp -d)
port=$((20000 + RANDOM % 20000))
trap 'kill "$server" 2>/dev/null || true; rm -rf "$dir"' EXIT
mkdir -p "$dir/www"
python3 - "$dir/www" "$shards" <<'PY'
import io, os, sys, tarfile
for shard in range(int(sys.argv[2])):
    with tarfile.open(f"{sys.argv[1]}/{shard:04d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(320):
            info = tarfile.TarInfo(f"{shard * 320 + i:07d}.jpg")
            info.size = 100_000
            tar.addfile(info, io.BytesIO(os.urandom(info.size)))
PY
cat > "$dir/nginx.conf" <<CONF
daemon off; master_process off; pid $dir/pid; error_log $dir/error.log;
events { worker_connections 64; }
http { access_log off; sendfile on;
  client_body_temp_path $dir/b; proxy_temp_path $dir/p; fastcgi_temp_path $dir/f;
  uwsgi_temp_path $dir/u; scgi_temp_path $dir/s;
  server { listen 127.0.0.1:$port; root $dir/www; } }
CONF
PATH=$PATH:/usr/sbin nginx -p "$dir" -e "$dir/error.log" -c "$dir/nginx.conf" &
server=$!
last=$(printf %04d $((shards - 1)))
url=http://127.0.0.1:$port
until curl -sfo /dev/null "$url/0000.tar"; do sleep 0.1; done
"$program" index --quiet -o "$dir/x.idx" "$url/{0000..$last}.tar"
cat "$dir"/www/*.tar > /dev/null

declare -A times
seconds() {  # NAME COMMAND...
  local start=$EPOCHREALTIME
  "${@:2}" > /dev/null
  local took
  took=$(python3 -c "print(f'{$EPOCHREALTIME - $start:.3f}')")
  times[$1]+="$took "
}
for _ in $(seq "$rounds"); do
  seconds "curl to nothing" curl -s -o /dev/null "$url/[0000-$last].tar"
  mkdir "$dir/files"
  seconds "curl to files" curl -s -o "$dir/files/#1.tar" "$url/[0000-$last].tar"
  rm -r "$dir/files"
  seconds "epoch" "$program" epoch --quiet "$dir/x.idx" --cache "$dir/cache" --sampler sharded
  "$program" cache clear "$dir/cache" > /dev/null
done
for name in "curl to nothing" "curl to files" "epoch"; do
  python3 - "$name" "$shards" ${times[$name]} <<'PY'
import statistics, sys
name, shards, *times = sys.argv[1:]
median = statistics.median(map(float, times))
print(f"{name:16} {' '.join(times)}  median {median:.3f} s, {int(shards) * 32.3 / median:.0f} MB/s")
PY
done
