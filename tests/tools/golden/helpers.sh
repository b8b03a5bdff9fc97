# Functions for the sessions in this folder. A session runs in the folder DIR, and creates members
# of shards in ../m.
shardwise() { "$PROGRAM" "$@"; }
train() { "$TRAIN" "$@"; }
# put NAME TEXT: makes a member.
put() { printf "$2" > "../m/$1"; }
# tarred FILE NAME...: makes a shard of the members.
tarred() {
  made=$PWD/$1; shift
  (cd ../m && tar -b1 --format=ustar --mtime=@1000000000 --owner=0 --group=0 --numeric-owner \
     --mode=644 -cf "$made" -- "$@") && touch -d @1000000000 "$made"
}
# shard FILE FIRST COUNT: makes a shard of samples with an image and a class.
shard() {
  i=$2; names=
  while [ "$i" -lt $(($2 + $3)) ]; do
    put "$i.jpg" "image $i"; put "$i.cls" "$((i % 10))"; names="$names $i.jpg $i.cls"; i=$((i + 1))
  done
  tarred "$1" $names
}
# fields NAME...: prints the first value of each name in the JSON on standard input.
fields() {
  text=$(cat)
  for field; do
    printf '%s\n' "$text" | grep -o "\"$field\":\(\"[^\"]*\"\|\[[^]]*\]\|[^,}]*\)" | head -n 1
  done
}
# flip FILE OFFSET [BYTES]: overwrites bytes, and keeps the time of the file.
flip() {
  touch -r "$1" ../time
  printf "${3:-?}" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
  touch -r ../time "$1"
}
